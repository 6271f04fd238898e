//! Blocks by the addresses of their memory: for slices, for collections, and for C.

#[cfg_attr(not(any(feature = "capi", feature = "allocator-api2")), allow(dead_code))]
mod addresses;
mod index;
pub(super) mod known;
#[cfg(feature = "capi")]
mod loan;
#[cfg_attr(not(any(feature = "capi", feature = "allocator-api2")), allow(dead_code))]
mod raw;
#[cfg_attr(not(any(feature = "capi", feature = "allocator-api2")), allow(dead_code))]
pub(super) mod table;
