//! The state of each thread: a [record](super::records), and vacant slots of every table. So
//! creating and freeing a handle touches no memory that other threads touch.
//!
//! # Invariants
//!
//! * An index is in exactly one place: in a thread's stack, in the table's, in a slot that is not
//!   vacant, or among the indexes that were never used.
//! * A thread that ends gives back its slots, except in a forked child, where the lock may be held
//!   forever.
//! * A thread reaches its own state through a pointer without a destructor. The pointer is null
//!   before the state is made and after the thread has given it back, so calls from destructors of
//!   other thread-local variables work without the state.

use std::cell::{Cell, OnceCell, UnsafeCell};
use std::ptr;
use std::sync::LazyLock;

use super::records::{Record, Records};
use super::slot::NOBODY;
use crate::process::{FirstProcess, Process};
use crate::sync::sanitizer::ours;
use crate::sync::{CachePadded, Mutex};

/// The most tables. Tests have their own.
pub(super) const TABLES: usize = if cfg!(test) { 30 } else { 16 };
/// The most indexes of a table that a thread keeps, and how many it takes or gives back at once.
const KEPT: usize = 64;
const BATCH: usize = 32;
/// How many handles a thread makes after its [home](super::home) has ended, before it begins
/// another. Ending a home takes microseconds, which is then less than a nanosecond for each handle.
const AWAY: u32 = if cfg!(test) { 64 } else { 4096 };

pub(super) static RECORDS: LazyLock<Records> = LazyLock::new(Records::new);

/// The vacant slots of a table outside of the threads' stacks.
pub(super) struct Vacant(Mutex<Indexes>);

struct Indexes {
    given_back: Vec<u32>,
    /// The first index that was never used.
    next: u32,
}

/// The state of a thread.
pub(super) struct Here {
    pub(super) record: &'static Record,
    process: Process,
    /// How many handles this thread has made since its home ended.
    away: Cell<u32>,
    /// Only this thread touches it, for a few instructions at a time.
    kept: UnsafeCell<[Stack; TABLES]>,
}

#[derive(Clone, Copy)]
struct Stack {
    /// Takes the indexes back when the thread ends.
    owner: Option<&'static Vacant>,
    len: usize,
    indexes: [u32; KEPT],
}

thread_local! {
    static HERE: Cell<*const Here> = const { Cell::new(ptr::null()) };
    static OWNER: OnceCell<Owner> = const { OnceCell::new() };
}

struct Owner(Box<Here>);

/// The process that made the first handle. In a forked child, other threads' calls never continue,
/// and may hold a lock, so the tables are not touched there (soundness rule 14).
static PROCESS: CachePadded<FirstProcess> = CachePadded(FirstProcess::new());

/// Whether this is not a forked child of the process that used the tables first.
#[inline(always)]
pub(crate) fn is_in_process() -> bool {
    PROCESS.is_current()
}

/// As [`is_in_process`], for the first call of a thread and other rare ones.
#[cold]
fn is_first() -> bool {
    is_in_process()
}

/// The thread of a call. Nobody keeps it for longer than the call.
#[derive(Clone, Copy)]
pub(crate) struct Caller(Option<&'static Here>);

impl Caller {
    /// The calling thread; `None` in a forked child of the process that used the tables first.
    #[inline(always)]
    pub(crate) fn checked() -> Option<Self> {
        let here = known();
        // A state is made in the first process, and in no other.
        if here.is_some_and(|here| here.process.is_current()) {
            return Some(Caller(here));
        }
        if is_first() { Some(Caller::this()) } else { None }
    }

    /// The calling thread, not in a forked child.
    #[inline(always)]
    pub(crate) fn this() -> Self {
        Caller(known().or_else(first))
    }

    /// The thread's state; `None` if the thread is ending.
    #[inline(always)]
    pub(super) fn here(self) -> Option<&'static Here> {
        self.0
    }

    /// The thread's record; `None` if the thread is ending.
    #[inline(always)]
    pub(super) fn record(self) -> Option<&'static Record> {
        match self.0 {
            Some(here) => Some(here.record),
            None => None,
        }
    }
}

/// The calling thread's state; `None` if it has none yet, or no more.
#[inline(always)]
fn known() -> Option<&'static Here> {
    // SAFETY: the state lives in `OWNER`, whose drop, on this thread, first sets `HERE` to null.
    // That is not during a call, and no call keeps the reference.
    unsafe { HERE.get().as_ref() }
}

/// Makes the thread's state; `None` if the thread is ending, or in a forked child.
#[cold]
fn first() -> Option<&'static Here> {
    if !is_in_process() {
        return None;
    }
    let make = |owner: &OnceCell<Owner>| {
        let owner = owner.get_or_init(|| {
            Owner(Box::new(Here {
                record: RECORDS.claim(),
                process: Process::current(),
                away: Cell::new(0),
                kept: UnsafeCell::new([Stack { owner: None, len: 0, indexes: [0; KEPT] }; TABLES]),
            }))
        });
        HERE.set(&raw const *owner.0);
    };
    OWNER.try_with(make).ok()?;
    known()
}

