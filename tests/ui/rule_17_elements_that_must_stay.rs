//! A buffer is sent and shared only if its elements may be.

use std::marker::PhantomData;

use pinlane::PinnedBuf;

#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(transparent)]
struct Local(u32, PhantomData<*const ()>);

unsafe impl bytemuck::Pod for Local {}

fn send<T: Send>() {}
fn share<T: Sync>() {}

fn main() {
    send::<PinnedBuf<Local>>();
    share::<PinnedBuf<Local>>();
}
