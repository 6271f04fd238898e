//! The layout of a batch: one range of device memory holds all slices, each aligned as an
//! allocation is.

use crate::error::{Error, Result};

/// The alignment of device allocations.
const ALIGN: usize = 1 << ALIGN_BITS;
const ALIGN_BITS: u32 = 8;

/// A slice of a batch, in bytes from the batch's start.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) start: usize,
    pub(super) bytes: usize,
}

impl Part {
    pub(super) fn end(&self) -> usize {
        self.start + self.bytes
    }
}

/// The slices of a batch. Names keep their memory for the layout of the next batch.
#[derive(Debug, Default)]
pub(super) struct Parts {
    list: Vec<Part>,
    used: usize,
}

impl Parts {
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    pub(super) fn as_slice(&self) -> &[Part] {
        &self.list[..self.used]
    }

    /// The bytes from the start of the first slice to the end of the last.
    pub(super) fn total(&self) -> usize {
        self.as_slice().last().map_or(0, Part::end)
    }

    /// Adds a slice. `size` is the size of an element: views count in elements from the start of
    /// the batch's memory.
    pub(super) fn push(&mut self, name: &str, bytes: usize, size: usize) -> Result<()> {
        const OPERATION: &str = "Slices::slice";
        if self.find(name).is_some() {
            let what = format!("the batch has two slices of the name {name:?}");
            let remedy = "give each slice of a batch a name of its own";
            return Err(Error::invalid(OPERATION, what, remedy));
        }
        // The least common multiple of the alignment and the element's size.
        let odd = size.max(1) >> size.max(1).trailing_zeros().min(ALIGN_BITS);
        let step = ALIGN.checked_mul(odd);
        let start = step.and_then(|step| self.total().checked_next_multiple_of(step));
        let Some(start) = start.filter(|start| start.checked_add(bytes).is_some()) else {
            let what = format!(
                "slice {name:?} of {bytes} bytes makes the batch larger than the address space"
            );
            return Err(Error::invalid(OPERATION, what, "make batches that fit the device"));
        };
        if self.used == self.list.len() {
            self.list.push(Part::default());
        }
        let part = &mut self.list[self.used];
        part.name.clear();
        part.name.push_str(name);
        (part.start, part.bytes) = (start, bytes);
        self.used += 1;
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&Part> {
        self.as_slice().iter().find(|part| part.name == name)
    }

    pub(super) fn get(&self, operation: &'static str, name: &str) -> Result<&Part> {
        self.find(name).ok_or_else(|| {
            let names: Vec<_> = self.as_slice().iter().map(|part| &part.name).collect();
            let what = format!("the batch has no slice {name:?}, but {names:?}");
            let remedy =
                "use a name that the batch was made with; unnamed slices are \"0\", \"1\", ...";
            Error::invalid(operation, what, remedy)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn slices_follow_each_other_aligned() {
        let mut parts = Parts::default();
        for round in 0..3 {
            parts.clear();
            assert_eq!(parts.total(), 0);
            for (name, bytes) in [("a", 1), ("b", 0), ("c", 256), ("d", 300 + round)] {
                parts.push(name, bytes, 1).expect("a new name");
            }
            let starts: Vec<_> = parts.as_slice().iter().map(|part| part.start).collect();
            assert_eq!(starts, [0, 256, 256, 512]);
            assert_eq!(parts.total(), 812 + round);
            assert!(parts.get("test", "c").is_ok_and(|part| part.bytes == 256));
        }
    }

    /// A view of elements begins at a multiple of their size, from the start of the memory.
    #[test]
    fn slices_begin_at_whole_elements() {
        let mut parts = Parts::default();
        for (name, bytes, size) in [("a", 1, 1), ("b", 24, 12), ("c", 5, 5), ("d", 2048, 1024)] {
            parts.push(name, bytes, size).expect("a new name");
            let start = parts.as_slice().last().expect("one").start;
            assert!(start.is_multiple_of(size) && start.is_multiple_of(ALIGN), "{name}: {start}");
        }
    }

    #[test]
    fn names_are_told_apart_and_sizes_checked() {
        let mut parts = Parts::default();
        parts.push("a", 1, 1).expect("a new name");
        for bad in [
            parts.push("a", 1, 1),
            parts.push("b", usize::MAX, 1),
            parts.push("c", usize::MAX - 100, 1),
        ] {
            assert_eq!(bad.map_err(|error| error.kind()), Err(ErrorKind::InvalidValue));
        }
        assert!(parts.get("test", "b").is_err(), "what was refused is not there");
    }
}
