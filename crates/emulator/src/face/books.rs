//! What the face writes down of a program, and the machine does not need to know.

use std::collections::BTreeMap;

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Ordinal};

#[derive(Debug, Default)]
pub(super) struct Books {
    /// Allocations of device memory by their start.
    pub(super) device: BTreeMap<u64, DeviceNote>,
    /// Page-locked memory by its start.
    pub(super) host: BTreeMap<usize, HostNote>,
    pub(super) pools: Pools,
}

/// An allocation of device memory, as its program made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceNote {
    pub(super) bytes: usize,
    /// The pool that it came from, unless it came from `cudaMalloc`.
    pub(super) pool: Option<PoolId>,
}

/// Page-locked memory, as its program made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostNote {
    pub(super) bytes: usize,
    pub(super) device: Ordinal,
    pub(super) flags: u32,
    pub(super) kind: HostKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostKind {
    Allocated,
    Registered,
    Managed,
    /// Of a pool of memory of the host.
    Pooled(PoolId),
}

/// Names a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub usize);

#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) device: Ordinal,
    /// The most that it gives; 0: as much as there is.
    pub(super) limit: usize,
    pub(super) threshold: u64,
    pub(super) reserved: u64,
    pub(super) reserved_high: u64,
    pub(super) used: u64,
    pub(super) used_high: u64,
    /// The three switches for the reuse of freed memory.
    pub(super) reuse: [i32; 3],
    pub(super) place: Place,
    pub(super) gone: bool,
}

/// Where the memory of a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    OnDevice,
    /// Managed, and so the host's.
    Managed,
    OnHost,
}

#[derive(Debug, Default)]
pub(super) struct Pools {
    pub(super) all: Vec<State>,
    /// The pool that `cudaMallocAsync` uses on each device.
    pub(super) current: Vec<PoolId>,
}

impl Pools {
    /// With the default pools, which have the numbers of their devices; behind them those of
    /// managed memory, and one of memory of the host.
    pub(super) fn new(devices: usize) -> Self {
        let pools = (0..devices).map(|device| State::new(device as Ordinal, 0));
        let managed = pools.clone().map(|pool| State { place: Place::Managed, ..pool });
        let on_host = State { place: Place::OnHost, ..State::new(0, 0) };
        let all = pools.chain(managed).chain([on_host]).collect();
        Pools { all, current: (0..devices).map(PoolId).collect() }
    }

    pub(super) fn find(&mut self, pool: PoolId) -> DriverResult<&mut State> {
        let found = self.all.get_mut(pool.0).filter(|state| !state.gone);
        found.ok_or(CudaCode::INVALID_VALUE)
    }

    /// The default pool of memory of the host, behind which are those that were created.
    pub(super) fn default_on_host(&self) -> PoolId {
        PoolId(2 * self.current.len())
    }

    pub(super) fn take(&mut self, pool: PoolId, bytes: usize) {
        let state = &mut self.all[pool.0];
        state.used += bytes as u64;
        state.used_high = state.used_high.max(state.used);
        state.reserved = state.reserved.max(state.used);
        state.reserved_high = state.reserved_high.max(state.reserved);
    }

    pub(super) fn give_back(&mut self, pool: PoolId, bytes: usize) {
        if let Some(state) = self.all.get_mut(pool.0) {
            state.used -= bytes as u64;
        }
    }
}

impl State {
    pub(super) fn new(device: Ordinal, limit: usize) -> Self {
        State {
            device,
            limit,
            threshold: 0,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            reuse: [1; 3],
            place: Place::OnDevice,
            gone: false,
        }
    }
}
