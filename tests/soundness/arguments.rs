//! Rules 9, 10, 15 and 17: lengths, bytes, errors and threads, as far as they can be tested at run
//! time.

use std::ops::Bound;

use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{
    CudaCode, Device, DeviceBuf, DeviceSlice, DeviceSliceMut, Error, ErrorKind, PinnedBuf,
    PinnedPool, PinnedSlice, PinnedSliceMut, Stream, Strided, Strides, Ticket,
};

use crate::common::{self, Pages};
use crate::support::{LEN, Rig, all_calls, block_on};

#[test]
fn rule_09_lengths_must_match_and_nothing_is_enqueued() {
    let rig = Rig::new(Execution::Lazy, 0, 4);
    let (mut host, mut gpu) = (rig.host(1), rig.gpu());
    let (mut shorter, mut small) = (rig.pool.alloc(LEN - 1).unwrap(), rig.device.alloc(1).unwrap());
    let mut sums = rig.device.alloc::<u64>(2).unwrap();
    let before = all_calls(&rig.emulator);
    let errors = [
        rig.stream.upload(&shorter, &mut gpu).unwrap_err(),
        rig.stream.upload(&host, &mut small).unwrap_err(),
        rig.stream.download(&gpu, &mut shorter).unwrap_err(),
        rig.stream.download(&small, &mut host).unwrap_err(),
        rig.stream.copy(&gpu, &mut small).unwrap_err(),
        rig.stream.copy(&small, &mut gpu).unwrap_err(),
        rig.stream.checksum(&gpu, &mut sums).unwrap_err(),
        rig.stream.upload(host.slice(..5).unwrap(), gpu.slice_mut(..6).unwrap()).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::LengthMismatch), "{errors:?}");
    assert_eq!(all_calls(&rig.emulator), before);
    host.try_write().unwrap();
}

#[test]
fn rule_09_ranges_lie_inside_or_are_refused() {
    let device = common::device();
    let pool = common::pool(&device).build().unwrap();
    let mut host = pool.alloc::<u64>(10).unwrap();
    let mut gpu = device.alloc::<u64>(10).unwrap();
    let past_the_end = (Bound::Excluded(usize::MAX), Bound::Unbounded);
    #[allow(clippy::reversed_empty_ranges)]
    let outside = [
        (Bound::Included(0), Bound::Excluded(11)),
        (Bound::Included(11), Bound::Excluded(11)),
        (Bound::Included(6), Bound::Excluded(5)),
        (Bound::Included(0), Bound::Included(10)),
        (Bound::Included(0), Bound::Included(usize::MAX)),
        (Bound::Included(usize::MAX), Bound::Unbounded),
        past_the_end,
    ];
    for range in outside {
        let kinds = [
            host.slice(range).map(drop).unwrap_err().kind(),
            host.slice_mut(range).map(drop).unwrap_err().kind(),
            gpu.slice(range).map(drop).unwrap_err().kind(),
            gpu.slice_mut(range).map(drop).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::OutOfRange; 4], "{range:?}");
    }
    let error = gpu.slice(3..12).map(drop).unwrap_err().to_string();
    assert!(error.contains("the range 3 .. 12 does not lie in 10 elements of 8 bytes"), "{error}");
    assert_eq!(host.slice(10..).unwrap().len(), 0);
    assert_eq!(host.slice(..=9).unwrap().len(), 10);
    assert_eq!(gpu.slice((Bound::Excluded(3), Bound::Included(5))).unwrap().len(), 2);
}

#[test]
fn rule_09_sizes_that_overflow_are_refused() {
    let device = common::device();
    let pool = common::pool(&device).max_bytes(usize::MAX).build().unwrap();
    let kinds = [
        pool.alloc::<u64>(usize::MAX / 8 + 1).unwrap_err().kind(),
        pool.alloc::<u64>(usize::MAX).unwrap_err().kind(),
        pool.alloc::<u8>(isize::MAX as usize + 1).unwrap_err().kind(),
        device.alloc::<u64>(usize::MAX / 8 + 1).unwrap_err().kind(),
        device.alloc::<[u64; 3]>(usize::MAX / 8).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::InvalidValue; 5]);
    // The largest valid size: no machine has so much memory, and the budget's sums must not
    // overflow.
    let huge = pool.alloc::<u8>(isize::MAX as usize - 4095).unwrap_err().kind();
    assert!(matches!(huge, ErrorKind::OutOfHostMemory | ErrorKind::InvalidValue), "{huge:?}");
    assert_eq!(pool.stats().committed_bytes, 0);
}

