//! Not every bit pattern is a reference.

fn alloc(device: &pinlane::Device) {
    let _ = device.alloc::<&'static u8>(1);
}

fn main() {}
