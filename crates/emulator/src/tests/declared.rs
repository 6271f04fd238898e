//! Kernels whose launches declare what they use.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::stand_ins::{eager, faces, findings, kinds, stream, synchronize, wait_for};
use super::*;
use crate::memory::look::{Look, look};
use crate::{DeclaredUse, Emulator};
use pinlane_driver::DriverResult;

const PAGE: usize = 4096;

fn rows(start: *mut c_void, skip: usize, bytes: usize, rows: usize, stride: usize) -> DeclaredUse {
    let start = (start.addr() + skip) as u64;
    let (bytes, rows, stride) = (bytes as u64, rows as u64, stride as u64);
    DeclaredUse { start, bytes, rows, stride, writes: false, later: false }
}

fn read(start: *mut c_void, skip: usize, bytes: usize) -> DeclaredUse {
    rows(start, skip, bytes, 1, 0)
}

fn write(start: *mut c_void, skip: usize, bytes: usize) -> DeclaredUse {
    DeclaredUse { writes: true, ..read(start, skip, bytes) }
}

fn launch_with(
    gpu: &Emulator,
    on: RawStream,
    uses: &[DeclaredUse],
    work: impl Fn() -> Vec<DeclaredUse> + Send + 'static,
) -> DriverResult<()> {
    // SAFETY: the tests' kernels make no call, and touch only memory of the test's own.
    unsafe { gpu.launch_declared(on, "kernel", uses, Box::new(work)) }
}

fn launch(gpu: &Emulator, on: RawStream, uses: &[DeclaredUse]) {
    launch_with(gpu, on, uses, Vec::new).unwrap();
}

/// How often a kernel that is launched by this ran.
fn counted(gpu: &Emulator, on: RawStream, uses: &[DeclaredUse]) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let work = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    };
    launch_with(gpu, on, uses, work).unwrap();
    count
}

/// What is found of two kernels on two streams.
fn found_of(first: &[DeclaredUse], second: &[DeclaredUse], gpu: &Emulator) -> Vec<FindingKind> {
    launch(gpu, stream(gpu), first);
    launch(gpu, stream(gpu), second);
    gpu.device_synchronize(0).unwrap();
    kinds(gpu)
}

#[test]
fn declared_uses_of_the_same_bytes_race_unless_something_orders_them() {
    for ordered in [false, true] {
        for gpu in faces() {
            let (a, b) = (stream(&gpu), stream(&gpu));
            let memory = gpu.malloc(3 * PAGE).unwrap();
            launch(&gpu, a, &[write(memory, 0, 3 * PAGE)]);
            if ordered {
                wait_for(&gpu, b, a);
            }
            launch(&gpu, b, &[read(memory, PAGE + 10, 10)]);
            gpu.device_synchronize(0).unwrap();
            let found = findings(&gpu);
            assert_eq!(kinds(&gpu), vec![FindingKind::Race; usize::from(!ordered)], "{found:#?}");
            if let Some(race) = found.first().and_then(|finding| finding.race()) {
                let operations = [&*race.first.operation, &*race.second.operation];
                assert_eq!(operations, ["kernel kernel"; 2]);
                assert_eq!(
                    (&*race.first.agent, &*race.second.agent),
                    ("stream A of device 0", "stream B of device 0")
                );
                assert_eq!((race.start - race.memory.start, race.bytes), (4106, 10));
            }
        }
    }
}

