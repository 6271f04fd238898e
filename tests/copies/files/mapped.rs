//! Files that are mapped and page-locked once: uploads without a byte copied by the host.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::{CudaCode, Device, ErrorKind, Strided, Strides, batch::Upload, file::FileReader};

use super::support::{SLOT, Scratch, contents, device, emulator};
use crate::common::support::{Stalled, assert_nothing_is_left};

#[test]
fn an_upload_returns_at_once_and_the_reader_waits_for_it() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let emulator = emulator(execution);
        let device = device(&emulator, SLOT);
        let file = Scratch::new(&contents(9 * SLOT));
        let reader = FileReader::open_mapped(&device, file.path()).expect("room");
        assert!(reader.is_mapped() && !reader.is_direct());
        let usage = emulator.usage();
        assert_eq!((usage.host_blocks, usage.host_bytes), (1, 9 * SLOT));
        let (stream, mut gpu) = (device.stream().expect("a stream"), device.alloc(7 * SLOT));
        let gpu = gpu.as_mut().expect("room");
        let stalled = Stalled::new(&emulator, &stream);
        let ticket = stream.upload_file(&reader, 77, &mut *gpu).expect("no faults");
        assert!(!ticket.is_done().expect("no faults"), "it waited, or nothing is stalled");
        assert_eq!(emulator.usage().host_blocks, 1, "no slots");
        drop(stalled);
        drop(reader);
        assert_eq!(emulator.usage().host_blocks, 0, "unregistered when the copy was done");
        let mut found = vec![0; 7 * SLOT];
        stream.download_slice(&*gpu, &mut found).expect("no faults");
        assert!(found == contents(8 * SLOT)[77..][..7 * SLOT]);
        assert_eq!(emulator.findings(), []);
    }
}

/// Many ranges, by each of the routes of page-locked memory.
#[test]
fn few_and_many_ranges_go_up_as_one_batch() {
    let emulator = emulator(Execution::Lazy);
    let device = device(&emulator, SLOT);
    let bytes = contents(300_000);
    let file = Scratch::new(&bytes);
    let reader = FileReader::open_mapped(&device, file.path()).expect("room");
    let stream = device.stream().expect("a stream");
    for (count, each) in [(0, 1), (2, 100), (3, 5000), (40, 64), (100, 2900), (1, 0)] {
        let mut gpu = device.alloc::<u8>(count * each).expect("room");
        let mut ranges = Vec::new();
        let mut rest = gpu.as_slice_mut();
        for n in 0..count {
            let (part, behind) = rest.split_at_mut(each).expect("the sum");
            ranges.push(((n * 2901) as u64, part));
            rest = behind;
        }
        stream.upload_file_ranges(&reader, ranges).expect("no faults");
        let mut found = vec![0; count * each];
        stream.download_slice(&gpu, &mut found).expect("no faults");
        let expected = (0..count).flat_map(|n| &bytes[n * 2901..][..each]);
        assert!(found.iter().eq(expected), "{count} ranges of {each}");
    }
    drop((reader, stream, device));
    assert_nothing_is_left(&emulator);
}

#[test]
fn what_a_file_has_got_since_is_read_and_what_it_has_lost_is_an_error() {
    let emulator = emulator(Execution::Eager);
    let device = device(&emulator, SLOT);
    let bytes = contents(5 * SLOT);
    let file = Scratch::new(&bytes[..2 * SLOT]);
    let reader = FileReader::open_mapped(&device, file.path()).expect("room");
    let stream = device.stream().expect("a stream");
    let mut gpu = device.alloc::<u8>(3 * SLOT).expect("room");
    let appended = OpenOptions::new().append(true).open(file.path());
    appended.and_then(|mut file| file.write_all(&bytes[2 * SLOT..])).expect("ours");
    assert_eq!(reader.bytes().expect("ours"), 5 * SLOT as u64);
    stream.upload_file(&reader, 100, &mut gpu).expect("it is read");
    let mut found = vec![0; 3 * SLOT];
    stream.download_slice(&gpu, &mut found).expect("no faults");
    assert!(found == bytes[100..][..3 * SLOT]);

    // Written by another program: the mapping is shared.
    let written = OpenOptions::new().write(true).open(file.path()).expect("ours");
    written.write_all_at(&[1; 50], 0).expect("ours");
    let mut part = gpu.slice_mut(..50).expect("inside");
    stream.upload_file(&reader, 0, part.reborrow()).expect("no faults");
    stream.download_slice(part.as_slice(), &mut found[..50]).expect("no faults");
    assert_eq!(found[..50], [1; 50]);

    written.set_len(SLOT as u64).expect("ours");
    let copies = emulator.calls(Call::CopyH2D);
    let error = stream.upload_file(&reader, 0, gpu.slice_mut(..SLOT + 1).expect("inside"));
    let error = error.map(drop).expect_err("truncated");
    assert_eq!((error.kind(), emulator.calls(Call::CopyH2D)), (ErrorKind::OutOfRange, copies));
    assert!(error.to_string().contains("it has been truncated"), "{error}");
    assert_eq!(emulator.findings(), []);
}

