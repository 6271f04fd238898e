//! The emulated device for programs that call CUDA themselves, by the rules' numbers.

use std::ffi::c_void;

use super::*;
use crate::machine::BLOCKING;
use crate::{Builder, Emulator, Kind, Plane, Side, Target};

const LONG: usize = 1 << 12;

fn gpu(builder: Builder) -> Emulator {
    builder.devices(2).memory_bytes(1 << 24).build_for_program().expect("room for addresses")
}

fn lazy(seed: u64) -> Emulator {
    gpu(Emulator::builder().execution(Execution::Lazy).seed(seed))
}

fn eager() -> Emulator {
    gpu(Emulator::builder())
}

fn legacy(gpu: &Emulator) -> RawStream {
    gpu.default_stream(false)
}

fn found(gpu: &Emulator) -> Vec<FindingKind> {
    gpu.findings().iter().map(|finding| finding.kind).collect()
}

fn upload(gpu: &Emulator, stream: RawStream, dst: *mut c_void, src: &[u8], wait: bool) {
    let plane = Plane::line(dst, src.as_ptr().cast(), src.len());
    // SAFETY: the tests keep their memory until the copies are done.
    unsafe { gpu.copy(stream, plane, Kind::H2D, wait) }.unwrap();
}

fn download(gpu: &Emulator, stream: RawStream, src: *mut c_void) -> Vec<u8> {
    let mut bytes = vec![0; LONG];
    let plane = Plane::line(bytes.as_mut_ptr().cast(), src, LONG);
    // SAFETY: as above.
    unsafe { gpu.copy(stream, plane, Kind::D2H, true) }.unwrap();
    bytes
}

fn fill(gpu: &Emulator, stream: RawStream, dst: *mut c_void, value: u8) {
    // SAFETY: device memory of the test's own.
    unsafe { gpu.fill(stream, dst, LONG, &[value], (LONG, 1), true) }.unwrap();
}

#[test]
fn rules_01_and_03_a_synchronous_upload_returns_before_a_non_blocking_stream_sees_it() {
    let stale = |seed| {
        let gpu = lazy(seed);
        let other = gpu.stream_create(0, StreamFlags::default()).unwrap();
        let a = gpu.malloc(LONG).unwrap();
        fill(&gpu, legacy(&gpu), a, 1);
        gpu.device_synchronize(0).unwrap();
        upload(&gpu, legacy(&gpu), a, &[2; LONG], true);
        let seen = download(&gpu, other, a)[0];
        assert_eq!(download(&gpu, legacy(&gpu), a), [2; LONG]);
        assert_eq!(found(&gpu), [FindingKind::Race], "whatever was seen");
        seen == 1
    };
    assert!((0..40).any(stale));
}

#[test]
fn rule_02_what_a_synchronous_copy_of_page_locked_memory_has_done_when_it_returns() {
    let gpu = lazy(1);
    let a = gpu.malloc(LONG).unwrap();
    let b = gpu.malloc(LONG).unwrap();
    let host = gpu.host_alloc(LONG, 0, false).unwrap();
    let whole = |dst, src| Plane::line(dst, src, LONG);
    let pending = || gpu.usage().pending_operations;
    // SAFETY: memory of the test's own.
    unsafe {
        host.cast::<u8>().write_bytes(7, LONG);
        gpu.copy(legacy(&gpu), whole(a, host), Kind::H2D, true).unwrap();
        assert_eq!(pending(), 0);
        gpu.copy(legacy(&gpu), whole(b, a), Kind::D2D, true).unwrap();
        assert_eq!(pending(), 1, "within the device nobody waits");
        let other = gpu.host_alloc(LONG, 0, false).unwrap();
        gpu.copy(legacy(&gpu), whole(other, host), Kind::H2H, false).unwrap();
        assert_eq!((pending(), *other.cast::<u8>()), (0, 7), "between hosts it always waits");
    }
    assert_eq!(download(&gpu, legacy(&gpu), b), [7; LONG]);
}

