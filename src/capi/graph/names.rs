//! The buffers of a graph by their handles.

use std::collections::BTreeMap;

use super::held::{Held, Memory};
use crate::capi::{Error, ErrorKind, Result, handle, invalid, refused};
use crate::graph::{Capture, Graph, Key};

/// The buffers of one type that a capture or a graph holds.
pub struct Names<H: Memory> {
    all: BTreeMap<*const H, Name<H>>,
    /// Those that came with the call that is being made.
    new: Vec<*const H>,
    /// Those that the work has only read so far, and that this call also writes.
    newly_written: Vec<*const H>,
    /// Those that the program has until the next launch.
    lent: Vec<*const H>,
}

/// The key of a buffer, and whether the work writes the buffer.
type Name<H> = (Key<Held<H>>, bool);

// SAFETY: a handle is a number, which any thread may name. Keys are numbers too.
unsafe impl<H: Memory> Send for Names<H> {}
// SAFETY: as above.
unsafe impl<H: Memory> Sync for Names<H> {}

impl<H: Memory> Names<H> {
    pub(super) const fn new() -> Self {
        Names { all: BTreeMap::new(), new: Vec::new(), newly_written: Vec::new(), lent: Vec::new() }
    }

    /// The key of a buffer that captured work reads, or also writes. The capture takes the buffer
    /// if it does not have it yet.
    pub(super) fn key(
        &mut self,
        capture: &mut Capture,
        handle: *const H,
        writes: bool,
    ) -> Result<Key<Held<H>>> {
        handle::notes(handle)?; // also of a buffer that the capture has
        if let Some((key, is_written)) = self.all.get_mut(&handle) {
            if writes && !*is_written {
                capture.buffer_mut(*key)?.take_alone(handle)?;
                *is_written = true;
                self.newly_written.push(handle);
            }
            return Ok(*key);
        }
        let key = capture.own(Held::new(handle, writes)?);
        self.all.insert(handle, (key, writes));
        self.new.push(handle);
        Ok(key)
    }

    /// Ends a call of a capture. The buffers that came with it stay only if it may have captured
    /// work on them; the others are held as before.
    pub(super) fn settle(&mut self, capture: &mut Capture, captured: bool) {
        for handle in self.newly_written.drain(..).filter(|_| !captured) {
            let (key, is_written) = self.all.get_mut(&handle).expect("the capture has it");
            *is_written = false;
            capture.buffer_mut(*key).expect("the capture's own key").share();
        }
        for handle in self.new.drain(..).filter(|_| !captured) {
            let (key, _) = self.all.remove(&handle).expect("it came with the call");
            capture.buffer_mut(key).expect("the capture's own key").let_go();
        }
    }

    fn find(&self, handle: *const H) -> Result<Name<H>> {
        handle::notes(handle)?;
        self.all.get(&handle).copied().ok_or_else(|| {
            let what = format!("the graph does not name this {}", H::NAME);
            invalid(what, "pass a buffer that its captured work names")
        })
    }

    /// Lets the program use a buffer until the next launch.
    pub(super) fn lend(&mut self, graph: &mut Graph, handle: *const H) -> Result<()> {
        let (key, _) = self.find(handle)?;
        if graph.buffer_mut(key)?.lend() {
            self.lent.push(handle);
        }
        Ok(())
    }

    /// Takes back what was lent, or nothing if something of it is in use or was freed.
    pub(super) fn take_back(&mut self, graph: &mut Graph) -> Result<()> {
        for (done, &handle) in self.lent.iter().enumerate() {
            let (key, writes) = self.all[&handle];
            if let Err(error) = graph.buffer_mut(key)?.take_back(handle, writes) {
                self.lend_again(graph, done);
                return Err(if error.kind() == ErrorKind::Busy { error } else { lost::<H>() });
            }
        }
        Ok(())
    }

    /// What was taken back stays with the graph.
    pub(super) fn keep(&mut self) {
        self.lent.clear();
    }

    /// Lends all again that was taken back.
    pub(super) fn undo(&mut self, graph: &mut Graph) {
        self.lend_again(graph, self.lent.len());
    }

    fn lend_again(&self, graph: &mut Graph, count: usize) {
        for handle in &self.lent[..count] {
            graph.buffer_mut(self.all[handle].0).expect("the graph's own key").lend();
        }
    }

    /// Puts `new` in the place of `old`, which is the program's again.
    pub(super) fn rebind(&mut self, graph: &mut Graph, old: *const H, new: *const H) -> Result<()> {
        let (key, writes) = self.find(old)?;
        if self.all.contains_key(&new) {
            let what = format!("the graph has the new {} already", H::NAME);
            return Err(invalid(what, "give it a buffer that it does not name"));
        }
        let held = Held::new(new, writes)?;
        let is_lent = self.lent.contains(&old);
        if is_lent {
            graph.buffer_mut(key)?.take_back(old, writes)?;
        }
        let replaced = graph.rebind(key, held);
        if replaced.is_err() && is_lent {
            graph.buffer_mut(key)?.lend();
        }
        replaced.map_err(|refused| refused.error)?;
        self.lent.retain(|&handle| handle != old);
        self.all.remove(&old);
        self.all.insert(new, (key, writes));
        Ok(())
    }
}

#[cold]
fn lost<H: Memory>() -> Error {
    let what = format!("a {} of the graph was freed while it was lent", H::NAME);
    let remedy = "capture the work again, and free what a graph lends after the graph";
    refused(ErrorKind::InvalidHandle, what, remedy)
}
