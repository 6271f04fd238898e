//! The face for programs that call CUDA itself, by the rules' numbers.

use std::ffi::c_void;

use super::*;
use crate::machine::BLOCKING;
use crate::{Builder, Face, Kind, Plane, Side, Target};

const LONG: usize = 1 << 12;

fn face(builder: Builder) -> Face {
    Face::new(builder.devices(2).memory_bytes(1 << 24).build()).expect("room for addresses")
}

fn lazy(seed: u64) -> Face {
    face(Emulator::builder().execution(Execution::Lazy).seed(seed))
}

fn eager() -> Face {
    face(Emulator::builder())
}

fn legacy(face: &Face) -> RawStream {
    face.default_stream(false)
}

fn found(face: &Face) -> Vec<FindingKind> {
    face.emulator().findings().iter().map(|finding| finding.kind).collect()
}

fn upload(face: &Face, stream: RawStream, dst: *mut c_void, src: &[u8], wait: bool) {
    let plane = Plane::line(dst, src.as_ptr().cast(), src.len());
    // SAFETY: the tests keep their memory until the copies are done.
    unsafe { face.copy(stream, plane, Kind::H2D, wait) }.unwrap();
}

fn download(face: &Face, stream: RawStream, src: *mut c_void) -> Vec<u8> {
    let mut bytes = vec![0; LONG];
    let plane = Plane::line(bytes.as_mut_ptr().cast(), src, LONG);
    // SAFETY: as above.
    unsafe { face.copy(stream, plane, Kind::D2H, true) }.unwrap();
    bytes
}

fn fill(face: &Face, stream: RawStream, dst: *mut c_void, value: u8) {
    // SAFETY: device memory of the test's own.
    unsafe { face.fill(stream, dst, LONG, &[value], (LONG, 1), true) }.unwrap();
}

#[test]
fn rules_01_and_03_a_synchronous_upload_returns_before_a_non_blocking_stream_sees_it() {
    let stale = |seed| {
        let face = lazy(seed);
        let other = face.stream_create(0, StreamFlags::default()).unwrap();
        let a = face.malloc(LONG).unwrap();
        fill(&face, legacy(&face), a, 1);
        face.device_synchronize(0).unwrap();
        upload(&face, legacy(&face), a, &[2; LONG], true);
        let seen = download(&face, other, a)[0];
        assert_eq!(download(&face, legacy(&face), a), [2; LONG]);
        assert_eq!(found(&face), [FindingKind::Race], "whatever was seen");
        seen == 1
    };
    assert!((0..40).any(stale));
}

#[test]
fn rule_02_what_a_synchronous_copy_of_page_locked_memory_has_done_when_it_returns() {
    let face = lazy(1);
    let a = face.malloc(LONG).unwrap();
    let b = face.malloc(LONG).unwrap();
    let host = face.host_alloc(LONG, 0, false).unwrap();
    let whole = |dst, src| Plane::line(dst, src, LONG);
    let pending = || face.emulator().usage().pending_operations;
    // SAFETY: memory of the test's own.
    unsafe {
        host.cast::<u8>().write_bytes(7, LONG);
        face.copy(legacy(&face), whole(a, host), Kind::H2D, true).unwrap();
        assert_eq!(pending(), 0);
        face.copy(legacy(&face), whole(b, a), Kind::D2D, true).unwrap();
        assert_eq!(pending(), 1, "within the device nobody waits");
        let other = face.host_alloc(LONG, 0, false).unwrap();
        face.copy(legacy(&face), whole(other, host), Kind::H2H, false).unwrap();
        assert_eq!((pending(), *other.cast::<u8>()), (0, 7), "between hosts it always waits");
    }
    assert_eq!(download(&face, legacy(&face), b), [7; LONG]);
}