#[test]
fn rule_04_a_copy_to_pageable_memory_blocks_and_tells_nothing() {
    for synchronous in [true, false] {
        let gpu = eager();
        let (stream, other) = (
            gpu.stream_create(0, StreamFlags::default()).unwrap(),
            gpu.stream_create(0, StreamFlags::default()).unwrap(),
        );
        let a = gpu.malloc(LONG).unwrap();
        let mut bytes = vec![0u8; LONG];
        let plane = Plane::line(bytes.as_mut_ptr().cast(), a, LONG);
        // SAFETY: memory of the test's own.
        unsafe { gpu.copy(stream, plane, Kind::D2H, synchronous) }.unwrap();
        fill(&gpu, other, a, 1);
        gpu.host_reads(bytes.as_ptr(), LONG);
        // That it blocks is not documented; that a synchronous copy is complete on return is.
        let expected = if synchronous { vec![] } else { vec![FindingKind::Race; 2] };
        assert_eq!(found(&gpu), expected);
    }
}

#[test]
fn rule_07_a_kind_that_contradicts_the_pointers_is_found() {
    let gpu = eager();
    let a = gpu.malloc(LONG).unwrap();
    let host = [1_u8; LONG];
    let plane = Plane::line(a, host.as_ptr().cast(), LONG);
    // SAFETY: nothing is copied, or from memory of the test's own.
    let copy = |kind| unsafe { gpu.copy(legacy(&gpu), plane, kind, true) };
    // GPUs follow the pointers, unless the kind says that pageable memory is a device's.
    let refused = Err(CudaCode::INVALID_VALUE);
    let answers = [Kind::D2H, Kind::H2H, Kind::D2D].map(copy);
    assert_eq!(answers, [refused, Ok(()), refused]);
    assert_eq!(found(&gpu), [FindingKind::BadCopy; 3]);
    assert_eq!((copy(Kind::Default), copy(Kind::H2D)), (Ok(()), Ok(())));
}

#[test]
fn rule_09_a_fill_of_page_locked_memory_is_done_when_it_returns_and_others_are_not() {
    let gpu = lazy(1);
    let a = gpu.malloc(LONG).unwrap();
    let host = gpu.host_alloc(LONG, 0, false).unwrap();
    fill(&gpu, legacy(&gpu), a, 1);
    assert_eq!(gpu.usage().pending_operations, 1);
    fill(&gpu, legacy(&gpu), host, 2);
    // SAFETY: filled when the call returned.
    assert_eq!(unsafe { *host.cast::<u8>() }, 2);
    let mut pageable = [0_u8; 4];
    // SAFETY: refused.
    let refused =
        unsafe { gpu.fill(legacy(&gpu), pageable.as_mut_ptr().cast(), 4, &[1], (4, 1), true) };
    assert_eq!(refused, Err(CudaCode::INVALID_VALUE));
}

#[test]
fn rule_13_a_free_synchronizes_with_every_stream_and_an_allocation_with_none() {
    let gpu = lazy(1);
    let stream = gpu.stream_create(0, StreamFlags::default()).unwrap();
    let (a, b) = (gpu.malloc(LONG).unwrap(), gpu.malloc(LONG).unwrap());
    fill(&gpu, stream, a, 1);
    let c = gpu.malloc(LONG).unwrap();
    assert_eq!(gpu.usage().pending_operations, 1);
    gpu.free(b).unwrap();
    assert_eq!(gpu.usage().pending_operations, 0);
    fill(&gpu, stream, a, 1);
    gpu.free(a).unwrap();
    assert_eq!(found(&gpu), [], "the fill was done before the memory went");
    assert_eq!(gpu.free(a), Err(CudaCode::INVALID_VALUE));
    assert_eq!(found(&gpu), [FindingKind::BadFree]);
    gpu.free(c).unwrap();
    gpu.free(std::ptr::null_mut()).unwrap();
    assert_eq!(gpu.usage().device_bytes, 0);
}

#[test]
fn rules_18_and_26_the_current_device_and_the_last_error_are_each_threads_own() {
    let gpu = eager();
    gpu.set_device(1).unwrap();
    assert_eq!(gpu.set_device(2), Err(CudaCode::INVALID_DEVICE));
    gpu.note_error(CudaCode::INVALID_DEVICE);
    std::thread::scope(|scope| {
        let other = || (gpu.current_device(), gpu.peek_error());
        assert_eq!(scope.spawn(other).join().unwrap(), (0, CudaCode::SUCCESS));
    });
    assert_eq!(gpu.current_device(), 1);
    assert_eq!(eager().current_device(), 0, "nor is it another machine's");
    assert_eq!(gpu.peek_error(), CudaCode::INVALID_DEVICE);
    assert_eq!(gpu.take_error(), CudaCode::INVALID_DEVICE);
    assert_eq!(gpu.take_error(), CudaCode::SUCCESS);
    let a = gpu.malloc(8).unwrap();
    assert_eq!(gpu.held(a).device, 1);
}

