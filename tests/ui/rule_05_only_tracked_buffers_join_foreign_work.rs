//! Only this crate's buffers can be tracked.

struct Mine;

impl pinlane::memory::Tracked for Mine {}

fn main() {}
