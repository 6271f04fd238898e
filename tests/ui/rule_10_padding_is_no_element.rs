//! Padding is never initialised, but the pool's memory must always be.

#[derive(Clone, Copy)]
#[repr(C)]
struct Padded(u8, u32);

fn alloc(pool: &pinlane::PinnedPool) {
    let _ = pool.alloc::<Padded>(1);
}

fn main() {}
