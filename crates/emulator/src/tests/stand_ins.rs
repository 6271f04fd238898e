//! What stand-ins for kernels load and store. The machine sees it without an announcement.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

use super::*;
use crate::{Builder, Emulator, Finding, Kind, Plane};

const PAGE: usize = 4096;

fn gpu(builder: Builder) -> Emulator {
    let builder = builder.devices(2).memory_bytes(1 << 26).watch_host(true);
    builder.build_for_program().expect("room for addresses")
}

pub(super) fn eager() -> Emulator {
    gpu(Emulator::builder())
}

/// Eagerly, and in each other way with some seeds.
pub(super) fn faces() -> impl Iterator<Item = Emulator> {
    let modes = [Execution::Lazy, Execution::Random, Execution::Chunked];
    let seeds = (0..6).flat_map(move |seed| modes.map(|mode| (mode, seed)));
    let others = seeds.map(|(mode, seed)| gpu(Emulator::builder().execution(mode).seed(seed)));
    std::iter::once(eager()).chain(others)
}

pub(super) fn findings(gpu: &Emulator) -> Vec<Finding> {
    gpu.findings()
}

pub(super) fn kinds(gpu: &Emulator) -> Vec<FindingKind> {
    findings(gpu).iter().map(|finding| finding.kind).collect()
}

pub(super) fn stream(gpu: &Emulator) -> RawStream {
    gpu.stream_create(0, StreamFlags::default()).unwrap()
}

fn launch(gpu: &Emulator, stream: RawStream, words: &[u64], kernel: impl Fn() + Send + 'static) {
    // SAFETY: the tests' kernels make no call, and mean to touch what they do.
    unsafe { gpu.launch(stream, "kernel", words, Some(Box::new(kernel))) }.unwrap();
}

/// A kernel that stores to bytes.
fn store(
    gpu: &Emulator,
    on: RawStream,
    memory: *mut c_void,
    at: std::ops::Range<usize>,
    value: u8,
) {
    let address = memory.addr();
    launch(gpu, on, &[address as u64], move || {
        let first = with_exposed_provenance_mut::<u8>(address);
        // SAFETY: memory of the test's own.
        at.clone().for_each(|at| unsafe { first.add(at).write_volatile(value) });
    });
}

/// A kernel that loads bytes.
fn load(gpu: &Emulator, on: RawStream, memory: *mut c_void, at: std::ops::Range<usize>) {
    let address = memory.addr();
    launch(gpu, on, &[address as u64], move || {
        let first = with_exposed_provenance_mut::<u8>(address);
        // SAFETY: memory of the test's own.
        let sum = at.clone().map(|at| u64::from(unsafe { first.add(at).read_volatile() })).sum();
        std::hint::black_box::<u64>(sum);
    });
}

fn fill(gpu: &Emulator, on: RawStream, memory: *mut c_void, skip: usize, bytes: usize) {
    let at = memory.cast::<u8>().wrapping_add(skip).cast();
    // SAFETY: device memory of the test's own.
    unsafe { gpu.fill(on, at, bytes, &[1], (bytes, 1), false) }.unwrap();
}

pub(super) fn wait_for(gpu: &Emulator, waits: RawStream, other: RawStream) {
    let driver = gpu.driver();
    let event = driver.event_create(0, false).unwrap();
    // SAFETY: both are live.
    unsafe {
        driver.event_record(event, other).unwrap();
        driver.stream_wait_event(waits, event).unwrap();
        driver.event_destroy(event).unwrap();
    }
}

pub(super) fn synchronize(gpu: &Emulator, stream: RawStream) {
    // SAFETY: the stream is live.
    unsafe { gpu.driver().stream_synchronize(stream) }.unwrap();
}

