//! What each function does.

use std::sync::Arc;

use cudarc::driver::sys::CUgraphInstantiate_flags;
use cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, HostSlice, result};
use pinlane::{Device, ErrorKind, PinnedBuf, PinnedPool};
use pinlane_cudarc::{Error, Result, SharedStream};

use crate::harness::support::{self, Held, LEN, is_in_use, values};

/// The tests, by name.
pub const TESTS: [(&str, fn()); 16] = [
    ("copies_by_pinlane_with_memory_of_cudarc", copies_by_pinlane_with_memory_of_cudarc),
    ("copies_of_pageable_memory", copies_of_pageable_memory),
    ("copies_by_cudarc_with_page_locked_memory", copies_by_cudarc_with_page_locked_memory),
    ("copies_by_cudarc_with_device_memory", copies_by_cudarc_with_device_memory),
    ("buffers_without_elements", buffers_without_elements),
    ("later_work_of_cudarc_waits_for_an_upload", later_work_of_cudarc_waits_for_an_upload),
    ("a_download_waits_for_work_of_cudarc", a_download_waits_for_work_of_cudarc),
    ("a_writer_waits_for_the_reads_of_two_streams", a_writer_waits_for_the_reads_of_two_streams),
    ("a_lent_buffer_is_in_use", a_lent_buffer_is_in_use),
    ("a_dropped_buffer_comes_back_after_its_use", a_dropped_buffer_comes_back_after_its_use),
    ("a_panic_while_a_buffer_is_lent", a_panic_while_a_buffer_is_lent),
    ("a_stream_lives_as_long_as_its_uses", a_stream_lives_as_long_as_its_uses),
    ("lent_memory_is_for_one_stream", lent_memory_is_for_one_stream),
    ("lent_memory_is_not_captured", lent_memory_is_not_captured),
    ("other_contexts_are_refused", other_contexts_are_refused),
    ("lengths_must_be_equal", lengths_must_be_equal),
];

struct Rig {
    context: Arc<CudaContext>,
    device: Device,
    pool: PinnedPool,
    stream: SharedStream,
}

fn rig() -> Rig {
    let context = CudaContext::new(0).expect("device 0");
    let device = Device::open(0).expect("device 0");
    let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build().expect("a pool");
    let stream = context.new_stream().expect("a stream");
    let stream = SharedStream::new(&device, &stream).expect("of that device");
    Rig { context, device, pool, stream }
}

impl Rig {
    fn another(&self) -> SharedStream {
        let stream = self.context.new_stream().expect("a stream");
        SharedStream::new(&self.device, &stream).expect("of that device")
    }

    /// A buffer with the values `first ..`.
    fn host(&self, first: u32) -> PinnedBuf<u32> {
        support::filled(&self.pool, first)
    }
}

fn hold(stream: &SharedStream) -> Held {
    support::hold(stream.pinlane())
}

/// What cudarc reads back.
fn contents(stream: &Arc<CudaStream>, slice: &CudaSlice<u32>) -> Vec<u32> {
    let mut values = vec![0; slice.len()];
    stream.memcpy_dtoh(slice, &mut values).expect("enqueued");
    stream.synchronize().expect("copied");
    values
}

/// cudarc's upload on `by`, with memory that is lent for `stream`.
fn htod(
    stream: &SharedStream,
    by: &Arc<CudaStream>,
    host: &PinnedBuf<u32>,
    slice: &mut CudaSlice<u32>,
) -> Result<()> {
    Ok(stream.lend_host(host, |host| by.memcpy_htod(host, slice))??)
}

/// cudarc's download, in the same way.
fn dtoh(
    stream: &SharedStream,
    by: &Arc<CudaStream>,
    slice: &CudaSlice<u32>,
    host: &mut PinnedBuf<u32>,
) -> Result<()> {
    Ok(stream.lend_host_mut(host, |host| by.memcpy_dtoh(slice, host))??)
}

