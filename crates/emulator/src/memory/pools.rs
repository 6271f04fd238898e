//! Pools, from which a program allocates memory. All memory of the machine comes from one place; a
//! pool counts what was taken in its name.

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Ordinal};

/// Names a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub usize);

#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) device: Ordinal,
    /// The most that it gives; 0: as much as there is.
    pub(crate) limit: usize,
    pub(crate) threshold: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// The three switches for the reuse of freed memory.
    pub(crate) reuse: [i32; 3],
    pub(crate) place: Place,
    pub(crate) gone: bool,
}

/// Where the memory of a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    OnDevice,
    /// Managed, and so the host's.
    Managed,
    OnHost,
}

#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) all: Vec<State>,
    /// The pool that `cudaMallocAsync` uses on each device.
    pub(crate) current: Vec<PoolId>,
}

impl Pools {
    /// With the default pools, which have the numbers of their devices; then those of managed
    /// memory, one of memory of the host, and those that count the memory of graphs.
    pub(crate) fn new(devices: usize) -> Self {
        let pools = (0..devices).map(|device| State::new(device as Ordinal, 0));
        let managed = pools.clone().map(|pool| State { place: Place::Managed, ..pool });
        let on_host = State { place: Place::OnHost, ..State::new(0, 0) };
        let all = pools.clone().chain(managed).chain([on_host]).chain(pools).collect();
        Pools { all, current: (0..devices).map(PoolId).collect() }
    }

    pub(crate) fn add(&mut self, state: State) -> PoolId {
        self.all.push(state);
        PoolId(self.all.len() - 1)
    }

    pub(crate) fn find(&mut self, pool: PoolId) -> DriverResult<&mut State> {
        let found = self.all.get_mut(pool.0).filter(|state| !state.gone);
        found.ok_or(CudaCode::INVALID_VALUE)
    }

    /// The default pool of memory of the host.
    pub(crate) fn default_on_host(&self) -> PoolId {
        PoolId(2 * self.current.len())
    }

    /// What counts the memory of a device's graphs.
    pub(crate) fn of_graphs(&self, device: Ordinal) -> PoolId {
        PoolId(self.default_on_host().0 + 1 + device as usize)
    }

    /// The first number of a pool that a program creates.
    pub(crate) fn first_created(&self) -> PoolId {
        PoolId(3 * self.current.len() + 1)
    }

    pub(crate) fn take(&mut self, pool: PoolId, bytes: usize) {
        let state = &mut self.all[pool.0];
        state.used += bytes as u64;
        state.used_high = state.used_high.max(state.used);
        state.reserved = state.reserved.max(state.used);
        state.reserved_high = state.reserved_high.max(state.reserved);
    }

    pub(crate) fn give_back(&mut self, pool: PoolId, bytes: usize) {
        if let Some(state) = self.all.get_mut(pool.0) {
            state.used -= bytes as u64;
        }
    }
}

impl State {
    pub(crate) fn new(device: Ordinal, limit: usize) -> Self {
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
