#![doc = include_str!("../README.md")]

mod error;
mod lending;
mod memory;
mod stream;

pub use error::{Error, Result};
pub use memory::{Source, Target};
pub use stream::SharedStream;
