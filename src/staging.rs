//! Staging of copies of pageable memory: the ring of page-locked memory that they go through
//! ([`Staging`]), and the threads that fill and empty it ([`CopyTeam`]).

pub use crate::copy::staged::Staging;
pub use crate::copy::staged::team::CopyTeam;
