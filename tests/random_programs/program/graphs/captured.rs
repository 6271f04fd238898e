//! Captures the operations of a graph, by calls of this crate, or by calls of other code that this
//! crate is told of.

use std::ffi::c_void;

use pinlane::driver::{Driver, DriverResult, RawStream, cuda};
use pinlane::graph::{Key, Named};
use pinlane::{Capture, Device, DeviceBuf, PinnedBuf, Result};

use super::Bound;
use super::steps::{By, Operation, Work};
use crate::program::model::fit;

pub type Hosts = [Bound<PinnedBuf<u8>>];
pub type Gpus = [Bound<DeviceBuf<u8>>];

/// Turns numbers into those of buffers that exist. A copy needs two.
pub fn settle(work: &Work, hosts: usize, gpus: usize) -> Option<Work> {
    Some(match *work {
        Work::Upload { host, from, gpu, to } => {
            Work::Upload { host: host % hosts, from, gpu: gpu % gpus, to }
        }
        Work::Download { gpu, from, host, to } => {
            Work::Download { gpu: gpu % gpus, from, host: host % hosts, to }
        }
        Work::Copy { src, from, dst, to } if src % gpus != dst % gpus => {
            Work::Copy { src: src % gpus, from, dst: dst % gpus, to }
        }
        Work::Copy { .. } => return None,
        Work::Fill { gpu, part, byte } => Work::Fill { gpu: gpu % gpus, part, byte },
    })
}

/// Marks the buffers whose addresses the graph keeps: those of kernels, and of other code.
pub fn fix(hosts: &mut Hosts, gpus: &mut Gpus, operation: &Operation) {
    let is_foreign = operation.by != By::Us;
    match operation.work {
        Work::Upload { host, gpu, .. } | Work::Download { gpu, host, .. } => {
            hosts[host].is_fixed |= is_foreign;
            gpus[gpu].is_fixed |= is_foreign;
        }
        Work::Copy { src, dst, .. } => {
            gpus[src].is_fixed |= is_foreign;
            gpus[dst].is_fixed |= is_foreign;
        }
        Work::Fill { gpu, .. } => gpus[gpu].is_fixed = true,
    }
}

/// Captures one operation by this crate.
pub fn capture(capture: &mut Capture, hosts: &Hosts, gpus: &Gpus, work: &Work) -> Result<()> {
    match *work {
        Work::Upload { host, from, gpu, to } => {
            let (host, gpu) = (&hosts[host], &gpus[gpu]);
            let (from, to) = fit(from.of(host.model.len()), to, gpu.model.len());
            capture.upload(host.key.slice(from), gpu.key.slice(to))
        }
        Work::Download { gpu, from, host, to } => {
            let (host, gpu) = (&hosts[host], &gpus[gpu]);
            let (from, to) = fit(from.of(gpu.model.len()), to, host.model.len());
            capture.download(gpu.key.slice(from), host.key.slice(to))
        }
        Work::Copy { src, from, dst, to } => {
            let (src, dst) = (&gpus[src], &gpus[dst]);
            let (from, to) = fit(from.of(src.model.len()), to, dst.model.len());
            capture.copy(src.key.slice(from), dst.key.slice(to))
        }
        Work::Fill { gpu, part, byte } => {
            let range = part.of(gpus[gpu].model.len());
            capture.fill(gpus[gpu].key.slice(range), byte)
        }
    }
}

/// What other code captures: the parts that it reads and writes, and its call of CUDA.
struct Foreign {
    reads: Vec<Named>,
    writes: Named,
    enqueue: Call,
}

type Call = Box<dyn FnOnce(&dyn Driver, RawStream) -> DriverResult<()>>;