fn copies_by_pinlane_with_memory_of_cudarc() {
    let rig = rig();
    let (stream, cudarc) = (&rig.stream, rig.stream.cudarc());
    let mut host = rig.host(7);
    let mut slice = cudarc.alloc_zeros::<u32>(LEN).unwrap();
    stream.upload(&host, &mut slice).unwrap();
    assert_eq!(contents(cudarc, &slice), values(7, LEN));
    // Parts, by views.
    host.write().unwrap().fill(1);
    stream.upload(host.slice(10..20).unwrap(), slice.slice_mut(500..510)).unwrap();
    stream.download(slice.slice(490..520), host.slice_mut(..30).unwrap()).unwrap();
    let (found, sent) = (host.read().unwrap(), values(497, 30));
    assert_eq!((&found[..10], &found[20..30]), (&sent[..10], &sent[20..]));
    assert!(found[10..20].iter().chain(&found[30..]).all(|&value| value == 1));
    stream.download(&slice, &mut host).unwrap().wait().unwrap();
    assert_eq!(host.try_read().unwrap()[..500], values(7, 500));
}

fn copies_of_pageable_memory() {
    let rig = rig();
    let (stream, cudarc) = (&rig.stream, rig.stream.cudarc());
    for len in [1, LEN, 1 << 20] {
        let mut slice = cudarc.alloc_zeros::<u32>(len).unwrap();
        let mut found = vec![0; len];
        stream.upload_slice(&values(5, len), &mut slice).unwrap();
        stream.download_slice(&slice, &mut found).unwrap();
        assert_eq!(found, values(5, len));
        assert_eq!(contents(cudarc, &slice), found);
    }
}

fn copies_by_cudarc_with_page_locked_memory() {
    let rig = rig();
    let (stream, cudarc) = (&rig.stream, rig.stream.cudarc());
    let host = rig.host(3);
    let slice = stream.lend_host(&host, |host| cudarc.clone_htod(host)).unwrap().unwrap();
    assert_eq!(contents(cudarc, &slice), values(3, LEN));
    let mut back = rig.host(0);
    let part = back.slice_mut(100..200).unwrap();
    let from = slice.slice(..100);
    stream.lend_host_mut(part, |part| cudarc.memcpy_dtoh(&from, part)).unwrap().unwrap();
    assert_eq!(back.read().unwrap()[100..200], values(3, 100));
    assert_eq!(back.read().unwrap()[200..], values(200, 800));
}

fn copies_by_cudarc_with_device_memory() {
    let rig = rig();
    let (stream, cudarc) = (&rig.stream, rig.stream.cudarc());
    // pinlane's own work on it is on another stream.
    let own = rig.device.stream().unwrap();
    let mut memory = rig.device.alloc::<u32>(LEN).unwrap();
    own.upload(&rig.host(9), &mut memory).unwrap();
    let slice = stream.lend_device(&memory, |memory| cudarc.clone_dtod(memory)).unwrap().unwrap();
    assert_eq!(contents(cudarc, &slice), values(9, LEN));
    let part = memory.slice_mut(..10).unwrap();
    stream.lend_device_mut(part, |part| cudarc.memset_zeros(part)).unwrap().unwrap();
    let mut back = rig.host(1);
    own.download(&memory, &mut back).unwrap();
    assert_eq!(back.read().unwrap()[..10], [0; 10]);
    assert_eq!(back.read().unwrap()[10..], values(19, LEN - 10));
}

fn buffers_without_elements() {
    let rig = rig();
    let (stream, cudarc) = (&rig.stream, rig.stream.cudarc());
    let mut slice = cudarc.alloc_zeros::<u32>(LEN).unwrap();
    let mut host = rig.host(0);
    stream.upload(host.slice(..0).unwrap(), slice.slice_mut(3..3)).unwrap();
    stream.download(slice.slice(3..3), host.slice_mut(..0).unwrap()).unwrap();
    stream.upload_slice(&[], slice.slice_mut(3..3)).unwrap();
    stream.download_slice(slice.slice(3..3), &mut []).unwrap();
    let none = host.slice(..0).unwrap();
    assert!(stream.lend_host(none, |none| HostSlice::is_empty(none)).unwrap());
    assert_eq!(contents(cudarc, &slice), [0; LEN]);
}

fn later_work_of_cudarc_waits_for_an_upload() {
    let rig = rig();
    let other = rig.context.new_stream().unwrap();
    let mut slice = rig.stream.cudarc().alloc_zeros::<u32>(LEN).unwrap();
    let held = hold(&rig.stream);
    rig.stream.upload(&rig.host(4), &mut slice).unwrap();
    let copy = other.clone_dtod(&slice).unwrap();
    drop(held);
    assert_eq!(contents(&other, &copy), values(4, LEN));
}

