//! Calls that fail while the device uses borrowed memory: the call returns when the device is known
//! to be done with it, or never.

use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc::channel;

use pinlane::ErrorKind;
use pinlane::driver::RawStream;
use pinlane::emulated::Fault;

use super::*;
use crate::common::faults::{Case, Run, at_calls, each_call, in_processes};
use crate::common::process::run_alone;
use crate::common::support::watched;

const ANY: CudaCode = CudaCode::UNKNOWN;
/// All ways to wait.
const WAITS: [Call; 4] =
    [Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize, Call::StreamQuery];

fn raw(stream: &Stream) -> RawStream {
    RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() }
}

/// A machine, and a slice up or down on it.
struct Rig {
    emulator: Emulator,
    device: Device,
    stream: Stream,
    memory: Pooled,
    gpu: DeviceBuf<u8>,
}

impl Rig {
    fn new(execution: Execution) -> Rig {
        let emulator = Emulator::builder().execution(execution).build();
        let device = device(&emulator, 0);
        let stream = device.stream().unwrap();
        let memory = pooled(&pool(&device), &bytes(LENGTH, 1));
        let mut gpu = device.alloc(LENGTH).unwrap();
        stream.fill(&mut gpu, 7).unwrap().wait().unwrap();
        // Makes everything that a copy needs.
        stream.download_slice(gpu.slice(..LENGTH / 2).unwrap(), &mut vec![0; LENGTH / 2]).unwrap();
        Rig { emulator, device, stream, memory, gpu }
    }

    fn copy(&mut self, up: bool) -> Result<()> {
        match up {
            true => self.stream.upload_slice(&self.memory, &mut self.gpu).map(drop),
            false => self.stream.download_slice(&self.gpu, &mut self.memory),
        }
    }
}

/// One way to wait is enough, and an error of one loses nothing.
#[test]
fn rule_04_the_device_is_asked_in_every_way() {
    watched(|| {
        for execution in EXECUTIONS {
            for spared in [Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize] {
                for up in [true, false] {
                    let mut rig = Rig::new(execution);
                    for call in WAITS.into_iter().filter(|&call| call != spared) {
                        rig.emulator.inject(Fault::forever(call, ANY));
                    }
                    let copied = rig.copy(up);
                    rig.emulator.clear_faults();
                    copied.unwrap();
                    let held = rig.memory.to_vec();
                    rig.memory.fill(0);
                    assert!(contents(&rig.stream, &rig.gpu) == held);
                    assert_eq!(rig.emulator.findings(), []);
                }
            }
        }
    });
}

/// An error of any call is returned, and by then nothing is in use.
#[test]
fn rule_04_after_an_error_nothing_is_in_use() {
    watched(|| {
        let calls = [Call::CopyH2D, Call::CopyD2H, Call::EventRecord, Call::EventCreate];
        for execution in EXECUTIONS {
            for call in calls {
                for up in [true, false] {
                    let mut rig = Rig::new(execution);
                    rig.emulator.inject(Fault::once(call, ANY));
                    let concerned =
                        !matches!((call, up), (Call::CopyH2D, false) | (Call::CopyD2H, true));
                    let copied = rig.copy(up);
                    rig.emulator.clear_faults();
                    if let Err(error) = copied {
                        assert!(concerned && error.cuda_code() == Some(ANY), "{call:?}: {error}");
                    } else {
                        assert!(!matches!(
                            (call, up),
                            (Call::CopyH2D, true) | (Call::CopyD2H, false)
                        ));
                    }
                    rig.memory.fill(3);
                    rig.stream.synchronize().unwrap();
                    assert!(rig.memory.iter().all(|&byte| byte == 3), "written later");
                    assert_eq!(rig.emulator.findings(), []);
                }
            }
        }
    });
}

/// Slices in memory of a pool, alone and in batches, up and down, while calls fail: when a call
/// returns, the device is done with the memory.
fn survives(run: &Run) -> usize {
    let device = device(&run.emulator, 0);
    let streams = [(); 2].map(|()| device.stream().unwrap());
    let pool = pool(&device);
    let (sent, mut gpu) = (bytes(LENGTH, 1), device.alloc::<u8>(LENGTH).unwrap());
    let (mut source, mut target) = (pooled(&pool, &sent), pooled(&pool, &sent));
    run.begin();
    for batch in [false, true, false] {
        source.copy_from_slice(&sent);
        let uploaded = match batch {
            false => streams[0].upload_slice(&source, &mut gpu),
            true => streams[0].upload_batch([(&source[..], &mut gpu)]),
        };
        source.fill(9);
        target.fill(8);
        let downloaded = match batch {
            false => streams[1].download_slice(&gpu, &mut target),
            true => streams[1].download_batch([(&gpu, &mut target[..])]).map(drop),
        };
        assert!(uploaded.is_err() || downloaded.is_err() || target[..] == sent);
        run.explains_all([uploaded.map(drop), downloaded]);
        target.fill(7);
    }
    run.end();
    assert!(streams.iter().all(|stream| stream.synchronize().is_ok()) || run.is_lost());
    assert!(target.iter().all(|&byte| byte == 7), "written later");
    drop((source, target, gpu, streams));
    pool.trim().unwrap_or_default();
    pool.stats().quarantined_bytes + device.quarantined_bytes()
}