#[test]
fn only_declared_bytes_count_and_the_work_has_their_storage() {
    for gpu in faces() {
        let memory = gpu.malloc(2 * PAGE).unwrap();
        for at in [0, PAGE] {
            let storage = gpu.storage_of((memory.addr() + at) as u64).unwrap();
            let address = storage.as_ptr().expose_provenance();
            let work = move || {
                // SAFETY: memory of the test's own.
                unsafe { with_exposed_provenance_mut::<u8>(address).write_volatile(7) };
                Vec::new()
            };
            // The first byte is stored to, and another one is declared.
            launch_with(&gpu, stream(&gpu), &[write(memory, at + 1, 1)], work).unwrap();
        }
        launch(&gpu, stream(&gpu), &[write(memory, 0, 1)]);
        gpu.device_synchronize(0).unwrap();
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
        let mut back = [0_u8; PAGE + 1];
        let plane = crate::Plane::line(back.as_mut_ptr().cast(), memory, PAGE + 1);
        // SAFETY: memory of the test's own.
        unsafe { gpu.copy(gpu.default_stream(false), plane, crate::Kind::D2H, true) }.unwrap();
        assert_eq!((back[0], back[PAGE]), (7, 7));
    }
}

#[test]
fn rows_count_without_the_bytes_between_them() {
    let gpu = eager();
    let memory = gpu.malloc(64 * PAGE).unwrap();
    let columns =
        |skip, bytes| DeclaredUse { writes: true, ..rows(memory, skip, bytes, 1000, 256) };
    launch(&gpu, stream(&gpu), &[columns(0, 100)]);
    launch(&gpu, stream(&gpu), &[columns(100, 156)]);
    assert_eq!(kinds(&gpu), [], "they share no byte");
    let last = 999 * 256;
    for (use_of_row, found) in [
        (read(memory, last + 99, 1), 1),
        (read(memory, last + 256, 1), 1),
        (read(memory, last + 255, 1), 2),
        (write(memory, 5 * 256 + 99, 2), 4),
    ] {
        launch(&gpu, stream(&gpu), &[use_of_row]);
        assert_eq!(kinds(&gpu).len(), found, "{:#?}", findings(&gpu));
    }
}

/// Far more rows than there are ranges in the books of an allocation.
#[test]
fn many_rows_are_as_exact_as_few() {
    const ROWS: usize = 100_000;
    let gpu = eager();
    let memory = gpu.malloc(ROWS * 64).unwrap();
    let column =
        |at: usize, bytes| DeclaredUse { writes: true, ..rows(memory, at, bytes, ROWS, 64) };
    let streams = [(); 3].map(|()| stream(&gpu));
    for _ in 0..3 {
        (0..8).for_each(|at| launch(&gpu, streams[0], &[column(8 * at, 4)]));
        (0..8).for_each(|at| launch(&gpu, streams[1], &[column(8 * at + 4, 4)]));
    }
    assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
    launch(&gpu, streams[2], &[read(memory, 3 * 64 + 17, 1)]);
    let found = findings(&gpu);
    let race = found[0].race().expect("they race");
    assert_eq!((race.start - memory.addr() as u64, race.bytes), (3 * 64 + 17, 1));
    assert_eq!((race.first.position, race.first.bytes), (19, (64 * (ROWS - 1) + 4) as u64));
    // Of another stride: its bytes lie in four columns, of the second stream.
    launch(&gpu, streams[2], &[rows(memory, 64 * 1000 + 13, 1, 101, 48)]);
    let found = findings(&gpu);
    let others: Vec<&str> =
        found[1..].iter().map(|finding| &*finding.race().unwrap().first.agent).collect();
    assert_eq!(others, ["stream B of device 0"; 4], "{found:#?}");
}

