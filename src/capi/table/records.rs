//! A record for each thread, with the objects that it is inside, and whether it is at home.
//!
//! # Invariants
//!
//! * A record is never freed. A thread that ends leaves its record to one that begins.
//! * Only the thread that has a record writes its places. A place names one generation of a slot,
//!   so it does not refer to later objects of the slot.
//! * No two homes of the process have the same token.
//! * A record's `settled` is a token whose home has ended, for every thread to see.

use std::ops::BitOr;
use std::ptr;

use super::slot::{Access, NOBODY};
use crate::sync::asymmetric::{self, Fences};
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// How many objects a record has room for: more than most calls name. The slots count further ones.
const PLACES: usize = 4;

/// Instead of a token: the thread is not at home. No slot has this home.
const AWAY: u64 = NOBODY + 1;

/// The name of an object: its table, generation and slot. Its low bits are 0, but not all bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name(u64);

impl Name {
    /// Of the bits of a handle. The two highest, which are lost, are the same in each.
    pub const fn new(bits: u64) -> Self {
        Name(bits << 2)
    }
}

/// How threads use an object, a bit for each mark that was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Uses(u8);

impl Uses {
    pub(super) const NONE: Uses = Uses(0);

    #[inline(always)]
    fn of(place: u64, name: Name) -> Self {
        let same = (place ^ name.0) >> 2 == 0;
        Uses(u8::from(same) << (place & 3))
    }

    #[inline(always)]
    pub fn have(self, mark: u64) -> bool {
        self.0 >> mark & 1 != 0
    }

    #[inline(always)]
    pub fn conflict_with(self, access: Access) -> bool {
        self.0 & access.excludes() != 0
    }
}

impl BitOr for Uses {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Uses(self.0 | other.0)
    }
}

/// All records of the process.
pub struct Records {
    newest: AtomicPtr<Record>,
    /// The last token that was given out.
    tokens: AtomicU64,
    fences: Fences,
}

#[repr(align(128))]
pub struct Record {
    /// Names, with the kind of use as a mark in the low bits; 0 is vacant.
    places: [AtomicU64; PLACES],
    /// The token of the thread's home, or [`AWAY`]. Others write it once for each token.
    home: AtomicU64,
    settled: AtomicU64,
    /// Whether a thread has the record.
    taken: AtomicBool,
    older: *const Record,
}

// SAFETY: `older` never changes, and what it points to is never freed.
unsafe impl Send for Record {}
// SAFETY: as above; the rest is atomic.
unsafe impl Sync for Record {}

/// An entry of a record: the thread is inside an object.
pub struct Place(&'static AtomicU64);

impl Records {
    pub fn new() -> Self {
        Records {
            newest: AtomicPtr::new(ptr::null_mut()),
            tokens: AtomicU64::new(AWAY),
            fences: asymmetric::fences(),
        }
    }

    /// A record for the calling thread, at home, until it [gives it back](Record::give_back).
    pub fn claim(&self) -> &'static Record {
        let unused = |record: &&Record| {
            let (set, fail) = (Ordering::Acquire, Ordering::Relaxed);
            !record.taken.load(Ordering::Relaxed)
                && record.taken.compare_exchange(false, true, set, fail).is_ok()
        };
        let record = self.all().find(unused).unwrap_or_else(|| self.add());
        self.come_home(record);
        record
    }

    fn add(&self) -> &'static Record {
        let record = Box::leak(Box::new(Record {
            places: std::array::from_fn(|_| AtomicU64::new(0)),
            home: AtomicU64::new(AWAY),
            settled: AtomicU64::new(AWAY),
            taken: AtomicBool::new(true),
            older: ptr::null(),
        }));
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            record.older = newest;
            let (set, fail) = (Ordering::Release, Ordering::Relaxed);
            match self.newest.compare_exchange_weak(newest, record, set, fail) {
                Ok(_) => return record,
                Err(now) => newest = now,
            }
        }
    }

    /// Begins a new home of the calling thread, which has this record and is away.
    pub fn come_home(&self, record: &Record) {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed) + 1;
        record.home.store(token, Ordering::Relaxed);
    }

    /// Ends the home with this token, if it has not ended. When this returns, the calls that are
    /// inside through that home are in its thread's places, and no new one begins.
    pub fn disturb(&self, token: u64) {
        for record in self.all() {
            if record.settled.load(Ordering::Acquire) == token {
                return;
            }
            let (set, fail) = (Ordering::Relaxed, Ordering::Relaxed);
            // Read first: even an exchange that fails takes the cache line from its thread.
            if record.home() == token
                && record.home.compare_exchange(token, AWAY, set, fail).is_ok()
            {
                self.fences.heavy();
                record.settled.store(token, Ordering::Release);
                return;
            }
        }
        // Another thread is ending it, or a later home has ended since.
        self.fences.heavy();
    }

    /// The uses of an object that are in places. The actions of calls that have left happen before
    /// this returns.
    pub fn uses(&self, name: Name) -> Uses {
        self.all().fold(Uses::NONE, |uses, record| uses | record.uses(name))
    }

    /// As [`uses`](Self::uses), after a write that calls check when they come or leave: a call that
    /// this does not find has not checked yet, or has seen the write.
    pub fn settled_uses(&self, name: Name) -> Uses {
        self.fences.heavy();
        self.uses(name)
    }

    fn all(&self) -> impl Iterator<Item = &'static Record> {
        // SAFETY: the list holds records, which are never freed.
        let newest = unsafe { self.newest.load(Ordering::Acquire).cast_const().as_ref() };
        // SAFETY: as above.
        std::iter::successors(newest, |record| unsafe { record.older.as_ref() })
    }
}

