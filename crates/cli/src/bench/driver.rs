//! Copies of pageable memory by the CUDA runtime itself, which stages them. Only a build with a
//! toolkit has them.

use pinlane::{Device, DeviceBuf, Result, Stream};

use super::bare::Way;

/// Whether there are such copies: only a GPU of the runtime has them.
pub fn is_there(device: &Device) -> bool {
    cfg!(pinlane_toolkit) && device.emulator().is_none()
}

/// `cudaMemcpyAsync` between pageable memory and a GPU, and the wait for it.
#[cfg(pinlane_toolkit)]
pub fn copy(way: Way, stream: &Stream, host: &mut [u8], gpu: &mut DeviceBuf<u8>) -> Result<()> {
    use std::ffi::c_void;

    // The library links the runtime into this program.
    unsafe extern "C" {
        fn cudaMemcpyAsync(
            dst: *mut c_void,
            src: *const c_void,
            bytes: usize,
            kind: i32,
            stream: *mut c_void,
        ) -> i32;
    }

    assert_eq!(host.len(), gpu.len());
    let (bytes, gpu) = (host.len(), gpu.as_device_ptr() as *mut c_void);
    let host: *mut c_void = host.as_mut_ptr().cast();
    let (dst, src, kind) = if way == Way::Up { (gpu, host, 1) } else { (host, gpu, 2) };
    // SAFETY: both blocks are live, of this length, borrowed exclusively and idle: what a tracked
    // copy did to them was waited for. The stream is live, and waited for below.
    let code = unsafe { cudaMemcpyAsync(dst, src.cast_const(), bytes, kind, stream.as_raw()) };
    assert_eq!(code, 0, "cudaMemcpyAsync");
    stream.synchronize()
}

/// A build without a toolkit is linked with no runtime.
#[cfg(not(pinlane_toolkit))]
pub fn copy(_: Way, _: &Stream, _: &mut [u8], _: &mut DeviceBuf<u8>) -> Result<()> {
    unreachable!("a build without a runtime does not ask for this")
}
