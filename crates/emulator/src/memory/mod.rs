//! The memory of the devices and of the host.
//!
//! ```text
//!   device    allocations, by addresses     host       page-locked blocks, and who uses them
//!   storage   where they have their bytes   pageable   what copies do with all other memory
//!   arena     at addresses of the process   area       what a stand-in for a kernel runs on
//!   made      how a program made it         look       whether memory is there at all
//!   pools     what counts what they gave    prefetched  where a program wants managed memory
//!   foreign   memory of other processes     mapped     addresses at which a program maps memory
//!   graphs    what graphs allocate
//! ```

pub(crate) mod area;
pub(crate) mod arena;
pub(crate) mod device;
pub(crate) mod foreign;
pub(crate) mod graphs;
pub(crate) mod host;
pub(crate) mod look;
pub(crate) mod made;
pub(crate) mod mapped;
pub(crate) mod pageable;
pub(crate) mod pools;
pub(crate) mod prefetched;
pub(crate) mod storage;