#[test]
fn rule_09_rows_lie_in_their_view_and_apart() {
    let device = common::device();
    let stream = device.stream().unwrap();
    let pool = common::pool(&device).build().unwrap();
    let (host, mut gpu) = (pool.alloc::<u64>(100).unwrap(), device.alloc::<u64>(100).unwrap());
    let (outside, invalid) = (ErrorKind::OutOfRange, ErrorKind::InvalidValue);
    for (strides, kind) in [
        (Strides::new(10, 10, 11), outside),
        (Strides::new(101, 1, 0), outside),
        (Strides::new(10, 2, 10).planes(2, 81), outside),
        (Strides::new(2, 2, usize::MAX), outside),
        (Strides::new(usize::MAX, usize::MAX, 1), outside),
        (Strides::new(1, 1, 0).planes(usize::MAX, usize::MAX), outside),
        (Strides::new(10, 10, 9), invalid),
        (Strides::new(10, 5, 0), invalid),
        (Strides::new(10, 2, 20).planes(2, 25), invalid),
    ] {
        let kinds = [
            Strided::new(host.as_slice(), strides).map(drop).unwrap_err().kind(),
            Strided::new(gpu.as_slice_mut(), strides).map(drop).unwrap_err().kind(),
            Strided::new(&[0u64; 100][..], strides).map(drop).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [kind; 3], "{strides:?}");
    }
    let rows = |row, rows| Strided::new(host.as_slice(), Strides::new(row, rows, row + 1)).unwrap();
    for refused in [rows(10, 3), rows(9, 4)] {
        let target = Strided::new(gpu.as_slice_mut(), Strides::new(10, 4, 12)).unwrap();
        let error = stream.upload_strided(refused, target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LengthMismatch);
    }
}

#[test]
fn rule_09_no_bytes_are_no_operation() {
    let device = common::device();
    let pool = common::pool(&device).build().unwrap();
    let stream = device.stream().unwrap();
    // As many elements without size as possible; and no elements.
    let mut units = pool.alloc::<()>(usize::MAX).unwrap();
    assert_eq!(units.read().unwrap().len(), usize::MAX);
    let mut on_device = device.alloc::<()>(usize::MAX).unwrap();
    assert!(stream.upload(&units, &mut on_device).unwrap().is_done().unwrap());
    assert!(stream.download(&on_device, &mut units).unwrap().is_done().unwrap());
    assert!(stream.fill(&mut on_device, ()).unwrap().is_done().unwrap());
    let mut none = pool.alloc::<u64>(0).unwrap();
    assert_eq!(none.write().unwrap(), []);
    assert!(stream.upload(&none, &mut device.alloc(0).unwrap()).unwrap().is_done().unwrap());
    assert_eq!(pool.stats().growths.count, 0);
}

#[test]
fn rule_09_casts_of_views_keep_to_their_bytes() {
    let device = common::device();
    let mut gpu = device.alloc::<u8>(64).unwrap();
    assert_eq!(gpu.slice(8..40).unwrap().cast::<u64>().unwrap().len(), 4);
    let bad = [(1..9, "a start that is not aligned"), (8..17, "an end that is no multiple")];
    for (range, why) in bad {
        let error = gpu.slice_mut(range).unwrap().cast::<u64>().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue, "{why}");
    }
    assert_eq!(
        gpu.slice(..).unwrap().cast::<()>().map(drop).unwrap_err().kind(),
        ErrorKind::InvalidValue
    );
    // Borrowed memory may begin anywhere. The message names the cause: the address.
    let first = gpu.as_device_ptr();
    // SAFETY: bytes of `gpu`, which outlives the buffer; nothing is enqueued.
    let lent = unsafe { device.borrow_memory::<u8>(first + 4, 16) }.unwrap();
    assert_eq!(lent.slice(..8).unwrap().cast::<u32>().unwrap().len(), 2);
    let error = lent.slice(..8).unwrap().cast::<u64>().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    assert!(error.to_string().contains(&format!("{:#x}", first + 4)), "{error}");
}

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

#[derive(Clone, Copy)]
#[repr(C, align(4194304))]
struct FourMib([u8; 4 << 20]);

