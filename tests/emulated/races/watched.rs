//! The machine itself sees the host's accesses to page-locked memory: the loads and stores of this
//! file, which nothing announces to it.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::ptr::NonNull;

use pinlane::driver::{DevicePtr, HostFlags, RawStream};
use pinlane::emulated::{Emulator, Execution, FindingKind};
use pinlane::{Device, PinnedPool};

use super::{in_short, machine, only_race, twins_on};
use crate::common::process::{full_name, run_alone};
use crate::rig::{BYTES, Rig};

// SAFETY (of all loads and stores in this file): the memory is allocated and not freed. The machine
// is eager, or the operation that uses the bytes is complete or does not write to them. So nothing
// else accesses them at that moment.

fn watched() -> pinlane::emulated::Builder {
    Emulator::builder().watch_host(true)
}

fn load(host: NonNull<u8>, at: usize) -> u8 {
    // SAFETY: as above.
    unsafe { host.add(at).read_volatile() }
}

fn store(host: NonNull<u8>, at: usize, value: u8) {
    // SAFETY: as above.
    unsafe { host.add(at).write_volatile(value) };
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Rig {
    fn block(&self, bytes: usize) -> NonNull<u8> {
        self.driver.host_alloc(self.device, bytes, HostFlags::default()).unwrap()
    }

    fn download_part(&self, stream: RawStream, dst: NonNull<u8>, src: DevicePtr, bytes: usize) {
        unsafe { self.driver.copy_d2h(stream, dst.as_ptr(), src, bytes) }.unwrap();
    }
}

#[test]
fn a_load_before_the_copy_is_complete_is_found_with_its_line() {
    twins_on(&watched(), "host read on host after CopyD2H on stream B", |rig, _, ordered| {
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        rig.fill(stream, a, 7);
        rig.download(stream, host, a);
        if ordered {
            rig.synchronize(stream);
        }
        assert_eq!(load(host, 100), 7, "the program continues");
    });
}

#[test]
fn the_finding_names_the_line_and_the_byte() {
    let (rig, emulator) = machine(watched());
    let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
    rig.download(stream, host, a);
    let (line, _) = (line!(), std::hint::black_box(load(host, 100)));
    let race = only_race(&emulator);
    assert_eq!(race.start, host.as_ptr().addr() as u64 + 100);
    let Some(site) = race.second.site else {
        let known = std::backtrace::Backtrace::force_capture().to_string();
        assert!(!known.contains("watched.rs"), "no site, but debug information");
        return;
    };
    assert!(site.file.ends_with("watched.rs"), "{site}");
    // The load is inlined or called, so the site is one of two lines.
    assert!(site.line == line || site.line < 40, "{site}");
    (0..BYTES).for_each(|at| _ = load(host, at));
    assert_eq!(emulator.findings().len(), 1, "one finding");
}

#[test]
fn a_store_to_a_source_in_flight_is_found_and_a_load_from_it_is_fine() {
    twins_on(&watched(), "host write on host after CopyH2D on stream B", |rig, _, ordered| {
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        store(host, 5, 1);
        rig.upload_from(stream, a, host);
        load(host, 5);
        if ordered {
            rig.synchronize(stream);
        }
        store(host, 5, 2);
        assert_eq!(load(host, 5), 2);
    });
}

/// The host may use the bytes beside those in use. After that the machine still sees the page.
#[test]
fn other_bytes_of_the_page_are_free() {
    let (rig, emulator) = machine(watched());
    let (a, stream, host) = (rig.memory(), rig.stream(false), rig.block(3 * BYTES));
    rig.fill(stream, a, 7);
    rig.synchronize(stream);
    rig.download_part(stream, host, a, 100);
    for at in 100..3 * BYTES {
        store(host, at, at as u8);
    }
    assert!((100..3 * BYTES).all(|at| load(host, at) == at as u8));
    // SAFETY: as above, and the two parts do not overlap.
    unsafe { host.add(200).copy_to_nonoverlapping(host.add(2 * BYTES), BYTES) };
    assert_eq!(emulator.findings(), []);
    load(host, 99);
    if cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
        assert_eq!(in_short(&only_race(&emulator)), "host read on host after CopyD2H on stream B");
    }
}

#[test]
fn threads_share_a_page_that_is_partly_in_use() {
    let (rig, emulator) = machine(watched());
    let (a, host) = (rig.memory(), rig.host());
    let at = |offset: usize| host.as_ptr().expose_provenance() + offset;
    let starts = [0, 1, 2, 3].map(|part| at(part * 1024));
    std::thread::scope(|scope| {
        for start in starts {
            let (rig, stream) = (&rig, rig.stream(false));
            scope.spawn(move || {
                let own = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(start)).unwrap();
                for round in 0..100 {
                    store(own, 600, round);
                    rig.download_part(stream, own, a, 500);
                    store(own, 700, round);
                    assert_eq!((load(own, 600), load(own, 700)), (round, round));
                    rig.synchronize(stream);
                    load(own, 0);
                }
            });
        }
    });
    assert_eq!(emulator.findings(), []);
}

#[test]
fn a_host_function_may_use_what_it_is_ordered_behind() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let (rig, emulator) = machine(watched().execution(execution));
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        let start = host.as_ptr().expose_provenance();
        rig.fill(stream, a, 7);
        rig.download(stream, host, a);
        rig.launch(stream, move || {
            let host = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(start)).unwrap();
            assert_eq!(load(host, 9), 7);
            store(host, 9, 8);
        });
        rig.upload_from(stream, a, host);
        rig.synchronize(stream);
        assert_eq!(load(host, 9), 8);
        assert_eq!(emulator.findings(), [], "{execution:?}");
    }
}

