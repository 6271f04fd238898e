//! What each function does.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use cuda_core::completion::retain_until_complete;
use cuda_core::sys::{self, CUstreamCaptureMode_enum_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as LOCAL};
use cuda_core::{Context, DeviceBuffer, DriverError};
use pinlane::{Device, ErrorKind, PinnedBuf, PinnedPool};
use pinlane_cuda_core::{Error, Result, SharedStream};

use crate::harness::support::{self, Held, LEN, is_in_use, values};

/// The tests, by name.
pub const TESTS: [(&str, fn()); 19] = [
    ("copies_by_pinlane_with_memory_of_cuda_core", copies_by_pinlane_with_memory_of_cuda_core),
    ("copies_of_pageable_memory", copies_of_pageable_memory),
    ("copies_by_cuda_core_with_page_locked_memory", copies_by_cuda_core_with_page_locked_memory),
    ("copies_by_cuda_core_with_device_memory", copies_by_cuda_core_with_device_memory),
    ("buffers_without_elements", buffers_without_elements),
    ("an_upload_keeps_its_memory_from_others", an_upload_keeps_its_memory_from_others),
    ("a_download_keeps_its_memory_from_writers", a_download_keeps_its_memory_from_writers),
    ("work_of_cuda_core_keeps_its_memory", work_of_cuda_core_keeps_its_memory),
    ("memory_of_a_copy_may_be_dropped", memory_of_a_copy_may_be_dropped),
    ("a_lent_buffer_is_in_use", a_lent_buffer_is_in_use),
    ("what_is_lent_has_arrived", what_is_lent_has_arrived),
    ("a_dropped_buffer_comes_back_after_its_use", a_dropped_buffer_comes_back_after_its_use),
    ("a_panic_while_a_buffer_is_lent", a_panic_while_a_buffer_is_lent),
    ("a_stream_lives_as_long_as_its_uses", a_stream_lives_as_long_as_its_uses),
    ("lent_device_memory_is_for_one_stream", lent_device_memory_is_for_one_stream),
    ("a_stream_is_not_left_captured", a_stream_is_not_left_captured),
    ("other_contexts_are_refused", other_contexts_are_refused),
    ("lengths_must_be_equal", lengths_must_be_equal),
    ("what_cuda_core_has_noted_ends_a_copy", what_cuda_core_has_noted_ends_a_copy),
];

struct Rig {
    context: Arc<Context>,
    device: Device,
    pool: PinnedPool,
    stream: SharedStream,
}

fn rig() -> Rig {
    let context = Context::new(0).expect("device 0");
    let device = Device::open(0).expect("device 0");
    let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build().expect("a pool");
    let stream = context.new_stream().expect("a stream");
    let stream = SharedStream::new(&device, &stream).expect("of that device");
    settle(&stream);
    Rig { context, device, pool, stream }
}

/// Waits for cuda-core's thread that frees memory. A free may wait for all streams, so none should
/// begin while a test holds one. After an error that thread keeps everything.
fn settle(stream: &SharedStream) {
    for _ in 0..2 {
        stream.cuda_core().query().expect("no error");
        let (owner, dropped) = channel::<()>();
        retain_until_complete(owner, stream.cuda_core()).expect("the stream accepts work");
        let dropped = dropped.recv_timeout(Duration::from_secs(10));
        assert_eq!(dropped, Err(RecvTimeoutError::Disconnected), "that thread drops it");
    }
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

    fn zeros(&self) -> DeviceBuffer<u32> {
        zeros(&self.stream)
    }
}

/// Memory that is there when this returns.
fn zeros(stream: &SharedStream) -> DeviceBuffer<u32> {
    DeviceBuffer::zeroed(stream.cuda_core(), LEN).expect("there is memory")
}

fn hold(stream: &SharedStream) -> Held {
    support::hold(stream.pinlane())
}

/// Whether cuda-core refused a call because of a use on another stream.
fn is_refused(result: std::result::Result<(), DriverError>) -> bool {
    result == Err(DriverError(sys::cudaError_enum_CUDA_ERROR_NOT_READY))
}

/// What cuda-core reads back.
fn contents(stream: &SharedStream, buffer: &DeviceBuffer<u32>) -> Vec<u32> {
    buffer.to_host_vec(stream.cuda_core()).expect("copied")
}

