//! Copies, on the emulated device: against plain models, with every call made to fail, by many
//! threads.
//!
//! | module | what it shows |
//! |---|---|
//! | `known` | slices in memory of a pool: the device copies them directly |
//! | `staging` | slices and batches, pageable and page-locked |
//! | `files` | ranges of files, to devices and to page-locked memory |
//! | `registered` | the user's memory comes back only when the device is done with it |
//! | `prefetch` | the pipeline of batches |
//! | `dlpack` | memory of tensors whose last use cannot be known |
//! | `tensors` | the bytes of tensors whose members take all values |
//! | `events` | events of the caller order streams |
//! | `foreign` | foreign work, default streams and two devices, while calls fail |
//! | `graphs` | captured work: each launch copies what is there then |
//! | `graph_branches` | branches of graphs: at the same time, except where they share a buffer |
//! | `rows` | rows of tables by their numbers |
//! | `strided` | rows that lie a pitch apart, by every way that they can take |
//! | `pairs` | pairs of host and device memory that are copied repeatedly |
//! | `parts` | parts of two sides, by arrays of their offsets |
//! | `slow` | slow streams, and memory that runs out |
//! | `nvtx` | the ranges that a tool gets through NVTX |
//! | `trace` | recordings: their contents, and that they change nothing else |
//! | `trace_graphs` | recordings of graphs: what each launch consists of |
//! | `load_safetensors` | the example, run like its users run it |

#![cfg(feature = "emulated")]

#[path = "../common/mod.rs"]
mod common;

mod dlpack;
mod events;
mod files;
mod foreign;
mod graph_branches;
mod graphs;
#[cfg(feature = "allocator-api2")]
mod known;
mod load_safetensors;
#[cfg(feature = "nvtx")]
mod nvtx;
mod pairs;
mod parts;
mod prefetch;
mod registered;
mod rows;
mod slow;
mod staging;
mod strided;
mod tensors;
mod trace;
mod trace_graphs;