impl Here {
    /// The home of a handle that the thread makes now, or [`NOBODY`](super::slot::NOBODY).
    #[inline(always)]
    pub(super) fn home(&self) -> u64 {
        match self.record.home_of_new() {
            NOBODY => self.home_again(),
            token => token,
        }
    }

    #[cold]
    fn home_again(&self) -> u64 {
        self.away.set(self.away.get() + 1);
        if self.away.get() < AWAY {
            return NOBODY;
        }
        self.away.set(0);
        RECORDS.come_home(self.record);
        self.record.home_of_new()
    }

    #[inline(always)]
    fn with<R>(&self, table: u8, f: impl FnOnce(&mut Stack) -> R) -> R {
        // SAFETY: only this thread reaches the stacks, and `f` calls nothing that does.
        f(unsafe { &mut (*self.kept.get())[usize::from(table)] })
    }
}

impl Drop for Owner {
    /// Gives the state of an ending thread back.
    fn drop(&mut self) {
        HERE.set(ptr::null());
        if !self.0.process.is_current() {
            return;
        }
        ours(|| {
            for stack in self.0.kept.get_mut() {
                if let Some(owner) = stack.owner {
                    owner.0.lock().given_back.extend(&stack.indexes[..stack.len]);
                }
            }
            self.0.record.give_back();
        });
    }
}

impl Vacant {
    pub(super) const fn new() -> Self {
        Vacant(Mutex::new(Indexes { given_back: Vec::new(), next: 0 }))
    }

    /// An index of table `number`. `make` is called before an index is used for the first time,
    /// with that index or a higher one.
    #[inline(always)]
    pub(super) fn take(&'static self, here: Option<&Here>, number: u8, make: impl Fn(u32)) -> u32 {
        let Some(here) = here else { return self.one(&make) };
        let pop = |stack: &mut Stack| {
            // One comparison finds an empty stack too.
            let len = stack.len.wrapping_sub(1);
            let index = *stack.indexes.get(len)?;
            stack.len = len;
            Some(index)
        };
        match here.with(number, pop) {
            Some(index) => index,
            None => self.refill(here, number, &make),
        }
    }

    #[cold]
    fn refill(&'static self, here: &Here, number: u8, make: &dyn Fn(u32)) -> u32 {
        let mut batch = [0; BATCH];
        let mut shared = self.0.lock();
        let old = shared.given_back.len().min(BATCH);
        let from = shared.given_back.len() - old;
        batch[..old].copy_from_slice(&shared.given_back[from..]);
        shared.given_back.truncate(from);
        let len = if old > 0 {
            drop(shared);
            old
        } else {
            let first = shared.fresh(BATCH as u32);
            drop(shared);
            make(first + (BATCH as u32 - 1));
            batch = std::array::from_fn(|at| first + (BATCH - 1 - at) as u32);
            BATCH
        };
        here.with(number, |stack| {
            stack.owner = Some(self);
            stack.indexes[..len].copy_from_slice(&batch[..len]);
            stack.len = len - 1;
        });
        batch[len - 1]
    }

    /// An index for a thread that has no state.
    #[cold]
    fn one(&self, make: &dyn Fn(u32)) -> u32 {
        let mut shared = self.0.lock();
        if let Some(index) = shared.given_back.pop() {
            return index;
        }
        let index = shared.fresh(1);
        drop(shared);
        make(index);
        index
    }

    /// How many indexes have ever been used.
    pub(super) fn given_out(&self) -> u32 {
        self.0.lock().next
    }

    /// Takes back an index of table `number`. Its slot is vacant.
    #[inline(always)]
    pub(super) fn give(&'static self, here: Option<&Here>, number: u8, index: u32) {
        let Some(here) = here else { return self.give_one(index) };
        let push = |stack: &mut Stack| {
            let room = stack.len < KEPT;
            if room {
                stack.owner = Some(self);
                stack.indexes[stack.len] = index;
                stack.len += 1;
            }
            room
        };
        if !here.with(number, push) {
            self.spill(here, number, index);
        }
    }

    /// From a thread that has no state.
    #[cold]
    fn give_one(&self, index: u32) {
        self.0.lock().given_back.push(index);
    }

    #[cold]
    fn spill(&'static self, here: &Here, number: u8, index: u32) {
        let mut batch = [0; BATCH];
        here.with(number, |stack| {
            stack.len -= BATCH;
            batch.copy_from_slice(&stack.indexes[stack.len..][..BATCH]);
            stack.indexes[stack.len] = index;
            stack.len += 1;
        });
        self.0.lock().given_back.extend(batch);
    }
}

impl Indexes {
    fn fresh(&mut self, count: u32) -> u32 {
        let first = self.next;
        self.next = first.checked_add(count).expect("fewer than 2^32 handles of a type");
        first
    }
}
