//! Moving and making data: copies, fills, checksums, and foreign work in the same order.
//!
//! Every operation takes the same four steps, in `order::ordered`: the stream is open; it
//! waits, on the device, for conflicting uses on other streams; the work is enqueued and fenced; the use
//! is recorded in every buffer named.

mod copy;
mod foreign;
mod kernels;
mod order;
mod simd;
mod slice;
mod staging;
mod team;

pub use staging::Staging;
pub use team::CopyTeam;
