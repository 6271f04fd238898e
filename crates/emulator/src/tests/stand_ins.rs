//! What stand-ins for kernels load and store, which nobody tells the machine.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

use super::*;
use crate::{Builder, Face, Finding, Kind, Plane};

const PAGE: usize = 4096;

fn face(builder: Builder) -> Face {
    let builder = builder.devices(2).memory_bytes(1 << 26).watch_host(true);
    Face::new(builder.build()).expect("room for addresses")
}

fn eager() -> Face {
    face(Emulator::builder())
}

/// Eagerly, and in each other way with some seeds.
fn faces() -> impl Iterator<Item = Face> {
    let modes = [Execution::Lazy, Execution::Random, Execution::Chunked];
    let seeds = (0..6).flat_map(move |seed| modes.map(|mode| (mode, seed)));
    let others = seeds.map(|(mode, seed)| face(Emulator::builder().execution(mode).seed(seed)));
    std::iter::once(eager()).chain(others)
}

fn findings(face: &Face) -> Vec<Finding> {
    face.emulator().findings()
}

fn kinds(face: &Face) -> Vec<FindingKind> {
    findings(face).iter().map(|finding| finding.kind).collect()
}

fn stream(face: &Face) -> RawStream {
    face.stream_create(0, StreamFlags::default()).unwrap()
}

fn launch(face: &Face, stream: RawStream, words: &[u64], kernel: impl Fn() + Send + 'static) {
    // SAFETY: the tests' kernels make no call, and mean to touch what they do.
    unsafe { face.launch(stream, "kernel", words, Some(Box::new(kernel))) }.unwrap();
}

/// A kernel that stores to bytes.
fn store(face: &Face, on: RawStream, memory: *mut c_void, at: std::ops::Range<usize>, value: u8) {
    let address = memory.addr();
    launch(face, on, &[address as u64], move || {
        let first = with_exposed_provenance_mut::<u8>(address);
        // SAFETY: memory of the test's own.
        at.clone().for_each(|at| unsafe { first.add(at).write_volatile(value) });
    });
}

/// A kernel that loads bytes.
fn load(face: &Face, on: RawStream, memory: *mut c_void, at: std::ops::Range<usize>) {
    let address = memory.addr();
    launch(face, on, &[address as u64], move || {
        let first = with_exposed_provenance_mut::<u8>(address);
        // SAFETY: memory of the test's own.
        let sum = at.clone().map(|at| u64::from(unsafe { first.add(at).read_volatile() })).sum();
        std::hint::black_box::<u64>(sum);
    });
}

fn fill(face: &Face, on: RawStream, memory: *mut c_void, skip: usize, bytes: usize) {
    let at = memory.cast::<u8>().wrapping_add(skip).cast();
    // SAFETY: device memory of the test's own.
    unsafe { face.fill(on, at, bytes, &[1], (bytes, 1), false) }.unwrap();
}

fn wait_for(face: &Face, waits: RawStream, other: RawStream) {
    let driver = face.emulator().driver();
    let event = driver.event_create(0, false).unwrap();
    // SAFETY: both are live.
    unsafe {
        driver.event_record(event, other).unwrap();
        driver.stream_wait_event(waits, event).unwrap();
        driver.event_destroy(event).unwrap();
    }
}

fn synchronize(face: &Face, stream: RawStream) {
    // SAFETY: the stream is live.
    unsafe { face.emulator().driver().stream_synchronize(stream) }.unwrap();
}

#[test]
fn kernels_that_store_to_the_same_bytes_race_unless_something_orders_them() {
    for ordered in [false, true] {
        for face in faces() {
            let (a, b) = (stream(&face), stream(&face));
            let memory = face.malloc(3 * PAGE).unwrap();
            fill(&face, a, memory, 0, 3 * PAGE);
            synchronize(&face, a);
            store(&face, a, memory, 0..3 * PAGE, 3);
            if ordered {
                wait_for(&face, b, a);
            }
            store(&face, b, memory, PAGE + 10..PAGE + 20, 2);
            face.device_synchronize(0).unwrap();
            let found = findings(&face);
            assert_eq!(kinds(&face), vec![FindingKind::Race; usize::from(!ordered)], "{found:#?}");
            if let Some(race) = found.first().and_then(|finding| finding.race()) {
                assert_eq!((&*race.first.operation, race.memory.bytes), ("kernel kernel", 12288));
                assert_eq!((race.start - race.memory.start, race.bytes), (4106, 10));
            }
        }
    }
}

