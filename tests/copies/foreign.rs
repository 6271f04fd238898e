//! Foreign work, host functions, default streams, and copies across devices, while calls fail.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinlane::dlpack::{self, DataType, Layout};
use pinlane::driver::{Driver, RawEvent, RawStream};
use pinlane::emulated::Emulator;
use pinlane::{Device, Result, Stream};

use crate::common::faults::{Run, at_every_call};
use crate::common::support::{BLOCK, LEN, Rig};

/// The program's own calls of the driver.
struct Own {
    driver: Arc<dyn Driver>,
    event: RawEvent,
    /// Bytes that the program itself never frees.
    forgotten: Cell<usize>,
}

impl Own {
    fn event(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.event.handle)
    }
}

/// The stream that foreign work gets.
fn stream_of(handle: *mut c_void) -> RawStream {
    RawStream { device: 0, handle: handle.addr() }
}

struct World {
    rig: Rig,
    other: Stream,
    far: Device,
    own: Own,
}

impl World {
    /// A copy by the program, between an upload and a download of this crate.
    fn foreign(&self, value: u32) -> Result<()> {
        let World { rig, other, own, .. } = self;
        let (mut host, mut back) = (rig.pool.alloc::<u32>(LEN)?, rig.pool.alloc::<u32>(LEN)?);
        let mut gpu = rig.device.alloc::<u32>(LEN)?;
        host.write()?.fill(value);
        let (from, to) = (host.as_ptr().cast::<u8>(), gpu.as_device_ptr());
        // SAFETY: the work is one copy, on the given stream, of the named buffers.
        let launched = unsafe {
            rig.stream.foreign(&[&host], &mut [&mut gpu], |stream| {
                own.driver.copy_h2d(stream_of(stream), to, from, BLOCK)
            })
        };
        let (copied, _) = launched?;
        host.write()?.fill(!value);
        other.download(&gpu, &mut back)?;
        let found = back.read()?;
        assert!(copied.is_err() || found.iter().all(|&word| word == value));
        Ok(())
    }

    /// An event of the caller orders two streams. The buffers do not know of it.
    fn events(&self, value: u32) -> Result<()> {
        let World { rig, other, own, .. } = self;
        let (mut gpu, mut back) = (rig.device.alloc::<u32>(LEN)?, rig.pool.alloc::<u32>(LEN)?);
        // This orders the stream after the allocation, of which the borrowed buffer does not know.
        rig.stream.fill(&mut gpu, value)?;
        // SAFETY: the test waits for both streams, below, before it frees the memory.
        let mut same = unsafe { rig.device.borrow_memory::<u32>(gpu.as_device_ptr(), LEN) }?;
        let arrived = (|| {
            // SAFETY: a live event.
            unsafe { rig.stream.record_event(own.event()) }?;
            // SAFETY: as above.
            unsafe { other.wait_event(own.event()) }?;
            other.download(&same, &mut back)?;
            assert!(back.read()?.iter().all(|&word| word == value));
            Ok(())
        })();
        let mut order = || -> Result<()> {
            let known = other.record()?;
            rig.stream.wait_for(&known)?;
            // The last use of the memory through the borrowed buffer.
            rig.stream.fill(&mut same, 0)?.wait()
        };
        if order().is_err() {
            // The memory may be in use on a stream that its owner does not know.
            own.forgotten.set(own.forgotten.get() + BLOCK);
            std::mem::forget(gpu);
        }
        arrived
    }

    /// Default streams, a host function and a sum, in the order of the buffer.
    fn default_streams(&self, value: u32) -> Result<()> {
        let World { rig, other, .. } = self;
        let (mut gpu, mut back) = (rig.device.alloc::<u32>(LEN)?, rig.pool.alloc::<u32>(LEN)?);
        let mut sums = rig.device.alloc::<u64>(1)?;
        let mut sum = rig.pool.alloc::<u64>(1)?;
        rig.device.legacy_stream().fill(&mut gpu, value)?;
        let called = Arc::new(AtomicBool::new(false));
        let call = Arc::clone(&called);
        let ticket = other.launch_host(move || call.store(true, Ordering::Release))?;
        rig.device.per_thread_stream().download(&gpu, &mut back)?;
        other.checksum(&gpu, sums.as_slice_mut())?;
        rig.stream.download(&sums, &mut sum)?;
        assert!(back.read()?.iter().all(|&word| word == value));
        let expected = pinlane::driver::reference::checksum(bytemuck::cast_slice(back.read()?));
        assert_eq!(sum.read()?[0], expected);
        ticket.wait()?;
        assert!(called.load(Ordering::Acquire));
        Ok(())
    }

