//! Moving and making data: copies, fills, checksums, and foreign work in the same order.
//!
//! Every operation takes the same four steps, in `order::ordered`: the stream is open; it waits, on
//! the device, for conflicting uses on other streams; the work is enqueued and fenced; the use is
//! recorded in every buffer named.

mod apart;
mod batch;
mod calibration;
mod copy;
mod entry;
mod file;
mod foreign;
mod kernels;
mod machine;
mod order;
mod path;
mod peer;
mod plan;
mod prefetch;
mod share;
mod simd;
mod slice;
mod staging;
mod survey;
mod team;
mod uses;

#[cfg(feature = "capi")]
pub(crate) use apart::check_disjoint;
pub use batch::{CopyItem, DownloadItem, HostSlice, HostSliceMut, UploadItem};
pub use calibration::Calibration;
pub use file::FileReader;
pub use path::Path;
pub use plan::{Choice, Plan};
pub use prefetch::*;
pub use staging::Staging;
pub use team::CopyTeam;