#[test]
fn rules_28_and_29_a_sticky_error_stays_and_not_ready_never_comes() {
    let gpu = eager();
    gpu.note_error(CudaCode::NOT_READY);
    assert_eq!(gpu.peek_error(), CudaCode::SUCCESS);
    gpu.note_error(CudaCode::ILLEGAL_ADDRESS);
    assert_eq!(gpu.take_error(), CudaCode::ILLEGAL_ADDRESS);
    assert_eq!(gpu.take_error(), CudaCode::ILLEGAL_ADDRESS);
}

#[test]
fn rule_23_what_an_address_names() {
    let gpu = eager();
    let stream = gpu.default_stream(false);
    let pool = gpu.device_pool(0).unwrap();
    let a = gpu.malloc_async(stream, pool, LONG).unwrap();
    let host = gpu.host_alloc(LONG, 4, false).unwrap();
    let managed = gpu.host_alloc(LONG, 1, true).unwrap();
    let inside = |ptr: *mut c_void| ptr.cast::<u8>().wrapping_add(LONG - 1).cast::<c_void>();
    for (ptr, side) in [(a, Side::OnDevice), (host, Side::PageLocked), (managed, Side::Managed)] {
        let held = gpu.held(inside(ptr));
        assert_eq!((held.side, held.base, held.bytes), (side, ptr, LONG));
    }
    assert_eq!(gpu.held((&raw const gpu).cast()).side, Side::Pageable);
    assert_eq!(gpu.held(host).flags, 4);
    gpu.free_host(host, false).unwrap();
    assert_eq!(gpu.held(host).side, Side::Pageable);
    assert_eq!(gpu.free_host(managed, false), Err(CudaCode::INVALID_VALUE));
    gpu.free(managed).unwrap();
    gpu.free_async(stream, a).unwrap();
    assert_eq!((gpu.held(a).side, gpu.held(a).bytes), (Side::OnDevice, 0));
}

#[test]
fn rules_21_and_22_registered_memory_and_memory_freed_in_flight() {
    let gpu = lazy(3);
    let mut owned = vec![1_u8; LONG];
    let start = owned.as_mut_ptr().cast::<c_void>();
    let inside = owned.as_mut_ptr().wrapping_add(8).cast::<c_void>();
    // SAFETY: the test's own memory, which outlives its registration.
    let register = |ptr, bytes| unsafe { gpu.register(ptr, bytes, 0) };
    register(start, LONG).unwrap();
    let again = Err(CudaCode::HOST_MEMORY_ALREADY_REGISTERED);
    assert_eq!((register(start, LONG), register(inside, 8)), (again, again));
    assert_eq!(gpu.held(inside).side, Side::PageLocked);
    gpu.unregister(start).unwrap();
    assert_eq!(gpu.unregister(start), Err(CudaCode::HOST_MEMORY_NOT_REGISTERED));
    assert_eq!(gpu.held(inside).side, Side::Pageable);

    let host = gpu.host_alloc(LONG, 0, false).unwrap();
    let a = gpu.malloc(LONG).unwrap();
    let plane = Plane::line(a, host, LONG);
    // SAFETY: the machine keeps what is freed in flight.
    unsafe { gpu.copy(legacy(&gpu), plane, Kind::H2D, false) }.unwrap();
    gpu.free_host(host, false).unwrap();
    assert_eq!(found(&gpu), [FindingKind::FreedInFlight]);
    gpu.device_synchronize(0).unwrap();
    assert_eq!(gpu.host_alloc(0, 0, false), Ok(std::ptr::null_mut()), "nothing is enough");
}

