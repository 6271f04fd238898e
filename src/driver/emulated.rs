//! The emulated device: the crate `pinlane-emulator`, whose documentation follows.

#[cfg(feature = "capi")]
pub(crate) use pinlane_emulator::asked_for;
#[doc(inline)]
pub use pinlane_emulator::{
    BatchEntry, Builder, Callers, CaptureInfo, CaptureMode, CreatedMemory, DeclaredUse, Emulator,
    Execution, Exploration, Explored, FailedRun, Fault, Finding, FindingKind, Frame, HandOver,
    Held, Kind, Lines, MappedAccess, MemoryKind, Note, Outcome, Plane, PoolFigure, PoolId, Race,
    RacingAccess, RacingMemory, RacingUse, Repeat, Replay, SharedMemory, Side, Site, SourceOrder,
    Target, Unreadable, Usage, explore, explore_orders, explore_steps,
};

/// Findings name lines of the program, not of this crate.
pub(crate) fn leave_out_lines() {
    static OWN: pinlane_base::sources::Sources = pinlane_base::own_sources!("driver/emulated.rs");
    pinlane_emulator::leave_out(&OWN);
}
