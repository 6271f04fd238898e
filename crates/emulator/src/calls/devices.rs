//! Devices: what they are, peers, and waiting for all work of one.

use super::strided::MAX_PITCH;
use crate::emulator::Emulator;
use crate::machine::Machine;
use crate::operation::Position;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Attribute, Call, DriverResult, Ordinal};

impl Emulator {
    /// How many devices there are. `cudaGetDeviceCount`
    ///
    /// # Errors
    ///
    /// [`CudaCode::CUDART_UNLOADING`] if the process ends.
    pub fn devices(&self) -> DriverResult<i32> {
        self.shared.with(|machine| {
            machine.check_loaded()?;
            Ok(machine.devices.len() as i32)
        })
    }

    /// Fails unless there is such a device.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`]; as for [`devices`](Self::devices).
    pub fn check_device(&self, device: Ordinal) -> DriverResult<()> {
        self.shared.with(|machine| {
            machine.check_loaded()?;
            machine.device(device).map(drop)
        })
    }

    /// The name of a device.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device; the code that it was lost with.
    pub fn device_name(&self, device: Ordinal) -> DriverResult<String> {
        self.call(Call::Attributes, device, |_| Ok(format!("Emulated device {device}")))
    }

    /// An attribute of a device. `cudaDeviceGetAttribute`
    ///
    /// # Errors
    ///
    /// As for [`device_name`](Self::device_name).
    pub fn attribute(&self, device: Ordinal, attribute: Attribute) -> DriverResult<i32> {
        self.call(Call::Attributes, device, |machine| {
            Ok(match attribute {
                Attribute::MemoryPoolsSupported => i32::from(machine.has_memory_pools),
                Attribute::UnifiedAddressing => 1,
                Attribute::CanUseHostPointerForRegisteredMem => i32::from(machine.host_addresses),
                Attribute::HostRegisterReadOnly => i32::from(machine.registers_read_only),
                Attribute::HostNumaNode => -1,
                Attribute::AsyncEngineCount => 3,
                Attribute::MaxPitch => MAX_PITCH,
                Attribute::PciDomainId | Attribute::PciDeviceId => 0,
                Attribute::PciBusId => device + 1,
            })
        })
    }

    /// The memory of a device, in bytes: how much is free, and all. `cudaMemGetInfo`
    ///
    /// # Errors
    ///
    /// As for [`device_name`](Self::device_name).
    pub fn memory_info(&self, device: Ordinal) -> DriverResult<(usize, usize)> {
        self.call(Call::MemoryInfo, device, |machine| Ok(machine.memory.free_and_total(device)))
    }

    /// Whether a device can access the memory of another. `cudaDeviceCanAccessPeer`
    ///
    /// # Errors
    ///
    /// As for [`device_name`](Self::device_name).
    pub fn can_access_peer(&self, device: Ordinal, peer: Ordinal) -> DriverResult<bool> {
        self.call(Call::PeerQuery, device, |machine| {
            machine.device(peer)?;
            Ok(device != peer)
        })
    }

