//! Nobody else can say what tracking means.

struct Mine;

impl pinlane::memory::Tracked for Mine {}

fn main() {}
