//! The functions of the C library that this library replaces.

use std::mem::transmute;

use libc::{FILE, c_int, c_void, iovec, msghdr, off_t, off64_t, sockaddr, socklen_t};

use super::real::{Real, missing};
use super::{Buffers, Way, around};

/// How many bytes a call has used that gives their count, or -1.
fn bytes(result: isize) -> usize {
    usize::try_from(result).unwrap_or(0)
}

/// The same of a call that gives how many items of that size it has used.
fn items(size: usize) -> impl FnOnce(usize) -> usize {
    move |count| count.saturating_mul(size)
}

/// Declares functions of C. After each: whether it reads or writes its buffers, which those are,
/// and how many bytes it has used.
macro_rules! calls {
    ($(
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $result:ty
        { $way:ident, $buffers:expr, $used:expr }
    )*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $result {
                let call = || {
                    type Function = Option<unsafe extern "C-unwind" fn($($ty),*) -> $result>;
                    // SAFETY: the C library's function of that name has this type; NULL is `None`.
                    match unsafe { transmute::<*mut c_void, Function>(reals::$name.address()) } {
                        // SAFETY: the arguments are the program's own.
                        Some(real) => unsafe { real($($arg),*) },
                        None => missing(),
                    }
                };
                // SAFETY: lists and messages are valid, as the program promises to the call.
                unsafe { around(Way::$way, $buffers, $used, call) }
            }
        )*

        /// What they replace.
        #[allow(non_upper_case_globals)]
        mod reals {
            use super::Real;
            use std::ffi::CStr;

            $(
                pub static $name: Real = {
                    const NAME: &str = concat!(stringify!($name), "\0");
                    match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                        Ok(name) => Real::new(name),
                        Err(_) => panic!("a name has no NUL"),
                    }
                };
            )*
            pub static ALL: &[&Real] = &[$(&$name),*];
        }
    };
}

/// Run when the library is loaded.
extern "C" fn at_load() {
    reals::ALL.iter().chain(super::actions::ALL).for_each(|real| {
        real.find();
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

// Files and whatever has a descriptor.
calls! {
    fn read(file: c_int, buffer: *mut c_void, length: usize) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn pread(file: c_int, buffer: *mut c_void, length: usize, offset: off_t) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn pread64(file: c_int, buffer: *mut c_void, length: usize, offset: off64_t) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn readv(file: c_int, list: *const iovec, count: c_int) -> isize
    { Writes, Buffers::list(list, count), bytes }

    fn preadv(file: c_int, list: *const iovec, count: c_int, offset: off_t) -> isize
    { Writes, Buffers::list(list, count), bytes }

    fn preadv64(file: c_int, list: *const iovec, count: c_int, offset: off64_t) -> isize
    { Writes, Buffers::list(list, count), bytes }

    fn write(file: c_int, buffer: *const c_void, length: usize) -> isize
    { Reads, Buffers::one(buffer, length), bytes }

    fn pwrite(file: c_int, buffer: *const c_void, length: usize, offset: off_t) -> isize
    { Reads, Buffers::one(buffer, length), bytes }

    fn pwrite64(file: c_int, buffer: *const c_void, length: usize, offset: off64_t) -> isize
    { Reads, Buffers::one(buffer, length), bytes }

    fn writev(file: c_int, list: *const iovec, count: c_int) -> isize
    { Reads, Buffers::list(list, count), bytes }

    fn pwritev(file: c_int, list: *const iovec, count: c_int, offset: off_t) -> isize
    { Reads, Buffers::list(list, count), bytes }

    fn pwritev64(file: c_int, list: *const iovec, count: c_int, offset: off64_t) -> isize
    { Reads, Buffers::list(list, count), bytes }

    // Sockets.

    fn recv(socket: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn recvfrom(
        socket: c_int, buffer: *mut c_void, length: usize, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t,
    ) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> isize
    { Writes, Buffers::of(message), bytes }

    fn send(socket: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize
    { Reads, Buffers::one(buffer, length), bytes }

    fn sendto(
        socket: c_int, buffer: *const c_void, length: usize, flags: c_int,
        address: *const sockaddr, address_length: socklen_t,
    ) -> isize
    { Reads, Buffers::one(buffer, length), bytes }

    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> isize
    { Reads, Buffers::of(message), bytes }

    // Streams of C: they pass what is long straight to the system.

    fn fread(buffer: *mut c_void, size: usize, count: usize, stream: *mut FILE) -> usize
    { Writes, Buffers::one(buffer, size.saturating_mul(count)), items(size) }

    fn fread_unlocked(buffer: *mut c_void, size: usize, count: usize, stream: *mut FILE) -> usize
    { Writes, Buffers::one(buffer, size.saturating_mul(count)), items(size) }

    fn fwrite(buffer: *const c_void, size: usize, count: usize, stream: *mut FILE) -> usize
    { Reads, Buffers::one(buffer, size.saturating_mul(count)), items(size) }

    fn fwrite_unlocked(
        buffer: *const c_void, size: usize, count: usize, stream: *mut FILE,
    ) -> usize
    { Reads, Buffers::one(buffer, size.saturating_mul(count)), items(size) }

    // What programs call that were compiled with _FORTIFY_SOURCE. `room` is the buffer's length.

    fn __read_chk(file: c_int, buffer: *mut c_void, length: usize, room: usize) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn __pread_chk(
        file: c_int, buffer: *mut c_void, length: usize, offset: off_t, room: usize,
    ) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn __pread64_chk(
        file: c_int, buffer: *mut c_void, length: usize, offset: off64_t, room: usize,
    ) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn __recv_chk(
        socket: c_int, buffer: *mut c_void, length: usize, room: usize, flags: c_int,
    ) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn __recvfrom_chk(
        socket: c_int, buffer: *mut c_void, length: usize, room: usize, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t,
    ) -> isize
    { Writes, Buffers::one(buffer, length), bytes }

    fn __fread_chk(
        buffer: *mut c_void, room: usize, size: usize, count: usize, stream: *mut FILE,
    ) -> usize
    { Writes, Buffers::one(buffer, size.saturating_mul(count)), items(size) }

    fn __fread_unlocked_chk(
        buffer: *mut c_void, room: usize, size: usize, count: usize, stream: *mut FILE,
    ) -> usize
    { Writes, Buffers::one(buffer, size.saturating_mul(count)), items(size) }
}
