//! Graphs: their memory, the order of their launches, and what a capture says of itself.

use std::ffi::c_void;

use super::stand_ins::{faces, findings, kinds, stream, synchronize, wait_for};
use super::*;
use crate::memory::pools::PoolId;
use crate::{CaptureMode, DeclaredUse, Emulator, Kind, Plane};
use pinlane_driver::DriverResult;

const BYTES: usize = 4096;

fn captured(gpu: &Emulator, on: RawStream, work: impl FnOnce()) -> usize {
    gpu.stream_begin_capture(on, CaptureMode::Global).unwrap();
    work();
    gpu.stream_end_capture(on).unwrap()
}

fn allocate(gpu: &Emulator, on: RawStream) -> *mut c_void {
    gpu.malloc_async(on, PoolId(0), BYTES).unwrap()
}

/// A kernel that uses the first bytes.
fn use_of(gpu: &Emulator, on: RawStream, memory: *mut c_void, writes: bool) {
    let start = memory.addr() as u64;
    let used = DeclaredUse { start, bytes: 8, rows: 1, stride: 0, writes, later: false };
    // SAFETY: the kernel makes no call, and touches nothing.
    unsafe { gpu.launch_declared(on, "kernel", &[used], Box::new(Vec::new)) }.unwrap();
}

fn run(gpu: &Emulator, exec: usize, on: RawStream) -> DriverResult<()> {
    // SAFETY: what the graphs of these tests use is there, or the machine refuses it.
    unsafe { gpu.graph_launch(exec, on) }
}

fn device_bytes(gpu: &Emulator) -> usize {
    gpu.usage().device_bytes
}

#[test]
fn memory_that_a_graph_allocates_and_frees_is_there_at_each_launch_only() {
    for gpu in faces() {
        let on = stream(&gpu);
        let mut memory = std::ptr::null_mut();
        let graph = captured(&gpu, on, || {
            memory = allocate(&gpu, on);
            use_of(&gpu, on, memory, true);
            gpu.free_async(on, memory).unwrap();
        });
        assert_eq!(device_bytes(&gpu), 0);
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        assert_eq!(gpu.graph_instantiate(graph, false), Err(CudaCode::INVALID_VALUE), "a second");
        gpu.graph_destroy(graph).unwrap();
        for _ in 0..3 {
            run(&gpu, exec, on).unwrap();
        }
        synchronize(&gpu, on);
        assert_eq!((device_bytes(&gpu), kinds(&gpu)), (0, vec![]), "{:#?}", findings(&gpu));
        run(&gpu, exec, on).unwrap();
        // What is launched drains, though nothing can launch it again.
        gpu.graph_destroy(exec).unwrap();
        synchronize(&gpu, on);
        assert_eq!((device_bytes(&gpu), kinds(&gpu)), (0, vec![]), "{:#?}", findings(&gpu));
        let freed = gpu.free_async(on, memory);
        assert_eq!(freed, Err(CudaCode::INVALID_VALUE));
        assert_eq!(kinds(&gpu), [FindingKind::BadFree]);
        assert!(findings(&gpu)[0].message.ends_with("no live allocation"), "its address is gone");
    }
}

#[test]
fn what_a_launch_leaves_is_freed_by_the_program_or_the_next_launch() {
    for gpu in faces() {
        let on = stream(&gpu);
        let mut memory = std::ptr::null_mut();
        let graph = captured(&gpu, on, || {
            memory = allocate(&gpu, on);
            use_of(&gpu, on, memory, true);
        });
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        run(&gpu, exec, on).unwrap();
        assert_eq!(device_bytes(&gpu), BYTES);
        use_of(&gpu, on, memory, false);
        assert_eq!(run(&gpu, exec, on), Err(CudaCode::INVALID_VALUE), "it is not freed");
        gpu.free_async(on, memory).unwrap();
        run(&gpu, exec, on).unwrap();
        synchronize(&gpu, on);
        gpu.free(memory).unwrap();
        gpu.graph_destroy(exec).unwrap();
        let exec = gpu.graph_instantiate(graph, true).unwrap();
        for _ in 0..3 {
            run(&gpu, exec, on).unwrap();
            assert_eq!(device_bytes(&gpu), BYTES);
        }
        gpu.graph_destroy(graph).unwrap();
        gpu.graph_destroy(exec).unwrap();
        use_of(&gpu, on, memory, false);
        gpu.free_async(on, memory).unwrap();
        synchronize(&gpu, on);
        assert_eq!((device_bytes(&gpu), kinds(&gpu)), (0, vec![]), "{:#?}", findings(&gpu));
    }
}

