//! Every order in turn: one run takes one path through a tree of choices.

/// The choices of a run.
#[derive(Debug)]
pub(crate) struct Path {
    given: Vec<usize>,
    taken: Vec<(usize, usize)>,
}

impl Path {
    /// Takes the given choices, and then always the first.
    pub(crate) fn new(given: Vec<usize>) -> Self {
        Path { given, taken: Vec::new() }
    }

    /// Which of so many to take.
    pub(super) fn choose(&mut self, choices: usize) -> usize {
        let given = self.given.get(self.taken.len()).copied().unwrap_or(0);
        // A program that does not behave the same each time may have fewer choices now.
        let choice = given.min(choices - 1);
        self.taken.push((choice, choices));
        choice
    }

    /// The choices that were made, each with how many there were.
    pub(crate) fn taken(&self) -> Vec<(usize, usize)> {
        self.taken.clone()
    }
}
