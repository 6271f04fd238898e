//! A block that is lent out of the table, to work on it with nothing locked.

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
    /// What the entry was.
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
        // SAFETY: this thread has marked it as lent, and nobody takes out what is lent.
        let buffer = ManuallyDrop::new(whole(unsafe { block_of(was) }));
        let loan = Loan { table: self, entry, was, buffer };
        // The block that began there a moment ago may have made room for a smaller one.
        let holds = address - loan.as_ptr().addr() < loan.len();
        if holds { Ok(loan) } else { Err(unknown(operation, address)) }
    }
}

#[cold]
fn busy(operation: &'static str, address: usize) -> Error {
    Error::new(
        ErrorKind::Busy,
        operation,
        format!("another thread is recording a use of the memory at {address:#x}"),
        "let one thread at a time name an allocation, or hold a lock of your own",
    )
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
    /// The block goes back to the table, or to the pool if it was freed meanwhile.
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used afterwards.
        let block = unsafe { ManuallyDrop::take(&mut self.buffer) }.into_block();
        let lent = self.was.map_addr(|entry| entry | LENT);
        let (set, fail) = (Ordering::Release, Ordering::Acquire);
        match self.entry.compare_exchange(lent, self.was, set, fail) {
            // The entry names it again.
            Ok(_) => _ = block.into_raw(),
            Err(_) => {
                self.entry.store(ptr::null_mut(), Ordering::Release);
                self.table.forget_size(&block);
                drop(whole(block));
            }
        }
    }
}
