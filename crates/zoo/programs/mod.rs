//! The programs in Rust. Those in C and C++ are found by their files.

use crate::program::Run;

macro_rules! programs {
    ($($name:ident)*) => {
        $(mod $name;)*

        /// Their names, texts and functions.
        pub const ALL: &[(&str, &str, Run)] = &[
            $((stringify!($name), include_str!(concat!(stringify!($name), ".rs")), $name::run)),*
        ];
    };
}

programs! {
    clone_after_the_wait
    download_into_a_local
    filled_for_debugging
    freed_on_another_stream
    growing_sink
    load_over_reads
    offsets_in_place
    peer_source_not_ready
    producer_and_consumer
    reload_before_offload
    search_buffers
    store_without_wait
    table_freed_early
}