#[test]
fn rule_04_a_copy_to_pageable_memory_blocks_and_tells_nothing() {
    for synchronous in [true, false] {
        let face = eager();
        let (stream, other) = (
            face.stream_create(0, StreamFlags::default()).unwrap(),
            face.stream_create(0, StreamFlags::default()).unwrap(),
        );
        let a = face.malloc(LONG).unwrap();
        let mut bytes = vec![0u8; LONG];
        let plane = Plane::line(bytes.as_mut_ptr().cast(), a, LONG);
        // SAFETY: memory of the test's own.
        unsafe { face.copy(stream, plane, Kind::D2H, synchronous) }.unwrap();
        fill(&face, other, a, 1);
        face.emulator().host_reads(bytes.as_ptr(), LONG);
        // That it blocks is not documented; that a synchronous copy is complete on return is.
        let expected = if synchronous { vec![] } else { vec![FindingKind::Race; 2] };
        assert_eq!(found(&face), expected);
    }
}

#[test]
fn rule_07_a_kind_that_contradicts_the_pointers_is_found() {
    let face = eager();
    let a = face.malloc(LONG).unwrap();
    let host = [1_u8; LONG];
    let plane = Plane::line(a, host.as_ptr().cast(), LONG);
    // SAFETY: nothing is copied, or from memory of the test's own.
    let copy = |kind| unsafe { face.copy(legacy(&face), plane, kind, true) };
    // GPUs go by the pointers, unless pageable memory is said to be a device's.
    let refused = Err(CudaCode::INVALID_VALUE);
    let answers = [Kind::D2H, Kind::H2H, Kind::D2D].map(copy);
    assert_eq!(answers, [refused, Ok(()), refused]);
    assert_eq!(found(&face), [FindingKind::BadCopy; 3]);
    assert_eq!((copy(Kind::Default), copy(Kind::H2D)), (Ok(()), Ok(())));
}

#[test]
fn rule_09_a_fill_of_page_locked_memory_is_done_when_it_returns_and_others_are_not() {
    let face = lazy(1);
    let a = face.malloc(LONG).unwrap();
    let host = face.host_alloc(LONG, 0, false).unwrap();
    fill(&face, legacy(&face), a, 1);
    assert_eq!(face.emulator().usage().pending_operations, 1);
    fill(&face, legacy(&face), host, 2);
    // SAFETY: filled when the call returned.
    assert_eq!(unsafe { *host.cast::<u8>() }, 2);
    let mut pageable = [0_u8; 4];
    // SAFETY: refused.
    let refused =
        unsafe { face.fill(legacy(&face), pageable.as_mut_ptr().cast(), 4, &[1], (4, 1), true) };
    assert_eq!(refused, Err(CudaCode::INVALID_VALUE));
}

#[test]
fn rule_13_a_free_synchronizes_with_every_stream_and_an_allocation_with_none() {
    let face = lazy(1);
    let stream = face.stream_create(0, StreamFlags::default()).unwrap();
    let (a, b) = (face.malloc(LONG).unwrap(), face.malloc(LONG).unwrap());
    fill(&face, stream, a, 1);
    let c = face.malloc(LONG).unwrap();
    assert_eq!(face.emulator().usage().pending_operations, 1);
    face.free(b).unwrap();
    assert_eq!(face.emulator().usage().pending_operations, 0);
    fill(&face, stream, a, 1);
    face.free(a).unwrap();
    assert_eq!(found(&face), [], "the fill was done before the memory went");
    assert_eq!(face.free(a), Err(CudaCode::INVALID_VALUE));
    assert_eq!(found(&face), [FindingKind::BadFree]);
    face.free(c).unwrap();
    face.free(std::ptr::null_mut()).unwrap();
    assert_eq!(face.emulator().usage().device_bytes, 0);
}

#[test]
fn rules_18_and_26_the_current_device_and_the_last_error_are_each_threads_own() {
    let face = eager();
    face.set_device(1).unwrap();
    assert_eq!(face.set_device(2), Err(CudaCode::INVALID_DEVICE));
    face.note_error(CudaCode::INVALID_DEVICE);
    std::thread::scope(|scope| {
        let other = || (face.current_device(), face.peek_error());
        assert_eq!(scope.spawn(other).join().unwrap(), (0, CudaCode::SUCCESS));
    });
    assert_eq!(face.current_device(), 1);
    assert_eq!(eager().current_device(), 0, "nor is it another machine's");
    assert_eq!(face.peek_error(), CudaCode::INVALID_DEVICE);
    assert_eq!(face.take_error(), CudaCode::INVALID_DEVICE);
    assert_eq!(face.take_error(), CudaCode::SUCCESS);
    let a = face.malloc(8).unwrap();
    assert_eq!(face.held(a).device, 1);
}

