//! The tool from outside, on the emulated device: what it prints, and its exit codes.
//!
//! | module | what |
//! |---|---|
//! | `usage` | the command line |
//! | `doctor` | `pinlane doctor` |
//! | `bench` | `pinlane bench` |
//! | `advise` | `pinlane advise` |
//! | `load` | `pinlane load` |
//! | `trace` | `pinlane trace` |

mod advise;
mod bench;
mod doctor;
mod load;
mod run;
mod trace;
mod usage;
