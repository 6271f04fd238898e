//! Reads a range of a file in full, in spite of short and interrupted reads, and of blocks that
//! must be aligned.
//!
//! `O_DIRECT` moves only whole, aligned blocks. The middle of a range goes directly to its
//! destination, if both are aligned alike. The rest goes through a temporary buffer:
//!
//! ```text
//!   file          |........|...aaaa|bbbbbbbb|cc......|        | a boundary of blocks
//!   destination            |   aaaa|bbbbbbbb|cc  |            b: read in place
//!   beside                 |...aaaa|        |cc......|        a, c: read here, then copied
//! ```

use std::fs::File;
use std::io;

use bytemuck::{Pod, Zeroable};
use pinlane_base::system::FileExt;

use crate::copy::entry::BLOCK;

/// The size of the temporary buffer, in blocks.
const BESIDE: usize = 64;

/// How often a block is read again if its read was cut short.
const TRIES: u32 = 16;

/// Why a range was not read to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The file has only this many bytes.
    End(u64),
    /// The call at this byte failed.
    Failed(u64, io::Error),
}

/// Memory in blocks.
pub(super) struct AlignedMemory(Vec<AlignedBlock>);

#[repr(C, align(4096))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AlignedBlock([u8; BLOCK]);

impl AlignedMemory {
    pub(super) fn new(blocks: usize) -> Self {
        AlignedMemory(vec![AlignedBlock([0; BLOCK]); blocks])
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// `read_at`, repeated after interruptions.
pub(super) fn once(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    uninterrupted(&|into: &mut [u8], offset| file.read_at(into, offset), into, offset)
}

fn uninterrupted(
    read: &impl Fn(&mut [u8], u64) -> io::Result<usize>,
    into: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    loop {
        match read(into, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Fills `into` with the bytes from `offset` on; `read` is as [`FileExt::read_at`].
pub(super) fn plain(
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    into: &mut [u8],
    offset: u64,
) -> Result<(), Stop> {
    let mut done = 0;
    while done < into.len() {
        let at = offset + done as u64;
        match uninterrupted(&read, &mut into[done..], at) {
            Ok(0) => return Err(Stop::End(at)),
            Ok(got) => done += got,
            Err(error) => return Err(Stop::Failed(at, error)),
        }
    }
    Ok(())
}

/// As [`plain`], for a `read` that takes only whole blocks, aligned in the file and in memory. It
/// returns fewer bytes at the end of the file, or when it is cut short; `length`, the current
/// length of the file, distinguishes the two.
pub(super) fn direct(
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    length: impl Fn() -> io::Result<u64>,
    into: &mut [u8],
    offset: u64,
) -> Result<(), Stop> {
    let source = Direct { read, length };
    let phase = (offset % BLOCK as u64) as usize;
    if into.as_ptr().addr() % BLOCK != phase {
        return source.beside(into, offset);
    }
    let head = (phase.wrapping_neg() % BLOCK).min(into.len());
    let body = (into.len() - head) / BLOCK * BLOCK;
    let (head, rest) = into.split_at_mut(head);
    let (body, tail) = rest.split_at_mut(body);
    let body_at = offset + head.len() as u64;
    let tail_at = body_at + body.len() as u64;
    source.beside(head, offset)?;
    source.in_place(body, body_at)?;
    source.beside(tail, tail_at)
}

/// A file that is read in whole blocks.
struct Direct<R, L> {
    read: R,
    length: L,
}

impl<R, L> Direct<R, L>
where
    R: Fn(&mut [u8], u64) -> io::Result<usize>,
    L: Fn() -> io::Result<u64>,
{
    /// Reads whole blocks, directly.
    fn in_place(&self, into: &mut [u8], offset: u64) -> Result<(), Stop> {
        let (mut done, mut tries) = (0, 0);
        while done < into.len() {
            let at = offset + done as u64;
            let got = uninterrupted(&self.read, &mut into[done..], at);
            let got = got.map_err(|error| Stop::Failed(at, error))?;
            if got < BLOCK {
                self.cut_short(at, got, &mut tries)?;
            } else {
                tries = 0;
            }
            // The next read must begin with a block.
            done += got - got % BLOCK;
        }
        Ok(())
    }

    /// Reads any bytes, by way of the blocks around them.
    fn beside(&self, into: &mut [u8], offset: u64) -> Result<(), Stop> {
        if into.is_empty() {
            return Ok(());
        }
        let blocks = (offset % BLOCK as u64) as usize + into.len();
        let mut blocks = AlignedMemory::new(blocks.div_ceil(BLOCK).min(BESIDE));
        let (mut done, mut tries) = (0, 0);
        while done < into.len() {
            let at = offset + done as u64;
            let skip = (at % BLOCK as u64) as usize;
            let start = at - skip as u64;
            let beside = blocks.bytes_mut();
            let want = (skip + into.len() - done).next_multiple_of(BLOCK).min(beside.len());
            let got = uninterrupted(&self.read, &mut beside[..want], start)
                .map_err(|error| Stop::Failed(at, error))?;
            if got <= skip {
                self.cut_short(start, got, &mut tries)?;
            } else {
                tries = 0;
            }
            let new = &beside[skip..got.max(skip)];
            let bytes = new.len().min(into.len() - done);
            into[done..][..bytes].copy_from_slice(&new[..bytes]);
            done += bytes;
        }
        Ok(())
    }

    /// Handles a read at `start`, the start of a block, that returned `got` bytes and none of them
    /// new. Either the file ends there, or the read was cut short, as network file systems may do:
    /// then it is repeated, a limited number of times.
    #[cold]
    fn cut_short(&self, start: u64, got: usize, tries: &mut u32) -> Result<(), Stop> {
        let end = start + got as u64;
        let length = (self.length)().map_err(|error| Stop::Failed(end, error))?;
        if got == 0 || length <= end {
            return Err(Stop::End(end));
        }
        *tries += 1;
        if *tries > TRIES {
            let found = format!("O_DIRECT repeatedly returns {got} bytes of a block of {BLOCK}");
            return Err(Stop::Failed(end, io::Error::other(found)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn contents(bytes: usize) -> Vec<u8> {
        (0..bytes as u64).map(|i| (i * i % 65_521 % 251) as u8).collect()
    }

    /// A file of these bytes, read a few at a time, with some interruptions.
    fn dribble(file: &[u8], most: usize) -> impl Fn(&mut [u8], u64) -> io::Result<usize> {
        let calls = Cell::new(0);
        move |into, offset| {
            calls.set(calls.get() + 1);
            if calls.get() % 3 == 1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let rest = file.get(offset as usize..).unwrap_or_default();
            let bytes = rest.len().min(into.len()).min(most);
            into[..bytes].copy_from_slice(&rest[..bytes]);
            Ok(bytes)
        }
    }

    /// As [`dribble`], and refuses what `O_DIRECT` refuses.
    fn aligned(file: &[u8], most: usize) -> impl Fn(&mut [u8], u64) -> io::Result<usize> {
        let read = dribble(file, most);
        move |into, offset| {
            let address = into.as_ptr().addr();
            if !(address | into.len() | offset as usize).is_multiple_of(BLOCK) {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            read(into, offset)
        }
    }

    #[test]
    fn short_and_interrupted_reads_are_continued() {
        let file = contents(5000);
        for most in [1, 7, 4096, 10_000] {
            let mut into = vec![0; 4990];
            plain(dribble(&file, most), &mut into, 10).expect("the file is long enough");
            assert_eq!(into, file[10..]);
        }
    }

    #[test]
    fn whole_blocks_are_read_whatever_is_asked_for() {
        let file = contents(5 * BLOCK + 100);
        let mut memory = AlignedMemory::new(8);
        for most in [BLOCK, 3 * BLOCK, 100 * BLOCK] {
            for offset in [0, 1, 511, 512, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 77] {
                for bytes in [0, 1, 90, BLOCK - 1, BLOCK, BLOCK + 1, file.len() - offset] {
                    let bytes = bytes.min(file.len() - offset);
                    for at in [offset % BLOCK, 0, 3, 512] {
                        let memory = memory.bytes_mut();
                        memory.fill(0xee);
                        let range = at..at + bytes;
                        let into = &mut memory[range.clone()];
                        let length = || Ok(file.len() as u64);
                        let read = aligned(&file, most);
                        direct(read, length, into, offset as u64).expect("long enough");
                        assert_eq!(memory[range.clone()], file[offset..][..bytes]);
                        memory[range].fill(0xee);
                        assert!(memory.iter().all(|&byte| byte == 0xee), "wrote outside");
                    }
                }
            }
        }
    }

    #[test]
    fn an_early_end_is_found_where_it_is() {
        for length in [0, 1, 100, BLOCK, BLOCK + 1, 3 * BLOCK - 1] {
            let file = contents(length);
            for (offset, at) in [(0, 0), (0, 1), (5, 5), (5, 0)] {
                let mut memory = AlignedMemory::new(5);
                let into = &mut memory.bytes_mut()[at..at + 3 * BLOCK];
                let end = plain(dribble(&file, 100), into, offset);
                let expected = (length as u64).max(offset);
                assert!(matches!(end, Err(Stop::End(found)) if found == expected), "{end:?}");
                let end = direct(aligned(&file, 2 * BLOCK), || Ok(length as u64), into, offset);
                assert!(matches!(end, Err(Stop::End(found)) if found == length as u64), "{end:?}");
            }
        }
    }

    /// A read that is cut short within a block does not mean the end of the file.
    #[test]
    fn a_direct_read_that_is_cut_short_is_made_again() {
        let file = contents(5 * BLOCK + 100);
        let calls = Cell::new(0);
        let read = |into: &mut [u8], offset: u64| {
            calls.set(calls.get() + 1);
            let most = [512, 100 * BLOCK, 1, BLOCK + 512, 4000][calls.get() % 5];
            let rest = file.get(offset as usize..).unwrap_or_default();
            let bytes = rest.len().min(into.len()).min(most);
            into[..bytes].copy_from_slice(&rest[..bytes]);
            Ok(bytes)
        };
        for (offset, at) in [(0, 0), (5, 5), (5, 0), (BLOCK + 7, 7), (4 * BLOCK, 0)] {
            let mut memory = AlignedMemory::new(6);
            let into = &mut memory.bytes_mut()[at..][..file.len() - offset];
            direct(read, || Ok(file.len() as u64), into, offset as u64).expect("long enough");
            assert!(*into == file[offset..]);
        }
    }

    #[test]
    fn direct_reads_that_never_get_anywhere_end() {
        let length = || Ok(3 * BLOCK as u64);
        // Directly, and through the temporary buffer.
        for offset in [0, 1024] {
            let mut memory = AlignedMemory::new(2);
            let into = memory.bytes_mut();
            let stop = direct(|_: &mut [u8], _| Ok(512), length, into, offset);
            let Err(Stop::Failed(512, error)) = stop else { panic!("{stop:?}") };
            assert!(error.to_string().contains("repeatedly"), "{error}");
            // The length cannot be read either.
            let lost = || Err(io::Error::from_raw_os_error(libc::EIO));
            let stop = direct(|_: &mut [u8], _| Ok(512), lost, into, offset);
            assert!(matches!(stop, Err(Stop::Failed(512, _))), "{stop:?}");
        }
    }

    #[test]
    fn a_failed_call_is_reported_with_its_place() {
        let read = |into: &mut [u8], offset| match offset {
            0 => Ok(into.len().min(BLOCK)),
            _ => Err(io::Error::from_raw_os_error(libc::EIO)),
        };
        let mut memory = AlignedMemory::new(2);
        for at in [0, 1] {
            let into = &mut memory.bytes_mut()[at..at + BLOCK + 10];
            let length = || Ok(3 * BLOCK as u64);
            for stop in [plain(read, into, 0), direct(read, length, into, 0)] {
                let Err(Stop::Failed(found, error)) = stop else { panic!("{stop:?}") };
                assert_eq!((found, error.raw_os_error()), (BLOCK as u64, Some(libc::EIO)));
            }
        }
    }
}