#[test]
fn kernels_that_store_to_the_same_bytes_race_unless_something_orders_them() {
    for ordered in [false, true] {
        for gpu in faces() {
            let (a, b) = (stream(&gpu), stream(&gpu));
            let memory = gpu.malloc(3 * PAGE).unwrap();
            fill(&gpu, a, memory, 0, 3 * PAGE);
            synchronize(&gpu, a);
            store(&gpu, a, memory, 0..3 * PAGE, 3);
            if ordered {
                wait_for(&gpu, b, a);
            }
            store(&gpu, b, memory, PAGE + 10..PAGE + 20, 2);
            gpu.device_synchronize(0).unwrap();
            let found = findings(&gpu);
            assert_eq!(kinds(&gpu), vec![FindingKind::Race; usize::from(!ordered)], "{found:#?}");
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
        for gpu in faces() {
            let (a, b) = (stream(&gpu), stream(&gpu));
            let memory = gpu.malloc(PAGE).unwrap();
            fill(&gpu, a, memory, 0, PAGE);
            synchronize(&gpu, a);
            if before {
                fill(&gpu, a, memory, 0, PAGE);
            } else {
                load(&gpu, a, memory, 0..PAGE);
            }
            if ordered {
                wait_for(&gpu, b, a);
            }
            if before {
                load(&gpu, b, memory, 0..PAGE);
            } else {
                fill(&gpu, b, memory, 0, PAGE);
            }
            gpu.device_synchronize(0).unwrap();
            let found = findings(&gpu);
            assert_eq!(kinds(&gpu), vec![FindingKind::Race; usize::from(!ordered)], "{found:#?}");
        }
    }
}

/// What is known of a page does not count for the bytes of others.
#[test]
fn kernels_and_fills_of_other_bytes_of_a_page_do_not_race() {
    for gpu in faces() {
        let streams = [(); 4].map(|()| stream(&gpu));
        let memory = gpu.malloc(2 * PAGE).unwrap();
        fill(&gpu, streams[0], memory, 0, 2 * PAGE);
        synchronize(&gpu, streams[0]);
        store(&gpu, streams[0], memory, 0..1000, 3);
        fill(&gpu, streams[1], memory, 1000, 1000);
        load(&gpu, streams[2], memory, 2000..5000);
        store(&gpu, streams[3], memory, 5000..2 * PAGE, 1);
        gpu.device_synchronize(0).unwrap();
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
    }
}

#[test]
fn what_comes_behind_a_kernel_in_its_own_stream_is_ordered() {
    for gpu in faces() {
        let on = stream(&gpu);
        let memory = gpu.malloc_async(on, gpu.device_pool(0).unwrap(), 2 * PAGE).unwrap();
        fill(&gpu, on, memory, 0, 2 * PAGE);
        for value in 2..5 {
            load(&gpu, on, memory, 0..2 * PAGE);
            store(&gpu, on, memory, 0..2 * PAGE, value);
        }
        fill(&gpu, on, memory, 0, 2 * PAGE);
        gpu.free_async(on, memory).unwrap();
        synchronize(&gpu, on);
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
    }
}

#[test]
fn a_kernel_of_much_memory_is_seen_at_its_end_too() {
    let gpu = eager();
    let (a, b) = (stream(&gpu), stream(&gpu));
    let bytes = 1500 * PAGE;
    let memory = gpu.malloc(bytes).unwrap();
    fill(&gpu, a, memory, 0, bytes);
    synchronize(&gpu, a);
    store(&gpu, a, memory, 0..bytes, 3);
    fill(&gpu, b, memory, bytes - 10, 10);
    assert_eq!(kinds(&gpu), [FindingKind::Race]);
}

#[test]
fn the_host_must_not_touch_what_a_kernel_stores_to_before_it_is_done() {
    for waits in [false, true] {
        let gpu = eager();
        let on = stream(&gpu);
        let host = gpu.host_alloc(PAGE, 0, false).unwrap();
        store(&gpu, on, host, 0..PAGE, 7);
        if waits {
            synchronize(&gpu, on);
        }
        // SAFETY: memory of the test's own. That the kernel may still run is what is found.
        assert_eq!(unsafe { host.cast::<u8>().read_volatile() }, 7);
        assert_eq!(kinds(&gpu), vec![FindingKind::Race; usize::from(!waits)]);
    }
}

#[test]
fn other_threads_use_other_bytes_of_a_page_while_a_kernel_runs() {
    let gpu = eager();
    let host = gpu.host_alloc(PAGE, 0, false).unwrap();
    let (address, on) = (host.addr(), stream(&gpu));
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
            launch(&gpu, on, &[address as u64], move || {
                // The other thread comes first, so that its store opens the page.
                let begun = turns.load(Ordering::Relaxed);
                // The other thread may be waiting for the machine, so this loop is bounded.
                let has_come = || turns.load(Ordering::Relaxed) >= begun + 2;
                (0..1000).take_while(|_| !has_come()).for_each(|_| std::thread::yield_now());
                // SAFETY: as above.
                unsafe { byte(0).write_volatile(value) };
            });
            synchronize(&gpu, on);
        }
        is_over.store(1, Ordering::Relaxed);
    });
    assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
}

