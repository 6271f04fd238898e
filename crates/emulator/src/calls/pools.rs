//! Pools of memory of devices and of the host.

use std::ffi::c_void;

use super::memory::OF_POOL;
use crate::emulator::Emulator;
use crate::memory::made::{HostKind, MadeOnDevice};
use crate::memory::pools::{Place, PoolId, Pools, State};
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal, RawStream};

/// A figure of a pool that can be asked for (`cudaMemPoolAttr`, from 4 on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolFigure {
    /// How much the pool keeps when it is not in use.
    ReleaseThreshold,
    /// What it has taken from the device.
    Reserved,
    /// The most that it has ever taken.
    ReservedHigh,
    /// What is allocated from it.
    Used,
    /// The most that was ever allocated from it.
    UsedHigh,
}

impl Emulator {
    /// The pool that counts the memory of a device's graphs. `cudaDeviceGetGraphMemAttribute`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn graph_pool(&self, device: Ordinal) -> DriverResult<PoolId> {
        self.device_pool(device)?;
        Ok(self.pools(|pools| pools.of_graphs(device)))
    }

    /// Gives back what the graphs of a device have and do not use. `cudaDeviceGraphMemTrim`
    ///
    /// # Errors
    ///
    /// As for [`graph_pool`](Self::graph_pool).
    pub fn graph_trim(&self, device: Ordinal) -> DriverResult<()> {
        let pool = self.graph_pool(device)?;
        self.pools(|pools| pools.find(pool).map(|state| state.reserved = state.used))
    }

    fn pools<R>(&self, work: impl FnOnce(&mut Pools) -> R) -> R {
        self.with(|machine| work(&mut machine.pools))
    }

    /// Creates a pool on a device, of at most `limit` bytes; 0 is no limit. `cudaMemPoolCreate`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn pool_create(&self, device: Ordinal, limit: usize) -> DriverResult<PoolId> {
        self.with(|machine| {
            machine.device(device)?;
            Ok(machine.pools.add(State::new(device, limit)))
        })
    }

    /// Creates a pool of page-locked memory of the host, of at most `limit` bytes; 0 is no limit.
    /// `cudaMemPoolCreate`
    #[must_use]
    pub fn pool_create_on_host(&self, limit: usize) -> PoolId {
        self.pools(|pools| pools.add(State { place: Place::OnHost, ..State::new(0, limit) }))
    }

    /// The default pool of memory of the host. `cudaMemGetDefaultMemPool`
    #[must_use]
    pub fn host_pool(&self) -> PoolId {
        self.pools(|pools| pools.default_on_host())
    }

    /// Whether the pool is one of memory of the host.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such pool.
    pub fn is_host_pool(&self, pool: PoolId) -> DriverResult<bool> {
        self.pools(|pools| pools.find(pool).map(|state| state.place == Place::OnHost))
    }

    /// Destroys a pool; what was taken from it stays. `cudaMemPoolDestroy`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] for a default pool, and if there is no such pool.
    pub fn pool_destroy(&self, pool: PoolId) -> DriverResult<()> {
        self.pools(|pools| {
            if pool.0 < pools.first_created().0 {
                return Err(CudaCode::INVALID_VALUE);
            }
            pools.find(pool)?.gone = true;
            for (device, current) in pools.current.iter_mut().enumerate() {
                if *current == pool {
                    *current = PoolId(device);
                }
            }
            Ok(())
        })
    }

    /// The pool that `cudaMallocAsync` uses on a device. `cudaDeviceGetMemPool`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn device_pool(&self, device: Ordinal) -> DriverResult<PoolId> {
        let device = usize::try_from(device).ok();
        let pool = self.pools(|pools| pools.current.get(device?).copied());
        pool.ok_or(CudaCode::INVALID_DEVICE)
    }

    /// The default pool of managed memory of a device. `cudaMemGetDefaultMemPool`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn managed_pool(&self, device: Ordinal) -> DriverResult<PoolId> {
        self.device_pool(device)?;
        Ok(PoolId(self.pools(|pools| pools.current.len()) + device as usize))
    }

    /// Makes `cudaMallocAsync` use a pool of that device. `cudaDeviceSetMemPool`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such pool, or it is another device's.
    pub fn set_device_pool(&self, device: Ordinal, pool: PoolId) -> DriverResult<()> {
        self.pools(|pools| {
            let state = pools.find(pool)?;
            if state.device != device || state.place == Place::OnHost {
                return Err(CudaCode::INVALID_VALUE);
            }
            pools.current[device as usize] = pool;
            Ok(())
        })
    }

    /// The device of a pool.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such pool.
    pub fn pool_device(&self, pool: PoolId) -> DriverResult<Ordinal> {
        self.pools(|pools| pools.find(pool).map(|state| state.device))
    }

    /// Gives back what the pool has and does not use, down to `keep` bytes. `cudaMemPoolTrimTo`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such pool. As for
    /// `refuse_unsafe`.
    pub fn pool_trim(&self, pool: PoolId, keep: usize) -> DriverResult<()> {
        self.refuse_unsafe()?;
        self.pools(|pools| {
            let state = pools.find(pool)?;
            state.reserved = state.reserved.min(state.used.max(keep as u64));
            Ok(())
        })
    }

    /// A switch for the reuse of freed memory, 0 to 2; sets it if a value is given.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such pool or switch.
    pub fn pool_switch(&self, pool: PoolId, switch: usize, set: Option<i32>) -> DriverResult<i32> {
        self.pools(|pools| {
            let switch = pools.find(pool)?.reuse.get_mut(switch).ok_or(CudaCode::INVALID_VALUE)?;
            *switch = set.unwrap_or(*switch);
            Ok(*switch)
        })
    }

    /// A figure of a pool; sets it if a value is given. High marks can only be set to 0.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such pool, or the figure cannot be set so.
    pub fn pool_figure(
        &self,
        pool: PoolId,
        figure: PoolFigure,
        set: Option<u64>,
    ) -> DriverResult<u64> {
        self.pools(|pools| {
            let state = pools.find(pool)?;
            match (figure, set) {
                (PoolFigure::ReleaseThreshold, Some(bytes)) => state.threshold = bytes,
                (PoolFigure::ReservedHigh, Some(0)) => state.reserved_high = state.reserved,
                (PoolFigure::UsedHigh, Some(0)) => state.used_high = state.used,
                (_, None) => {}
                _ => return Err(CudaCode::INVALID_VALUE),
            }
            Ok(match figure {
                PoolFigure::ReleaseThreshold => state.threshold,
                PoolFigure::Reserved => state.reserved,
                PoolFigure::ReservedHigh => state.reserved_high,
                PoolFigure::Used => state.used,
                PoolFigure::UsedHigh => state.used_high,
            })
        })
    }

    /// Allocates memory in stream order. `cudaMallocFromPoolAsync`
    ///
    /// On a capturing stream the memory is the graph's, not the pool's.
    ///
    /// # Errors
    ///
    /// [`CudaCode::MEMORY_ALLOCATION`] if the pool or its device has not enough memory.
    /// [`CudaCode::NOT_SUPPORTED`] on a capturing stream, unless the pool has memory of a device.
    pub fn malloc_async(
        &self,
        stream: RawStream,
        pool: PoolId,
        bytes: usize,
    ) -> DriverResult<*mut c_void> {
        if !self.with(|machine| machine.has_memory_pools) {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        let State { device, limit, used, place, .. } =
            self.pools(|pools| pools.find(pool).copied())?;
        let is_captured = self.is_capturing(stream);
        if is_captured && place != Place::OnDevice {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        if limit != 0 && used + bytes as u64 > limit as u64 {
            return Err(CudaCode::MEMORY_ALLOCATION);
        }
        match place {
            Place::Managed => return self.host_alloc(bytes, OF_POOL, true),
            Place::OnHost => {
                let ptr = self.alloc_host(bytes, 0, HostKind::Pooled(pool))?;
                self.pools(|pools| pools.take(pool, bytes));
                return Ok(ptr);
            }
            Place::OnDevice => {}
        }
        if !is_captured {
            self.refuse_unsafe()?;
        }
        let address = self.on_stream(Call::DeviceAlloc, stream, |machine, key| {
            if bytes == 0 {
                return Ok(0);
            }
            if is_captured {
                return machine.capture_alloc(key, device, bytes);
            }
            let ptr = machine.device_alloc(key, device, bytes)?;
            machine.memory.note(ptr, MadeOnDevice { pool: Some(pool) });
            machine.pools.take(pool, bytes);
            Ok(ptr)
        })?;
        Ok(std::ptr::without_provenance_mut(address as usize))
    }
}
