//! Not every bit pattern is a `bool`, and the device writes any.

fn alloc(pool: &pinlane::PinnedPool) {
    let _ = pool.alloc::<bool>(1);
}

fn main() {}
