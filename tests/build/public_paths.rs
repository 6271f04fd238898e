//! The paths by which programs name the driver and the emulated device. The code of these items may
//! move. If a path is added or removed, change this list and the CHANGELOG.

#![allow(unused_imports, reason = "that they compile is the test")]

use std::str::FromStr;

mod seam {
    pub use pinlane::driver::reference::{checksum, fill, move_items, rows};
    pub use pinlane::driver::{
        Attribute, Call, Capture, CopyKind, DevicePtr, Driver, DriverResult, Graphs, HostFlags,
        HostFunction, Item, Kernels, Layer, MAX_PATTERN, Ordinal, Pitched, Poll, RawEvent,
        RawGraph, RawNode, RawStream, RowIndex, RowMove, StreamFlags, StridedCopy, cuda, reference,
    };
    pub use pinlane::{CudaCode, checksum as checksum_at_the_root};
}

#[cfg(feature = "emulated")]
mod device {
    pub use pinlane::driver::emulated::Emulator as ByTheDriver;
    pub use pinlane::emulated::{
        BatchEntry, Builder, Callers, CaptureInfo, CaptureMode, CreatedMemory, DeclaredUse,
        Emulator, Execution, Exploration, Explored, FailedRun, Fault, Finding, FindingKind, Frame,
        HandOver, Held, Kind, Lines, MappedAccess, MemoryKind, Note, Outcome, Plane, PoolFigure,
        PoolId, Race, RacingAccess, RacingMemory, RacingUse, Repeat, Replay, SharedMemory, Side,
        Site, SourceOrder, Target, Unreadable, Usage, explore, explore_orders, explore_steps,
    };
}

/// The names in the `use` lists of a module above.
fn named(module: &str) -> Vec<String> {
    let text = include_str!("public_paths.rs");
    let text = text.split_once(&format!("mod {module} {{")).expect("above").1;
    let text = text.split_once("\n}").expect("it ends").0;
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The names that a file of the crate exports.
fn exported(file: &str) -> Vec<String> {
    let source = crate::sources::read(file);
    // Only the crates above use items that are hidden in the documentation.
    let shown = source.replace("#[doc(hidden)]\npub use ", "");
    let lists = shown.split("\npub use ").skip(1);
    let names = lists.flat_map(|list| {
        let list = list.split(';').next().unwrap_or_default();
        let names = list.split_once('{').map_or(list, |(_, names)| names);
        names.split([',', '}']).map(|name| name.rsplit("::").next().unwrap_or_default().trim())
    });
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_lists_above_have_every_name_that_is_exported() {
    for (module, file) in [("seam", "src/driver/mod.rs"), ("device", "crates/emulator/src/lib.rs")]
    {
        let (named, exported) = (named(module), exported(file));
        assert!(exported.len() > 15, "{file} exports {exported:?}");
        let missing: Vec<_> = exported.iter().filter(|name| !named.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?} of {file} are not in tests/build/public_paths.rs");
    }
}

/// Printed modes and replays parse again. The error of another text lists the valid ones.
#[cfg(feature = "emulated")]
#[test]
fn modes_and_replays_are_read_from_text() {
    fn reads<T: FromStr<Err: std::error::Error> + ToString>(text: &str, wrong: &str, remedy: &str) {
        assert_eq!(text.parse::<T>().expect("readable").to_string(), text);
        let error = wrong.parse::<T>().err().expect("not readable").to_string();
        assert!(error.contains(wrong) && error.contains(remedy), "{error}");
    }
    reads::<device::Execution>("pct:3", "quick", "use eager, lazy, random, chunked or pct:3");
    reads::<device::Replay>("1:C#4", "1;C", "copy the text that a run has printed");
    reads::<device::Replay>("12:eager", "", "copy the text that a run has printed");
}
