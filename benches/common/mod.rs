//! What the benchmarks share: figures and their report, the runtime's bare calls, and how time is taken.

#![allow(dead_code)] // every benchmark uses a part

pub mod bare;
pub mod figures;
pub mod timing;