#[test]
fn a_use_that_races_with_a_free_on_another_stream_is_found() {
    let lost = |seed| {
        let gpu = lazy(seed);
        let (first, second) = (
            gpu.stream_create(0, StreamFlags::default()),
            gpu.stream_create(0, StreamFlags::default()),
        );
        let (first, second) = (first.unwrap(), second.unwrap());
        let pool = gpu.device_pool(0).unwrap();
        let a = gpu.malloc_async(first, pool, LONG).unwrap();
        gpu.device_synchronize(0).unwrap();
        fill(&gpu, second, a, 1);
        gpu.free_async(first, a).unwrap();
        let lost = gpu.device_synchronize(0) == Err(CudaCode::ILLEGAL_ADDRESS);
        let race = [FindingKind::Race, FindingKind::IllegalAddress];
        assert_eq!(found(&gpu), race[..if lost { 2 } else { 1 }]);
        // After the call of the free, every use is a misuse. SAFETY: refused.
        let refused = unsafe { gpu.fill(second, a, 1, &[1], (1, 1), true) };
        assert!(refused.is_err());
        lost
    };
    let lost: HashSet<bool> = (0..40).map(lost).collect();
    assert_eq!(lost.len(), 2, "either comes first");
}

#[test]
fn a_synchronize_of_the_device_covers_streams_that_are_gone() {
    for blocking in [true, false] {
        let gpu = eager();
        let stream = gpu.stream_create(0, StreamFlags { blocking, priority: 0 }).unwrap();
        let host = gpu.host_alloc(LONG, 0, false).unwrap();
        let a = gpu.malloc(LONG).unwrap();
        let plane = Plane::line(a, host, LONG);
        // SAFETY: the block is freed after the copy.
        unsafe { gpu.copy(stream, plane, Kind::H2D, false) }.unwrap();
        // SAFETY: no code uses it afterwards.
        unsafe { gpu.stream_destroy(stream) }.unwrap();
        gpu.device_synchronize(0).unwrap();
        gpu.free_host(host, false).unwrap();
        gpu.free(a).unwrap();
        assert_eq!(found(&gpu), []);
    }
}

#[test]
fn rule_23_a_reset_destroys_what_the_device_has_and_nothing_of_others() {
    let gpu = eager();
    let make = |device| {
        gpu.set_device(device).unwrap();
        let event = gpu.driver().event_create(device, false).unwrap();
        let host = gpu.host_alloc(LONG, 0, false).unwrap();
        (gpu.stream_create(device, BLOCKING).unwrap(), event, host, gpu.malloc(LONG).unwrap())
    };
    let (stream, event, host, memory) = make(0);
    let (other, other_event, other_host, other_memory) = make(1);
    // SAFETY: no code uses the memory.
    unsafe { gpu.reset(0) }.unwrap();
    let target = |stream: RawStream| Target { handle: stream.handle, per_thread: false };
    assert!(gpu.stream(target(stream)).is_err());
    assert!(gpu.event(event.handle).is_err());
    assert_eq!((gpu.held(host).side, gpu.held(memory).bytes), (Side::Pageable, 0));
    assert_eq!(found(&gpu), [FindingKind::BadHandle; 2]);
    assert_eq!(gpu.stream(target(other)), Ok(other));
    assert_eq!(gpu.event(other_event.handle), Ok(other_event));
    assert_eq!(gpu.held(other_host).bytes + gpu.held(other_memory).bytes, 2 * LONG);
    gpu.set_device(0).unwrap();
    let again = gpu.malloc(LONG).unwrap();
    fill(&gpu, legacy(&gpu), again, 1);
    assert_eq!(download(&gpu, legacy(&gpu), again), [1; LONG], "and the device goes on");
}

#[test]
fn a_plane_is_copied_line_by_line_and_what_is_between_the_lines_stays() {
    let gpu = eager();
    let a = gpu.malloc(LONG).unwrap();
    fill(&gpu, legacy(&gpu), a, 9);
    let there: Vec<u8> = (0..30).collect();
    let plane = Plane {
        dst: a,
        dst_pitch: 16,
        src: there.as_ptr().cast(),
        src_pitch: 10,
        width: 6,
        height: 3,
    };
    // SAFETY: memory of the test's own.
    unsafe { gpu.copy(legacy(&gpu), plane, Kind::H2D, true) }.unwrap();
    let seen = download(&gpu, legacy(&gpu), a);
    for (at, &byte) in seen.iter().enumerate() {
        let copied = at < 48 && at % 16 < 6;
        let expected = if copied { at / 16 * 10 + at % 16 } else { 9 };
        assert_eq!(usize::from(byte), expected, "byte {at}");
    }
    let narrow = Plane { src_pitch: 5, ..plane };
    // SAFETY: refused.
    let refused = unsafe { gpu.copy(legacy(&gpu), narrow, Kind::H2D, true) };
    assert_eq!((refused, found(&gpu)), (Err(CudaCode::INVALID_VALUE), vec![]));
    let long = Plane { height: 257, src_pitch: 0, width: 0, ..plane };
    // SAFETY: nothing is copied.
    unsafe { gpu.copy(legacy(&gpu), long, Kind::H2D, true) }.unwrap();
}

