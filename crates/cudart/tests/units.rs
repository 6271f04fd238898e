//! The unit tests of files of the library. A test harness cannot link the library, which would
//! replace the harness's `read` and `sigaction`.

// A file has more than its tests use.
#![allow(dead_code)]

#[path = "../src/abi.rs"]
mod abi;
#[path = "../src/environment.rs"]
mod environment;
#[path = "../src/errors.rs"]
mod errors;
#[path = "../src/faults.rs"]
mod faults;
#[path = "../src/ptx.rs"]
mod ptx;
#[path = "../src/python/mod.rs"]
mod python;
#[path = "../src/run.rs"]
mod run;
