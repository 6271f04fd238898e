//! The unit tests of files of the library. It is no library for a test harness: it would replace
//! `read` and `sigaction` of the harness.

// A file has more than its tests use.
#![allow(dead_code)]

#[path = "../src/environment.rs"]
mod environment;
#[path = "../src/errors.rs"]
mod errors;
#[path = "../src/faults.rs"]
mod faults;
#[path = "../src/ptx.rs"]
mod ptx;
#[path = "../src/run.rs"]
mod run;
