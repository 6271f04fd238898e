//! Which decisions a run is made of.

use std::thread;

use super::rig::{Rig, bytes};
use crate::driver::emulated::{Emulator, Execution};
use crate::driver::{BatchCopy, BatchKind};
use crate::error::CudaCode;

/// What becomes of a batch, of which the second half loses the device: that tells its order.
fn batch_order(rig: &Rig, meanwhile: impl FnOnce(&Rig)) -> Vec<u8> {
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    rig.fill(stream, a, 7).unwrap();
    meanwhile(rig);
    let copies: Vec<BatchCopy> = (0..8)
        .map(|n| BatchCopy { dst: host.as_ptr().addr() as u64 + n, src: a + n * 16, bytes: 1 })
        .collect();
    rig.batch(stream, BatchKind::D2H, &copies).unwrap();
    assert_eq!(rig.synchronize(stream), Err(CudaCode::ILLEGAL_ADDRESS));
    bytes(host)[..4].iter().map(|&byte| u8::from(byte == 7)).collect()
}

#[test]
fn what_other_streams_and_threads_do_changes_no_decision() {
    let mut orders = Vec::new();
    for seed in 0..40 {
        for execution in [Execution::Eager, Execution::Lazy] {
            let machine = || Rig::new(Emulator::builder().execution(execution).seed(seed));
            let order = batch_order(&machine(), |_| ());
            let busier = batch_order(&machine(), |rig| {
                let (other, b) = (rig.stream(0), rig.memory(0));
                (0..seed % 7).for_each(|_| rig.fill(other, b, 1).unwrap());
                rig.synchronize(other).unwrap();
            });
            let threaded = batch_order(&machine(), |rig| {
                thread::scope(|scope| scope.spawn(|| rig.memory(0)).join().map(drop)).unwrap();
            });
            assert_eq!([&order; 2], [&busier, &threaded], "seed {seed}");
            orders.push(order);
        }
    }
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 5, "the seed decides: {orders:?}");
}
