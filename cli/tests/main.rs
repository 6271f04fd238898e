//! The tool from outside, on the emulated device: what it prints, and its exit codes.
//!
//! | module | what |
//! |---|---|
//! | `usage` | the command line |
//! | `doctor` | `pinlane doctor` |

mod doctor;
mod run;
mod usage;
