//! The lists of the emulated device.

use pinlane::driver::HostFlags;
use pinlane::emulated::{Emulator, Execution};
use pinlane::{PinnedBuf, Result};

use super::{Rig, Row, SMALL, seconds};

pub const ROWS: &[Row] = &[
    ("findings", findings, "misuses that the emulated device reports"),
    ("machine.freed", freed, "emulated memory allocated and freed, beside that which stays"),
    ("machine.functions", functions, "host functions of a lazy stream, called in a wait"),
    ("machine.launches", launches, "kernels launched beside watched blocks that others use"),
    ("machine.named", named, "page-locked blocks that one kernel of the emulated device names"),
    ("machine.closed", closed, "copies waited for, beside watched blocks that others use"),
];

fn findings(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(1)?;
    let mut block = pool.alloc_zeroed::<u8>(64)?;
    let gpu = rig.device.alloc::<u8>(64)?;
    let streams = rig.stalled(1)?;
    let stream = &streams[0];
    stream.download(&gpu, &mut block)?;
    let took = seconds(|| {
        for n in 0..count {
            rig.emulator.host_reads(block.as_ptr().wrapping_add(n % 64), 1);
        }
        assert!(!rig.emulator.findings().is_empty());
        Ok(())
    });
    rig.release(&streams);
    took
}

fn freed(rig: &Rig, count: usize) -> Result<f64> {
    let alloc = |_| rig.device.alloc::<u8>(64);
    let _stay = (0..count).map(alloc).collect::<Result<Vec<_>>>()?;
    let took = seconds(|| (0..1000).try_for_each(|n| alloc(n).map(drop)))?;
    Ok(took / 1000.0 * count as f64)
}

fn functions(_: &Rig, count: usize) -> Result<f64> {
    let rig = Rig::of(Emulator::builder().execution(Execution::Lazy).build())?;
    seconds(|| {
        (0..count).try_for_each(|_| rig.stream.launch_host(|| ()).map(drop))?;
        rig.stream.synchronize()
    })
}

fn launches(_: &Rig, count: usize) -> Result<f64> {
    const OTHERS: usize = 100;
    let rig = Rig::of(Emulator::builder().watch_host(true).build())?;
    let pool = rig.pool(count)?;
    let blocks = (0..count).map(|_| pool.alloc_zeroed::<u8>(SMALL)).collect::<Result<Vec<_>>>()?;
    let streams = rig.stalled(1)?;
    let mut other = rig.device.alloc::<u8>(64)?;
    let mut upload = |block: &PinnedBuf<u8>| streams[0].upload(block.slice(..64)?, &mut other);
    blocks.iter().try_for_each(|block| upload(block).map(drop))?;
    let stream = Rig::raw(&rig.stream);
    let took = seconds(|| {
        for _ in 0..OTHERS {
            // SAFETY: the kernel does nothing.
            unsafe { rig.emulator.launch(stream, "kernel", &[], Some(Box::new(|| ()))) }
                .expect("no faults");
        }
        Ok(())
    });
    rig.release(&streams);
    streams[0].synchronize()?;
    Ok(took? / OTHERS as f64 * count as f64)
}

fn named(rig: &Rig, count: usize) -> Result<f64> {
    let driver = rig.emulator.driver();
    let block = |_| driver.host_alloc(0, SMALL, HostFlags::default()).expect("no limit");
    let blocks: Vec<_> = (0..count).map(block).collect();
    let words: Vec<u64> = blocks.iter().map(|block| block.addr().get() as u64).collect();
    let took = seconds(|| {
        let stream = Rig::raw(&rig.stream);
        // SAFETY: the kernel does nothing.
        unsafe { rig.emulator.launch(stream, "kernel", &words, Some(Box::new(|| ()))) }
            .expect("no faults");
        rig.stream.synchronize()
    });
    // SAFETY: allocated here, and not used.
    blocks.into_iter().for_each(|block| unsafe { driver.host_free(block) }.expect("no faults"));
    took
}

fn closed(_: &Rig, count: usize) -> Result<f64> {
    const OTHERS: usize = 100;
    let rig = Rig::of(Emulator::builder().watch_host(true).build())?;
    let pool = rig.pool(count + 1)?;
    let mut gpu = rig.device.alloc::<u8>(64)?;
    let blocks = (0..count).map(|_| pool.alloc_zeroed::<u8>(SMALL)).collect::<Result<Vec<_>>>()?;
    let own = pool.alloc_zeroed::<u8>(64)?;
    let streams = rig.stalled(1)?;
    let mut other = rig.device.alloc::<u8>(64)?;
    let mut upload = |block: &PinnedBuf<u8>| streams[0].upload(block.slice(..64)?, &mut other);
    blocks.iter().try_for_each(|block| upload(block).map(drop))?;
    let took = seconds(|| (0..OTHERS).try_for_each(|_| rig.stream.upload(&own, &mut gpu)?.wait()));
    rig.release(&streams);
    streams[0].synchronize()?;
    Ok(took? / OTHERS as f64 * count as f64)
}