#[test]
fn rule_02_faults_at_every_point_give_nothing_back_in_use() {
    let usable = |case: &Case| !case.loses();
    let machine = Emulator::builder();
    at_calls("slices in memory of a pool", &machine, 150, &each_call(), usable, survives);
}

/// A device that is lost with the memory in use ends the process.
#[test]
fn rule_02_losses_at_every_point_end_the_process_or_the_borrow() {
    const TEST: &str = "rule_02_losses_at_every_point_end_the_process_or_the_borrow";
    if is_alone(module_path!(), TEST) {
        let name = "slices in memory of a pool and losses";
        in_processes(name, &Emulator::builder(), 150, Case::loses, survives);
    }
}

/// Runs `test` in a process of its own and sees it abort instead of returning borrowed memory.
fn aborts(test: &str, work: impl FnOnce(Rig) -> Result<()>) {
    if let Some(output) = run_alone(module_path!(), test) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        assert!(said.contains(&format!("{LENGTH} borrowed bytes")), "{said}");
        assert!(!said.contains("has returned"), "{said}");
        return;
    }
    let ended = work(Rig::new(Execution::Lazy));
    eprintln!("has returned {ended:?}");
}

fn fail_all_waits(rig: &Rig) {
    WAITS.into_iter().for_each(|call| rig.emulator.inject(Fault::forever(call, ANY)));
}

#[test]
fn rule_02_a_download_that_may_be_in_flight_ends_the_process() {
    aborts("rule_02_a_download_that_may_be_in_flight_ends_the_process", |mut rig| {
        fail_all_waits(&rig);
        rig.copy(false)
    });
}

/// The device can only read the memory. So the caller gets it back, with an error, and the pool
/// does not reuse it.
#[test]
fn rule_04_memory_of_an_upload_that_may_be_in_flight_is_never_reused() {
    watched(|| {
        let mut rig = Rig::new(Execution::Lazy);
        let (own, other) = (pool(&rig.device), pool(&rig.device));
        rig.memory = pooled(&own, &bytes(LENGTH, 1));
        let spare = pooled(&other, &[0; 8]);
        fail_all_waits(&rig);
        rig.copy(true).unwrap_err();
        drop(std::mem::replace(&mut rig.memory, spare));
        let stats = own.stats();
        assert!(stats.in_flight_bytes + stats.quarantined_bytes >= LENGTH, "{stats}");
        assert_eq!(own.trim().unwrap(), 0);
        rig.emulator.clear_faults();
    });
}

#[test]
fn rule_02_a_batch_that_may_be_in_flight_ends_the_process() {
    aborts("rule_02_a_batch_that_may_be_in_flight_ends_the_process", |mut rig| {
        fail_all_waits(&rig);
        rig.stream.download_batch([(&rig.gpu, &mut rig.memory[..])]).map(drop)
    });
}

#[test]
fn rule_02_a_device_that_is_lost_in_the_middle_ends_the_process() {
    aborts("rule_02_a_device_that_is_lost_in_the_middle_ends_the_process", |mut rig| {
        // The call that waits for the copy.
        rig.emulator.inject(Fault::once(Call::StreamSynchronize, CudaCode::ILLEGAL_ADDRESS));
        rig.emulator.inject(Fault::once(Call::EventSynchronize, CudaCode::ILLEGAL_ADDRESS));
        rig.copy(false)
    });
}

/// If work before the copy loses the device, as a faulty kernel does, the copy is an error: the
/// device does not use the memory yet.
#[test]
fn a_device_that_is_lost_before_the_copy_is_an_error() {
    watched(|| {
        for up in [true, false] {
            for batch in [true, false] {
                let mut rig = Rig::new(Execution::Eager);
                let (emulator, at) = (rig.emulator.clone(), raw(&rig.stream));
                emulator.stall(at).unwrap();
                let (done, result) = channel();
                let copying = std::thread::spawn(move || {
                    let copied = match (batch, up) {
                        (false, _) => rig.copy(up),
                        (true, true) => {
                            rig.stream.upload_batch([(&rig.memory[..], &mut rig.gpu)]).map(drop)
                        }
                        (true, false) => {
                            rig.stream.download_batch([(&rig.gpu, &mut rig.memory[..])]).map(drop)
                        }
                    };
                    done.send(copied).unwrap();
                    rig
                });
                // The call waits for the stream, and has copied nothing.
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(result.try_recv().is_err());
                emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
                let error = result.recv().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::DeviceLost);
                let rig = copying.join().unwrap();
                assert!(rig.memory[..] == bytes(LENGTH, 1), "untouched");
                drop(rig.device);
            }
        }
    });
}

#[test]
fn rule_11_a_capturing_stream_gets_no_copy() {
    for up in [true, false] {
        let mut rig = Rig::new(Execution::Lazy);
        rig.emulator.begin_capture(raw(&rig.stream)).unwrap();
        let error = rig.copy(up).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StreamCapturing);
        assert_eq!(rig.emulator.end_capture(raw(&rig.stream)), Ok(0));
        assert_eq!(rig.emulator.findings(), []);
    }
}
