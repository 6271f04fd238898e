//! What is to be copied.

use clap::ValueEnum;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Host to device
    Up,
    /// Device to host
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Memory {
    /// What `Vec`, `malloc` and a file's mapping give
    Pageable,
    /// Page-locked (pinned) memory of a pool
    PageLocked,
}

pub struct Workload {
    pub count: usize,
    /// The bytes of a piece.
    pub bytes: usize,
    pub direction: Direction,
    pub memory: Memory,
    /// How many cores may copy.
    pub cores: usize,
}

impl Workload {
    /// All bytes; `None` if there are 2^48 or more.
    pub fn total(&self) -> Option<usize> {
        self.count.checked_mul(self.bytes).filter(|&total| total < 1 << 48)
    }

    /// The memory and the direction in words.
    pub fn words(&self) -> String {
        let memory = match self.memory {
            Memory::Pageable => "pageable",
            Memory::PageLocked => "page-locked",
        };
        match self.direction {
            Direction::Up => format!("from {memory} memory to the device"),
            Direction::Down => format!("from the device to {memory} memory"),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "count": self.count,
            "bytes": self.bytes,
            "direction": if self.direction == Direction::Up { "up" } else { "down" },
            "memory": if self.memory == Memory::Pageable { "pageable" } else { "page-locked" },
            "cores": self.cores,
        })
    }
}
