//! The C texts for what to do about an error.

use crate::error::Remedy;

pub(super) fn in_c(remedy: Remedy) -> &'static str {
    use Remedy::*;
    match remedy {
        Words(words) => words,
        ListDevices => {
            "count the devices with pinlane_device_count, or use pinlane_emulator_create"
        }
        ChooseDevice => "count devices with pinlane_device_count, and look at CUDA_VISIBLE_DEVICES",
        BuildMoreDevices => {
            "name one from 0 on, or give pinlane_emulator_create a larger number of devices"
        }
        OpenOnItsThread => "call pinlane_stream_borrow with the value 2 on the thread that uses it",
        ViewsOfEqualLength => "give both sides the same number of bytes",
        WaitWithoutWatcher => {
            "raise the limit on threads and ask again, or call pinlane_ticket_wait"
        }
        AllocThatWaits => {
            "try again when buffers have been freed, or call pinlane_buffer_alloc, which grows and \
             waits"
        }
        MakeRoom => {
            "free buffers, wait for that with pinlane_buffer_alloc_timeout, or create the pool \
             with a larger max_bytes"
        }
        MakeNewPool => {
            "quarantined memory never comes back: create a new pool, or one with a larger max_bytes"
        }
        MakeRoomSooner => {
            "free buffers sooner, wait longer, or create the pool with a larger max_bytes"
        }
        ReadThroughPageCache => {
            "read the file by way of the page cache: without PINLANE_FILE_DIRECT"
        }
        PageLockable => {
            "register what is mapped for reading only with pinlane_buffer_register_read_only; map \
             files for writing with MAP_PRIVATE, or copy the data to a buffer of a pool"
        }
        NoReadOnly => {
            "this device cannot page-lock what is mapped for reading only \
             (cudaDevAttrHostRegisterReadOnlySupported): upload it as pageable memory, or map \
             files for writing with MAP_PRIVATE"
        }
        LookAtProducer => "see pinlane_last_producer_error, which is what the producer returned",
        LaunchForeign => {
            "launch it after pinlane_graph_foreign_begin; to change buffers, capture again"
        }
    }
}