#[test]
fn a_launch_that_frees_what_another_stream_still_reads_is_a_race() {
    for ordered in [false, true] {
        for gpu in faces() {
            let (on, other) = (stream(&gpu), stream(&gpu));
            let mut memory = std::ptr::null_mut();
            let graph = captured(&gpu, on, || {
                memory = allocate(&gpu, on);
                use_of(&gpu, on, memory, true);
            });
            let exec = gpu.graph_instantiate(graph, true).unwrap();
            run(&gpu, exec, on).unwrap();
            wait_for(&gpu, other, on);
            use_of(&gpu, other, memory, false);
            if ordered {
                wait_for(&gpu, on, other);
            }
            run(&gpu, exec, on).unwrap();
            let expected = vec![FindingKind::Race; usize::from(!ordered)];
            assert_eq!(kinds(&gpu), expected, "{:#?}", findings(&gpu));
        }
    }
}

#[test]
fn memory_of_a_graph_without_a_launch_is_not_there() {
    for gpu in faces() {
        let on = stream(&gpu);
        let mut memory = std::ptr::null_mut();
        captured(&gpu, on, || memory = allocate(&gpu, on));
        assert_eq!(gpu.free_async(on, memory), Err(CudaCode::INVALID_VALUE));
        assert_eq!(kinds(&gpu), [FindingKind::BadFree]);
        let message = findings(&gpu)[0].message.clone();
        assert!(message.contains("memory of a graph that no launch has allocated"), "{message}");
    }
}

#[test]
fn a_capture_frees_memory_of_graphs_only_and_once() {
    for gpu in faces() {
        let on = stream(&gpu);
        let plain = gpu.malloc(BYTES).unwrap();
        gpu.stream_begin_capture(on, CaptureMode::Global).unwrap();
        assert_eq!(gpu.free_async(on, plain), Err(CudaCode::INVALID_VALUE));
        let memory = allocate(&gpu, on);
        gpu.free_async(on, memory).unwrap();
        assert_eq!(gpu.free_async(on, memory), Err(CudaCode::INVALID_VALUE));
        gpu.stream_end_capture(on).expect("the capture stays valid");
        assert_eq!(kinds(&gpu), [FindingKind::Capture, FindingKind::BadFree]);
    }
}

#[test]
fn a_capture_without_a_graph_keeps_no_memory() {
    for gpu in faces() {
        let on = stream(&gpu);
        gpu.stream_begin_capture(on, CaptureMode::Global).unwrap();
        let memory = allocate(&gpu, on);
        assert!(gpu.malloc(BYTES).is_err(), "it kills the capture");
        assert!(gpu.malloc_async(on, PoolId(0), BYTES).is_err());
        assert_eq!(gpu.stream_end_capture(on), Err(CudaCode::STREAM_CAPTURE_INVALIDATED));
        assert_eq!(gpu.free_async(on, memory), Err(CudaCode::INVALID_VALUE));
        assert_eq!(kinds(&gpu), [FindingKind::Capture, FindingKind::BadFree]);
        assert!(findings(&gpu)[1].message.ends_with("no live allocation"));
    }
}