#[test]
fn page_locked_memory_that_is_freed_before_a_kernel_has_used_it_is_found() {
    for gpu in faces() {
        let on = stream(&gpu);
        let host = gpu.host_alloc(PAGE, 0, false).unwrap();
        store(&gpu, on, host, 0..10, 7);
        gpu.free_host(host, false).unwrap();
        let _ = gpu.device_synchronize(0);
        assert_eq!(kinds(&gpu), [FindingKind::FreedInFlight], "{:#?}", findings(&gpu));
    }
}

#[test]
fn page_locked_memory_that_a_kernel_does_not_use_may_be_freed() {
    for gpu in faces() {
        let on = stream(&gpu);
        let host = gpu.host_alloc(PAGE, 0, false).unwrap();
        launch(&gpu, on, &[host.addr() as u64], || ());
        gpu.free_host(host, false).unwrap();
        gpu.device_synchronize(0).unwrap();
        assert_eq!(kinds(&gpu), []);
    }
}

#[test]
fn memory_of_another_device_is_out_of_reach_until_access_is_enabled() {
    for enabled in [false, true] {
        let gpu = eager();
        let driver = gpu.driver();
        gpu.set_device(1).unwrap();
        let there = gpu.malloc(PAGE).unwrap();
        fill(&gpu, gpu.default_stream(false), there, 0, PAGE);
        gpu.device_synchronize(1).unwrap();
        gpu.set_device(0).unwrap();
        if enabled {
            driver.enable_peer_access(0, 1).unwrap();
        }
        store(&gpu, stream(&gpu), there, 0..PAGE, 9);
        let (code, byte) = (gpu.device_synchronize(0), if enabled { 9 } else { 1 });
        assert_eq!(code, if enabled { Ok(()) } else { Err(CudaCode::ILLEGAL_ADDRESS) });
        let expected = if enabled { vec![] } else { vec![FindingKind::IllegalAddress] };
        assert_eq!(kinds(&gpu), expected, "{:#?}", findings(&gpu));
        gpu.set_device(1).unwrap();
        let mut back = [0_u8; PAGE];
        let plane = Plane::line(back.as_mut_ptr().cast(), there, PAGE);
        // SAFETY: memory of the test's own.
        unsafe { gpu.copy(gpu.default_stream(false), plane, Kind::D2H, true) }.unwrap();
        assert_eq!(back, [byte; PAGE], "an access that fails changes nothing");
        let disabled = if enabled { Ok(()) } else { Err(CudaCode::PEER_ACCESS_NOT_ENABLED) };
        assert_eq!(gpu.disable_peer_access(0, 1), disabled);
    }
}

#[test]
fn a_kernel_that_leaves_its_allocation_loses_the_device() {
    for (bytes, leaves) in [(PAGE, false), (PAGE + 1, true)] {
        let gpu = eager();
        let memory = gpu.malloc(PAGE).unwrap();
        store(&gpu, stream(&gpu), memory, 0..bytes, 1);
        assert_eq!(gpu.device_synchronize(0).is_err(), leaves);
        let found = findings(&gpu);
        assert_eq!(kinds(&gpu), vec![FindingKind::IllegalAddress; usize::from(leaves)]);
        assert!(found.iter().all(|one| one.message.starts_with("kernel kernel on ")), "{found:?}");
    }
    let gpu = eager();
    let memory = gpu.malloc(PAGE).unwrap();
    gpu.free(memory).unwrap();
    load(&gpu, stream(&gpu), memory, 5..6);
    assert_eq!(gpu.device_synchronize(0), Err(CudaCode::ILLEGAL_ADDRESS));
}

#[test]
fn without_watching_nothing_is_seen_and_all_works() {
    let gpu = Emulator::builder().build_for_program().expect("room for addresses");
    let (a, b) = (stream(&gpu), stream(&gpu));
    let memory = gpu.malloc(PAGE).unwrap();
    store(&gpu, a, memory, 0..PAGE, 1);
    store(&gpu, b, memory, 0..PAGE, 2);
    gpu.device_synchronize(0).unwrap();
    assert_eq!(kinds(&gpu), []);
}
