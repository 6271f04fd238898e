//! Memory of the user's own, registered: it comes back only when the device is done with it, whatever fails.
//! On the emulated device, which can stall streams, fail calls, and see a misuse.

#![cfg(feature = "emulated")]

mod common;
#[path = "soundness/support.rs"]
#[allow(dead_code)]
mod support;

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinlane::driver::emulated::{Execution, Fault};
use pinlane::driver::{Call, HostFlags};
use pinlane::{CudaCode, Device, ErrorKind, HostMemory, Refused};

use support::{LEN, Rig, eventually, watched};

const ANY: CudaCode = CudaCode::UNKNOWN;
const BYTES: usize = LEN * size_of::<u32>();
/// All ways to wait.
const WAITS: [Call; 4] =
    [Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize, Call::StreamQuery];

/// Machines that run everything at once, and machines that run nothing before somebody waits.
fn on_machines(test: impl Fn(Rig) + Send + 'static) {
    watched(move || {
        test(Rig::new(Execution::Eager, 0, 4));
        (0..8).for_each(|seed| test(Rig::new(Execution::Lazy, seed, 4)));
    });
}

/// Elements that count how often they have been dropped.
#[derive(Debug)]
struct Counted {
    elements: Vec<u32>,
    drops: Arc<AtomicUsize>,
}

// SAFETY: the elements are those of a vector, which nobody uses.
unsafe impl HostMemory for Counted {
    type Element = u32;