#[test]
fn graphs_with_memory_are_not_captured_and_need_room() {
    for gpu in faces() {
        let (on, other) = (stream(&gpu), stream(&gpu));
        let (_, capacity) = gpu.memory_info(0).unwrap();
        let graph = captured(&gpu, on, || {
            for _ in 0..2 {
                let memory = gpu.malloc_async(on, PoolId(0), capacity / 2 + 1).unwrap();
                gpu.free_async(on, memory).unwrap();
            }
        });
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        run(&gpu, exec, on).unwrap();
        synchronize(&gpu, on);
        let taken = gpu.malloc(capacity / 2).unwrap();
        assert_eq!(run(&gpu, exec, on), Err(CudaCode::MEMORY_ALLOCATION));
        gpu.free(taken).unwrap();
        gpu.stream_begin_capture(other, CaptureMode::Relaxed).unwrap();
        assert_eq!(run(&gpu, exec, other), Err(CudaCode::NOT_SUPPORTED));
        gpu.stream_end_capture(other).unwrap();
        assert_eq!(kinds(&gpu), []);
    }
}

#[test]
fn launches_of_one_executable_graph_are_ordered_on_any_stream() {
    for gpu in faces() {
        let (on, other) = (stream(&gpu), stream(&gpu));
        let memory = gpu.malloc(BYTES).unwrap();
        let graph = captured(&gpu, on, || use_of(&gpu, on, memory, true));
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        run(&gpu, exec, on).unwrap();
        run(&gpu, exec, other).unwrap();
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
        use_of(&gpu, on, memory, true);
        assert_eq!(kinds(&gpu), [FindingKind::Race], "the first stream waits for nothing");
    }
}

#[test]
fn a_capture_tells_what_the_next_node_of_each_stream_depends_on() {
    for gpu in faces() {
        let (on, other) = (stream(&gpu), stream(&gpu));
        let memory = gpu.malloc(BYTES).unwrap();
        let told = |of: RawStream| {
            let info = gpu.capture_info(of).expect("it is captured");
            // SAFETY: valid until the next question about the stream.
            let both = unsafe { std::slice::from_raw_parts(info.dependencies, 2 * info.count) };
            assert!(both[info.count..].iter().all(|&edge| edge == 0));
            let nodes = gpu.graph_nodes(info.graph).unwrap();
            let place = |node: &usize| nodes.iter().position(|one| one == node).unwrap();
            both[..info.count].iter().map(place).collect::<Vec<_>>()
        };
        assert!(gpu.capture_info(on).is_none());
        gpu.stream_begin_capture(on, CaptureMode::Global).unwrap();
        let graph = gpu.capture_info(on).unwrap().graph;
        assert_eq!(told(on), [0; 0]);
        use_of(&gpu, on, memory, true);
        assert_eq!(told(on), [0]);
        wait_for(&gpu, other, on);
        use_of(&gpu, on, memory, true);
        use_of(&gpu, other, memory, true);
        assert_eq!((told(on), told(other)), (vec![1], vec![2]));
        wait_for(&gpu, on, other);
        assert_eq!(told(on), [1, 2]);
        assert_eq!(gpu.graph_destroy(graph), Err(CudaCode::INVALID_VALUE), "it is captured into");
        assert_eq!(gpu.stream_end_capture(on), Ok(graph));
        assert_eq!(kinds(&gpu), []);
    }
}

#[test]
fn what_a_replay_does_has_the_labels_of_the_capture() {
    for gpu in faces() {
        let (a, b) = (stream(&gpu), stream(&gpu));
        let memory = gpu.malloc(BYTES).unwrap();
        Emulator::label_calls(Some("add_"));
        let graph = captured(&gpu, a, || use_of(&gpu, a, memory, true));
        Emulator::label_calls(None);
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        use_of(&gpu, b, memory, false);
        run(&gpu, exec, a).unwrap();
        wait_for(&gpu, a, b);
        use_of(&gpu, b, memory, false);
        synchronize(&gpu, a);
        synchronize(&gpu, b);
        let found = findings(&gpu);
        let labels = found.iter().filter_map(|finding| finding.race());
        let labels = labels.flat_map(|race| [&race.first, &race.second]);
        let labels: Vec<_> = labels.map(|used| used.label.as_deref()).collect();
        assert_eq!(labels, [None, Some("add_"), Some("add_"), None], "{found:#?}");
    }
}

