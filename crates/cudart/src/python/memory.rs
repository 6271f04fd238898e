//! Reading memory of the process: by loads, or by the system, which fails where a load would fault.

use std::cell::RefCell;
use std::ptr::{with_exposed_provenance, without_provenance_mut};
use std::slice;

/// The most bytes that are read at once.
const MOST: usize = 1 << 20;

pub trait Memory {
    /// The words at these offsets, aligned or not, none of them far from the others; `None` if they
    /// cannot be read.
    fn words<const N: usize>(&self, at: usize, offsets: [usize; N]) -> Option<[usize; N]> {
        let first = offsets.into_iter().min()?;
        let bytes = offsets.into_iter().max()? - first + size_of::<usize>();
        self.show(at.checked_add(first)?, bytes, |bytes| {
            offsets.map(|offset| {
                let word = bytes[offset - first..].first_chunk();
                word.map_or(0, |&word| usize::from_ne_bytes(word))
            })
        })
    }

    /// Shows these bytes; `None` if they cannot be read, or are too many.
    fn show<R>(&self, at: usize, bytes: usize, look: impl FnOnce(&[u8]) -> R) -> Option<R>;
}

/// Memory that the calling thread reads by loads.
pub struct Own(());

impl Own {
    /// # Safety
    ///
    /// * What is read is at an address where no process has memory, or is allocated.
    /// * No other thread changes it meanwhile.
    pub unsafe fn new() -> Self {
        Own(())
    }

    /// Neither null nor an address that no process has.
    fn is_possible(at: usize) -> bool {
        at >= 1 << 12 && at >> 47 == 0
    }
}

impl Memory for Own {
    #[inline]
    fn words<const N: usize>(&self, at: usize, offsets: [usize; N]) -> Option<[usize; N]> {
        let start = with_exposed_provenance::<u8>(at);
        Own::is_possible(at).then(|| {
            // SAFETY: `new` requires that it is allocated and does not change.
            offsets.map(|offset| unsafe { start.byte_add(offset).cast::<usize>().read_unaligned() })
        })
    }

    #[inline]
    fn show<R>(&self, at: usize, bytes: usize, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let start = with_exposed_provenance(at);
        (Own::is_possible(at) && bytes <= MOST).then(|| {
            // SAFETY: `new` requires that it is allocated and does not change.
            look(unsafe { slice::from_raw_parts(start, bytes) })
        })
    }
}

/// Memory that may change or vanish at any time.
pub struct Changing;

impl Memory for Changing {
    fn show<R>(&self, at: usize, bytes: usize, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let place = [libc::iovec { iov_base: without_provenance_mut(at), iov_len: bytes }];
        let mut near = [0_u8; 256];
        if bytes <= near.len() {
            let near = &mut near[..bytes];
            return copy(&place, near).then(|| look(near));
        }
        if bytes > MOST {
            return None;
        }
        let mut far = vec![0; bytes];
        copy(&place, &mut far).then(|| look(&far))
    }
}

/// Memory that may change, and what was read of it.
#[derive(Default)]
pub struct Recorded {
    read: RefCell<Read>,
}

#[derive(Default)]
struct Read {
    /// Addresses and lengths.
    places: Vec<(usize, usize)>,
    bytes: Vec<u8>,
}

impl Recorded {
    /// Whether all is still the same. One call of the system.
    pub fn is_unchanged(&self) -> bool {
        let Read { places, bytes } = &*self.read.borrow();
        let place = |&(at, bytes): &(usize, usize)| libc::iovec {
            iov_base: without_provenance_mut(at),
            iov_len: bytes,
        };
        let places: Vec<libc::iovec> = places.iter().map(place).collect();
        let mut now = vec![0; bytes.len()];
        places.len() <= libc::UIO_MAXIOV as usize && copy(&places, &mut now) && now == *bytes
    }
}

impl Memory for Recorded {
    fn show<R>(&self, at: usize, bytes: usize, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        Changing.show(at, bytes, |bytes| {
            let mut read = self.read.borrow_mut();
            read.places.push((at, bytes.len()));
            read.bytes.extend(bytes);
            drop(read);
            look(bytes)
        })
    }
}

/// Copies memory of the process; false if some of it cannot be read.
fn copy(from: &[libc::iovec], to: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: the call writes only to `to`, which is exclusive. It fails if it cannot read `from`.
    let copied = unsafe {
        let (pid, count) = (libc::getpid(), from.len() as libc::c_ulong);
        libc::process_vm_readv(pid, &raw const local, 1, from.as_ptr(), count, 0)
    };
    usize::try_from(copied) == Ok(to.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_changes_is_copied_and_what_is_not_there_is_an_error() {
        for bytes in [1, 8, 256, 257, 5000] {
            let text: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let copied = Changing.show(text.as_ptr().addr(), bytes, <[u8]>::to_vec);
            assert_eq!(copied, Some(text));
        }
        assert_eq!(Changing.show(8, 8, <[u8]>::to_vec), None);
        assert_eq!(Changing.show(usize::MAX - 7, 8, <[u8]>::to_vec), None);
        let words = [1_usize, 2, 3];
        let at = words.as_ptr().expose_provenance();
        assert_eq!(Changing.words(at, [16, 0]), Some([3, 1]));
        assert_eq!(Changing.words(at, [0, usize::MAX - at - 7]), None);
        assert_eq!(Changing.show(at, MOST + 1, <[u8]>::len), None);
        // SAFETY: the words are on the stack of this thread.
        let own = unsafe { Own::new() };
        assert_eq!(own.words(at, [16, 0]), Some([3, 1]));
        assert_eq!((own.words(0, [0]), own.words(usize::MAX - 7, [0])), (None, None));
        assert_eq!(own.show(at, 8, <[u8]>::to_vec), Some(1_usize.to_ne_bytes().to_vec()));
    }

    #[test]
    fn what_was_read_is_unchanged_until_some_of_it_is_written_to() {
        let mut words = vec![7_usize; 600];
        let at = words.as_ptr().expose_provenance();
        let read = |many: usize| {
            let recorded = Recorded::default();
            for word in (0..many).rev() {
                assert_eq!(recorded.words(at + 8 * word, [0]), Some([7]));
            }
            let all = recorded.show(at, 8 * 300, <[u8]>::to_vec).expect("is there");
            assert_eq!(all, 7_usize.to_ne_bytes().repeat(300));
            recorded
        };
        let recorded = read(2);
        assert!(recorded.is_unchanged() && recorded.is_unchanged());
        for (word, is_read) in [(0, true), (299, true), (300, false)] {
            let recorded = read(2);
            words[word] = 8;
            assert_eq!(recorded.is_unchanged(), !is_read, "{word}");
            words[word] = 7;
            assert!(recorded.is_unchanged(), "{word}");
        }
        assert_eq!(recorded.words(8, [0]), None);
        assert!(recorded.is_unchanged());
    }
}
