//! Padding is never initialised, and the pool's memory always is.

#[derive(Clone, Copy)]
#[repr(C)]
struct Padded(u8, u32);

fn alloc(pool: &pinlane::PinnedPool) {
    let _ = pool.alloc::<Padded>(1);
}

fn main() {}
