//! A slice that was read from a pair ends before the pair is copied.

use pinlane::batch::Pairs;
use pinlane::{Device, PinnedPool};

fn main() {
    let device = Device::emulated().unwrap();
    let (pool, stream) = (PinnedPool::builder(&device).build().unwrap(), device.stream().unwrap());
    let (mut host, mut gpu) = (pool.alloc::<u8>(10).unwrap(), device.alloc::<u8>(10).unwrap());
    let mut pairs = Pairs::new();
    pairs.push(&mut host, &mut gpu);
    let bytes = pairs.host(0).read().unwrap();
    stream.download_pairs(&mut pairs).unwrap();
    assert_eq!(bytes[0], 1);
}