    fn elements(&mut self) -> &mut [u32] {
        &mut self.elements
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

fn counted(value: u32) -> (Counted, impl Fn() -> usize) {
    let drops = Arc::new(AtomicUsize::new(0));
    let owner = Counted { elements: vec![value; LEN], drops: drops.clone() };
    (owner, move || drops.load(Ordering::SeqCst))
}

fn numbers(len: usize) -> Vec<u32> {
    (0..len as u32).map(|index| index.wrapping_mul(0x9E37_79B9)).collect()
}

fn fail_forever(rig: &Rig, calls: &[Call]) {
    calls.iter().for_each(|&call| rig.emulator.inject(Fault::forever(call, ANY)));
}

#[test]
fn copies_go_both_ways_bit_by_bit() {
    on_machines(|rig| {
        let source = rig.device.register(numbers(LEN)).unwrap();
        let mut target = rig.device.register(vec![0; LEN].into_boxed_slice()).unwrap();
        let (mut gpu, other) = (rig.gpu(), rig.device.stream().unwrap());
        rig.stream.upload(&source, &mut gpu).unwrap();
        other.download(&gpu, &mut target).unwrap();
        assert_eq!(target.read().unwrap(), numbers(LEN));
        rig.stream.fill(&mut gpu, 5).unwrap();
        let (part, to) = (gpu.slice(3..7).unwrap(), target.slice_mut(1..5).unwrap());
        rig.stream.download(part, to).unwrap();
        assert_eq!(target.slice(..6).unwrap().read().unwrap()[1..5], [5; 4]);
        target.write().unwrap()[0] = 1;
        let target = target.into_inner().unwrap();
        assert_eq!((target[0], &target[1..5], &target[5..]), (1, &[5; 4][..], &numbers(LEN)[5..]));
        drop((source, gpu, other));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn any_device_may_use_it() {
    on_machines(|rig| {
        let second = Device::of_emulator(&rig.emulator, 1).unwrap();
        let (stream, mut gpu) = (second.stream().unwrap(), second.alloc(LEN).unwrap());
        let mut slice = numbers(LEN);
        let copy = rig.device.with_registered(&mut slice, |mut view| {
            stream.upload(view.as_slice(), &mut gpu).unwrap();
            view.reborrow().into_write().unwrap().fill(0);
            stream.download(&gpu, view).unwrap()
        });
        assert!(copy.unwrap().is_done().unwrap(), "waited for, though another device's");
        assert_eq!(slice, numbers(LEN));
        drop((stream, gpu, second));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn parts_of_a_view_are_tracked_each_for_itself() {
    on_machines(|rig| {
        let (mut slice, mut gpu) = (numbers(LEN), rig.gpu());
        rig.device
            .with_registered(&mut slice, |mut view| {
                rig.stall(&rig.stream);
                let (part, to) = (view.as_slice().slice(8..).unwrap(), gpu.slice_mut(8..).unwrap());
                let tail = part.slice(2..4).unwrap();
                rig.stream.upload(part.clone(), to).unwrap();
                assert_eq!(tail.read().unwrap(), &numbers(LEN)[10..12]);
                let mut front = view.slice_mut(4..9).unwrap();
                assert_eq!(front.slice_mut(..6).unwrap_err_kind(), ErrorKind::OutOfRange);
                front.slice_mut(..4).unwrap().try_into_write().unwrap().fill(9);
                let early = front.slice_mut(4..).unwrap().try_into_write().unwrap_err();
                assert_eq!(early.kind(), ErrorKind::NotReady);
                rig.release(&rig.stream);
            })
            .unwrap();
        assert_eq!((slice[4], slice[8]), (9, numbers(LEN)[8]));
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

trait ErrKind {
    fn unwrap_err_kind(self) -> ErrorKind;
}

impl<T> ErrKind for pinlane::Result<T> {
    fn unwrap_err_kind(self) -> ErrorKind {
        self.map(drop).unwrap_err().kind()
    }
}

#[test]
fn rule_02_an_owner_dropped_in_flight_outlives_its_copies() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        let mut copy = rig.gpu();
        let other = rig.device.stream().unwrap();
        rig.stream.upload(&registered, &mut gpu).unwrap();
        other.upload(&registered, &mut copy).unwrap();
        assert_eq!(drops(), 0);
        drop(registered);
        assert_eq!((drops(), rig.emulator.usage().host_blocks), (1, 0));
        assert_eq!(rig.contents(&gpu), [7; LEN]);
        assert_eq!(rig.contents(&copy), [7; LEN]);
        drop((gpu, copy, other));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_02_forgetting_leaks_the_owner_and_nothing_else() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (mut registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.upload(&registered, &mut gpu).unwrap();
        forget(rig.stream.download(&gpu, &mut registered).unwrap());
        forget(registered);
        assert_eq!(rig.contents(&gpu), [7; LEN]);
        assert_eq!((drops(), rig.emulator.usage().host_blocks), (0, 1));
        let (mut slice, mut second) = (vec![1; LEN], rig.gpu());
        let forgetful = rig.device.with_registered(&mut slice, |mut view| {
            rig.stream.upload(view.as_slice(), &mut second).unwrap();
            #[allow(clippy::forget_non_drop)] // a view has no `Drop`, and must not need one
            forget(view.reborrow());
            #[allow(clippy::forget_non_drop)]
            forget(view);
        });
        forgetful.unwrap();
        slice.fill(2);
        assert_eq!(rig.contents(&second), [1; LEN]);
        rig.assert_no_misuse();
    });
}

#[test]
fn the_owner_comes_back_when_the_device_is_done() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (mut registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.upload(&registered, &mut gpu).unwrap();
        rig.stream.fill(&mut gpu, 8).unwrap();
        rig.stream.download(&gpu, &mut registered).unwrap();
        let mut owner = registered.into_inner().unwrap();
        assert_eq!((&owner.elements[..], drops()), (&[8; LEN][..], 0));
        assert_eq!(rig.emulator.usage().host_blocks, 0);
        owner.elements.push(3);
        let again = rig.device.register(owner).unwrap();
        assert_eq!(again.read().unwrap()[LEN], 3);
        drop((again, gpu));
        assert_eq!(drops(), 1);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn foreign_work_counts_as_a_use() {
    on_machines(|rig| {
        let mut registered = rig.device.register(numbers(LEN)).unwrap();
        rig.stall(&rig.stream);
        // SAFETY: nothing is launched.
        unsafe { rig.stream.foreign(&[], &mut [&mut registered], |_| ()) }.unwrap();
        assert_eq!(registered.try_read().unwrap_err().kind(), ErrorKind::NotReady);
        assert_eq!(registered.try_write().unwrap_err().kind(), ErrorKind::NotReady);
        rig.release(&rig.stream);
        drop(registered);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_01_a_scope_ends_when_the_device_is_done_even_if_it_unwinds() {
    on_machines(|rig| {
        let (mut slice, mut gpu) = (vec![1; LEN], rig.gpu());
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            rig.device.with_registered(&mut slice, |view| {
                rig.stream.upload(view.as_slice(), &mut gpu).unwrap();
                rig.stream.fill(&mut gpu, 6).unwrap();
                rig.stream.download(&gpu, view).unwrap();
                panic!("on purpose");
            })
        }));
        assert!(unwound.is_err());
        assert_eq!(slice, [6; LEN]);
        assert_eq!(rig.emulator.usage().host_blocks, 0);
        slice.fill(7);
        assert_eq!(rig.contents(&gpu), [6; LEN]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn neighbours_on_one_page_and_odd_addresses_are_registered_each_for_itself() {
    on_machines(|rig| {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(1001).collect();
        let expected = bytes.clone();
        let mut gpu = rig.device.alloc::<u8>(bytes.len()).unwrap();
        let (left, right) = bytes[1..].split_at_mut(333);
        rig.device
            .with_registered(left, |left| {
                rig.stream.upload(left.as_slice(), gpu.slice_mut(1..334).unwrap()).unwrap();
                rig.device.with_registered(right, |right| {
                    assert_eq!(rig.emulator.usage().host_blocks, 2);
                    rig.stream.upload(right.as_slice(), gpu.slice_mut(334..).unwrap()).unwrap();
                })
            })
            .unwrap()
            .unwrap();
        bytes.fill(0);
        rig.device
            .with_registered(&mut bytes, |all| rig.stream.download(&gpu, all).unwrap())
            .unwrap();
        assert_eq!(bytes[1..], expected[1..]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn no_elements_are_no_work() {
    on_machines(|rig| {
        let mut gpu = rig.device.alloc::<u32>(0).unwrap();
        let mut empty = rig.device.register(Vec::<u32>::with_capacity(8)).unwrap();
        assert!(empty.is_empty() && empty.write().unwrap().is_empty());
        rig.stream.upload(&empty, &mut gpu).unwrap();
        assert_eq!(empty.into_inner().unwrap().capacity(), 8);
        drop(rig.device.register(vec![(); 3]).unwrap());
        let len = rig.device.with_registered(&mut [0u64; 0], |view| view.len());
        assert_eq!(len.unwrap(), 0);
        let calls = [Call::HostRegister, Call::HostUnregister].map(|call| rig.emulator.calls(call));
        assert_eq!(calls, [0, 0]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn what_is_page_locked_already_is_refused() {
    on_machines(|rig| {
        let (driver, mut slice) = (rig.emulator.driver(), numbers(LEN));
        for (first, len) in [(0, LEN), (0, 1), (LEN - 1, 1), (LEN / 2, 7)] {
            let part = NonNull::from(&mut slice[first..first + len]).cast();
            let (bytes, flags) = (len * size_of::<u32>(), HostFlags::default());
            // SAFETY: the elements live, and nobody uses them, until they are unregistered below.
            unsafe { driver.host_register(0, part, bytes, flags) }.unwrap();
            let Refused { value, error } = rig.device.register(slice).unwrap_err();
            slice = value;
            assert_eq!(error.kind(), ErrorKind::InvalidValue);
            assert_eq!(error.cuda_code(), Some(CudaCode::HOST_MEMORY_ALREADY_REGISTERED));
            assert!(error.to_string().contains(&format!("{BYTES} bytes")), "{error}");
            let error = rig.device.with_registered(&mut slice, |_| panic!("not registered"));
            assert_eq!(error.unwrap_err_kind(), ErrorKind::InvalidValue);
            // SAFETY: it was registered above, and nothing was enqueued.
            unsafe { driver.host_unregister(part) }.unwrap();
        }
        drop(rig.device.register(slice).unwrap());
        rig.assert_nothing_is_left();
    });
}

#[test]
fn memory_that_cannot_be_page_locked_comes_back_with_the_remedy() {
    for (code, kind, hint) in [
        (CudaCode::INVALID_VALUE, ErrorKind::InvalidValue, "MAP_PRIVATE"),
        (CudaCode::MEMORY_ALLOCATION, ErrorKind::OutOfHostMemory, "ulimit"),
        (CudaCode::NOT_SUPPORTED, ErrorKind::Unsupported, "cudaHostRegister"),
        (ANY, ErrorKind::Cuda, "cudaHostRegister"),
    ] {
        let rig = Rig::new(Execution::Eager, 0, 1);
        let (owner, drops) = counted(3);
        rig.emulator.inject(Fault::once(Call::HostRegister, code));
        let Refused { value, error } = rig.device.register(owner).unwrap_err();
        assert_eq!((error.kind(), error.cuda_code()), (kind, Some(code)));
        assert!(error.to_string().contains(hint), "{error}");
        assert_eq!((&value.elements[..], drops()), (&[3; LEN][..], 0));
        drop(rig.device.register(value).unwrap());
        rig.assert_nothing_is_left();
    }
}

#[test]
fn rule_04_an_error_that_passes_loses_nothing() {
    on_machines(|rig| {
        for call in WAITS {
            let (owner, drops) = counted(7);
            let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
            rig.stream.upload(&registered, &mut gpu).unwrap();
            rig.emulator.inject(Fault::once(call, ANY));
            drop(registered);
            rig.emulator.clear_faults();
            assert_eq!((drops(), rig.device.quarantined_bytes()), (1, 0));
            assert_eq!(rig.contents(&gpu), [7; LEN]);
            let mut slice = vec![1; LEN];
            rig.emulator.inject(Fault::once(call, ANY));
            rig.device
                .with_registered(&mut slice, |view| rig.stream.download(&gpu, view).unwrap())
                .unwrap();
            rig.emulator.clear_faults();
            assert_eq!(slice, [7; LEN]);
        }
        rig.assert_nothing_is_left();
    });
}

/// One way to wait is enough.
#[test]
fn rule_04_the_device_is_asked_in_every_way() {
    on_machines(|rig| {
        for spared in [Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize] {
            let mut gpu = rig.gpu();
            rig.stream.fill(&mut gpu, 4).unwrap();
            let mut slice = vec![1; LEN];
            let ended = rig.device.with_registered(&mut slice, |view| {
                rig.stream.download(&gpu, view).unwrap();
                // The event is there already.
                rig.stream.record().unwrap();
                let failing: Vec<Call> = WAITS.into_iter().filter(|&call| call != spared).collect();
                fail_forever(&rig, &failing);
            });
            rig.emulator.clear_faults();
            ended.unwrap();
            assert_eq!(slice, [4; LEN]);
        }
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_04_an_owner_whose_users_are_unknown_leaks_and_is_counted() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (mut registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.fill(&mut gpu, 8).unwrap();
        rig.stall(&rig.stream);
        rig.stream.download(&gpu, &mut registered).unwrap();
        fail_forever(&rig, &WAITS);
        let Refused { value: registered, error } = registered.into_inner().unwrap_err();
        assert_eq!(error.cuda_code(), Some(ANY));
        drop(registered);
        rig.emulator.clear_faults();
        rig.release(&rig.stream);
        rig.stream.synchronize().unwrap();
        assert_eq!((drops(), rig.device.quarantined_bytes()), (0, BYTES));
        assert_eq!(rig.emulator.calls(Call::HostUnregister), 0);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_04_an_owner_that_could_not_be_waited_for_can_be_asked_for_again() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.upload(&registered, &mut gpu).unwrap();
        fail_forever(&rig, &[Call::HostUnregister]);
        let Refused { value: mut registered, error } = registered.into_inner().unwrap_err();
        assert_eq!(error.operation(), "cudaHostUnregister");
        registered.write().unwrap().fill(6);
        rig.stream.upload(&registered, &mut gpu).unwrap();
        rig.emulator.clear_faults();
        drop(registered.into_inner().unwrap());
        assert_eq!((drops(), rig.device.quarantined_bytes()), (1, 0));
        assert_eq!(rig.contents(&gpu), [6; LEN]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_04_what_stays_page_locked_is_kept_or_told() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let registered = rig.device.register(owner).unwrap();
        rig.emulator.inject(Fault::once(Call::HostUnregister, ANY));
        drop(registered);
        assert_eq!((drops(), rig.device.quarantined_bytes()), (0, BYTES));
        let mut slice = vec![1; LEN];
        rig.emulator.inject(Fault::once(Call::HostUnregister, ANY));
        let error = rig.device.with_registered(&mut slice, |_| ()).unwrap_err();
        assert_eq!(error.operation(), "cudaHostUnregister");
        slice.fill(2);
        assert_eq!(rig.emulator.usage().host_blocks, 2);
        rig.assert_no_misuse();
    });
}

/// Each call fails once, at each of its occurrences: the owner is dropped, or leaks and is counted.
#[test]
fn rule_04_faults_at_every_point_free_nothing_in_use() {
    const CALLS: [Call; 8] = [
        Call::HostRegister,
        Call::HostUnregister,
        Call::EventCreate,
        Call::EventRecord,
        Call::EventSynchronize,
        Call::EventQuery,
        Call::StreamSynchronize,
        Call::CopyH2D,
    ];
    for (call, nth) in CALLS.into_iter().flat_map(|call| (1..6).map(move |nth| (call, nth))) {
        let rig = Rig::new(Execution::Lazy, nth, 4);
        let mut gpu = rig.gpu();
        let (owner, drops) = counted(7);
        let mut slice = vec![1; LEN];
        rig.emulator.inject(Fault::once(call, ANY).nth(nth));
        let registered = rig.device.register(owner);
        let _ = rig.device.with_registered(&mut slice, |view| {
            let _ = rig.stream.upload(view.as_slice(), &mut gpu);
            if let Ok(registered) = &registered {
                let _ = rig.stream.upload(registered, &mut gpu);
            }
            let _ = rig.stream.download(&gpu, view);
        });
        slice.fill(0);
        drop(registered);
        let kept = rig.device.quarantined_bytes() / BYTES;
        assert_eq!(drops() + kept, 1, "{call:?} number {nth}");
        drop(gpu);
        assert_eq!(rig.emulator.findings(), [], "{call:?} number {nth}");
    }
}

#[test]
fn a_lost_device_uses_nothing_any_more() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        let mut slice = vec![1; LEN];
        rig.stream.upload(&registered, &mut gpu).unwrap();
        let ended = rig.device.with_registered(&mut slice, |view| {
            rig.stall(&rig.stream);
            rig.stream.download(&gpu, view).unwrap();
            rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
        });
        assert_eq!(ended.unwrap_err_kind(), ErrorKind::DeviceLost);
        slice.fill(2);
        let Refused { value: registered, error } = registered.into_inner().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        drop(registered);
        assert_eq!((drops(), rig.device.quarantined_bytes()), (0, BYTES));
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_08_a_host_function_registers_nothing_and_frees_elsewhere() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.upload(&registered, &mut gpu).unwrap();
        let device = rig.device.clone();
        let ticket = rig.stream.launch_host(move || {
            let refused = device.register(vec![1u8]).unwrap_err().error;
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            let refused = device.with_registered(&mut [1u8], |_| panic!("not registered"));
            assert_eq!(refused.unwrap_err_kind(), ErrorKind::Unsupported);
            let Refused { value, error } = registered.into_inner().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            drop(value);
        });
        ticket.unwrap().wait().unwrap();
        eventually("the owner is dropped", || drops() == 1);
        assert_eq!(rig.contents(&gpu), [7; LEN]);
        rig.assert_no_misuse();
    });
}

const CHILD: &str = "PINLANE_TEST_REGISTERED";

/// Runs one test of this file in a process of its own; `None` if this is that process.
fn alone(test: &str) -> Option<std::process::Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let arguments = [test, "--exact", "--test-threads=1", "--nocapture"];
    Some(command.args(arguments).env(CHILD, "1").output().unwrap())
}

#[test]
fn rule_02_borrowed_memory_that_may_be_in_use_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;

    let test = "rule_02_borrowed_memory_that_may_be_in_use_ends_the_process";
    if let Some(output) = alone(test) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        assert!(said.contains(&format!("{BYTES} borrowed bytes")), "{said}");
        assert!(!said.contains("has returned"), "{said}");
        return;
    }
    let rig = Rig::new(Execution::Lazy, 0, 1);
    let (mut slice, gpu) = (vec![1; LEN], rig.gpu());
    let ended = rig.device.with_registered(&mut slice, |view| {
        rig.stall(&rig.stream);
        rig.stream.download(&gpu, view).unwrap();
        fail_forever(&rig, &WAITS);
    });
    eprintln!("has returned {ended:?}");
}

#[test]
fn rule_14_a_forked_child_gets_borrowed_memory_back_and_leaks_the_rest() {
    let test = "rule_14_a_forked_child_gets_borrowed_memory_back_and_leaks_the_rest";
    if let Some(output) = alone(test) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let rig = Rig::new(Execution::Lazy, 0, 2);
    let (owner, drops) = counted(7);
    let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
    rig.stream.upload(&registered, &mut gpu).unwrap();
    let mut slice = vec![1; LEN];
    let mut child = 0;
    let ended = rig.device.with_registered(&mut slice, |view| {
        rig.stream.download(&gpu, view).unwrap();
        // SAFETY: this process runs one test; the child takes no lock that another thread holds.
        child = unsafe { libc::fork() };
    });
    if child == 0 {
        // SAFETY: no preconditions: a child that hangs is killed, and seen by its parent.
        unsafe { libc::alarm(20) };
        let refused = |error: pinlane::Error| error.kind() == ErrorKind::ForkedProcess;
        let before = support::all_calls(&rig.emulator);
        let checks = [
            ended.is_err_and(refused),
            rig.device.register(vec![1u8]).is_err_and(|refusal| refused(refusal.error)),
            rig.device.register(Vec::<u8>::new()).is_err_and(|refusal| refused(refusal.error)),
            rig.device.with_registered(&mut [1u8], |_| ()).is_err_and(refused),
            match registered.into_inner() {
                Ok(_) => false,
                Err(Refused { value, error }) => {
                    drop(value);
                    refused(error)
                }
            },
            drops() == 0,
            support::all_calls(&rig.emulator) == before,
        ];
        let verdict = checks.iter().position(|&right| !right).map_or(0, |wrong| wrong as i32 + 1);
        // SAFETY: no preconditions.
        unsafe { libc::_exit(verdict) };
    }
    ended.unwrap();
    let mut status = 0;
    // SAFETY: `status` is a live `int` for the call to write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child hung or crashed: status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "this check failed in the child");
    assert_eq!(slice, [7; LEN]);
    drop((registered, gpu));
    assert_eq!(drops(), 1);
    rig.assert_nothing_is_left();
}