// SAFETY: an array of bytes of exactly the alignment's size: any bit pattern, no padding.
unsafe impl bytemuck::Zeroable for Page {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Page {}
// SAFETY: as above.
unsafe impl bytemuck::Zeroable for FourMib {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for FourMib {}

#[test]
fn rule_10_elements_are_aligned_or_refused() {
    let device = common::device();
    let pool = common::pool(&device).build().unwrap();
    for len in [0, 1, 3] {
        let pages = pool.alloc_zeroed::<Page>(len).unwrap();
        assert!(pages.as_ptr().is_aligned());
        assert!(pages.read().unwrap().iter().all(|page| page.0 == [0; 4096]));
        let refused = pool.alloc::<FourMib>(len).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidValue);
    }
}

#[test]
fn rule_10_zeroed_memory_is_zero_even_if_it_was_used_before() {
    let device = common::device();
    let pool = common::pool(&device).build().unwrap();
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u32>(LEN).unwrap();
    stream.fill(&mut gpu, !0).unwrap();
    for _ in 0..20 {
        let mut host = pool.alloc_zeroed::<u32>(LEN).unwrap();
        assert_eq!(host.read().unwrap(), [0; LEN]);
        stream.download(&gpu, &mut host).unwrap();
    }
}

/// The emulated device has no last error. Other tests show that the CUDA driver does not change the
/// caller's last error: those in `src/driver/cuda/runtime/thread.rs`, and on a GPU, from C++,
/// `ffi-examples/cpp/kernel.cu`. This test shows that an error is returned once, by the call that
/// it belongs to, and not by the next.
#[test]
fn rule_15_an_error_is_told_once() {
    let rig = Rig::new(Execution::Eager, 0, 2);
    let (mut host, mut gpu) = (rig.host(1), rig.gpu());
    for call in [Call::CopyH2D, Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize] {
        rig.emulator.inject(Fault::once(call, CudaCode::UNKNOWN));
        let results = [
            rig.stream.upload(&host, &mut gpu).and_then(|ticket| ticket.wait()),
            rig.stream.record().and_then(|ticket| ticket.wait()),
            rig.stream.record().and_then(|ticket| ticket.is_done().map(drop)),
            rig.stream.synchronize(),
        ];
        let failed = results.iter().filter_map(|result| result.as_ref().err());
        assert_eq!(failed.map(Error::cuda_code).collect::<Vec<_>>(), [Some(CudaCode::UNKNOWN)]);
        rig.stream.upload(&host, &mut gpu).unwrap().wait().unwrap();
        rig.stream.synchronize().unwrap();
        host.write().unwrap().fill(1);
    }
}

#[test]
fn rule_17_what_may_be_sent_and_shared() {
    fn both<T: Send + Sync>() {}
    both::<(Device, PinnedPool, Stream, Ticket, Error)>();
    both::<(PinnedBuf<f32>, PinnedSlice<'_, f32>, PinnedSliceMut<'_, f32>)>();
    both::<(DeviceBuf<f32>, DeviceSlice<'_, f32>, DeviceSliceMut<'_, f32>)>();
}

/// An asynchronous reader of a socket or a file gets the page-locked elements themselves, in a task
/// that any thread may continue.
#[test]
fn rule_17_a_task_may_hold_the_elements_across_an_await() {
    async fn read_exact(into: &mut [u8]) {
        into.fill(7);
        std::future::ready(()).await;
    }
    fn spawned<F: Future<Output = u8> + Send + 'static>(task: F) -> F {
        task
    }
    let pool = common::pool(&common::device()).build().unwrap();
    let mut host = pool.alloc::<u8>(100).unwrap();
    let task = spawned(async move {
        let bytes = host.write().unwrap();
        read_exact(bytes).await;
        bytes[99]
    });
    assert_eq!(block_on(task), 7);
}

/// The runtime, and the emulated device, refuse a copy that spans two registrations. A block has
/// several if the system does not register it in one call, whatever error it returns.
#[test]
fn rule_09_copies_are_split_where_one_registration_was_refused() {
    if common::pages() != Pages::Registered {
        return; // Nothing is registered.
    }
    for code in [CudaCode::MEMORY_ALLOCATION, CudaCode::INVALID_VALUE, CudaCode::UNKNOWN] {
        let emulator = common::machine().page_lock_limit(PART, code).build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let pool = common::pool(&device).build().unwrap();
        copy_across_seams(&device, &pool);
        assert_eq!(pool.stats().fallbacks.in_parts, 1, "{code}");
        drop((pool, device));
        assert_eq!((emulator.usage().host_blocks, emulator.findings()), (0, vec![]));
    }
}

const PART: usize = 8 << 20;

fn copy_across_seams(device: &Device, pool: &PinnedPool) {
    let stream = device.stream().unwrap();
    let len = 2 * PART + 40_000;
    let mut host = pool.alloc::<u8>(len).unwrap();
    for (index, byte) in host.write().unwrap().iter_mut().enumerate() {
        *byte = (index % 251) as u8;
    }
    let expected = host.read().unwrap().to_vec();
    let mut gpu = device.alloc::<u8>(len).unwrap();
    for range in [0..len, PART - 1..PART + 1, PART..2 * PART, 5..len - 5, PART - 9..2 * PART + 9] {
        stream
            .upload(host.slice(range.clone()).unwrap(), gpu.slice_mut(range.clone()).unwrap())
            .unwrap();
        host.write().unwrap()[range.clone()].fill(0);
        stream.download(gpu.slice(range.clone()).unwrap(), host.slice_mut(range).unwrap()).unwrap();
        assert!(host.read().unwrap() == expected);
    }
}