/// cuda-core's upload to memory that is there.
fn refill(
    stream: &SharedStream,
    host: &PinnedBuf<u32>,
    buffer: &mut DeviceBuffer<u32>,
) -> Result<()> {
    stream.lend_host(host, |host| {
        // SAFETY: a use on this stream, which `lend_host` waits for.
        unsafe { buffer.copy_from_host_async_unchecked(stream.cuda_core(), host) }
    })??;
    Ok(())
}

fn copies_by_pinlane_with_memory_of_cuda_core() {
    let rig = rig();
    let stream = &rig.stream;
    let mut host = rig.host(7);
    let mut buffer = rig.zeros();
    stream.upload(&host, &mut buffer).unwrap();
    assert_eq!(contents(stream, &buffer), values(7, LEN));
    // Parts.
    host.write().unwrap().fill(1);
    stream.upload(host.slice(10..20).unwrap(), (&mut buffer, 500..510)).unwrap();
    let from = buffer.slice(490..520).unwrap();
    stream.download(from, host.slice_mut(..30).unwrap()).unwrap();
    let (found, sent) = (host.read().unwrap(), values(497, 30));
    assert_eq!((&found[..10], &found[20..30]), (&sent[..10], &sent[20..]));
    assert!(found[10..20].iter().chain(&found[30..]).all(|&value| value == 1));
    stream.download(&buffer, &mut host).unwrap().wait().unwrap();
    assert_eq!(host.try_read().unwrap()[..500], values(7, 500));
}

fn copies_of_pageable_memory() {
    let rig = rig();
    let stream = &rig.stream;
    for len in [1, LEN, 1 << 20] {
        let mut buffer = DeviceBuffer::zeroed(stream.cuda_core(), len).unwrap();
        let mut found = vec![0; len];
        stream.upload_slice(&values(5, len), &mut buffer).unwrap();
        stream.download_slice(&buffer, &mut found).unwrap();
        assert_eq!(found, values(5, len));
        assert_eq!(contents(stream, &buffer), found);
    }
}

fn copies_by_cuda_core_with_page_locked_memory() {
    let rig = rig();
    let stream = &rig.stream;
    let mut buffer = stream
        .lend_host(&rig.host(3), |host| {
            // SAFETY: a use on this stream, which `lend_host` waits for.
            unsafe { DeviceBuffer::from_host_async_unchecked(stream.cuda_core(), host) }
        })
        .unwrap()
        .unwrap();
    assert_eq!(contents(stream, &buffer), values(3, LEN));
    refill(stream, &rig.host(4), &mut buffer).unwrap();
    assert_eq!(contents(stream, &buffer), values(4, LEN));
    // A part.
    let host = rig.host(0);
    let part = stream.lend_host(host.slice(100..200).unwrap(), <[u32]>::to_vec).unwrap();
    assert_eq!(part, values(100, 100));
}

fn copies_by_cuda_core_with_device_memory() {
    let rig = rig();
    let stream = &rig.stream;
    // pinlane's own work on it is on another stream.
    let own = rig.device.stream().unwrap();
    let mut memory = rig.device.alloc::<u32>(LEN).unwrap();
    own.upload(&rig.host(9), &mut memory).unwrap();
    let mut buffer = rig.zeros();
    // SAFETY: memory of that device, of which nothing is left but a copy on the stream.
    unsafe {
        stream.lend_device(&memory, |memory| {
            buffer.copy_from_device_async(memory, stream.cuda_core())
        })
    }
    .unwrap()
    .unwrap();
    assert_eq!(contents(stream, &buffer), values(9, LEN));
    let part = memory.slice_mut(..10).unwrap();
    // SAFETY: as above.
    unsafe { stream.lend_device_mut(part, |part| part.zero_async(stream.cuda_core())) }
        .unwrap()
        .unwrap();
    let mut back = rig.host(1);
    own.download(&memory, &mut back).unwrap();
    assert_eq!(back.read().unwrap()[..10], [0; 10]);
    assert_eq!(back.read().unwrap()[10..], values(19, LEN - 10));
}

