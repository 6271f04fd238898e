//! Nor is every bit pattern a reference.

fn alloc(device: &pinlane::Device) {
    let _ = device.alloc::<&'static u8>(1);
}

fn main() {}