/// What the documentation promises of them: the length that each upload asks for cannot change.
#[test]
fn a_sealed_file_is_mapped_and_no_program_can_truncate_or_write_it() {
    let emulator = emulator(Execution::Lazy);
    let device = device(&emulator, SLOT);
    let bytes = contents(3 * SLOT);
    // SAFETY: the name is a string; the descriptor that it gives is owned by nothing else.
    let mut sealed = unsafe {
        let number = libc::memfd_create(c"sealed".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(number >= 0, "{}", io::Error::last_os_error());
        File::from_raw_fd(number)
    };
    sealed.write_all(&bytes).expect("ours");
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE;
    // SAFETY: the descriptor is open; the call reads its numbers only.
    assert_eq!(unsafe { libc::fcntl(sealed.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);

    let path = format!("/proc/self/fd/{}", sealed.as_raw_fd());
    let reader = FileReader::open_mapped(&device, path).expect("room");
    assert!(reader.is_mapped());
    let refused = |result: io::Result<()>| {
        let code = result.expect_err("sealed").raw_os_error();
        assert_eq!(code, Some(libc::EPERM));
    };
    refused(sealed.set_len(1));
    refused(sealed.write_all_at(&[1], 0));
    let (stream, mut gpu) = (device.stream().expect("a stream"), device.alloc(3 * SLOT).unwrap());
    stream.upload_file(&reader, 0, &mut gpu).expect("no faults");
    let mut found = vec![0; 3 * SLOT];
    stream.download_slice(&gpu, &mut found).expect("no faults");
    assert!(found == bytes);
}

#[test]
fn a_device_that_cannot_page_lock_it_reads_the_file() {
    let emulator = Emulator::builder().read_only_registration(false).build();
    let device = Device::of_emulator(&emulator, 0).expect("a device");
    let bytes = contents(100_000);
    let file = Scratch::new(&bytes);
    let reader = FileReader::open_mapped(&device, file.path()).expect("it is read");
    assert!(!reader.is_mapped());
    let (stream, mut gpu) = (device.stream().expect("a stream"), device.alloc(99_000).unwrap());
    stream.upload_file(&reader, 1000, &mut gpu).expect("no faults");
    let mut found = vec![0; 99_000];
    stream.download_slice(&gpu, &mut found).expect("no faults");
    assert!(found == bytes[1000..]);
    // SAFETY: no view.
    assert!(unsafe { reader.mapped_slice() }.is_none());
}

#[test]
fn an_empty_file_needs_no_mapping_and_errors_leave_nothing() {
    let emulator = emulator(Execution::Eager);
    let device = device(&emulator, SLOT);
    let empty = Scratch::new(&[]);
    let reader = FileReader::open_mapped(&device, empty.path()).expect("nothing to do");
    assert!(!reader.is_mapped());
    assert_eq!(emulator.calls(Call::HostRegister), 0);
    let file = Scratch::new(&contents(SLOT));
    for (code, kind) in [
        (CudaCode::MEMORY_ALLOCATION, ErrorKind::OutOfHostMemory),
        (CudaCode::INVALID_VALUE, ErrorKind::InvalidValue),
        (CudaCode::UNKNOWN, ErrorKind::Cuda),
    ] {
        emulator.inject(Fault::once(Call::HostRegister, code));
        let error = FileReader::open_mapped(&device, file.path()).expect_err("refused");
        assert_eq!((error.kind(), error.operation()), (kind, operation_of(code)));
    }
    let missing = FileReader::open_mapped(&device, "/no/such/file").expect_err("missing");
    assert!(missing.to_string().starts_with("FileReader::open_mapped: /no/such/file"));
    assert_eq!(emulator.usage().host_blocks, 0);
}

/// Errors of CUDA name its call, and others ours.
fn operation_of(code: CudaCode) -> &'static str {
    if code == CudaCode::UNKNOWN { "cudaHostRegister" } else { "FileReader::open_mapped" }
}

#[test]
fn parts_of_a_mapping_are_sources_of_batches_and_of_rows() {
    let emulator = emulator(Execution::Lazy);
    let device = device(&emulator, SLOT);
    let bytes = contents(40_000);
    let file = Scratch::new(&bytes);
    let reader = FileReader::open_mapped(&device, file.path()).expect("room");
    let (stream, mut gpu) = (device.stream().expect("a stream"), device.alloc(10_000).unwrap());
    // SAFETY: no program has the file.
    let mapped = unsafe { reader.mapped_slice() }.expect("mapped");
    let (front, back) = gpu.as_slice_mut().split_at_mut(3000).expect("inside");
    let cut = |range| mapped.slice(range).expect("inside");
    let copies = [Upload::new(cut(7..3007), front), Upload::new(cut(20_000..27_000), back)];
    stream.upload_batch(copies).expect("no faults");
    let mut found = vec![0; 10_000];
    stream.download_slice(&gpu, &mut found).expect("no faults");
    assert!(found[..3000] == bytes[7..3007] && found[3000..] == bytes[20_000..27_000]);

    let rows = Strided::new(cut(0..40_000), Strides::new(100, 100, 400)).expect("they fit");
    stream.upload_strided(rows, &mut gpu).expect("no faults");
    stream.download_slice(&gpu, &mut found).expect("no faults");
    let expected = (0..100).flat_map(|row| &bytes[row * 400..][..100]);
    assert!(found.iter().eq(expected));
    assert_eq!(mapped.read().expect("no download")[5], bytes[5]);
    drop((reader, stream, gpu, device));
    assert_nothing_is_left(&emulator);
}