#[test]
fn rules_28_and_29_a_sticky_error_stays_and_not_ready_never_comes() {
    let face = eager();
    face.note_error(CudaCode::NOT_READY);
    assert_eq!(face.peek_error(), CudaCode::SUCCESS);
    face.note_error(CudaCode::ILLEGAL_ADDRESS);
    assert_eq!(face.take_error(), CudaCode::ILLEGAL_ADDRESS);
    assert_eq!(face.take_error(), CudaCode::ILLEGAL_ADDRESS);
}

#[test]
fn rule_23_what_an_address_names() {
    let face = eager();
    let stream = face.default_stream(false);
    let pool = face.device_pool(0).unwrap();
    let a = face.malloc_async(stream, pool, LONG).unwrap();
    let host = face.host_alloc(LONG, 4, false).unwrap();
    let managed = face.host_alloc(LONG, 1, true).unwrap();
    let inside = |ptr: *mut c_void| ptr.cast::<u8>().wrapping_add(LONG - 1).cast::<c_void>();
    for (ptr, side) in [(a, Side::OnDevice), (host, Side::PageLocked), (managed, Side::Managed)] {
        let held = face.held(inside(ptr));
        assert_eq!((held.side, held.base, held.bytes), (side, ptr, LONG));
    }
    assert_eq!(face.held((&raw const face).cast()).side, Side::Pageable);
    assert_eq!(face.held(host).flags, 4);
    face.free_host(host, false).unwrap();
    assert_eq!(face.held(host).side, Side::Pageable);
    assert_eq!(face.free_host(managed, false), Err(CudaCode::INVALID_VALUE));
    face.free(managed).unwrap();
    face.free_async(stream, a).unwrap();
    assert_eq!((face.held(a).side, face.held(a).bytes), (Side::OnDevice, 0));
}

#[test]
fn rules_21_and_22_registered_memory_and_memory_freed_in_flight() {
    let face = lazy(3);
    let mut owned = vec![1_u8; LONG];
    let start = owned.as_mut_ptr().cast::<c_void>();
    let inside = owned.as_mut_ptr().wrapping_add(8).cast::<c_void>();
    // SAFETY: the test's own memory, which outlives its registration.
    let register = |ptr, bytes| unsafe { face.register(ptr, bytes, 0) };
    register(start, LONG).unwrap();
    let again = Err(CudaCode::HOST_MEMORY_ALREADY_REGISTERED);
    assert_eq!((register(start, LONG), register(inside, 8)), (again, again));
    assert_eq!(face.held(inside).side, Side::PageLocked);
    face.unregister(start).unwrap();
    assert_eq!(face.unregister(start), Err(CudaCode::HOST_MEMORY_NOT_REGISTERED));
    assert_eq!(face.held(inside).side, Side::Pageable);

    let host = face.host_alloc(LONG, 0, false).unwrap();
    let a = face.malloc(LONG).unwrap();
    let plane = Plane::line(a, host, LONG);
    // SAFETY: the machine keeps what is freed in flight.
    unsafe { face.copy(legacy(&face), plane, Kind::H2D, false) }.unwrap();
    face.free_host(host, false).unwrap();
    assert_eq!(found(&face), [FindingKind::FreedInFlight]);
    face.device_synchronize(0).unwrap();
    assert_eq!(face.host_alloc(0, 0, false), Ok(std::ptr::null_mut()), "nothing is enough");
}

