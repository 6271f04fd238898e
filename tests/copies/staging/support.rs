//! Helpers of the tests of staged copies and batches.

use std::time::Duration;

use pinlane::batch::{Download, Downloads, Route, Upload, Uploads};
use pinlane::emulated::{Emulator, Execution};
use pinlane::staging::{CopyTeam, Staging};
use pinlane::{Device, DeviceBuf, DeviceSliceMut, PinnedBuf, PinnedPool, Result, Stream, Ticket};
use proptest::test_runner::Config;

/// The bytes of a slot in [`tiny`] rings, which have three slots.
pub const SLOT: usize = 4096;

pub const ROUTES: [Route; 3] = [Route::Copies, Route::BatchCall, Route::Kernel];

/// Batches by a chosen route.
pub trait ByRoute {
    fn upload_batch_by<'a>(
        &self,
        route: Route,
        copies: impl IntoIterator<Item = impl Into<Upload<'a>>>,
    ) -> Result<Ticket>;

    fn download_batch_by<'a>(
        &self,
        route: Route,
        copies: impl IntoIterator<Item = impl Into<Download<'a>>>,
    ) -> Result<Ticket>;
}

impl ByRoute for Stream {
    fn upload_batch_by<'a>(
        &self,
        route: Route,
        copies: impl IntoIterator<Item = impl Into<Upload<'a>>>,
    ) -> Result<Ticket> {
        self.upload_list(&mut Uploads::from_iter(copies).route(route))
    }

    fn download_batch_by<'a>(
        &self,
        route: Route,
        copies: impl IntoIterator<Item = impl Into<Download<'a>>>,
    ) -> Result<Ticket> {
        self.download_list(&mut Downloads::from_iter(copies).route(route))
    }
}

pub const EXECUTIONS: [Execution; 2] = [Execution::Eager, Execution::Lazy];

/// A slot is one unit, so the caller alone makes every copy. Uploads of more than five slots are
/// written through the cache.
pub fn tiny() -> Staging {
    let slots = Staging::new().slot_bytes(SLOT).ring_bytes(3 * SLOT);
    slots.first_bytes(1024).unit_bytes(1024).direct_bytes(100).streaming_bytes(5 * SLOT)
}

/// A slot is many units, for the team. Uploads of more than five slots as above.
pub fn shared() -> Staging {
    let slots = Staging::new().slot_bytes(64 << 10).ring_bytes(3 * (64 << 10));
    let slots = slots.first_bytes(16 << 10).unit_bytes(8 << 10).direct_bytes(100);
    slots.streaming_bytes(5 * (64 << 10))
}

pub fn device_of(emulator: &Emulator, ordinal: i32, staging: Staging) -> Device {
    let device = Device::of_emulator(emulator, ordinal).expect("an emulated device");
    device.set_staging(staging).expect("nothing copied yet");
    device
}

pub fn device(emulator: &Emulator) -> Device {
    device_of(emulator, 0, tiny())
}

/// A team, even where there is one core.
pub fn install_team(threads: usize) {
    let spin = Duration::from_micros(20);
    CopyTeam::new().threads(threads).spin(spin).install().expect("a small team");
}

pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// `cases` of them, unless `PROPTEST_CASES` says how many.
pub fn config(cases: u32) -> Config {
    let said = std::env::var_os("PROPTEST_CASES").is_some();
    let default = Config { failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    if said { default } else { Config { cases, ..default } }
}

/// The views of ascending, disjoint ranges of one buffer.
pub fn views<'a>(
    buffer: &'a mut DeviceBuf<u8>,
    ranges: impl Iterator<Item = std::ops::Range<usize>>,
) -> Vec<DeviceSliceMut<'a, u8>> {
    let (mut rest, mut at) = (Some(buffer.as_slice_mut()), 0);
    let view = |range: std::ops::Range<usize>| {
        let (_, behind) = rest.take()?.split_at_mut(range.start - at).ok()?;
        let (view, behind) = behind.split_at_mut(range.len()).ok()?;
        (rest, at) = (Some(behind), range.end);
        Some(view)
    };
    ranges.map(view).collect::<Option<_>>().expect("ascending, and in the buffer")
}

/// The contents of a device buffer, by a copy that goes neither through slots nor in a batch.
pub fn contents(device: &Device, gpu: &DeviceBuf<u8>) -> Vec<u8> {
    let pool = PinnedPool::builder(device).build().unwrap();
    let mut host = pool.alloc(gpu.len()).unwrap();
    device.stream().unwrap().download(gpu, &mut host).unwrap();
    host.read().unwrap().to_vec()
}

/// A buffer on the device with these contents; as [`contents`].
pub fn upload(device: &Device, bytes: &[u8]) -> DeviceBuf<u8> {
    let mut gpu = device.alloc(bytes.len()).unwrap();
    let host = pinned(&PinnedPool::builder(device).build().unwrap(), bytes);
    device.stream().unwrap().upload(&host, &mut gpu).unwrap();
    gpu
}

pub fn pinned(pool: &PinnedPool, bytes: &[u8]) -> PinnedBuf<u8> {
    let mut host = pool.alloc(bytes.len()).unwrap();
    host.write().unwrap().copy_from_slice(bytes);
    host
}