#[test]
fn rows_may_lie_in_several_allocations() {
    let gpu = eager();
    let (first, second) = (gpu.malloc(PAGE).unwrap(), gpu.malloc(PAGE).unwrap());
    let both = [rows(first, 8, 8, 2, second.addr() - first.addr())];
    let ran = counted(&gpu, stream(&gpu), &both);
    launch(&gpu, stream(&gpu), &[write(second, 0, 9)]);
    assert_eq!((ran.load(Ordering::Relaxed), kinds(&gpu)), (1, vec![FindingKind::Race]));
    gpu.device_synchronize(0).unwrap();
    gpu.free(second).unwrap();
    let ran = counted(&gpu, stream(&gpu), &both);
    assert_eq!(gpu.device_synchronize(0), Err(CudaCode::ILLEGAL_ADDRESS));
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

#[test]
fn what_the_work_finds_out_counts_at_the_kernels_place() {
    for late_is_first in [true, false] {
        for ordered in [true, false] {
            for gpu in faces() {
                let (a, b) = (stream(&gpu), stream(&gpu));
                let memory = gpu.malloc(PAGE).unwrap();
                let row = write(memory, 8, 8);
                let late = |on| launch_with(&gpu, on, &[], move || vec![row]).unwrap();
                if late_is_first {
                    late(a)
                } else {
                    launch(&gpu, a, &[row])
                }
                if ordered {
                    wait_for(&gpu, b, a);
                }
                if late_is_first {
                    launch(&gpu, b, &[row])
                } else {
                    late(b)
                }
                gpu.device_synchronize(0).unwrap();
                let expected = vec![FindingKind::Race; usize::from(!ordered)];
                assert_eq!(kinds(&gpu), expected, "{:#?}", findings(&gpu));
            }
        }
    }
}

/// What a kernel will use of memory is `told` when it has run. Another stream uses the memory
/// before its call or after it, and then again, in order. In a lazy run only that last use is in
/// the books when the kernel runs.
fn found_of_late(gpu: &Emulator, told: fn(*mut c_void) -> DeclaredUse, other_first: bool) -> usize {
    let (a, b) = (stream(gpu), stream(gpu));
    let memory = gpu.malloc(PAGE).unwrap();
    let late = || {
        let later = DeclaredUse { later: true, ..write(memory, 0, PAGE) };
        let use_of_rows = told(memory);
        launch_with(gpu, b, &[later], move || vec![use_of_rows]).unwrap();
    };
    if other_first {
        launch(gpu, a, &[write(memory, 8, 8)]);
        late();
    } else {
        late();
        launch(gpu, a, &[write(memory, 8, 8)]);
    }
    wait_for(gpu, a, b);
    launch(gpu, a, &[write(memory, 0, PAGE)]);
    gpu.device_synchronize(0).unwrap();
    let found = findings(gpu);
    for race in found.iter().map(|finding| finding.race().expect("nothing else is wrong")) {
        let [first, second] = if other_first { ['A', 'B'] } else { ['B', 'A'] };
        let agents = [&race.first, &race.second].map(|used| used.agent.replace("stream ", ""));
        assert_eq!(agents, [first, second].map(|letter| format!("{letter} of device 0")));
        assert_eq!((race.start - race.memory.start, race.bytes), (12, 4), "{race:?}");
    }
    found.len()
}

#[test]
fn what_a_kernel_will_tell_races_with_uses_that_others_have_followed_since() {
    for other_first in [true, false] {
        for gpu in faces() {
            let count = |told| found_of_late(&gpu, told, other_first);
            assert_eq!(count(|memory| read(memory, 16, 8)), 0, "other bytes");
            assert_eq!(kinds(&gpu), []);
        }
        for gpu in faces() {
            assert_eq!(found_of_late(&gpu, |memory| write(memory, 12, 8), other_first), 1);
        }
    }
}

#[test]
fn what_a_kernel_will_tell_is_no_use_and_races_with_nothing_that_is_ordered() {
    for gpu in faces() {
        let (a, b) = (stream(&gpu), stream(&gpu));
        let memory = gpu.malloc(PAGE).unwrap();
        let all = write(memory, 0, PAGE);
        let later = DeclaredUse { later: true, ..all };
        for on in [a, b] {
            launch_with(&gpu, on, &[later], Vec::new).unwrap();
        }
        for (first, second) in [(a, b), (b, a)] {
            launch_with(&gpu, first, &[later], move || vec![all]).unwrap();
            wait_for(&gpu, second, first);
            launch(&gpu, second, &[all]);
        }
        gpu.device_synchronize(0).unwrap();
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
    }
}

#[test]
fn a_race_has_the_labels_of_the_calls_though_they_run_late() {
    for gpu in faces() {
        let memory = gpu.malloc(PAGE).unwrap();
        launch(&gpu, stream(&gpu), &[read(memory, 0, 8)]);
        Emulator::label_calls(Some("scatter_"));
        let row = write(memory, 0, 8);
        launch_with(&gpu, stream(&gpu), &[], move || vec![row]).unwrap();
        Emulator::label_calls(Some("synchronize"));
        gpu.device_synchronize(0).unwrap();
        Emulator::label_calls(None);
        let found = findings(&gpu);
        let race = found.first().and_then(|finding| finding.race()).expect("they race");
        let labels = [&race.first, &race.second].map(|used| used.label.as_deref());
        assert_eq!(labels, [None, Some("scatter_")], "{found:#?}");
    }
}

#[test]
fn work_does_not_run_on_memory_that_is_wrong() {
    for gpu in faces() {
        gpu.set_device(1).unwrap();
        let elsewhere = gpu.malloc(PAGE).unwrap();
        gpu.device_synchronize(1).unwrap();
        gpu.set_device(0).unwrap();
        let there = gpu.malloc(PAGE).unwrap();
        let freed = gpu.malloc(PAGE).unwrap();
        gpu.free(freed).unwrap();
        let wrong = [
            read(freed, 0, 1),
            read(there, PAGE - 1, 2),
            rows(there, 0, 8, 2, PAGE),
            read(there, 1 << 24, 1),
            read(elsewhere, 0, 1),
        ];
        let wrong = wrong[gpu.seed() as usize % wrong.len()];
        let ran = counted(&gpu, stream(&gpu), &[read(there, 0, PAGE), wrong]);
        assert_eq!(gpu.device_synchronize(0), Err(CudaCode::ILLEGAL_ADDRESS), "{wrong:?}");
        assert_eq!((kinds(&gpu), ran.load(Ordering::Relaxed)), (vec![ILLEGAL], 0), "{wrong:?}");
        assert!(findings(&gpu)[0].message.starts_with("kernel kernel on "));
    }
}

const ILLEGAL: FindingKind = FindingKind::IllegalAddress;

#[test]
fn memory_of_a_peer_may_be_used_once_access_is_enabled() {
    let gpu = eager();
    gpu.set_device(1).unwrap();
    let there = gpu.malloc(PAGE).unwrap();
    gpu.set_device(0).unwrap();
    gpu.driver().enable_peer_access(0, 1).unwrap();
    let ran = counted(&gpu, stream(&gpu), &[read(there, 0, PAGE)]);
    gpu.device_synchronize(0).unwrap();
    assert_eq!((kinds(&gpu), ran.load(Ordering::Relaxed)), (vec![], 1));
    gpu.set_device(1).unwrap();
    let wrong = launch_with(&gpu, stream(&gpu), &[], Vec::new);
    assert_eq!(wrong, Err(CudaCode::INVALID_RESOURCE_HANDLE));
    assert_eq!(kinds(&gpu), [FindingKind::BadHandle], "the stream of another device");
}

#[test]
fn page_locked_memory_counts_until_the_host_knows() {
    for waits in [false, true] {
        for gpu in faces() {
            let on = stream(&gpu);
            let host = gpu.host_alloc(PAGE, 0, false).unwrap();
            launch(&gpu, on, &[DeclaredUse { writes: true, ..rows(host, 0, 8, 4, 1024) }]);
            if waits {
                synchronize(&gpu, on);
            }
            let byte = |at: usize| host.cast::<u8>().wrapping_add(at);
            // SAFETY: memory of the test's own.
            let between = unsafe { byte(8).read_volatile() };
            assert_eq!(kinds(&gpu), [], "between the rows: {between}");
            // SAFETY: as above.
            unsafe { byte(1024 + 7).write_volatile(1) };
            synchronize(&gpu, on);
            let expected = vec![FindingKind::Race; usize::from(!waits)];
            assert_eq!(kinds(&gpu), expected, "{:#?}", findings(&gpu));
        }
    }
}

#[test]
fn device_memory_stays_closed_and_page_locked_memory_opens_to_work_that_declares_some() {
    let is_open = |address| look(address, &mut [0]) == Look::Read;
    for gpu in faces() {
        let on = stream(&gpu);
        let (memory, host) = (gpu.malloc(PAGE).unwrap(), gpu.host_alloc(PAGE, 0, false).unwrap());
        for uses_host in [false, true] {
            let uses = [write(memory, 0, 8), write(host, 0, 8)];
            launch(&gpu, on, &uses);
            let (addresses, seen) = ([memory.addr(), host.addr()], Arc::new(OnceLock::new()));
            let seen_by_work = Arc::clone(&seen);
            let work = move || {
                let _ = seen_by_work.set(addresses.map(is_open));
                Vec::new()
            };
            launch_with(&gpu, on, &uses[..1 + usize::from(uses_host)], work).unwrap();
            synchronize(&gpu, on);
            assert_eq!(seen.get(), Some(&[false, uses_host]));
        }
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
    }
}

#[test]
fn only_addresses_of_devices_have_storage_elsewhere() {
    let gpu = eager();
    let memory = gpu.malloc(PAGE).unwrap().addr() as u64;
    let storage = gpu.storage_of(memory).unwrap();
    assert_ne!(storage.addr().get() as u64, memory);
    assert_eq!(gpu.storage_of(memory + 9).unwrap().addr().get(), storage.addr().get() + 9);
    let host = gpu.host_alloc(PAGE, 0, false).unwrap().addr() as u64;
    for other in [host, 8, u64::MAX] {
        assert_eq!(gpu.storage_of(other), None, "{other:#x}");
    }
}

#[test]
fn page_locked_memory_that_is_freed_too_early_is_found_once_and_no_work_runs_on_it() {
    for gpu in faces() {
        let on = stream(&gpu);
        let host = gpu.host_alloc(PAGE, 0, false).unwrap();
        let before = gpu.usage().pending_operations;
        let ran = counted(&gpu, on, &[read(host, 0, PAGE)]);
        let is_pending = gpu.usage().pending_operations > before;
        gpu.free_host(host, false).unwrap();
        gpu.device_synchronize(0).unwrap();
        assert_eq!(kinds(&gpu), [FindingKind::FreedInFlight], "{:#?}", findings(&gpu));
        assert_eq!(ran.load(Ordering::Relaxed), usize::from(!is_pending));
    }
}

#[test]
fn registered_memory_that_is_unregistered_too_early_loses_the_device() {
    for gpu in faces() {
        let on = stream(&gpu);
        let mut owned = vec![0_u8; PAGE];
        let host: *mut c_void = owned.as_mut_ptr().cast();
        // SAFETY: it is unregistered before it goes.
        unsafe { gpu.register(host, PAGE, 0) }.unwrap();
        let ran = counted(&gpu, on, &[write(host, 0, 8)]);
        let is_pending = gpu.usage().pending_operations > 0;
        gpu.unregister(host).unwrap();
        assert_eq!(gpu.device_synchronize(0).is_err(), is_pending);
        assert_eq!(ran.load(Ordering::Relaxed), usize::from(!is_pending));
        assert_eq!(kinds(&gpu)[0], FindingKind::FreedInFlight, "{:#?}", findings(&gpu));
    }
}

#[test]
fn a_kernel_that_writes_to_memory_to_read_only_loses_the_device() {
    for gpu in faces() {
        let on = stream(&gpu);
        let owned = vec![0_u8; PAGE];
        let host: *mut c_void = owned.as_ptr().cast_mut().cast();
        // SAFETY: it lives until its machine is gone, and no kernel that ran has written to it.
        unsafe { gpu.register(host, PAGE, crate::memory::made::READ_ONLY) }.unwrap();
        let reads = counted(&gpu, on, &[read(host, 0, 8)]);
        gpu.device_synchronize(0).unwrap();
        let writes = counted(&gpu, on, &[write(host, 100, 8)]);
        assert_eq!(gpu.device_synchronize(0), Err(CudaCode::ILLEGAL_ADDRESS));
        assert_eq!((reads.load(Ordering::Relaxed), writes.load(Ordering::Relaxed)), (1, 0));
        assert_eq!(kinds(&gpu), [ILLEGAL]);
        assert!(findings(&gpu)[0].message.contains("for reading only"));
    }
}

#[test]
fn pageable_memory_is_ignored() {
    for gpu in faces() {
        let mut owned = vec![0_u8; PAGE];
        let uses = [write(owned.as_mut_ptr().cast(), 0, PAGE)];
        assert_eq!(found_of(&uses, &uses, &gpu), []);
    }
}

#[test]
fn a_captured_launch_runs_at_each_replay_and_its_uses_count_there() {
    for gpu in faces() {
        let on = stream(&gpu);
        let memory = gpu.malloc(PAGE).unwrap();
        gpu.stream_begin_capture(on, crate::CaptureMode::Relaxed).unwrap();
        let ran = counted(&gpu, on, &[write(memory, 0, 8)]);
        let graph = gpu.stream_end_capture(on).unwrap();
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        gpu.graph_destroy(graph).unwrap();
        for _ in 0..3 {
            // SAFETY: the memory is there.
            unsafe { gpu.graph_launch(exec, on) }.unwrap();
        }
        synchronize(&gpu, on);
        assert_eq!((ran.load(Ordering::Relaxed), kinds(&gpu)), (3, vec![]));
        // SAFETY: as above.
        unsafe { gpu.graph_launch(exec, on) }.unwrap();
        launch(&gpu, stream(&gpu), &[read(memory, 7, 1)]);
        gpu.device_synchronize(0).unwrap();
        assert_eq!(kinds(&gpu), [FindingKind::Race], "{:#?}", findings(&gpu));
        assert_eq!(Arc::strong_count(&ran), 2, "the graph has it");
        gpu.graph_destroy(exec).unwrap();
        assert_eq!(Arc::strong_count(&ran), 1);
    }
}

#[test]
fn what_a_graph_uses_after_it_was_freed_is_found() {
    for (gpu, on_host) in faces().zip([false, true].into_iter().cycle()) {
        let on = stream(&gpu);
        let memory = match on_host {
            true => gpu.host_alloc(PAGE, 0, false).unwrap(),
            false => gpu.malloc(PAGE).unwrap(),
        };
        gpu.stream_begin_capture(on, crate::CaptureMode::Relaxed).unwrap();
        let ran = counted(&gpu, on, &[write(memory, 0, 8)]);
        let graph = gpu.stream_end_capture(on).unwrap();
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        if on_host {
            gpu.free_host(memory, false).unwrap()
        } else {
            gpu.free(memory).unwrap()
        }
        // SAFETY: the machine looks addresses up.
        unsafe { gpu.graph_launch(exec, on) }.unwrap();
        let _ = gpu.device_synchronize(0);
        let kind = if on_host { FindingKind::FreedInFlight } else { ILLEGAL };
        assert_eq!((kinds(&gpu), ran.load(Ordering::Relaxed)), (vec![kind], 0));
    }
}

#[test]
fn a_launch_that_fails_keeps_nothing() {
    let gpu = eager();
    let there = Arc::new(());
    let kept = Arc::clone(&there);
    let uses = [DeclaredUse { bytes: u64::MAX, ..read(with_exposed_provenance_mut(8), 0, 1) }];
    let work = move || {
        let _ = &kept;
        Vec::new()
    };
    let failed = launch_with(&gpu, stream(&gpu), &uses, work);
    assert_eq!((failed, Arc::strong_count(&there)), (Err(CudaCode::INVALID_VALUE), 1));
}
