//! A machine that stages pageable memory: when the call returns, an upload has read its source, and
//! a download has written its destination.

use std::ffi::c_void;

use super::stand_ins::{findings, kinds, stream, synchronize};
use super::*;
use crate::{BatchEntry, Builder, CaptureMode, Emulator, Kind, Plane, SourceOrder};

/// Longer than what GPUs were seen to read at once.
const LONG: usize = (1 << 20) + 5;

fn staging(builder: Builder) -> Emulator {
    let builder = builder.watch_host(true).memory_bytes(1 << 24).stage_pageable(true);
    builder.build_for_program().expect("room for addresses")
}

fn machines() -> impl Iterator<Item = Emulator> {
    let builder = |seed| Emulator::builder().execution(MODES[seed % MODES.len()]).seed(seed as u64);
    (0..28).map(move |seed| staging(builder(seed)))
}

const MODES: [Execution; 4] =
    [Execution::Eager, Execution::Lazy, Execution::Random, Execution::Chunked];

fn upload(gpu: &Emulator, on: RawStream, to: *mut c_void, from: &[u8]) {
    let line = Plane::line(to, from.as_ptr().cast(), from.len());
    // SAFETY: memory of the tests' own.
    unsafe { gpu.copy(on, line, Kind::H2D, false) }.unwrap();
}

fn download(gpu: &Emulator, on: RawStream, to: &mut [u8], from: *mut c_void, waits: bool) {
    let line = Plane::line(to.as_mut_ptr().cast(), from, to.len());
    // SAFETY: as above.
    unsafe { gpu.copy(on, line, Kind::D2H, waits) }.unwrap();
}

/// A download that is not waited for: that of a graph writes at each replay.
fn download_later(gpu: &Emulator, on: RawStream, to: &mut [u8], from: *mut c_void) {
    gpu.stream_begin_capture(on, CaptureMode::Global).unwrap();
    download(gpu, on, to, from, false);
    let graph = gpu.stream_end_capture(on).unwrap();
    let exec = gpu.graph_instantiate(graph, false).unwrap();
    // SAFETY: the tests wait for the stream before the memory is gone.
    unsafe { gpu.graph_launch(exec, on) }.unwrap();
}

#[test]
fn rule_04_a_staged_source_may_change_after_the_call() {
    for gpu in machines() {
        for (bytes, in_batch) in [(64, None), (LONG, None), (64, Some(SourceOrder::Any))] {
            let (on, there) = (stream(&gpu), gpu.malloc(bytes).unwrap());
            let (mut source, mut back) = (vec![1_u8; bytes], vec![0_u8; bytes]);
            match in_batch {
                Some(order) => {
                    let entry =
                        BatchEntry { dst: there, src: source.as_ptr().cast(), bytes, order };
                    // SAFETY: as above.
                    unsafe { gpu.copy_batch(on, &[entry]) }.unwrap();
                }
                None => upload(&gpu, on, there, &source),
            }
            source.fill(2);
            synchronize(&gpu, on);
            download(&gpu, on, &mut back, there, true);
            assert!(back.iter().all(|&byte| byte == 1), "{bytes} {in_batch:?}");
        }
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
    }
}

#[test]
fn rule_04_a_destination_may_be_used_after_the_call() {
    for gpu in machines() {
        for in_batch in [false, true] {
            let (on, there) = (stream(&gpu), gpu.malloc(64).unwrap());
            upload(&gpu, on, there, &[1; 64]);
            let mut back = [0_u8; 64];
            if in_batch {
                let (dst, order) = (back.as_mut_ptr().cast(), SourceOrder::InStreamOrder);
                let entry = BatchEntry { dst, src: there, bytes: 64, order };
                // SAFETY: memory of the test's own.
                unsafe { gpu.copy_batch(on, &[entry]) }.unwrap();
            } else {
                download(&gpu, on, &mut back, there, false);
            }
            gpu.host_reads(back.as_ptr(), 64);
            assert_eq!(back, [1; 64], "{in_batch}");
            gpu.host_writes(back.as_ptr(), 64);
            back.fill(2);
            synchronize(&gpu, on);
            assert_eq!(back, [2; 64], "{in_batch}");
        }
        assert_eq!(kinds(&gpu), [], "{:#?}", findings(&gpu));
    }
}

#[test]
fn a_staged_source_is_read_by_the_call_and_not_in_the_order_of_its_stream() {
    for waits in [false, true] {
        for gpu in machines() {
            let (on, there) = (stream(&gpu), gpu.malloc(64).unwrap());
            upload(&gpu, on, there, &[1; 64]);
            let mut between = [0_u8; 64];
            download_later(&gpu, on, &mut between, there);
            if waits {
                synchronize(&gpu, on);
            }
            upload(&gpu, on, there, &between);
            synchronize(&gpu, on);
            let expected = vec![FindingKind::Race; usize::from(!waits)];
            assert_eq!(kinds(&gpu), expected, "{:#?}", findings(&gpu));
            if let Some(race) = findings(&gpu).first().and_then(|finding| finding.race()) {
                assert_eq!((&*race.second.operation, &*race.second.agent), ("CopyH2D", "host"));
            }
        }
    }
}

#[test]
fn a_staged_source_in_stream_order_is_read_when_the_stream_is_done() {
    for gpu in machines() {
        let (on, there) = (stream(&gpu), gpu.malloc(64).unwrap());
        upload(&gpu, on, there, &[1; 64]);
        let (mut between, mut back) = ([0_u8; 64], [0_u8; 64]);
        download_later(&gpu, on, &mut between, there);
        let order = SourceOrder::InStreamOrder;
        let entry = BatchEntry { dst: there, src: between.as_ptr().cast(), bytes: 64, order };
        // SAFETY: as above.
        unsafe { gpu.copy_batch(on, &[entry]) }.unwrap();
        synchronize(&gpu, on);
        between.fill(2);
        download(&gpu, on, &mut back, there, true);
        assert_eq!((back, kinds(&gpu)), ([1; 64], vec![]), "{:#?}", findings(&gpu));
    }
}