    /// A limit of a device; 0 if it means nothing here. `cudaDeviceGetLimit`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn limit(&self, device: Ordinal, limit: usize) -> DriverResult<usize> {
        self.with(|machine| Ok(machine.device(device)?.limits.get(limit).copied().unwrap_or(0)))
    }

    /// Sets a limit, for programs that read it back. `cudaDeviceSetLimit`
    ///
    /// # Errors
    ///
    /// As for [`limit`](Self::limit).
    pub fn set_limit(&self, device: Ordinal, limit: usize, value: usize) -> DriverResult<()> {
        self.with(|machine| {
            let limits = &mut machine.device(device)?.limits;
            limits.get_mut(limit).into_iter().for_each(|known| *known = value);
            Ok(())
        })
    }

    /// Lets kernels of a device access memory that `cudaMalloc` allocated on another one.
    /// `cudaDeviceEnablePeerAccess`
    ///
    /// # Errors
    ///
    /// As for [`device_name`](Self::device_name), and if both devices are the same.
    /// [`CudaCode::PEER_ACCESS_ALREADY_ENABLED`] if access is enabled already.
    pub fn enable_peer_access(&self, device: Ordinal, peer: Ordinal) -> DriverResult<()> {
        self.call(Call::PeerEnable, device, |machine| {
            machine.device(peer)?;
            if device == peer {
                return Err(CudaCode::INVALID_DEVICE);
            }
            let peers = &mut machine.device(device)?.mapped_peers;
            if peers.contains(&peer) {
                return Err(CudaCode::PEER_ACCESS_ALREADY_ENABLED);
            }
            peers.push(peer);
            Ok(())
        })
    }

    /// Ends that access, for kernels that are launched from now on. `cudaDeviceDisablePeerAccess`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    /// [`CudaCode::PEER_ACCESS_NOT_ENABLED`] if access is not enabled.
    pub fn disable_peer_access(&self, device: Ordinal, peer: Ordinal) -> DriverResult<()> {
        self.with(|machine| {
            let peers = &mut machine.device(device)?.mapped_peers;
            let at = peers.iter().position(|&other| other == peer);
            peers.swap_remove(at.ok_or(CudaCode::PEER_ACCESS_NOT_ENABLED)?);
            Ok(())
        })
    }

    /// Opens the pools of a device to kernels of another (rule 19). `cudaMemPoolSetAccess`
    ///
    /// # Errors
    ///
    /// As for [`device_name`](Self::device_name).
    pub fn pool_access(&self, owner: Ordinal, peer: Ordinal) -> DriverResult<()> {
        self.call(Call::PoolAccess, owner, |machine| {
            let peers = &mut machine.device(peer)?.peers;
            if owner != peer && !peers.contains(&owner) {
                peers.push(owner);
            }
            Ok(())
        })
    }

    /// Whether memory of pools of `owner` is open to `peer`.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn is_opened(&self, owner: Ordinal, peer: Ordinal) -> DriverResult<bool> {
        self.with(|machine| Ok(machine.device(peer)?.peers.contains(&owner)))
    }

    /// Waits for all work of a device. `cudaDeviceSynchronize`
    ///
    /// # Errors
    ///
    /// The code that the device was lost with. [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`] while one
    /// of its streams is capturing.
    pub fn device_synchronize(&self, device: Ordinal) -> DriverResult<()> {
        self.refuse_in_host_function()?;
        self.drain_device(device, true)
    }

    /// Synchronizes with the device one time in `n`, as allocating and freeing may do (rules 13 and
    /// 22). No program may rely on it.
    pub(crate) fn may_synchronize(&self, n: usize) {
        let device = self.current_device();
        let free = |machine: &mut Machine| machine.captures.is_empty() && machine.takes_liberty(n);
        if self.with(free) {
            // An error of this wait is ignored: calls that ask for a synchronize report it.
            let _ = self.drain_device(device, false);
        }
    }

    /// Waits for all work of a device. `promised` says whether CUDA promises that, or only does so
    /// this time.
    pub(crate) fn drain_device(&self, device: Ordinal, promised: bool) -> DriverResult<()> {
        self.with(|machine| {
            machine.device(device)?.lost.map_or(Ok(()), Err)?;
            let capturing = machine
                .streams
                .values()
                .any(|stream| stream.device == device && stream.capture.is_some());
            if capturing {
                machine.invalidate_all(device);
                return Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED);
            }
            Ok(())
        })?;
        self.drain_all(device, promised)
    }

    /// The same while streams are capturing, which have nothing to wait for.
    pub(crate) fn drain_all(&self, device: Ordinal, promised: bool) -> DriverResult<()> {
        let (targets, knowledge) = self.with(|machine| {
            machine.device(device)?.lost.map_or(Ok(()), Err)?;
            let of_device = |key: &&Key| {
                machine.streams.get(**key).is_some_and(|stream| stream.device == device)
            };
            let busy: Vec<Key> = machine.backlog.iter().filter(of_device).copied().collect();
            let targets: Vec<Position> = busy.into_iter().map(|key| machine.tail(key)).collect();
            Ok((targets, machine.races.device_tail(device)))
        })?;
        targets.into_iter().try_for_each(|target| self.wait(device, target, promised))?;
        if promised {
            // Also of streams that have nothing left to do, and of those that are gone.
            self.with(|machine| {
                knowledge.iter().for_each(|known| machine.host_learns(known));
                machine.settle_host();
            });
        }
        Ok(())
    }

    /// Waits; the race checker learns only what CUDA promises.
    pub(crate) fn wait(
        &self,
        device: Ordinal,
        target: Position,
        promised: bool,
    ) -> DriverResult<()> {
        let shared = &self.shared;
        let knowledge =
            shared.with(|machine| machine.knowledge(target.stream)).filter(|_| promised);
        shared.wait(device, target, knowledge)
    }
}