fn buffers_without_elements() {
    let rig = rig();
    let stream = &rig.stream;
    let mut none = DeviceBuffer::<u32>::zeroed(stream.cuda_core(), 0).unwrap();
    let mut buffer = rig.zeros();
    let mut host = rig.host(0);
    stream.upload(host.slice(..0).unwrap(), &mut none).unwrap();
    stream.upload(host.slice(..0).unwrap(), (&mut buffer, 3..3)).unwrap();
    stream.download(&none, host.slice_mut(..0).unwrap()).unwrap();
    stream.download(buffer.slice(3..3).unwrap(), host.slice_mut(..0).unwrap()).unwrap();
    stream.upload_slice(&[], (&mut buffer, 3..3)).unwrap();
    stream.download_slice(&none, &mut []).unwrap();
    assert!(stream.lend_host(host.slice(..0).unwrap(), <[u32]>::is_empty).unwrap());
    let memory = rig.device.alloc::<u32>(0).unwrap();
    // SAFETY: memory of that device, of which nothing is left.
    assert!(unsafe { stream.lend_device(&memory, DeviceBuffer::is_empty) }.unwrap());
    assert_eq!(contents(stream, &buffer), [0; LEN]);
}

fn an_upload_keeps_its_memory_from_others() {
    let rig = rig();
    let other = rig.another();
    let mut buffer = rig.zeros();
    let mut back = rig.host(0);
    let held = hold(&rig.stream);
    let ticket = rig.stream.upload(&rig.host(4), &mut buffer).unwrap();
    // Not from this stream, which orders the two.
    rig.stream.upload(&rig.host(5), &mut buffer).unwrap();
    let refused = other.download(&buffer, &mut back);
    assert!(matches!(refused, Err(Error::InUse)), "{refused:?}");
    assert!(is_refused(buffer.zero_async(other.cuda_core())));
    assert!(!is_in_use(&mut back), "nothing was copied");
    drop(held);
    ticket.wait().unwrap();
    rig.stream.pinlane().synchronize().unwrap();
    other.download(&buffer, &mut back).unwrap();
    assert_eq!(back.read().unwrap(), values(5, LEN));
}

fn a_download_keeps_its_memory_from_writers() {
    let rig = rig();
    let (one, two) = (rig.another(), rig.another());
    let mut buffer = rig.zeros();
    rig.stream.upload_slice(&values(6, LEN), &mut buffer).unwrap();
    rig.stream.pinlane().synchronize().unwrap();
    let (mut first, mut second) = (rig.host(0), rig.host(0));
    let held = hold(&one);
    one.download(&buffer, &mut first).unwrap();
    // Both read.
    two.download(&buffer, &mut second).unwrap();
    let refused = two.upload_slice(&[0; 10], (&mut buffer, 0..10));
    assert!(matches!(refused, Err(Error::InUse)), "{refused:?}");
    assert!(is_refused(buffer.zero_async(two.cuda_core())));
    drop(held);
    assert_eq!(first.read().unwrap(), values(6, LEN));
    assert_eq!(second.read().unwrap(), values(6, LEN));
    one.pinlane().synchronize().unwrap();
    buffer.zero_async(two.cuda_core()).unwrap();
    assert_eq!(contents(&two, &buffer), [0; LEN]);
}

fn work_of_cuda_core_keeps_its_memory() {
    let rig = rig();
    let first = rig.another();
    let mut buffer = rig.zeros();
    let held = hold(&first);
    refill(&first, &rig.host(8), &mut buffer).unwrap();
    let mut to = rig.host(0);
    let refused = rig.stream.download(&buffer, &mut to);
    assert!(matches!(refused, Err(Error::InUse)), "{refused:?}");
    let refused = rig.stream.download_slice(&buffer, &mut [0; LEN]);
    assert!(matches!(refused, Err(Error::InUse)), "{refused:?}");
    first.download(&buffer, &mut to).unwrap();
    assert!(is_in_use(&mut to));
    drop(held);
    assert_eq!(to.read().unwrap(), values(8, LEN));
}

fn memory_of_a_copy_may_be_dropped() {
    let rig = rig();
    let mut buffer = rig.zeros();
    let (from, mut to) = (rig.host(2), rig.host(0));
    let held = hold(&rig.stream);
    rig.stream.upload(&from, &mut buffer).unwrap();
    rig.stream.download(&buffer, &mut to).unwrap();
    let storage = buffer.into_storage();
    assert!(storage.is_unique(), "the copies are no owners of it");
    drop(storage);
    drop(held);
    assert_eq!(to.read().unwrap(), values(2, LEN));
}

