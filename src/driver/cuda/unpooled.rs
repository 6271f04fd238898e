//! Device memory of a device without pools: `cudaMalloc` and `cudaFree`.
//!
//! Some virtual GPUs have no stream-ordered allocation (`cudaMallocAsync`). `cudaFree` waits for
//! all work of the device, so freed memory is kept, with an event after its last use. An allocation
//! of the same size gets it when that event is complete. As many bytes are kept as are in use; when
//! memory is short, all of them are given back.

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;

use super::way::memory;
use crate::error::CudaCode;
use crate::sync::Mutex;
use pinlane_driver::{DevicePtr, Driver, DriverResult, Ordinal, Poll, RawEvent, RawStream};

/// Freed memory, and an event that is complete when nothing uses it any more.
struct Kept {
    ptr: DevicePtr,
    bytes: usize,
    event: RawEvent,
}

/// The allocations of a device.
#[derive(Default)]
struct Bank {
    used: BTreeMap<DevicePtr, usize>,
    used_bytes: usize,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
}

static BANKS: Mutex<BTreeMap<Ordinal, Bank>> = Mutex::new(BTreeMap::new());

fn with_bank<R>(device: Ordinal, work: impl FnOnce(&mut Bank) -> R) -> R {
    work(BANKS.lock().entry(device).or_default())
}

/// Allocates.
///
/// # Safety
///
/// * `stream` is live and not capturing.
/// * The address is used only by work that is ordered after this call on `stream`.
pub(super) unsafe fn alloc(
    driver: &dyn Driver,
    stream: RawStream,
    bytes: usize,
) -> DriverResult<DevicePtr> {
    let device = stream.device;
    if let Some(kept) = with_bank(device, |bank| bank.take_idle(driver, |kept| kept.bytes == bytes))
    {
        destroy(driver, kept.event);
        with_bank(device, |bank| bank.note(kept.ptr, bytes));
        return Ok(kept.ptr);
    }
    let ptr = match memory::malloc(device, bytes) {
        Err(CudaCode::MEMORY_ALLOCATION) if give_all_back(driver, device) => {
            memory::malloc(device, bytes)
        }
        answer => answer,
    }?;
    with_bank(device, |bank| bank.note(ptr, bytes));
    Ok(ptr)
}

/// Frees.
///
/// # Safety
///
/// * `stream` is live and not capturing.
/// * `ptr` came from [`alloc`] and has not been freed.
/// * Every operation that names the memory is ordered before this call on `stream`.
pub(super) unsafe fn free(
    driver: &dyn Driver,
    stream: RawStream,
    ptr: DevicePtr,
) -> DriverResult<()> {
    let device = stream.device;
    let event = driver.event_create(device, false)?;
    // SAFETY: the stream is live: promised by the caller; the event is new, and of its device.
    if let Err(code) = unsafe { driver.event_record(event, stream) } {
        destroy(driver, event);
        return Err(code);
    }
    let too_much = with_bank(device, |bank| {
        bank.keep(ptr, event);
        (bank.kept_bytes > bank.used_bytes).then(|| bank.take_idle(driver, |_| true)).flatten()
    });
    // After the lock, because it may wait.
    let Some(kept) = too_much else { return Ok(()) };
    destroy(driver, kept.event);
    // SAFETY: no work uses the memory any more, and nobody else has it.
    let answer = unsafe { memory::free(device, kept.ptr) };
    // Nothing is wrong with memory that is kept if another block cannot be given back.
    if kept.ptr == ptr { answer } else { Ok(()) }
}

impl Bank {
    fn note(&mut self, ptr: DevicePtr, bytes: usize) {
        self.used.insert(ptr, bytes);
        self.used_bytes += bytes;
    }

    fn keep(&mut self, ptr: DevicePtr, event: RawEvent) {
        let bytes = self.used.remove(&ptr).unwrap_or(0);
        self.used_bytes -= bytes;
        self.kept_bytes += bytes;
        self.kept.push_back(Kept { ptr, bytes, event });
    }

    /// Takes the oldest memory that fits and that nothing uses any more.
    fn take_idle(&mut self, driver: &dyn Driver, fits: impl Fn(&Kept) -> bool) -> Option<Kept> {
        let is_idle = |kept: &Kept| {
            // SAFETY: the event is live: it is destroyed after it was taken out of the bank.
            fits(kept) && unsafe { driver.event_query(kept.event) } == Ok(Poll::Done)
        };
        let index = self.kept.iter().position(is_idle)?;
        let kept = self.kept.remove(index)?;
        self.kept_bytes -= kept.bytes;
        Some(kept)
    }
}

/// Waits for all memory that is kept, and frees it. Returns whether there was any.
fn give_all_back(driver: &dyn Driver, device: Ordinal) -> bool {
    let kept = with_bank(device, |bank| {
        bank.kept_bytes = 0;
        take(&mut bank.kept)
    });
    let some = !kept.is_empty();
    for Kept { ptr, event, .. } in kept {
        // SAFETY: the event is live, and was taken out of the bank.
        let is_done = unsafe { driver.event_synchronize(event) }.is_ok();
        destroy(driver, event);
        if is_done {
            // SAFETY: as above; the device is done with the memory. If that fails, the allocation
            // fails again.
            let _ = unsafe { memory::free(device, ptr) };
        }
    }
    some
}

fn destroy(driver: &dyn Driver, event: RawEvent) {
    // SAFETY: made by `event_create`, and out of the bank. A failure loses an event.
    let _ = unsafe { driver.event_destroy(event) };
}

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use super::*;
    use pinlane_driver::StreamFlags;
    use pinlane_emulator::{Emulator, Execution};

    /// CUDA has none of these blocks, so it frees none.
    #[test]
    fn a_free_fails_only_if_its_own_memory_cannot_be_given_back() {
        const DEVICE: Ordinal = 9;
        let emulator = Emulator::builder().devices(10).execution(Execution::Eager).build();
        let driver = emulator.driver();
        let flags = StreamFlags { blocking: false, priority: 0 };
        let stream = driver.stream_create(DEVICE, flags).expect("a stream");
        let blocks = [1 << 8, 2 << 8, 3 << 8];
        with_bank(DEVICE, |bank| blocks.iter().for_each(|&block| bank.note(block, 64)));
        // SAFETY: a live stream that captures nothing; blocks of the bank that nothing uses.
        let free = |block| unsafe { free(&*driver, stream, block) };
        let kept =
            || with_bank(DEVICE, |bank| bank.kept.iter().map(|it| it.ptr).collect::<Vec<_>>());

        assert_eq!(free(blocks[0]), Ok(()));
        assert_eq!(kept(), [blocks[0]]);
        // More is kept than used, so the oldest is given back.
        assert_eq!(free(blocks[1]), Ok(()));
        assert_eq!(kept(), [blocks[1]]);
        assert_eq!(free(blocks[2]), Ok(()));
        assert_eq!(kept(), [blocks[2]]);

        with_bank(DEVICE, |bank| *bank = Bank::default());
        with_bank(DEVICE, |bank| bank.note(blocks[0], 64));
        assert!(free(blocks[0]).is_err());
        assert!(kept().is_empty());
    }
}