#[test]
fn a_use_that_races_with_a_free_on_another_stream_is_found() {
    let lost = |seed| {
        let face = lazy(seed);
        let (first, second) = (
            face.stream_create(0, StreamFlags::default()),
            face.stream_create(0, StreamFlags::default()),
        );
        let (first, second) = (first.unwrap(), second.unwrap());
        let pool = face.device_pool(0).unwrap();
        let a = face.malloc_async(first, pool, LONG).unwrap();
        face.device_synchronize(0).unwrap();
        fill(&face, second, a, 1);
        face.free_async(first, a).unwrap();
        let lost = face.device_synchronize(0) == Err(CudaCode::ILLEGAL_ADDRESS);
        let race = [FindingKind::Race, FindingKind::IllegalAddress];
        assert_eq!(found(&face), race[..if lost { 2 } else { 1 }]);
        // From the call of the free on, every use is one too many.
        // SAFETY: refused.
        let refused = unsafe { face.fill(second, a, 1, &[1], (1, 1), true) };
        assert!(refused.is_err());
        lost
    };
    let lost: HashSet<bool> = (0..40).map(lost).collect();
    assert_eq!(lost.len(), 2, "either comes first");
}

#[test]
fn a_synchronize_of_the_device_covers_streams_that_are_gone() {
    for blocking in [true, false] {
        let face = eager();
        let stream = face.stream_create(0, StreamFlags { blocking, priority: 0 }).unwrap();
        let host = face.host_alloc(LONG, 0, false).unwrap();
        let a = face.malloc(LONG).unwrap();
        let plane = Plane::line(a, host, LONG);
        // SAFETY: the block is freed behind the copy.
        unsafe { face.copy(stream, plane, Kind::H2D, false) }.unwrap();
        // SAFETY: nobody uses it afterwards.
        unsafe { face.stream_destroy(stream) }.unwrap();
        face.device_synchronize(0).unwrap();
        face.free_host(host, false).unwrap();
        face.free(a).unwrap();
        assert_eq!(found(&face), []);
    }
}

#[test]
fn rule_23_a_reset_destroys_what_the_device_has_and_nothing_of_others() {
    let face = eager();
    let make = |device| {
        face.set_device(device).unwrap();
        let event = face.emulator().driver().event_create(device, false).unwrap();
        let host = face.host_alloc(LONG, 0, false).unwrap();
        (face.stream_create(device, BLOCKING).unwrap(), event, host, face.malloc(LONG).unwrap())
    };
    let (stream, event, host, memory) = make(0);
    let (other, other_event, other_host, other_memory) = make(1);
    // SAFETY: nobody uses the memory.
    unsafe { face.reset(0) }.unwrap();
    let target = |stream: RawStream| Target { handle: stream.handle, per_thread: false };
    assert!(face.stream(target(stream)).is_err());
    assert!(face.event(event.handle).is_err());
    assert_eq!((face.held(host).side, face.held(memory).bytes), (Side::Pageable, 0));
    assert_eq!(found(&face), [FindingKind::BadHandle; 2]);
    assert_eq!(face.stream(target(other)), Ok(other));
    assert_eq!(face.event(other_event.handle), Ok(other_event));
    assert_eq!(face.held(other_host).bytes + face.held(other_memory).bytes, 2 * LONG);
    face.set_device(0).unwrap();
    let again = face.malloc(LONG).unwrap();
    fill(&face, legacy(&face), again, 1);
    assert_eq!(download(&face, legacy(&face), again), [1; LONG], "and the device goes on");
}

#[test]
fn a_plane_is_copied_line_by_line_and_what_is_between_the_lines_stays() {
    let face = eager();
    let a = face.malloc(LONG).unwrap();
    fill(&face, legacy(&face), a, 9);
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
    unsafe { face.copy(legacy(&face), plane, Kind::H2D, true) }.unwrap();
    let seen = download(&face, legacy(&face), a);
    for (at, &byte) in seen.iter().enumerate() {
        let copied = at < 48 && at % 16 < 6;
        let expected = if copied { at / 16 * 10 + at % 16 } else { 9 };
        assert_eq!(usize::from(byte), expected, "byte {at}");
    }
    let narrow = Plane { src_pitch: 5, ..plane };
    // SAFETY: refused.
    let refused = unsafe { face.copy(legacy(&face), narrow, Kind::H2D, true) };
    assert_eq!((refused, found(&face)), (Err(CudaCode::INVALID_VALUE), vec![]));
    let long = Plane { height: 257, src_pitch: 0, width: 0, ..plane };
    // SAFETY: nothing is copied.
    unsafe { face.copy(legacy(&face), long, Kind::H2D, true) }.unwrap();
}

