//! Blocks of a pool and the caller's memory: in flight, lost, registered, lent to other libraries.

use std::future::Future;
use std::task::{Context, Waker};

use pinlane::emulated::Emulator;
use pinlane::{CudaCode, PinnedBuf, PinnedPool, Result};

use super::{Rig, Row, SMALL, seconds};

pub const ROWS: &[Row] = &[
    ("parked.blocks", |rig, n| parked(rig, n, 1), "blocks freed in flight, then taken again"),
    ("parked.streams", |rig, n| parked(rig, n, n), "the same, each used by a stream of its own"),
    ("quarantine.blocks", lost_blocks, "blocks freed in flight on a device that is then lost"),
    ("quarantine.requests", lost_requests, "the same, and as many requests that wait for them"),
    ("slabs.grow", |_, n| slabs(n, Slabs::Grow), "blocks, each page-locked by a call of its own"),
    ("slabs.find", |_, n| slabs(n, Slabs::Find), "slices of such blocks that an upload names"),
    ("slabs.trim", |_, n| slabs(n, Slabs::Trim), "such blocks, given back to the system"),
    ("registered", registered, "vectors of 64 bytes registered, then unregistered"),
    ("tensors", tensors, "buffers exported to DLPack and deleted"),
];

/// Blocks that streams still use when they are dropped, and are taken again.
fn parked(rig: &Rig, count: usize, streams: usize) -> Result<f64> {
    let pool = rig.pool(count)?;
    let mut gpus = (0..streams).map(|_| rig.device.alloc::<u8>(64)).collect::<Result<Vec<_>>>()?;
    let streams = rig.stalled(streams)?;
    let blocks = (0..count).map(|_| pool.alloc::<u8>(SMALL)).collect::<Result<Vec<_>>>()?;
    for (number, block) in blocks.iter().enumerate() {
        let number = number % streams.len();
        streams[number].upload(block.slice(..64)?, &mut gpus[number])?;
    }
    seconds(|| {
        drop(blocks);
        rig.release(&streams);
        let again = (0..count).map(|_| pool.alloc::<u8>(SMALL));
        again.collect::<Result<Vec<_>>>().map(drop)
    })
}

/// Blocks that a stalled stream uses.
fn in_flight(rig: &Rig, pool: &PinnedPool, count: usize) -> Result<Vec<PinnedBuf<u8>>> {
    let mut gpu = rig.device.alloc::<u8>(64)?;
    let streams = rig.stalled(1)?;
    let blocks = (0..count).map(|_| pool.alloc::<u8>(SMALL)).collect::<Result<Vec<_>>>()?;
    blocks
        .iter()
        .try_for_each(|block| streams[0].upload(block.slice(..64)?, &mut gpu).map(drop))?;
    Ok(blocks)
}

fn lose(rig: &Rig) {
    rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).expect("device 0");
}

fn lost_blocks(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(count)?;
    drop(in_flight(rig, &pool, count)?);
    lose(rig);
    seconds(|| {
        assert!(pool.try_alloc::<u8>(SMALL).is_err());
        assert_eq!(pool.stats().quarantined_bytes, count * SMALL);
        Ok(())
    })
}

fn lost_requests(rig: &Rig, count: usize) -> Result<f64> {
    let pool = rig.pool(count)?;
    let blocks = in_flight(rig, &pool, count)?;
    let task = &mut Context::from_waker(Waker::noop());
    let mut requests: Vec<_> =
        (0..count).map(|_| Box::pin(pool.alloc_async::<u8>(SMALL))).collect();
    requests.iter_mut().for_each(|request| assert!(request.as_mut().poll(task).is_pending()));
    drop(blocks);
    lose(rig);
    seconds(|| {
        for mut request in requests {
            while request.as_mut().poll(task).is_pending() {
                std::thread::yield_now();
            }
        }
        Ok(())
    })
}

#[derive(PartialEq)]
enum Slabs {
    Grow,
    Find,
    Trim,
}

/// Blocks that are separate slabs, because the system page-locks no more in one call.
fn slabs(count: usize, what: Slabs) -> Result<f64> {
    let limited = Emulator::builder().page_lock_limit(SMALL, CudaCode::MEMORY_ALLOCATION);
    let rig = Rig::of(limited.build())?;
    let pool = rig.pool(count)?;
    let mut blocks = Vec::with_capacity(count);
    let grew = seconds(|| {
        (0..count).try_for_each(|_| pool.alloc_zeroed::<u8>(SMALL).map(|block| blocks.push(block)))
    })?;
    assert!(pool.stats().growths.count as usize >= count);
    let mut gpu = rig.device.alloc::<u8>(SMALL)?;
    let mut found = || {
        seconds(|| {
            let mut copy = |block: &PinnedBuf<u8>| rig.stream.upload_slice(block.read()?, &mut gpu);
            blocks.iter().try_for_each(|block| copy(block).map(drop))
        })
    };
    match what {
        Slabs::Grow => Ok(grew),
        Slabs::Find => found(),
        Slabs::Trim => {
            drop(blocks);
            seconds(|| pool.trim().map(|bytes| assert_eq!(bytes, count * SMALL)))
        }
    }
}

fn registered(rig: &Rig, count: usize) -> Result<f64> {
    seconds(|| {
        let registered =
            (0..count).map(|_| rig.device.register(vec![0u8; 64]).map_err(|refused| refused.error));
        registered.collect::<Result<Vec<_>>>().map(drop)
    })
}

fn tensors(rig: &Rig, count: usize) -> Result<f64> {
    use pinlane::dlpack::{DataType, Layout, delete};
    let pool = rig.pool(count)?;
    let buffers: Vec<_> = (0..count).map(|_| pool.alloc::<u8>(SMALL)).collect::<Result<_>>()?;
    seconds(|| {
        let layout = Layout { shape: &[SMALL as i64], ..Layout::new(DataType::U8) };
        let mut tensors = Vec::with_capacity(count);
        for buffer in buffers {
            tensors.push(buffer.into_dlpack(&layout, None).map_err(|refused| refused.error)?);
        }
        // SAFETY: each is live, owned here, and deleted once.
        tensors.into_iter().for_each(|tensor| unsafe { delete(tensor) });
        Ok(())
    })
}
