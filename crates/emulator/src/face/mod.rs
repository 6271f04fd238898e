//! A face for programs that call CUDA itself, and not this crate.
//!
//! [`Driver`](pinlane_driver::Driver) is what the layers of this crate need, and no more. A program
//! for the CUDA runtime also makes synchronous copies, frees with a synchronize, keeps a current
//! device and a last error on each thread, and asks what a pointer is. [`Face`] adds these to the
//! same machine. It knows nothing of C: the library in `crates/cudart/` gives it the names, structs
//! and NULL checks of `cuda_runtime_api.h`.
//!
//! | file | what | rules of docs/semantics.md |
//! |---|---|---|
//! | `copies.rs` | copies of lines and planes, synchronous or not | 1 to 7 |
//! | `batches.rs` | batches of copies | 8 |
//! | `fills.rs` | memset | 9 |
//! | `memory.rs` | allocating and freeing; what a pointer is | 13, 20 to 23 |
//! | `registration.rs` | page-locking memory of the program's own | 21 |
//! | `pools.rs` | pools of device memory | |
//! | `books.rs` | what is written down of a program | |
//! | `shared.rs` | device memory of other processes | |
//! | `reset.rs` | what a reset of a device destroys | 23 |
//! | `kernels.rs` | kernels as functions of the host | 35 |
//! | `calls.rs` | system calls of the program's own | |
//!
//! Device memory lies at addresses of the process (`arena.rs`), so that stand-ins for kernels can
//! use them. One lock guards what the face writes down; it is never held while the machine's is
//! taken.

mod batches;
mod books;
mod calls;
mod copies;
mod fills;
mod kernels;
mod memory;
mod pools;
mod registration;
mod reset;
mod shared;

use std::ops::Deref;

pub use batches::{BatchEntry, SourceOrder};
pub use books::PoolId;
use books::{Books, Pools};
pub use copies::{Kind, Plane};
pub use memory::{Held, Side};
pub use pools::PoolFigure;
pub use shared::SharedMemory;

use crate::emulator::Emulator;
use crate::races::LookUp;
use pinlane_base::lock::Mutex;

/// The machine as the CUDA runtime shows it to a program.
///
/// As all of this crate, it is not covered by semantic versioning.
#[derive(Debug)]
pub struct Face {
    emulator: Emulator,
    books: Mutex<Books>,
}

impl Deref for Face {
    type Target = Emulator;

    fn deref(&self) -> &Emulator {
        &self.emulator
    }
}

impl Face {
    /// A face for this machine, which nothing has been allocated on. Its devices have less memory
    /// than the machine was built with, if the process has room for few addresses (`ulimit -v`,
    /// `ulimit -f`, valgrind); `None` if it has no room for the least, 256 MiB three times.
    #[must_use]
    pub fn new(emulator: Emulator) -> Option<Self> {
        let (mapped, devices) =
            emulator.with(|machine| (machine.memory.use_host_addresses(), machine.devices.len()));
        let books = Books { pools: Pools::new(devices), ..Books::default() };
        mapped.then(|| Face { emulator, books: Mutex::new(books) })
    }

    /// Findings name the lines of calls: those of their [`Callers`](crate::Callers), which
    /// `look_up` finds. It is called under the machine's lock, when there is a finding, and makes
    /// no call.
    pub fn look_up_lines(&self, look_up: LookUp) {
        self.emulator.with(|machine| machine.races.look_up_sites(look_up));
    }

    /// The machine behind the face.
    #[must_use]
    pub fn emulator(&self) -> &Emulator {
        &self.emulator
    }
}
