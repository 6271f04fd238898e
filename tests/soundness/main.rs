//! The soundness rules, each with tests by its number.
//!
//! | rule | what must not happen | tests |
//! |---|---|---|
//! | 1 | a copy reads a source that has changed | `lifetimes`, `frozen`, `tests/ui` |
//! | 2 | a forgotten guard frees what is in flight | `lifetimes`, `frozen` |
//! | 3 | a dropped future ends a borrow in use | `lifetimes` |
//! | 4 | an error cuts a wait short | `failures`, `frozen` |
//! | 5 | a pinned slice escapes untracked | `tests/ui`, `tests/copies/known` |
//! | 6 | one stream's use hides another's | `order` |
//! | 7 | work without a fence is forgotten | `failures` |
//! | 8 | a host function frees, unwinds or leaks | `host_functions`, `tests/ui` |
//! | 9 | a length is taken from the wrong side | `arguments` |
//! | 10 | uninitialised or invalid bytes are read | `arguments`, `tests/ui` |
//! | 11 | a graph capture records or loses a copy | `capture` |
//! | 12 | a query has two answers, a handle no device | `order` |
//! | 13 | flags and default streams are confused | `order` |
//! | 14 | a forked child, or an exit, calls CUDA | `process`, `frozen` |
//! | 15 | the caller's last error changes | `arguments`; see there |
//! | 16 | a bad handle is followed | `src/capi` |
//! | 17 | something is sent that must not be | `arguments`, `frozen`, `tests/ui` |
//! | 18 | a safe call frees the object of an address or a raw handle | `owners`, `tests/build` |
//! | 19 | memory is released that no thread can wait for | `refused_threads`, `without_threads` |
//! | 21 | a rule holds for the default only | `ways` runs all of them again |
//! | 22 | a child waits for what a fork left locked | `forks` |
//! | 23 | a graph uses memory that it does not have | `graphs`, `tests/ui`, `tests/copies/graphs` |
//! | 24 | memory to read only is written, or goes too early | `read_only`, `tests/ui` |
//!
//! Tests that stall a stream, make a call fail or look for misuse always run on the emulated
//! device. The others run on the device that `PINLANE_TEST_DEVICE` names.

#![cfg(feature = "emulated")]

#[path = "../common/mod.rs"]
mod common;

mod arguments;
mod capture;
mod failures;
mod forks;
mod frozen;
mod graphs;
mod host_functions;
mod lifetimes;
mod order;
mod owners;
mod process;
mod read_only;
mod refused_threads;
mod threads;
mod ways;
mod without_threads;

use common::support;