impl Record {
    /// The token of the thread's home. While it is away, a number that is not the home of any slot.
    #[inline(always)]
    pub fn home(&self) -> u64 {
        self.home.load(Ordering::Relaxed)
    }

    /// The home of a slot that the thread fills now; [`NOBODY`] while it is away. One load: another
    /// thread may end the home at any time, and no slot may ever have [`AWAY`] for a home.
    #[inline(always)]
    pub fn home_of_new(&self) -> u64 {
        match self.home() {
            AWAY => NOBODY,
            token => token,
        }
    }

    #[cfg(test)]
    pub fn is_away(&self) -> bool {
        self.home() == AWAY
    }

    /// Whether the calling thread, which has this record, is inside nothing, as usual.
    #[inline(always)]
    fn is_vacant(&self) -> bool {
        // If it is inside something, the first place usually says so.
        let [first, others @ ..] = &self.places;
        first.load(Ordering::Relaxed) == 0
            && others.iter().fold(0, |all, place| all | place.load(Ordering::Relaxed)) == 0
    }

    /// A vacant place, if the calling thread, which has this record, is not inside the object.
    #[inline(always)]
    pub fn vacant_outside(&'static self, name: Name) -> Option<&'static AtomicU64> {
        if self.is_vacant() { self.places.first() } else { self.vacant_beside(name) }
    }

    #[cold]
    fn vacant_beside(&'static self, name: Name) -> Option<&'static AtomicU64> {
        match self.look(name) {
            (Uses::NONE, vacant) => vacant,
            _ => None,
        }
    }

    /// How the calling thread, which has this record, uses an object, and a vacant place.
    #[inline(always)]
    pub fn look(&'static self, name: Name) -> (Uses, Option<&'static AtomicU64>) {
        if self.is_vacant() {
            return (Uses::NONE, self.places.first());
        }
        let mut vacant = None;
        for place in self.places.iter().rev() {
            match place.load(Ordering::Relaxed) {
                0 => vacant = Some(place),
                found if (found ^ name.0) >> 2 == 0 => return self.look_inside(name),
                _ => {}
            }
        }
        (Uses::NONE, vacant)
    }

    /// As [`look`](Self::look), for an object that the thread is inside of.
    #[cold]
    fn look_inside(&'static self, name: Name) -> (Uses, Option<&'static AtomicU64>) {
        (self.uses(name), self.first_vacant())
    }

    /// Notes in that vacant place that the calling thread is about to use an object.
    #[inline(always)]
    pub fn announce(&self, place: &'static AtomicU64, name: Name, access: Access) -> Place {
        place.store(name.0 | access.mark(), Ordering::Relaxed);
        asymmetric::light();
        Place(place)
    }

    #[inline(always)]
    pub fn first_vacant(&'static self) -> Option<&'static AtomicU64> {
        self.places.iter().find(|place| place.load(Ordering::Relaxed) == 0)
    }

    fn uses(&self, name: Name) -> Uses {
        let of = |place: &AtomicU64| Uses::of(place.load(Ordering::Acquire), name);
        self.places.iter().map(of).fold(Uses::NONE, |uses, one| uses | one)
    }

    /// Leaves the record to another thread. The calling thread is inside nothing.
    pub fn give_back(&self) {
        let token = self.home.swap(AWAY, Ordering::Relaxed);
        if token != AWAY {
            self.settled.store(token, Ordering::Release);
        }
        self.taken.store(false, Ordering::Release);
    }
}

impl Place {
    /// Ends the use of an object that nobody can free any more.
    #[inline(always)]
    pub fn forget(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Ends the use. Later reads of this thread come after that.
    #[inline(always)]
    pub fn vacate(&self) {
        self.forget();
        asymmetric::light();
    }
}
