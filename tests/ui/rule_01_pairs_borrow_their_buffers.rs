//! A buffer of pairs can be used only through the pairs.

use pinlane::batch::Pairs;
use pinlane::{Device, PinnedPool};

fn main() {
    let device = Device::emulated().unwrap();
    let (pool, stream) = (PinnedPool::builder(&device).build().unwrap(), device.stream().unwrap());
    let (mut host, mut gpu) = (pool.alloc::<u8>(10).unwrap(), device.alloc::<u8>(10).unwrap());
    let mut pairs = Pairs::new();
    pairs.push(&mut host, &mut gpu);
    let bytes = host.write().unwrap();
    stream.download_pairs(&mut pairs).unwrap();
    bytes[0] = 1;
}