/// The crate's own copies, pool and threads work as without the watch.
#[test]
fn buffers_of_the_pool_work_as_ever() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let emulator = watched().execution(execution).build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let stream = device.stream().unwrap();
        let mut gpu = device.alloc::<u8>(300).unwrap();
        let mut small: Vec<_> = (0..20).map(|_| pool.alloc_zeroed::<u8>(300).unwrap()).collect();
        for (number, host) in small.iter_mut().enumerate() {
            host.write().unwrap().fill(number as u8);
            stream.upload(&*host, &mut gpu).unwrap();
            stream.download(&gpu, host).unwrap();
        }
        for (number, host) in small.iter().enumerate() {
            assert!(host.read().unwrap().iter().all(|&byte| byte == number as u8));
        }
        // Pageable memory is staged, by threads.
        let long: Vec<u8> = (0..5 << 20).map(|at| (at % 251) as u8).collect();
        let mut there = device.alloc::<u8>(long.len()).unwrap();
        let mut back = vec![0; long.len()];
        stream.upload_slice(&long, &mut there).unwrap();
        stream.download_slice(&there, &mut back).unwrap();
        assert!(back == long);
        assert_eq!(emulator.findings(), [], "{execution:?}");
    }
}

/// On other machines pools register their memory. A machine cannot watch registered memory.
#[test]
fn a_race_on_a_buffer_of_a_default_pool_is_found() {
    for waits in [false, true] {
        let emulator = watched().build();
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let stream = device.stream().unwrap();
        let mut gpu = device.alloc::<u8>(BYTES).unwrap();
        let host = pool.alloc_zeroed::<u8>(BYTES).unwrap();
        let address = NonNull::new(host.as_ptr().cast_mut()).unwrap();
        stream.upload(&host, &mut gpu).unwrap();
        if waits {
            stream.synchronize().unwrap();
        }
        store(address, BYTES - 1, 3);
        assert_eq!(load(address, BYTES - 1), 3);
        match waits {
            true => assert_eq!(emulator.findings(), []),
            false => {
                let race = in_short(&only_race(&emulator));
                assert_eq!(race, "host write on host after CopyH2D on stream C");
            }
        }
    }
}

/// A system call does not fault: it fails. Announcing the host's write opens the page.
#[test]
fn a_system_call_on_a_closed_page_fails_until_the_machine_is_told() {
    let (rig, emulator) = machine(watched());
    let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
    rig.download_part(stream, host, a, 100);
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"12345678").unwrap();
    let read = |at: usize| {
        use std::os::fd::AsRawFd;
        // SAFETY: as above; the block is longer.
        unsafe { libc::read(reader.as_raw_fd(), host.as_ptr().add(at).cast(), 4) }
    };
    assert_eq!(read(2000), -1, "on the same page");
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
    emulator.host_writes(host.as_ptr().wrapping_add(2000), 4);
    assert_eq!((read(2000), load(host, 2000)), (4, b'1'));
    assert_eq!(emulator.findings(), []);
}

#[test]
fn memory_that_a_machine_leaves_behind_is_open() {
    let (rig, emulator) = machine(watched());
    let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
    rig.fill(stream, a, 3);
    rig.download(stream, host, a);
    drop((rig, emulator));
    assert_eq!(load(host, 0), 3);
    store(host, 0, 4);
}

#[test]
fn memory_is_freed_and_freed_in_flight() {
    let (rig, emulator) = machine(watched());
    let (a, stream) = (rig.memory(), rig.stream(false));
    for round in 0..100 {
        let host = rig.host();
        store(host, 1, round);
        rig.upload_from(stream, a, host);
        rig.synchronize(stream);
        rig.free_host(host);
    }
    assert_eq!((emulator.findings(), emulator.usage().host_bytes), (vec![], 0));
    let host = rig.host();
    rig.upload_from(stream, a, host);
    rig.free_host(host);
    assert_eq!(emulator.findings()[0].kind, FindingKind::FreedInFlight);
}

/// The standard library's handler reports the overflow, for which it needs the thread's signal
/// stack.
#[test]
fn a_stack_that_overflows_is_reported_as_ever() {
    const NAME: &str = "a_stack_that_overflows_is_reported_as_ever";
    #[allow(unconditional_recursion)]
    fn endless(depth: usize) -> usize {
        std::hint::black_box([depth; 64])[depth % 64] + endless(depth + 1)
    }
    let Some(output) = run_alone(module_path!(), NAME) else {
        let (rig, emulator) = machine(watched());
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        let address = host.as_ptr().expose_provenance();
        rig.download(stream, host, a);
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        let thread = thread.spawn(move || {
            let host = std::ptr::with_exposed_provenance_mut::<u8>(address);
            load(NonNull::new(host).unwrap(), 7);
            assert_eq!(emulator.findings().len(), 1);
            endless(0)
        });
        unreachable!("{:?}", thread.unwrap().join());
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("has overflowed its stack"), "{said}");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
}

/// Any other fault does what it did without the watch.
#[test]
fn a_fault_elsewhere_ends_the_process() {
    const NAME: &str = "a_fault_elsewhere_ends_the_process";
    let Some(output) = run_alone(module_path!(), NAME) else {
        let (rig, _emulator) = machine(watched());
        store(rig.host(), 0, 1);
        // SAFETY: none. The process ends here, which is the test.
        unsafe { std::ptr::without_provenance_mut::<u8>(4096).write_volatile(1) };
        unreachable!("nothing is mapped there");
    };
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", full_name(module_path!(), NAME));
}