fn a_lent_buffer_is_in_use() {
    let rig = rig();
    let mut buffer = rig.zeros();
    let mut from = rig.host(2);
    let mut memory = rig.device.alloc::<u32>(LEN).unwrap();
    let held = hold(&rig.stream);
    refill(&rig.stream, &from, &mut buffer).unwrap();
    // SAFETY: memory of that device, of which nothing is left but a copy on the stream.
    unsafe {
        rig.stream.lend_device_mut(&mut memory, |memory| {
            memory.copy_from_device_async(&buffer, rig.stream.cuda_core())
        })
    }
    .unwrap()
    .unwrap();
    assert!(is_in_use(&mut from));
    // The copy reads, so the host may.
    assert_eq!(from.try_read().unwrap(), values(2, LEN));
    // pinlane orders other streams after the use.
    let own = rig.device.stream().unwrap();
    let mut back = rig.host(0);
    own.download(&memory, &mut back).unwrap();
    assert!(is_in_use(&mut back));
    drop(held);
    from.write().unwrap().fill(0);
    assert_eq!(back.read().unwrap(), values(2, LEN));
}

fn what_is_lent_has_arrived() {
    let rig = rig();
    let mut buffer = rig.zeros();
    rig.stream.upload_slice(&values(3, LEN), &mut buffer).unwrap();
    let mut host = rig.host(0);
    let held = hold(&rig.stream);
    rig.stream.download(&buffer, &mut host).unwrap();
    let opened = std::thread::spawn(move || drop(held));
    let seen = rig.another().lend_host(&host, <[u32]>::to_vec).unwrap();
    opened.join().unwrap();
    assert_eq!(seen, values(3, LEN));
}

fn a_dropped_buffer_comes_back_after_its_use() {
    let rig = rig();
    let pool = PinnedPool::builder(&rig.device).max_bytes(4096).build().unwrap();
    let mut buffer = DeviceBuffer::<u32>::zeroed(rig.stream.cuda_core(), 1024).unwrap();
    let mut host = pool.alloc::<u32>(1024).unwrap();
    host.write().unwrap().fill(5);
    let held = hold(&rig.stream);
    refill(&rig.stream, &host, &mut buffer).unwrap();
    drop(host);
    assert!(pool.try_alloc::<u32>(1024).is_err(), "its only block is in use");
    drop(held);
    pool.alloc::<u32>(1024).unwrap().write().unwrap().fill(6);
    assert_eq!(contents(&rig.stream, &buffer), [5; 1024]);
}

fn a_panic_while_a_buffer_is_lent() {
    let rig = rig();
    let mut buffer = rig.zeros();
    let mut host = rig.host(1);
    let held = hold(&rig.stream);
    let work = std::panic::AssertUnwindSafe(|| {
        rig.stream.lend_host(&host, |host| {
            // SAFETY: a use on this stream, which `lend_host` waits for.
            unsafe { buffer.copy_from_host_async_unchecked(rig.stream.cuda_core(), host) }.unwrap();
            std::panic::resume_unwind(Box::new("the closure's own"));
        })
    });
    assert!(std::panic::catch_unwind(work).is_err());
    assert!(is_in_use(&mut host));
    drop(held);
    host.write().unwrap().fill(0);
    assert_eq!(contents(&rig.stream, &buffer), values(1, LEN));
}

fn a_stream_lives_as_long_as_its_uses() {
    let Rig { context, device, pool, stream } = rig();
    let there = Arc::downgrade(stream.cuda_core());
    let mut buffer = DeviceBuffer::zeroed(&context.default_stream(), LEN).unwrap();
    stream.upload_slice(&values(3, LEN), &mut buffer).unwrap();
    let mut host = pool.alloc::<u32>(LEN).unwrap();
    let held = hold(&stream);
    stream.download(&buffer, &mut host).unwrap();
    let ticket = stream.pinlane().record().unwrap();
    drop(stream);
    assert!(there.upgrade().is_some(), "the stream is still there");
    drop(held);
    assert_eq!(host.read().unwrap(), values(3, LEN));
    ticket.wait().unwrap();
    // Its last owners go, on a thread without a current context, which it is afterwards too.
    let free = move || {
        drop((host, ticket, pool, device));
        let mut current = std::ptr::null_mut();
        // SAFETY: the pointer is valid.
        assert_eq!(unsafe { sys::cuCtxGetCurrent(&mut current) }, 0);
        current.is_null()
    };
    assert!(std::thread::spawn(free).join().unwrap());
    assert!(there.upgrade().is_none(), "the stream is dropped");
}

