//! Memory of the process that may be mapped or not.

/// What the system says of memory of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Read,
    /// Some of it is not mapped.
    Gone,
    /// Some sandboxes forbid the call.
    Forbidden,
}

/// Reads memory of the process that may be there or not.
pub(crate) fn look(address: usize, target: &mut [u8]) -> Look {
    let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    let at = std::ptr::without_provenance_mut(address);
    let remote = libc::iovec { iov_base: at, iov_len: target.len() };
    // SAFETY: `local` is borrowed for the call. The system looks up the addresses of `remote` as it
    // does those of another process, and fails where nothing is mapped.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if read < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT) {
        return Look::Forbidden;
    }
    if usize::try_from(read) == Ok(target.len()) { Look::Read } else { Look::Gone }
}

/// Whether some of a range is not mapped. Nothing of it is read. False if the system does not say.
pub(crate) fn is_gone(address: usize, bytes: usize) -> bool {
    // SAFETY: it reads a number of the system.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (start, end) = (address & !(page - 1), address.saturating_add(bytes));
    let mut pages = [0; 4096];
    (start..end).step_by(pages.len() * page).any(|at| {
        let length = (end - at).min(pages.len() * page);
        let at = std::ptr::without_provenance_mut(at);
        // SAFETY: `pages` has a byte for each page of the range, and is borrowed for the call. The
        // system accesses nothing else, and fails where nothing is mapped.
        let asked = unsafe { libc::mincore(at, length, pages.as_mut_ptr()) };
        asked != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_gone_if_some_of_it_is_not_mapped() {
        let bytes = vec![0_u8; 100_000];
        assert!(!is_gone(bytes.as_ptr().addr() + 1, bytes.len() - 1));
        assert!(!is_gone(bytes.as_ptr().addr(), 0));
        assert!(is_gone(4096, 1) && is_gone(bytes.as_ptr().addr(), usize::MAX));
    }
}
