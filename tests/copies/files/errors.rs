//! Errors: paths that are not regular files, ranges outside the file, files that shrink, calls that
//! fail.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution};
use pinlane::{Device, ErrorKind, PinnedPool, Stream, file::FileReader};

use super::support::{LARGE_SLOT, SLOT, Scratch, contents, device, emulator};
use crate::common::faults::{Run, at_every_call};
use crate::common::support::assert_nothing_is_left;

#[test]
fn a_file_that_is_none_is_named() {
    let folder = std::env::temp_dir();
    let missing = folder.join("pinlane-files-no-such-file");
    let pipe = folder.join(format!("pinlane-files-pipe-{}", std::process::id()));
    let name = CString::new(pipe.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: a NUL-terminated string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "the folder takes pipes");
    for (path, expected) in [
        (&missing, "No such file or directory (os error 2); check the path"),
        (&folder, "not a regular file; name a file on a disk"),
        (&pipe, "not a regular file; name a file on a disk"), // and does not wait for a writer
    ] {
        for (opened, call) in [
            (FileReader::open(path), "FileReader::open"),
            (FileReader::open_direct(path), "FileReader::open_direct"),
        ] {
            let error = opened.expect_err("no file");
            assert_eq!(error.kind(), ErrorKind::Io);
            let expected = format!("{call}: {}: {expected}", path.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
    std::fs::remove_file(pipe).expect("just made");
}

#[test]
fn a_file_system_that_cannot_read_directly_says_so() {
    let path = Path::new("/proc/version");
    let error = FileReader::open_direct(path).expect_err("procfs has no blocks");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let message = error.to_string();
    let expected = "FileReader::open_direct: /proc/version: its file system refuses O_DIRECT: \
                    Invalid argument (os error 22); read the file by way of the page cache: \
                    FileReader::open";
    assert_eq!(message, expected);
}

#[test]
fn a_range_that_the_file_does_not_have_is_refused_before_anything_is_enqueued() {
    let file = Scratch::new(&contents(3 * SLOT));
    let emulator = emulator(Execution::Eager);
    let device = device(&emulator, SLOT);
    let stream = device.stream().expect("a stream");
    let pool = PinnedPool::builder(&device).build().expect("a pool");
    let mut host = pool.alloc::<u8>(SLOT).expect("room");
    host.write().expect("idle").fill(0xee);
    let mut first = device.alloc::<u8>(SLOT).expect("room");
    let mut second = device.alloc::<u8>(SLOT).expect("room");
    for reader in file.all_readers(&device) {
        for offset in [2 * SLOT as u64 + 1, 3 * SLOT as u64, u64::MAX - 5, u64::MAX] {
            let ranges = [(0, &mut first), (offset, &mut second)];
            let uploaded = stream.upload_file_ranges(&reader, ranges).map(drop);
            let read = reader.read_into(offset, &mut host);
            for error in [uploaded.expect_err("out of range"), read.expect_err("out of range")] {
                assert_eq!(error.kind(), ErrorKind::OutOfRange);
                let message = error.to_string();
                let path = file.path().display();
                let expected = format!(
                    "{path}: 4096 bytes from byte {offset} on, in a file of 12288 bytes; keep"
                );
                assert!(message.contains(&expected), "{message}");
            }
        }
        let end = first.slice_mut(..0).expect("inside");
        stream.upload_file(&reader, 3 * SLOT as u64, end).expect("no bytes at the end");
    }
    assert_eq!(emulator.calls(Call::CopyH2D), 0);
    assert!(host.read().expect("idle").iter().all(|&byte| byte == 0xee));
}

#[test]
fn a_destination_on_another_device_is_refused() {
    let file = Scratch::new(&contents(SLOT));
    let emulator = Emulator::builder().devices(2).build();
    let [here, there] = [0, 1].map(|n| Device::of_emulator(&emulator, n).expect("two devices"));
    let mut ours = here.alloc::<u8>(9).expect("room");
    let mut theirs = there.alloc::<u8>(9).expect("room");
    let reader = FileReader::open(file.path()).expect("just written");
    let stream = here.stream().expect("a stream");
    let error = stream
        .upload_file_ranges(&reader, [(0, &mut ours), (9, &mut theirs)])
        .expect_err("another device");
    assert_eq!(error.kind(), ErrorKind::WrongDevice);
    assert_eq!(emulator.calls(Call::CopyH2D), 0);
}

/// Calls `call`, which waits for work on `stream`, and truncates the file during that wait: after
/// the checks of the call, and before it reads.
fn while_truncating<R>(
    emulator: &Emulator,
    stream: &Stream,
    file: &Scratch,
    length: u64,
    enqueue: impl FnOnce(),
    call: impl FnOnce() -> R,
) -> R {
    let opened = OpenOptions::new().write(true).open(file.path()).expect("ours");
    let (waits, wait) = channel();
    let cut = move || {
        wait.recv().expect("sent below");
        opened.set_len(length).expect("ours");
    };
    stream.launch_host(cut).expect("no faults");
    enqueue();
    let events = || -> u64 {
        let calls = [Call::EventRecord, Call::EventQuery, Call::EventSynchronize];
        calls.map(|call| emulator.calls(call)).iter().sum()
    };
    let before = events();
    thread::scope(|scope| {
        scope.spawn(move || {
            while events() == before {
                thread::yield_now();
            }
            waits.send(()).expect("the host function listens");
        });
        call()
    })
}

/// Asserts that everything still works, and that nothing is left after the drops.
fn check_sound(emulator: &Emulator, device: Device, stream: Stream, slot: usize) {
    let bytes = contents(5 * slot);
    let file = Scratch::new(&bytes);
    let mut gpu = device.alloc::<u8>(5 * slot).expect("room");
    for reader in file.readers() {
        stream.upload_file(&reader, 0, &mut gpu).expect("no faults");
        let mut found = vec![0; 5 * slot];
        stream.download_slice(&gpu, &mut found).expect("no faults");
        assert!(found == bytes);
    }
    drop((gpu, stream, device));
    assert_nothing_is_left(emulator);
}

#[test]
fn a_file_that_is_truncated_meanwhile_is_an_error_that_says_where() {
    for (slot, left) in [(SLOT, 6000u64), (SLOT, 0), (LARGE_SLOT, 80_000), (LARGE_SLOT, 65_536)] {
        for direct in 0..2 {
            let emulator = emulator(Execution::Lazy);
            let device = device(&emulator, slot);
            let stream = device.stream().expect("a stream");
            let file = Scratch::new(&contents(5 * slot));
            let readers = file.readers();
            let Some(reader) = readers.get(direct) else { continue };
            let mut gpu = device.alloc::<u8>(5 * slot - 9).expect("room");
            let upload = || stream.upload_file(reader, 9, &mut gpu);
            let error = while_truncating(&emulator, &stream, &file, left, || {}, upload)
                .expect_err("truncated");
            assert_eq!(error.kind(), ErrorKind::Io);
            let message = error.to_string();
            let path = file.path().display();
            let start = format!("Stream::upload_file: {path}: ends at byte ");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.contains("truncated during the read"), "{message}");
            // Several threads read, some of them far past the new end.
            let at: u64 =
                message[start.len()..].split(',').next().expect("a number").parse().expect("one");
            assert!((left..5 * slot as u64).contains(&at), "{message}");
            let again = stream.upload_file(reader, 9, &mut gpu).expect_err("still truncated");
            assert_eq!(again.kind(), ErrorKind::OutOfRange);
            drop(gpu);
            check_sound(&emulator, device, stream, slot);
        }
    }
}

#[test]
fn page_locked_memory_is_not_filled_from_a_truncated_file() {
    let emulator = emulator(Execution::Lazy);
    let device = device(&emulator, SLOT);
    let pool = PinnedPool::builder(&device).build().expect("a pool");
    let stream = device.stream().expect("a stream");
    let file = Scratch::new(&contents(2_000_000));
    for reader in file.readers() {
        let mut host = pool.alloc::<u8>(1_900_000).expect("room");
        let mut gpu = device.alloc::<u8>(1_900_000).expect("room");
        std::fs::write(file.path(), contents(2_000_000)).expect("ours");
        let host = RefCell::new(&mut host);
        // The call waits for this use of its destination.
        let using = || drop(stream.upload(&**host.borrow(), &mut gpu).expect("no faults"));
        let read = || reader.read_into(77, &mut **host.borrow_mut());
        let error = while_truncating(&emulator, &stream, &file, 1_234_567, using, read)
            .expect_err("truncated");
        assert_eq!(error.kind(), ErrorKind::Io);
        let start = format!("FileReader::read_into: {}: ends at byte ", file.path().display());
        assert!(error.to_string().starts_with(&start), "{error}");
    }
    drop((pool, file));
    check_sound(&emulator, device, stream, SLOT);
}

/// Files to the device and to page-locked memory, while calls fail.
fn survives(run: &Run) -> usize {
    const BYTES: usize = 7 * SLOT;
    let expected = contents(BYTES);
    let file = Scratch::new(&expected);
    let mut readers = file.readers();
    let device = device(&run.emulator, SLOT);
    let stream = device.stream().expect("a stream");
    let pool = PinnedPool::builder(&device).build().expect("a pool");
    let mut arrived = Vec::new();
    run.begin();
    match FileReader::open_mapped(&device, file.path()) {
        Ok(mapped) => readers.push(mapped),
        Err(error) => run.explains(&error),
    }
    for reader in &readers {
        let upload = |range: Range<usize>| {
            let mut gpu = device.alloc::<u8>(range.len())?;
            let ticket = stream.upload_file(reader, range.start as u64, &mut gpu)?;
            Ok((gpu, range, ticket))
        };
        let uploads = [0..50, 9..BYTES, 4096..3 * 4096].map(upload);
        let mut uploads: Vec<pinlane::Result<_>> = uploads.into();
        let both = || {
            let mut gpus = [device.alloc::<u8>(SLOT)?, device.alloc::<u8>(2 * SLOT + 1)?];
            let [first, second] = &mut gpus;
            let ticket = stream.upload_file_ranges(reader, [(7, first), (99, second)])?;
            let [first, second] = gpus;
            let ranges = [7..7 + SLOT, 99..100 + 2 * SLOT];
            Ok([(first, ranges[0].clone(), ticket.clone()), (second, ranges[1].clone(), ticket)])
        };
        match both() {
            Ok(both) => uploads.extend(both.map(Ok)),
            Err(error) => uploads.push(Err(error)),
        }
        let read = || {
            let mut host = pool.alloc::<u8>(BYTES)?;
            reader.read_into(0, &mut host)?;
            assert!(host.read()? == expected);
            Ok(())
        };
        run.explains_all([read()]);
        for upload in uploads {
            match upload {
                Ok(upload) => arrived.push(upload),
                Err(error) => run.explains(&error),
            }
        }
    }
    drop(readers);
    run.end();
    let lost = device.alloc::<u8>(1).is_err();
    assert!(!lost || run.is_lost());
    for (gpu, range, ticket) in arrived {
        if !lost && ticket.wait().is_ok() {
            let mut found = vec![0; gpu.len()];
            stream.download_slice(&gpu, &mut found).expect("the faults are over");
            assert!(found == expected[range]);
        }
    }
    drop(stream);
    pool.stats().quarantined_bytes + device.quarantined_bytes()
}

#[test]
fn whichever_call_fails() {
    at_every_call("files", &Emulator::builder(), 80, survives);
}
