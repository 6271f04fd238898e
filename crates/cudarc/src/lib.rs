#![doc = include_str!("../README.md")]

mod error;
mod lent;
mod memory;
mod stream;

pub use error::{Error, Result};
pub use lent::{LentDevice, LentHost};
pub use memory::{Source, Target};
pub use stream::SharedStream;