#[test]
fn a_kernel_runs_in_the_order_of_its_stream_and_uses_device_memory_by_its_address() {
    for seed in 0..10 {
        let gpu = lazy(seed);
        let stream = gpu.stream_create(0, BLOCKING).unwrap();
        let a = gpu.malloc(LONG).unwrap();
        fill(&gpu, stream, a, 1);
        let address = a.addr();
        let double = move || {
            let first = std::ptr::with_exposed_provenance_mut::<u8>(address);
            for at in 0..LONG {
                // SAFETY: the kernel's own memory, while it runs.
                unsafe { *first.add(at) *= 2 };
            }
        };
        // SAFETY: makes no call, and touches memory that its device may use.
        unsafe { gpu.launch(stream, "double", &[], Some(Box::new(double))) }.unwrap();
        // SAFETY: does nothing.
        unsafe { gpu.launch(stream, "nothing", &[], None) }.unwrap();
        assert_eq!(download(&gpu, stream, a), [2; LONG]);
    }
}

#[test]
fn a_pool_gives_no_more_than_its_limit_and_counts_what_it_gives() {
    use crate::PoolFigure;
    let gpu = eager();
    let stream = gpu.default_stream(false);
    let pool = gpu.pool_create(0, 2 * LONG).unwrap();
    let a = gpu.malloc_async(stream, pool, LONG).unwrap();
    let b = gpu.malloc_async(stream, pool, LONG).unwrap();
    let more = gpu.malloc_async(stream, pool, 1);
    assert_eq!(more, Err(CudaCode::MEMORY_ALLOCATION));
    gpu.free_async(stream, a).unwrap();
    let figure = |figure| gpu.pool_figure(pool, figure, None).unwrap() as usize;
    assert_eq!((figure(PoolFigure::Used), figure(PoolFigure::UsedHigh)), (LONG, 2 * LONG));
    assert_eq!(figure(PoolFigure::Reserved), 2 * LONG);
    gpu.pool_trim(pool, 0).unwrap();
    assert_eq!(figure(PoolFigure::Reserved), LONG);
    gpu.pool_destroy(pool).unwrap();
    assert_eq!(gpu.pool_destroy(pool), Err(CudaCode::INVALID_VALUE));
    gpu.free_async(stream, b).unwrap();
    let default = gpu.device_pool(0).unwrap();
    assert_eq!(gpu.pool_destroy(default), Err(CudaCode::INVALID_VALUE));
}

#[test]
fn a_handle_alone_names_a_stream_of_any_device() {
    let gpu = eager();
    gpu.set_device(1).unwrap();
    let flags = StreamFlags { blocking: false, priority: -2 };
    let made = gpu.stream_create(1, flags).unwrap();
    gpu.set_device(0).unwrap();
    let target = |handle| Target { handle, per_thread: false };
    let stream = gpu.stream(target(made.handle)).unwrap();
    assert_eq!((stream, gpu.stream_flags(stream)), (made, flags));
    // SAFETY: no code uses it afterwards.
    unsafe { gpu.stream_destroy(stream) }.unwrap();
    let gone = gpu.stream(target(made.handle));
    assert_eq!(gone, Err(CudaCode::INVALID_RESOURCE_HANDLE));
    assert_eq!(found(&gpu), [FindingKind::BadHandle]);
    let per_thread = gpu.stream(Target { handle: 0, per_thread: true }).unwrap();
    assert_eq!(per_thread, gpu.default_stream(true));
}

/// Memory that one thread frees may be another thread's a moment later.
#[test]
fn threads_get_each_others_addresses() {
    let gpu = &gpu(Emulator::builder());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..2000 {
                    let managed = gpu.host_alloc(LONG, 1, true).unwrap();
                    gpu.free(managed).unwrap();
                }
            });
        }
    });
    assert!(gpu.findings().is_empty(), "{:?}", gpu.findings());
}