#[test]
fn a_kernel_that_loads_races_with_a_fill_before_or_behind_it() {
    for (before, ordered) in [(true, false), (false, false), (true, true), (false, true)] {
        for face in faces() {
            let (a, b) = (stream(&face), stream(&face));
            let memory = face.malloc(PAGE).unwrap();
            fill(&face, a, memory, 0, PAGE);
            synchronize(&face, a);
            if before {
                fill(&face, a, memory, 0, PAGE);
            } else {
                load(&face, a, memory, 0..PAGE);
            }
            if ordered {
                wait_for(&face, b, a);
            }
            if before {
                load(&face, b, memory, 0..PAGE);
            } else {
                fill(&face, b, memory, 0, PAGE);
            }
            face.device_synchronize(0).unwrap();
            let found = findings(&face);
            assert_eq!(kinds(&face), vec![FindingKind::Race; usize::from(!ordered)], "{found:#?}");
        }
    }
}

/// What is known of a page does not count for the bytes of others.
#[test]
fn kernels_and_fills_of_other_bytes_of_a_page_do_not_race() {
    for face in faces() {
        let streams = [(); 4].map(|()| stream(&face));
        let memory = face.malloc(2 * PAGE).unwrap();
        fill(&face, streams[0], memory, 0, 2 * PAGE);
        synchronize(&face, streams[0]);
        store(&face, streams[0], memory, 0..1000, 3);
        fill(&face, streams[1], memory, 1000, 1000);
        load(&face, streams[2], memory, 2000..5000);
        store(&face, streams[3], memory, 5000..2 * PAGE, 1);
        face.device_synchronize(0).unwrap();
        assert_eq!(kinds(&face), [], "{:#?}", findings(&face));
    }
}

#[test]
fn what_comes_behind_a_kernel_in_its_own_stream_is_ordered() {
    for face in faces() {
        let on = stream(&face);
        let memory = face.malloc_async(on, face.device_pool(0).unwrap(), 2 * PAGE).unwrap();
        fill(&face, on, memory, 0, 2 * PAGE);
        for value in 2..5 {
            load(&face, on, memory, 0..2 * PAGE);
            store(&face, on, memory, 0..2 * PAGE, value);
        }
        fill(&face, on, memory, 0, 2 * PAGE);
        face.free_async(on, memory).unwrap();
        synchronize(&face, on);
        assert_eq!(kinds(&face), [], "{:#?}", findings(&face));
    }
}

#[test]
fn a_kernel_of_much_memory_is_seen_at_its_end_too() {
    let face = eager();
    let (a, b) = (stream(&face), stream(&face));
    let bytes = 1500 * PAGE;
    let memory = face.malloc(bytes).unwrap();
    fill(&face, a, memory, 0, bytes);
    synchronize(&face, a);
    store(&face, a, memory, 0..bytes, 3);
    fill(&face, b, memory, bytes - 10, 10);
    assert_eq!(kinds(&face), [FindingKind::Race]);
}

#[test]
fn the_host_must_not_touch_what_a_kernel_stores_to_before_it_is_done() {
    for waits in [false, true] {
        let face = eager();
        let on = stream(&face);
        let host = face.host_alloc(PAGE, 0, false).unwrap();
        store(&face, on, host, 0..PAGE, 7);
        if waits {
            synchronize(&face, on);
        }
        // SAFETY: memory of the test's own. That the kernel may still run is what is found.
        assert_eq!(unsafe { host.cast::<u8>().read_volatile() }, 7);
        assert_eq!(kinds(&face), vec![FindingKind::Race; usize::from(!waits)]);
    }
}

#[test]
fn other_threads_use_other_bytes_of_a_page_while_a_kernel_runs() {
    let face = eager();
    let host = face.host_alloc(PAGE, 0, false).unwrap();
    let (address, on) = (host.addr(), stream(&face));
    let byte = move |at: usize| with_exposed_provenance_mut::<u8>(address + at);
    // SAFETY: memory of the test's own, each byte of which one thread uses.
    unsafe { host.cast::<u8>().write_bytes(0, PAGE) };
    let (turns, is_over) = (Arc::new(AtomicI32::new(0)), AtomicI32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while is_over.load(Ordering::Relaxed) == 0 {
                // SAFETY: as above.
                unsafe { byte(100).write_volatile(turns.load(Ordering::Relaxed) as u8) };
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
        for value in 0..200 {
            let turns = Arc::clone(&turns);
            launch(&face, on, &[address as u64], move || {
                // The other thread comes first, so that its store opens the page.
                let begun = turns.load(Ordering::Relaxed);
                // It may wait for the machine, though: not for ever.
                let has_come = || turns.load(Ordering::Relaxed) >= begun + 2;
                (0..1000).take_while(|_| !has_come()).for_each(|_| std::thread::yield_now());
                // SAFETY: as above.
                unsafe { byte(0).write_volatile(value) };
            });
            synchronize(&face, on);
        }
        is_over.store(1, Ordering::Relaxed);
    });
    assert_eq!(kinds(&face), [], "{:#?}", findings(&face));
}

