//! A block that is lent out of the table, to work on it without a lock.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::Ordering;

use super::addresses::AddressEntry;
use super::table::{AddressTable, LENT, block_of, unknown, whole};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::PinnedBuf;
use crate::memory::block::Block;

/// A buffer that is lent: its entry is marked until this drops.
pub(crate) struct Loan<'a> {
    table: &'a AddressTable,
    entry: &'a AddressEntry,
    /// The entry before it was marked.
    was: *mut Block,
    /// Never dropped with the loan: the block goes back to the table.
    buffer: ManuallyDrop<PinnedBuf<u8>>,
}

impl AddressTable {
    /// Lends the block that `address` lies in.
    pub(crate) fn lend(&self, operation: &'static str, address: usize) -> Result<Loan<'_>> {
        let begin = self.around(address).map(|(begin, _)| begin);
        let entry = begin.and_then(|begin| self.entries.get(begin));
        let entry = entry.ok_or_else(|| unknown(operation, address))?;
        let was = entry.load(Ordering::Relaxed);
        if was.is_null() {
            return Err(unknown(operation, address));
        }
        let lent = was.map_addr(|entry| entry | LENT);
        let (set, fail) = (Ordering::Acquire, Ordering::Relaxed);
        if was == lent || entry.compare_exchange(was, lent, set, fail).is_err() {
            return Err(busy(operation, address));
        }
        // SAFETY: this thread has marked it as lent, and a lent block is never taken out.
        let buffer = ManuallyDrop::new(whole(unsafe { block_of(was) }));
        let loan = Loan { table: self, entry, was, buffer };
        // A smaller block may have replaced the one that was found there.
        let holds = address - loan.as_ptr().addr() < loan.len();
        if holds { Ok(loan) } else { Err(unknown(operation, address)) }
    }
}

#[cold]
fn busy(operation: &'static str, address: usize) -> Error {
    let what = format!("another thread is recording a use of the memory at {address:#x}");
    let remedy = "let one thread at a time name an allocation, or hold a lock of your own";
    Error::new(ErrorKind::Busy, operation, what, remedy)
}

impl Deref for Loan<'_> {
    type Target = PinnedBuf<u8>;

    fn deref(&self) -> &PinnedBuf<u8> {
        &self.buffer
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut PinnedBuf<u8> {
        &mut self.buffer
    }
}

impl Drop for Loan<'_> {
    /// Puts the block back into the table, or gives it to the pool if it was freed during the loan.
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used afterwards.
        let block = unsafe { ManuallyDrop::take(&mut self.buffer) }.into_block();
        let lent = self.was.map_addr(|entry| entry | LENT);
        let (set, fail) = (Ordering::Release, Ordering::Acquire);
        match self.entry.compare_exchange(lent, self.was, set, fail) {
            // The entry names the block again.
            Ok(_) => _ = block.into_raw(),
            Err(_) => {
                self.entry.store(ptr::null_mut(), Ordering::Release);
                self.table.forget_size(&block);
                drop(whole(block));
            }
        }
    }
}
