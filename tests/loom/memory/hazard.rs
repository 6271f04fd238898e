//! Like `src/memory/hazard/mod.rs`, with at most one use.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::sync::Mutex;
use crate::timeline::Timeline;

pub enum Access {
    Write,
}

#[derive(Default)]
pub struct Hazards(Mutex<Option<(Arc<Timeline>, u64)>>);

impl Hazards {
    pub fn note(&self, stream: &Arc<Timeline>, position: u64) {
        *self.0.lock() = Some((stream.clone(), position));
    }

    pub fn is_idle(&self) -> bool {
        self.0.lock().is_none()
    }

    pub fn is_used_elsewhere(&self, stream: &Arc<Timeline>) -> bool {
        self.0.lock().as_ref().is_some_and(|(used, _)| !Arc::ptr_eq(used, stream))
    }

    pub fn all_complete(&self) -> bool {
        let mut used = self.0.lock();
        if used.as_ref().is_some_and(|(stream, position)| stream.is_retired(*position)) {
            *used = None;
        }
        used.is_none()
    }

    pub fn end_complete(&self) -> (bool, Option<Arc<Timeline>>) {
        let stream = self.a_stream();
        (self.all_complete(), stream)
    }

    pub fn a_stream(&self) -> Option<Arc<Timeline>> {
        self.0.lock().as_ref().map(|(stream, _)| stream.clone())
    }

    pub fn for_streams(&self, with: impl FnMut(&Arc<Timeline>)) {
        self.a_stream().iter().for_each(with);
    }

    pub fn first_pending_stream(&self) -> Option<Arc<Timeline>> {
        self.a_stream()
    }

    pub fn poll(&self, _: &Range<usize>, _: Access) -> Result<()> {
        Ok(())
    }

    /// At the end of a model nothing is running.
    pub fn wait(&self, _: &Range<usize>, _: Access, _: &'static str) -> Result<()> {
        Ok(())
    }
}