/// Captures one operation by other code, which has the addresses of the buffers. The inner error is
/// that of its call.
pub fn capture_foreign(
    capture: &mut Capture,
    device: &Device,
    (hosts, gpus): (&Hosts, &Gpus),
    operation: &Operation,
) -> Result<DriverResult<()>> {
    let Foreign { reads, writes, enqueue } = foreign(capture, hosts, gpus, &operation.work)?;
    let enqueue = |handle: *mut c_void| {
        let driver = device.emulator().map(|machine| machine.driver()).or_else(cuda);
        let raw = RawStream { device: device.ordinal(), handle: handle.addr() };
        enqueue(&*driver.expect("the device is emulated, or a GPU"), raw)
    };
    if operation.by == By::OthersInTheCall {
        // SAFETY: the work is one call, on the given stream, of the named parts.
        return unsafe { capture.foreign(&reads, &[writes], enqueue) };
    }
    // SAFETY: the work is enqueued below, before the next call on the capture.
    let handle = unsafe { capture.foreign(&reads, &[writes], |handle| handle) }?;
    Ok(enqueue(handle))
}

fn foreign(capture: &Capture, hosts: &Hosts, gpus: &Gpus, work: &Work) -> Result<Foreign> {
    let in_host = |key: Key<PinnedBuf<u8>>, at: usize| -> Result<*mut u8> {
        Ok(capture.get(key)?.as_ptr().cast_mut().wrapping_add(at))
    };
    let in_gpu = |key: Key<DeviceBuf<u8>>, at: usize| -> Result<u64> {
        Ok(capture.get(key)?.as_device_ptr() + at as u64)
    };
    Ok(match *work {
        Work::Upload { host, from, gpu, to } => {
            let (host, gpu) = (&hosts[host], &gpus[gpu]);
            let (from, to) = fit(from.of(host.model.len()), to, gpu.model.len());
            let (src, dst) = (in_host(host.key, from.start)?, in_gpu(gpu.key, to.start)?);
            let bytes = from.len();
            Foreign {
                reads: vec![host.key.slice(from).reading()],
                writes: gpu.key.slice(to).writing(),
                // SAFETY: the stream is the capture's, and the graph owns both buffers.
                enqueue: unless_empty(bytes, move |driver, raw| unsafe {
                    driver.copy_h2d(raw, dst, src, bytes)
                }),
            }
        }
        Work::Download { gpu, from, host, to } => {
            let (host, gpu) = (&hosts[host], &gpus[gpu]);
            let (from, to) = fit(from.of(gpu.model.len()), to, host.model.len());
            let (src, dst) = (in_gpu(gpu.key, from.start)?, in_host(host.key, to.start)?);
            let bytes = from.len();
            Foreign {
                reads: vec![gpu.key.slice(from).reading()],
                writes: host.key.slice(to).writing(),
                // SAFETY: as above.
                enqueue: unless_empty(bytes, move |driver, raw| unsafe {
                    driver.copy_d2h(raw, dst, src, bytes)
                }),
            }
        }
        Work::Copy { src, from, dst, to } => {
            let (src, dst) = (&gpus[src], &gpus[dst]);
            let (from, to) = fit(from.of(src.model.len()), to, dst.model.len());
            let (source, target) = (in_gpu(src.key, from.start)?, in_gpu(dst.key, to.start)?);
            let bytes = from.len();
            Foreign {
                reads: vec![src.key.slice(from).reading()],
                writes: dst.key.slice(to).writing(),
                // SAFETY: as above; the two are different buffers.
                enqueue: unless_empty(bytes, move |driver, raw| unsafe {
                    driver.copy_d2d(raw, target, source, bytes)
                }),
            }
        }
        Work::Fill { gpu, part, byte } => {
            let gpu = &gpus[gpu];
            let range = part.of(gpu.model.len());
            let (dst, bytes) = (in_gpu(gpu.key, range.start)?, range.len());
            Foreign {
                reads: vec![],
                writes: gpu.key.slice(range).writing(),
                // SAFETY: as above; the pattern has one byte.
                enqueue: unless_empty(bytes, move |driver, raw| unsafe {
                    driver.fill(raw, dst, bytes, &[byte])
                }),
            }
        }
    })
}

fn unless_empty(
    bytes: usize,
    call: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()> + 'static,
) -> Call {
    if bytes == 0 { Box::new(|_, _| Ok(())) } else { Box::new(call) }
}
