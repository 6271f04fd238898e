//! Copies, on the emulated device: against plain models, with every call made to fail, by many
//! threads.
//!
//! | module | what it shows |
//! |---|---|
//! | `known` | slices in memory of a pool: the device copies them as they are |
//! | `staging` | slices and batches, pageable and page-locked |
//! | `files` | ranges of files, to devices and to page-locked memory |
//! | `registered` | memory of the user's own comes back only when the device is done with it |
//! | `prefetch` | the pipeline of batches |
//! | `dlpack` | memory of tensors whose last use cannot be known |
//! | `tensors` | the bytes of tensors whose members take all values |
//! | `events` | events of the caller order streams |
//! | `foreign` | work that is not this crate's, default streams and two devices, while calls fail |
//! | `rows` | rows of tables by their numbers |
//! | `pairs` | host and device memory that is copied up and down over and over |
//! | `slow` | slow streams, and memory that runs out |
//! | `nvtx` | the ranges that a tool gets by NVTX |
//! | `trace` | recordings: what they show, and that they change nothing |
//! | `load_safetensors` | the example, as its users run it |

#![cfg(feature = "emulated")]

#[path = "../common/mod.rs"]
mod common;

mod dlpack;
mod events;
mod files;
mod foreign;
#[cfg(feature = "allocator-api2")]
mod known;
mod load_safetensors;
#[cfg(feature = "nvtx")]
mod nvtx;
mod pairs;
mod prefetch;
mod registered;
mod rows;
mod slow;
mod staging;
mod tensors;
mod trace;