#[test]
fn a_launch_that_uses_freed_memory_names_the_memory() {
    for (gpu, in_order) in faces().map(|gpu| (gpu, true)).chain(faces().map(|gpu| (gpu, false))) {
        let on = stream(&gpu);
        let (kept, gone) = (gpu.malloc(BYTES).unwrap(), allocate(&gpu, on));
        let graph = captured(&gpu, on, || {
            for memory in [kept, gone] {
                // SAFETY: both are memory of a device.
                unsafe { gpu.fill(on, memory, BYTES, &[1], (BYTES, 1), false) }.unwrap();
            }
        });
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        run(&gpu, exec, on).unwrap();
        if in_order {
            gpu.free_async(on, gone).unwrap();
        } else {
            gpu.stream_synchronize(on).unwrap();
            gpu.free(gone).unwrap();
        }
        let launched = run(&gpu, exec, on).and_then(|()| gpu.stream_synchronize(on));
        assert_eq!(launched, Err(CudaCode::ILLEGAL_ADDRESS));
        let found = findings(&gpu);
        assert_eq!(kinds(&gpu), [FindingKind::IllegalAddress], "{found:#?}");
        let line = found[0].message.lines().nth(1).unwrap_or_default();
        let memory = format!("  memory: {BYTES} bytes at {:#018x}, generation 2", gone.addr());
        assert_eq!(line, memory + ", freed", "{found:#?}");
    }
}

#[test]
fn page_locked_memory_that_a_graph_uses_is_not_freed_before_the_graph() {
    for gpu in faces() {
        let (on, memory) = (stream(&gpu), gpu.malloc(BYTES).unwrap());
        let replays_of = |source: *mut c_void| {
            let graph = captured(&gpu, on, || {
                let line = Plane::line(memory, source, BYTES);
                // SAFETY: both live as long as the copy, or the machine refuses it.
                unsafe { gpu.copy(on, line, Kind::Default, false) }.unwrap();
            });
            let exec = gpu.graph_instantiate(graph, false).unwrap();
            gpu.graph_destroy(graph).unwrap();
            exec
        };
        let sources = [(); 2].map(|()| gpu.host_alloc(BYTES, 0, false).unwrap());
        let execs = sources.map(replays_of);
        gpu.graph_destroy(execs[0]).unwrap();
        gpu.free_host(sources[0], false).unwrap();
        assert_eq!(kinds(&gpu), [], "no graph uses it any more");
        gpu.free_host(sources[1], false).unwrap();
        let found = findings(&gpu);
        assert_eq!(kinds(&gpu), [FindingKind::FreedInFlight], "{found:#?}");
        assert!(found[0].message.contains("which an operation of a graph names"), "{found:#?}");
    }
}

#[test]
fn pageable_memory_that_is_unmapped_before_a_launch_is_found_and_crashes_nothing() {
    // Low: the system puts mappings at high addresses, and the terabytes of addresses that machines
    // reserve have no room below. So no other test takes the place.
    let place = std::ptr::without_provenance_mut(4 << 30);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    for (gpu, writes) in faces().map(|gpu| (gpu, false)).chain(faces().map(|gpu| (gpu, true))) {
        let (on, memory) = (stream(&gpu), gpu.malloc(BYTES).unwrap());
        // SAFETY: a fresh mapping.
        let host = unsafe { libc::mmap(place, BYTES, protection, flags, -1, 0) };
        assert_ne!(host, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let (to, from) = if writes { (host, memory) } else { (memory, host) };
        let graph = captured(&gpu, on, || {
            let line = Plane::line(to, from, BYTES);
            // SAFETY: both are there now, and the machine looks before it uses them again.
            unsafe { gpu.copy(on, line, Kind::Default, false) }.unwrap();
        });
        let exec = gpu.graph_instantiate(graph, false).unwrap();
        run(&gpu, exec, on).unwrap();
        synchronize(&gpu, on);
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
        // SAFETY: the mapping of above, which nothing uses now.
        assert_eq!(unsafe { libc::munmap(host, BYTES) }, 0);
        run(&gpu, exec, on).unwrap();
        synchronize(&gpu, on);
        let changed =
            if writes { FindingKind::DestinationChanged } else { FindingKind::SourceChanged };
        assert_eq!(kinds(&gpu), [changed], "{:#?}", findings(&gpu));
        assert!(findings(&gpu)[0].message.contains("unmapped before the launch"));
    }
}