#[test]
fn page_locked_memory_that_is_freed_before_a_kernel_has_used_it_is_found() {
    for face in faces() {
        let on = stream(&face);
        let host = face.host_alloc(PAGE, 0, false).unwrap();
        store(&face, on, host, 0..10, 7);
        face.free_host(host, false).unwrap();
        let _ = face.device_synchronize(0);
        assert_eq!(kinds(&face), [FindingKind::FreedInFlight], "{:#?}", findings(&face));
    }
}

#[test]
fn page_locked_memory_that_a_kernel_does_not_use_may_be_freed() {
    for face in faces() {
        let on = stream(&face);
        let host = face.host_alloc(PAGE, 0, false).unwrap();
        launch(&face, on, &[host.addr() as u64], || ());
        face.free_host(host, false).unwrap();
        face.device_synchronize(0).unwrap();
        assert_eq!(kinds(&face), []);
    }
}

#[test]
fn memory_of_another_device_is_out_of_reach_until_access_is_enabled() {
    for enabled in [false, true] {
        let face = eager();
        let driver = face.emulator().driver();
        face.set_device(1).unwrap();
        let there = face.malloc(PAGE).unwrap();
        fill(&face, face.default_stream(false), there, 0, PAGE);
        face.device_synchronize(1).unwrap();
        face.set_device(0).unwrap();
        if enabled {
            driver.enable_peer_access(0, 1).unwrap();
        }
        store(&face, stream(&face), there, 0..PAGE, 9);
        let (code, byte) = (face.device_synchronize(0), if enabled { 9 } else { 1 });
        assert_eq!(code, if enabled { Ok(()) } else { Err(CudaCode::ILLEGAL_ADDRESS) });
        let expected = if enabled { vec![] } else { vec![FindingKind::IllegalAddress] };
        assert_eq!(kinds(&face), expected, "{:#?}", findings(&face));
        face.set_device(1).unwrap();
        let mut back = [0_u8; PAGE];
        let plane = Plane::line(back.as_mut_ptr().cast(), there, PAGE);
        // SAFETY: memory of the test's own.
        unsafe { face.copy(face.default_stream(false), plane, Kind::D2H, true) }.unwrap();
        assert_eq!(back, [byte; PAGE], "an access that fails changes nothing");
        let disabled = if enabled { Ok(()) } else { Err(CudaCode::PEER_ACCESS_NOT_ENABLED) };
        assert_eq!(face.disable_peer_access(0, 1), disabled);
    }
}

#[test]
fn a_kernel_that_leaves_its_allocation_loses_the_device() {
    for (bytes, leaves) in [(PAGE, false), (PAGE + 1, true)] {
        let face = eager();
        let memory = face.malloc(PAGE).unwrap();
        store(&face, stream(&face), memory, 0..bytes, 1);
        assert_eq!(face.device_synchronize(0).is_err(), leaves);
        let found = findings(&face);
        assert_eq!(kinds(&face), vec![FindingKind::IllegalAddress; usize::from(leaves)]);
        assert!(found.iter().all(|one| one.message.starts_with("kernel kernel on ")), "{found:?}");
    }
    let face = eager();
    let memory = face.malloc(PAGE).unwrap();
    face.free(memory).unwrap();
    load(&face, stream(&face), memory, 5..6);
    assert_eq!(face.device_synchronize(0), Err(CudaCode::ILLEGAL_ADDRESS));
}

#[test]
fn without_watching_nothing_is_seen_and_all_works() {
    let face = Face::new(Emulator::builder().build()).expect("room for addresses");
    let (a, b) = (stream(&face), stream(&face));
    let memory = face.malloc(PAGE).unwrap();
    store(&face, a, memory, 0..PAGE, 1);
    store(&face, b, memory, 0..PAGE, 2);
    face.device_synchronize(0).unwrap();
    assert_eq!(kinds(&face), []);
}
