//! Copies of pageable memory, and batches, on the emulated device, against `memcpy` as the model.
//!
//! Slots are small, so that the tests meet every boundary. `PROPTEST_CASES` sets the number of
//! random batches.

mod batches;
mod faults;
mod few;
mod held_up;
mod landing;
mod launches;
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