fn lent_device_memory_is_for_one_stream() {
    let rig = rig();
    let other = rig.another();
    let mut memory = rig.device.alloc::<u32>(LEN).unwrap();
    let mut buffer = rig.zeros();
    // SAFETY: memory of that device, of which nothing is left.
    let refused = unsafe {
        rig.stream
            .lend_device(&memory, |memory| buffer.copy_from_device_async(memory, other.cuda_core()))
    };
    assert!(is_refused(refused.unwrap()));
    // SAFETY: as above.
    let refused = unsafe {
        rig.stream.lend_device_mut(&mut memory, |memory| memory.zero_async(other.cuda_core()))
    };
    assert!(is_refused(refused.unwrap()));
}

fn a_stream_is_not_left_captured() {
    let rig = rig();
    let (stream, other) = (&rig.stream, rig.another());
    let mut buffer = rig.zeros();
    let mut host = rig.host(2);
    // SAFETY: the context is current, and the stream is not captured.
    let begin = || unsafe { stream.cuda_core().begin_capture(LOCAL) }.unwrap();
    let refused = stream.lend_host(&host, |_| begin());
    assert!(matches!(refused, Err(Error::Captured)), "{refused:?}");
    // It was ended, and the stream is as before.
    stream.upload(&host, &mut buffer).unwrap();
    assert_eq!(contents(stream, &buffer), values(2, LEN));

    begin();
    let refused = stream.lend_host(&host, |_| unreachable!("the stream is captured"));
    let Err(Error::Pinlane(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::StreamCapturing);
    let refused = stream.upload(&host, &mut buffer);
    assert!(matches!(refused, Err(Error::Captured)), "{refused:?}");
    // SAFETY: it is being captured, and the graph is only here.
    unsafe {
        let graph = stream.cuda_core().end_capture().unwrap();
        assert_eq!(sys::cuGraphDestroy(graph), 0);
    }
    // Nothing of it is left in the memory.
    other.download(&buffer, &mut host).unwrap();
    assert_eq!(host.read().unwrap(), values(2, LEN));
}

fn other_contexts_are_refused() {
    let rig = rig();
    let emulated = Device::emulated().unwrap();
    let refused = SharedStream::new(&emulated, rig.stream.cuda_core()).unwrap_err();
    assert!(refused.to_string().contains("emulated"), "{refused}");
    let mut own = std::ptr::null_mut();
    // SAFETY: the pointer is valid, and the device exists. The context outlives its stream.
    unsafe {
        let device = rig.context.cu_device();
        assert_eq!(sys::cuCtxCreate_v4(&mut own, std::ptr::null_mut(), 0, device), 0);
        let context = Context::borrow_raw(own.cast(), device, 0);
        let refused = SharedStream::new(&rig.device, &context.default_stream()).unwrap_err();
        assert!(refused.to_string().contains("of its own"), "{refused}");
        assert_eq!(sys::cuCtxDestroy_v2(own), 0);
    }
    if Context::device_count().unwrap() < 2 {
        return;
    }
    let far = Context::new(1).unwrap().new_stream().unwrap();
    let refused = SharedStream::new(&rig.device, &far).unwrap_err();
    assert!(refused.to_string().contains("the stream is of device 1"), "{refused}");
    let mut buffer = DeviceBuffer::<u32>::zeroed(&far, LEN).unwrap();
    let refused = rig.stream.upload(&rig.host(0), &mut buffer).unwrap_err();
    assert!(matches!(refused, Error::OtherContext(_)), "{refused:?}");
}

fn lengths_must_be_equal() {
    let rig = rig();
    let mut buffer = rig.zeros();
    let refused = rig.stream.upload(rig.host(0).slice(1..).unwrap(), &mut buffer).unwrap_err();
    let Error::Pinlane(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::LengthMismatch);
    let refused = rig.stream.upload(&rig.host(0), (&mut buffer, 1..LEN + 1)).unwrap_err();
    assert!(matches!(refused, Error::CudaCore(_)), "{refused:?}");
}

fn what_cuda_core_has_noted_ends_a_copy() {
    let rig = rig();
    let (other, mut buffer, host) = (rig.another(), rig.zeros(), rig.host(5));
    let noted = DriverError(sys::cudaError_enum_CUDA_ERROR_UNKNOWN);
    rig.context.record_err(Err::<(), _>(noted));
    let refused = rig.stream.upload(&host, &mut buffer);
    assert!(matches!(refused, Err(Error::CudaCore(error)) if error == noted), "{refused:?}");
    // Nothing was copied, and the memory is free for others.
    assert_eq!(contents(&other, &buffer), [0; LEN]);
    other.upload(&host, &mut buffer).unwrap();
    assert_eq!(contents(&other, &buffer), values(5, LEN));
}
