//! Nobody else can say what tracking means.

struct Mine;

impl pinlane::Tracked for Mine {}

fn main() {}
