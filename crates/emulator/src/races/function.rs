//! The host function that is being called, and what it knows.

use super::clock::{Epoch, Knowledge};
use super::{Races, Running};
use crate::words::thread::this_thread;

impl Races {
    /// A host function is about to be called, on this thread.
    pub(crate) fn function_begins(&mut self, knowledge: Option<Knowledge>) {
        if let Some(knowledge) = knowledge {
            self.agents.tell_any_host(&knowledge);
            self.running = Some(Running { thread: this_thread(), knowledge });
        }
    }

    /// It has returned. Gives what it knew.
    pub(crate) fn function_ends(&mut self) -> Option<Knowledge> {
        self.running.take().map(|running| running.knowledge)
    }

    /// Whether this thread is inside a host function, which that operation is ordered after.
    pub(crate) fn is_after_function(&self, epoch: Epoch) -> bool {
        self.known_to_function()
            .is_some_and(|known| !known.knows(epoch) && self.agents.knew(epoch).knows(known.at()))
    }

    /// What the host function knows that this thread is inside.
    pub(super) fn known_to_function(&self) -> Option<&Knowledge> {
        let running = self.running.as_ref().filter(|running| running.thread == this_thread());
        running.map(|running| &running.knowledge)
    }
}