fn a_download_waits_for_work_of_cudarc() {
    let rig = rig();
    let first = rig.another();
    let mut slice = rig.stream.cudarc().alloc_zeros::<u32>(LEN).unwrap();
    let from = rig.host(8);
    let held = hold(&first);
    htod(&first, first.cudarc(), &from, &mut slice).unwrap();
    let mut to = rig.host(0);
    rig.stream.download(&slice, &mut to).unwrap();
    assert!(is_in_use(&mut to));
    drop(held);
    assert_eq!(to.read().unwrap(), values(8, LEN));
}

fn a_writer_waits_for_the_reads_of_two_streams() {
    let rig = rig();
    let (one, two, writer) = (rig.another(), rig.another(), rig.context.new_stream().unwrap());
    let mut slice = rig.stream.cudarc().alloc_zeros::<u32>(LEN).unwrap();
    rig.stream.upload(&rig.host(6), &mut slice).unwrap();
    let (mut first, mut second) = (rig.host(0), rig.host(0));
    let held = hold(&one);
    one.download(&slice, &mut first).unwrap();
    two.download(&slice, &mut second).unwrap();
    writer.memset_zeros(&mut slice).unwrap();
    drop(held);
    assert_eq!(first.read().unwrap(), values(6, LEN));
    assert_eq!(second.read().unwrap(), values(6, LEN));
    assert_eq!(contents(&writer, &slice), [0; LEN]);
}

fn a_lent_buffer_is_in_use() {
    let rig = rig();
    let cudarc = rig.stream.cudarc();
    let mut slice = cudarc.alloc_zeros::<u32>(LEN).unwrap();
    let (mut from, mut to) = (rig.host(2), rig.host(0));
    let held = hold(&rig.stream);
    htod(&rig.stream, cudarc, &from, &mut slice).unwrap();
    dtoh(&rig.stream, cudarc, &slice, &mut to).unwrap();
    assert!(is_in_use(&mut from) && is_in_use(&mut to));
    // The first copy reads, so the host may.
    assert_eq!(from.try_read().unwrap(), values(2, LEN));
    assert_eq!(to.try_read().unwrap_err().kind(), ErrorKind::NotReady);
    // pinlane orders other streams after them.
    let own = rig.device.stream().unwrap();
    let mut memory = rig.device.alloc::<u32>(LEN).unwrap();
    own.upload(&to, &mut memory).unwrap();
    drop(held);
    from.write().unwrap().fill(0);
    let mut back = rig.host(0);
    own.download(&memory, &mut back).unwrap();
    assert_eq!((to.read().unwrap(), back.read().unwrap()), (&*values(2, LEN), &*values(2, LEN)));
}

fn a_dropped_buffer_comes_back_after_its_use() {
    let rig = rig();
    let cudarc = rig.stream.cudarc();
    let pool = PinnedPool::builder(&rig.device).max_bytes(4096).build().unwrap();
    let mut slice = cudarc.alloc_zeros::<u32>(1024).unwrap();
    let mut host = pool.alloc::<u32>(1024).unwrap();
    host.write().unwrap().fill(5);
    let held = hold(&rig.stream);
    htod(&rig.stream, cudarc, &host, &mut slice).unwrap();
    drop(host);
    assert!(pool.try_alloc::<u32>(1024).is_err(), "its only block is in use");
    drop(held);
    pool.alloc::<u32>(1024).unwrap().write().unwrap().fill(6);
    assert_eq!(contents(cudarc, &slice), [5; 1024]);
}

fn a_panic_while_a_buffer_is_lent() {
    let rig = rig();
    let cudarc = rig.stream.cudarc();
    let mut slice = cudarc.alloc_zeros::<u32>(LEN).unwrap();
    let mut host = rig.host(1);
    let held = hold(&rig.stream);
    let work = std::panic::AssertUnwindSafe(|| {
        rig.stream.lend_host(&host, |host| {
            cudarc.memcpy_htod(host, &mut slice).unwrap();
            std::panic::resume_unwind(Box::new("the closure's own"));
        })
    });
    assert!(std::panic::catch_unwind(work).is_err());
    assert!(is_in_use(&mut host));
    drop(held);
    host.write().unwrap().fill(0);
    assert_eq!(contents(cudarc, &slice), values(1, LEN));
}

