//! The steps of the state machine.

use proptest::prelude::*;

/// The forms of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    Try,
    Zeroed,
    /// Aligned to `1 << shift` bytes.
    Aligned(u32),
    /// With a timeout of 0.
    AtOnce,
    Async,
}

/// Indexes are taken modulo the number of things there are.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Alloc(Form, usize),
    Write(usize),
    Upload(usize, usize),
    Download(usize, usize),
    Drop(usize),
    DropElsewhere(usize),
    Forget(usize),
    /// A thread allocates this many buffers of this size, drops half of them, returns the others,
    /// and ends.
    DyingThread(usize, usize),
    Trim(usize),
    Clone,
    DropClone,
    Poll(usize),
    Cancel(usize),
    Stall(usize),
    Release(usize),
}

/// The pool and the machine below it.
#[derive(Clone, Debug)]
pub struct Setup {
    pub lazy: bool,
    pub seed: u64,
    pub devices: usize,
    pub max_bytes: usize,
    pub caches: bool,
    pub register: bool,
}

pub fn setup() -> impl Strategy<Value = Setup> {
    let max_bytes = prop::sample::select(vec![20_000, 256 << 10, 5 << 20, 80 << 20]);
    let bools = (any::<bool>(), any::<bool>(), any::<bool>());
    (bools, any::<u64>(), 1..=2usize, max_bytes).prop_map(
        |((lazy, caches, register), seed, devices, max_bytes)| Setup {
            lazy,
            seed,
            devices,
            max_bytes,
            caches,
            register,
        },
    )
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        20 => prop::sample::select(vec![0, 1, 256, 4096, 4097]),
        8 => 1..70_000usize,
        6 => prop::sample::select(vec![70_000, 1 << 20, (2 << 20) + 1]),
        1 => (32 << 20) + 1..40_000_000usize,
    ]
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        6 => Just(Form::Plain),
        4 => Just(Form::Try),
        1 => Just(Form::Zeroed),
        2 => (0..=21u32).prop_map(Form::Aligned),
        2 => Just(Form::AtOnce),
        2 => Just(Form::Async),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..1000usize;
    let lane = || 0..3usize;
    prop_oneof![
        60 => (form(), size()).prop_map(|(form, len)| Op::Alloc(form, len)),
        12 => at().prop_map(Op::Write),
        20 => (at(), lane()).prop_map(|(at, lane)| Op::Upload(at, lane)),
        12 => (at(), lane()).prop_map(|(at, lane)| Op::Download(at, lane)),
        40 => at().prop_map(Op::Drop),
        10 => at().prop_map(Op::DropElsewhere),
        1 => at().prop_map(Op::Forget),
        6 => (1..20usize, size()).prop_map(|(count, len)| Op::DyingThread(count, len)),
        6 => prop::sample::select(vec![0, 5000, 1 << 20, usize::MAX]).prop_map(Op::Trim),
        2 => Just(Op::Clone),
        2 => Just(Op::DropClone),
        10 => at().prop_map(Op::Poll),
        3 => at().prop_map(Op::Cancel),
        3 => lane().prop_map(Op::Stall),
        8 => lane().prop_map(Op::Release),
    ]
}

pub fn program() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..80)
}