    fn across(&self, value: u32) -> Result<()> {
        let World { rig, far, .. } = self;
        let there = far.stream()?;
        let (mut here, mut gone) = (rig.device.alloc::<u32>(LEN)?, far.alloc::<u32>(LEN)?);
        let mut back = rig.pool.alloc::<u32>(LEN)?;
        rig.stream.fill(&mut here, value)?;
        there.copy(&here, &mut gone)?;
        rig.stream.fill(&mut here, !value)?;
        there.copy(&gone, &mut here)?;
        rig.stream.download(&here, &mut back)?;
        assert!(back.read()?.iter().all(|&word| word == value));
        Ok(())
    }

    /// A buffer that another library has as a tensor, and uses on a stream of its own.
    fn tensor(&self, value: u32) -> Result<()> {
        let World { rig, other, own, .. } = self;
        let shape = [LEN as i64];
        let layout = Layout {
            dtype: DataType::U32,
            shape: &shape,
            strides: None,
            offset_bytes: 0,
            read_only: false,
            page_locked: false,
        };
        let mut host = rig.pool.alloc::<u32>(LEN)?;
        host.write()?.fill(value);
        let gpu = rig.device.alloc::<u32>(LEN)?;
        let (from, to) = (host.as_ptr().cast::<u8>(), gpu.as_device_ptr());
        let tensors = (
            host.into_dlpack(&layout, Some(other)).map_err(|refused| refused.error),
            gpu.into_dlpack(&layout, other).map_err(|refused| refused.error),
        );
        if let (Ok(_), Ok(_)) = &tensors {
            let stream = stream_of(other.as_raw());
            // SAFETY: one copy between the two tensors, which are deleted below.
            let _ = unsafe { own.driver.copy_h2d(stream, to, from, BLOCK) };
        }
        let (host, gpu) = tensors;
        for tensor in [&host, &gpu].into_iter().flatten() {
            // SAFETY: deleted once; its use is on the consumer's stream.
            unsafe { dlpack::delete(*tensor) };
        }
        host.and(gpu).map(drop)
    }
}

fn survives(run: &Run) -> usize {
    let rig = Rig::on(run.emulator.clone(), 64);
    let far = Device::of_emulator(&run.emulator, 1).unwrap();
    let driver = run.emulator.driver();
    let event = driver.event_create(0, false).unwrap();
    let other = rig.device.stream().unwrap();
    let world = World { rig, other, far, own: Own { driver, event, forgotten: Cell::new(0) } };
    run.begin();
    for value in 1..3 {
        run.explains_all([
            world.foreign(value),
            world.events(value),
            world.default_streams(value),
            world.across(value),
            world.tensor(value),
        ]);
    }
    run.end();
    let World { rig, other, far, own } = world;
    // SAFETY: created above, and not used any more.
    let _ = unsafe { own.driver.event_destroy(own.event) };
    let streams = [&rig.stream, &other];
    let idle = streams.iter().all(|stream| stream.synchronize().is_ok());
    assert!(idle || run.is_lost());
    drop(other);
    let Rig { device, pool, stream, .. } = rig;
    drop(stream);
    let _ = pool.trim();
    let stats = pool.stats();
    // A tensor whose last use is unknown counts as live for the device. A block that is kept keeps
    // its slab.
    let kept = stats.quarantined_bytes + stats.live_bytes > 0;
    let pooled = if kept { stats.committed_bytes - stats.live_bytes } else { 0 };
    pooled + own.forgotten.get() + device.quarantined_bytes() + far.quarantined_bytes()
}

#[test]
fn any_call_may_fail() {
    let machine = Emulator::builder().devices(2);
    at_every_call("foreign work, default streams, two devices", &machine, 150, survives);
}
