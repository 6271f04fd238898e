//! Host functions, the end of a process, and forks.

use super::*;
use std::sync::atomic::AtomicBool;

use crate::common::process::run_alone;
use crate::common::support;

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

/// Runs `test` in a process of its own and sees it abort instead of returning borrowed memory.
fn aborts(test: &str, work: impl FnOnce(Rig) -> pinlane::Result<()>) {
    use std::os::unix::process::ExitStatusExt;

    if let Some(output) = run_alone(module_path!(), test) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        assert!(said.contains(&format!("{BYTES} borrowed bytes")), "{said}");
        assert!(!said.contains("has returned"), "{said}");
        return;
    }
    let ended = work(Rig::new(Execution::Lazy, 0, 1));
    eprintln!("has returned {ended:?}");
}

#[test]
fn rule_02_borrowed_memory_that_may_be_in_use_ends_the_process() {
    aborts("rule_02_borrowed_memory_that_may_be_in_use_ends_the_process", |rig| {
        let (mut slice, gpu) = (vec![1; LEN], rig.gpu());
        rig.device.with_registered(&mut slice, |view| {
            rig.stall(&rig.stream);
            rig.stream.download(&gpu, view).unwrap();
            fail_forever(&rig, &WAITS);
        })
    });
}

#[test]
fn rule_02_a_lost_device_may_still_write_to_borrowed_memory() {
    aborts("rule_02_a_lost_device_may_still_write_to_borrowed_memory", |rig| {
        let (mut slice, gpu) = (vec![1; LEN], rig.gpu());
        rig.device.with_registered(&mut slice, |view| {
            rig.stream.download(&gpu, view).unwrap();
            rig.emulator.lose_device(0, CudaCode::ILLEGAL_ADDRESS).unwrap();
        })
    });
}

/// The second device's copy waits for the first one's. It does not show when the first one is done.
#[test]
fn rule_02_the_loss_of_one_device_says_nothing_of_another() {
    aborts("rule_02_the_loss_of_one_device_says_nothing_of_another", |rig| {
        let second = Device::of_emulator(&rig.emulator, 1).unwrap();
        let (stream, other) = (second.stream().unwrap(), second.alloc::<u32>(LEN).unwrap());
        let (mut slice, gpu) = (vec![1; LEN], rig.gpu());
        rig.device.with_registered(&mut slice, |mut view| {
            rig.stream.download(&gpu, view.reborrow()).unwrap();
            stream.download(&other, view).unwrap();
            rig.emulator.lose_device(1, CudaCode::ILLEGAL_ADDRESS).unwrap();
        })
    });
}

static ENDING: AtomicBool = AtomicBool::new(false);

/// Lets the thread with the borrowed memory continue, and gives it time to abort the process if it
/// would.
extern "C" fn process_ends() {
    ENDING.store(true, Ordering::SeqCst);
    std::thread::sleep(std::time::Duration::from_millis(300));
}

/// As when `main` returns while another thread copies: the runtime unloads, and its calls on that
/// thread return an error.
#[test]
fn rule_14_a_process_that_ends_with_memory_borrowed_ends_in_peace() {
    let test = "rule_14_a_process_that_ends_with_memory_borrowed_ends_in_peace";
    if let Some(output) = run_alone(module_path!(), test) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(!said.contains("pinlane:") && !said.contains("has returned"), "{said}");
        return;
    }
    // Registered before the first use of pinlane, so that pinlane's own handler is called first.
    // SAFETY: a plain function.
    assert_eq!(unsafe { libc::atexit(process_ends) }, 0);
    let (copying, is_copying) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let rig = Rig::new(Execution::Lazy, 0, 1);
        let (mut slice, gpu) = (vec![1; LEN], rig.gpu());
        let ended = rig.device.with_registered(&mut slice, |view| {
            rig.stream.download(&gpu, view).unwrap();
            copying.send(()).unwrap();
            while !ENDING.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            rig.emulator.lose_device(0, CudaCode::CUDART_UNLOADING).unwrap();
        });
        eprintln!("has returned {ended:?}");
    });
    is_copying.recv().unwrap();
    std::process::exit(7);
}

#[test]
fn rule_14_a_forked_child_gets_borrowed_memory_back_and_leaks_the_rest() {
    let test = "rule_14_a_forked_child_gets_borrowed_memory_back_and_leaks_the_rest";
    if let Some(output) = run_alone(module_path!(), test) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1 passed"), "it ran: {said}");
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
        // SAFETY: no preconditions. It kills a child that hangs, and its parent notices.
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