fn a_stream_lives_as_long_as_its_uses() {
    let Rig { context, device, pool, stream } = rig();
    let mut slice = context.default_stream().alloc_zeros(LEN).unwrap();
    stream.upload_slice(&values(3, LEN), &mut slice).unwrap();
    let mut host = pool.alloc::<u32>(LEN).unwrap();
    let held = hold(&stream);
    dtoh(&stream, stream.cudarc(), &slice, &mut host).unwrap();
    let ticket = stream.pinlane().record().unwrap();
    drop(stream);
    assert!(context.is_in_multi_stream_mode(), "the stream is still there");
    drop(held);
    assert_eq!(host.read().unwrap(), values(3, LEN));
    ticket.wait().unwrap();
    // Its last owners go, on a thread without a current context, which it is afterwards too.
    let free = move || {
        drop((host, ticket, pool, device));
        result::ctx::get_current().unwrap().is_none()
    };
    assert!(std::thread::spawn(free).join().unwrap());
    assert!(!context.is_in_multi_stream_mode(), "the stream is destroyed");
}

fn lent_memory_is_for_one_stream() {
    let rig = rig();
    let other = rig.context.new_stream().unwrap();
    let mut slice = other.alloc_zeros::<u32>(LEN).unwrap();
    let mut host = rig.host(2);
    let refused = htod(&rig.stream, &other, &host, &mut slice);
    assert!(matches!(refused, Err(Error::OtherStream)), "{refused:?}");
    let refused = dtoh(&rig.stream, &other, &slice, &mut host);
    assert!(matches!(refused, Err(Error::OtherStream)), "{refused:?}");
    assert_eq!(contents(&other, &slice), [0; LEN]);
    assert_eq!(host.read().unwrap(), values(2, LEN));
}

fn lent_memory_is_not_captured() {
    let rig = rig();
    let cudarc = rig.stream.cudarc();
    let mut slice = cudarc.alloc_zeros::<u32>(LEN).unwrap();
    let host = rig.host(2);
    cudarc.synchronize().unwrap();
    // cudarc's events would end the capture with an error of its own.
    // SAFETY: all work is on one stream.
    unsafe { rig.context.disable_event_tracking() };
    let begin = || cudarc.begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let refused = rig.stream.lend_host(&host, |host| {
        begin();
        cudarc.memcpy_htod(host, &mut slice) // and the capture goes on
    });
    assert!(matches!(refused, Err(Error::Captured)), "{refused:?}");
    // It was ended, and the stream is as before.
    rig.stream.upload(&host, &mut slice).unwrap();
    assert_eq!(contents(cudarc, &slice), values(2, LEN));
    // Nor by a capture that the closure ends, and whose graph it could keep.
    let refused = rig.stream.lend_host(&host, |host| {
        begin();
        cudarc.memcpy_htod(host, &mut slice)?;
        cudarc.end_capture(CUgraphInstantiate_flags(0)).map(drop)
    });
    assert!(matches!(refused, Err(Error::Captured)), "{refused:?}");
    begin();
    let refused = rig.stream.lend_host(&host, |_| unreachable!("the stream is captured"));
    let Err(Error::Pinlane(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::StreamCapturing);
    let _ = cudarc.end_capture(CUgraphInstantiate_flags(0));
    // SAFETY: the memory of this test is not used any more.
    unsafe { rig.context.enable_event_tracking() };
}

fn other_contexts_are_refused() {
    let rig = rig();
    let emulated = Device::emulated().unwrap();
    let refused = SharedStream::new(&emulated, rig.stream.cudarc()).unwrap_err();
    assert!(refused.to_string().contains("emulated"), "{refused}");
    if CudaContext::device_count().unwrap() < 2 {
        return;
    }
    let far = CudaContext::new(1).unwrap().new_stream().unwrap();
    let refused = SharedStream::new(&rig.device, &far).unwrap_err();
    assert!(refused.to_string().contains("the stream is of device 1"), "{refused}");
    let mut slice = far.alloc_zeros::<u32>(LEN).unwrap();
    let refused = rig.stream.upload(&rig.host(0), &mut slice).unwrap_err();
    assert!(matches!(refused, Error::OtherContext(_)), "{refused:?}");
    far.synchronize().unwrap();
}

fn lengths_must_be_equal() {
    let rig = rig();
    let mut slice = rig.stream.cudarc().alloc_zeros::<u32>(LEN + 1).unwrap();
    let refused = rig.stream.upload(&rig.host(0), &mut slice).unwrap_err();
    let Error::Pinlane(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::LengthMismatch);
}