#[test]
fn a_kernel_runs_in_the_order_of_its_stream_and_uses_device_memory_by_its_address() {
    for seed in 0..10 {
        let face = lazy(seed);
        let stream = face.stream_create(0, BLOCKING).unwrap();
        let a = face.malloc(LONG).unwrap();
        fill(&face, stream, a, 1);
        let address = a.addr();
        let double = move || {
            let first = std::ptr::with_exposed_provenance_mut::<u8>(address);
            for at in 0..LONG {
                // SAFETY: the kernel's own memory, while it runs.
                unsafe { *first.add(at) *= 2 };
            }
        };
        // SAFETY: makes no call, and touches memory that its device may use.
        unsafe { face.launch(stream, "double", &[], Some(Box::new(double))) }.unwrap();
        // SAFETY: does nothing.
        unsafe { face.launch(stream, "nothing", &[], None) }.unwrap();
        assert_eq!(download(&face, stream, a), [2; LONG]);
    }
}

#[test]
fn a_pool_gives_no_more_than_its_limit_and_counts_what_it_gives() {
    use crate::PoolFigure;
    let face = eager();
    let stream = face.default_stream(false);
    let pool = face.pool_create(0, 2 * LONG).unwrap();
    let a = face.malloc_async(stream, pool, LONG).unwrap();
    let b = face.malloc_async(stream, pool, LONG).unwrap();
    let more = face.malloc_async(stream, pool, 1);
    assert_eq!(more, Err(CudaCode::MEMORY_ALLOCATION));
    face.free_async(stream, a).unwrap();
    let figure = |figure| face.pool_figure(pool, figure, None).unwrap() as usize;
    assert_eq!((figure(PoolFigure::Used), figure(PoolFigure::UsedHigh)), (LONG, 2 * LONG));
    assert_eq!(figure(PoolFigure::Reserved), 2 * LONG);
    face.pool_trim(pool, 0).unwrap();
    assert_eq!(figure(PoolFigure::Reserved), LONG);
    face.pool_destroy(pool).unwrap();
    assert_eq!(face.pool_destroy(pool), Err(CudaCode::INVALID_VALUE));
    face.free_async(stream, b).unwrap();
    let default = face.device_pool(0).unwrap();
    assert_eq!(face.pool_destroy(default), Err(CudaCode::INVALID_VALUE));
}

#[test]
fn a_handle_alone_names_a_stream_of_any_device() {
    let face = eager();
    face.set_device(1).unwrap();
    let flags = StreamFlags { blocking: false, priority: -2 };
    let made = face.stream_create(1, flags).unwrap();
    face.set_device(0).unwrap();
    let target = |handle| Target { handle, per_thread: false };
    let stream = face.stream(target(made.handle)).unwrap();
    assert_eq!((stream, face.stream_flags(stream)), (made, flags));
    // SAFETY: nobody uses it afterwards.
    unsafe { face.stream_destroy(stream) }.unwrap();
    let gone = face.stream(target(made.handle));
    assert_eq!(gone, Err(CudaCode::INVALID_RESOURCE_HANDLE));
    assert_eq!(found(&face), [FindingKind::BadHandle]);
    let per_thread = face.stream(Target { handle: 0, per_thread: true }).unwrap();
    assert_eq!(per_thread, face.default_stream(true));
}

/// Memory that one thread frees may be another thread's a moment later.
#[test]
fn threads_get_each_others_addresses() {
    let face = &face(Emulator::builder());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..2000 {
                    let managed = face.host_alloc(LONG, 1, true).unwrap();
                    face.free(managed).unwrap();
                }
            });
        }
    });
    assert!(face.emulator().findings().is_empty(), "{:?}", face.emulator().findings());
}
