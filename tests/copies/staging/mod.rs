//! Copies of pageable memory, and batches, on the emulated device, against a plain model: what
//! `memcpy` would do.
//!
//! Slots are so small that every boundary is near. `PROPTEST_CASES` sets how many random batches
//! there are.

mod batches;
mod faults;
mod held_up;
mod landing;
mod liveness;
mod nested;
mod on_device;
mod order;
mod overlaps;
mod peers;
mod routes;
mod seams;
mod slices;
mod streams;
mod support;
mod warm_up;
