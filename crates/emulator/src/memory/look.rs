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
