//! A CUDA runtime and a CUDA driver over pinlane's emulated device: `libcudart.so.13`,
//! `libcudart.so.12` and `libcuda.so.1` for unchanged programs. docs/drop-in.md says how
//! to use them.
//!
//! What CUDA does is in [`pinlane_emulator::Emulator`]. Here is C: names, structs and checks
//! of pointers.
//!
//! | file | what |
//! |---|---|
//! | `boundary.rs` | what every call does: the machine, the last error, panics |
//! | `environment.rs` | which library this is, and the variables of the environment |
//! | `machine.rs` | the one machine of the process, as the environment says |
//! | `run.rs` | which run this is: its mode, seed and decisions as one text |
//! | `record.rs` | what this run decided, in a file |
//! | `report.rs` | findings, as they come and at the end of the process |
//! | `lines.rs` | the lines of the program that make calls |
//! | `python/` | those lines, if Python runs the program |
//! | `faults.rs` | calls that fail because the environment says so |
//! | `data.rs` | data of the program that launches own |
//! | `host_functions.rs` | calls that host functions may not make |
//! | `launch.rs` | functions of this library's own: launches with declared uses |
//! | `stubs.rs` | names without an implementation |
//! | `io/` | system calls on memory that is in use |
//! | `abi.rs` | pointers and structs of C |
//! | `driver/` | what only the driver has: contexts, modules |
//! | the others | one noun each |

#![allow(non_snake_case)]

#[macro_use]
mod boundary;

mod abi;
mod batches;
mod capture;
mod copies;
mod data;
mod device;
mod driver;
mod environment;
mod errors;
mod events;
mod faults;
mod host;
mod host_functions;
mod io;
mod ipc;
mod kernels;
mod launch;
mod lines;
mod machine;
mod managed;
mod mangled;
mod memory;
mod own_kernels;
mod pointers;
mod pools;
mod properties;
mod ptx;
mod python;
mod record;
mod report;
mod run;
mod stand_ins;
mod streams;
mod stubs;
mod symbols;
mod volumes;
