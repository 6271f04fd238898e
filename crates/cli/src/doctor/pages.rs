//! Whether memory can be page-locked, in which way, and at least how much. Some systems refuse
//! large registrations, or all of them. Others allow less than the machine has: the Windows
//! Subsystem for Linux, and containers.

use pinlane::pool::GrowthFallbacks;
use pinlane::{Device, Error, PinnedPool};

use super::finding::Finding;
use crate::error::cause;
use crate::output::in_units;

/// Page-locks more and more memory, up to `most` bytes, a power of two.
pub fn finding(name: String, device: &Device, most: usize) -> Finding {
    let mut before = None;
    for bytes in [most / 16, most / 4, most] {
        match page_lock(device, bytes) {
            Ok(fallbacks) => before = Some((bytes, fallbacks)),
            Err(error) => {
                let why = format!("{} cannot be: {}", in_units(bytes as u64), cause(&error));
                return match before {
                    Some((bytes, _)) => Finding::notice(
                        name,
                        format!("{} can be page-locked; {why}", in_units(bytes as u64)),
                        "give pools a max_bytes that fits, or raise the system's limit (on WSL: \
                         the memory of the virtual machine)",
                    ),
                    None => Finding::wrong(name, why, error.remedy()),
                };
            }
        }
    }
    let (_, fallbacks) = before.expect("at least one size was tried");
    way(name, in_units(most as u64), fallbacks)
}

/// The memory is given back at the end.
fn page_lock(device: &Device, bytes: usize) -> Result<GrowthFallbacks, Error> {
    let pool = PinnedPool::builder(device).max_bytes(bytes).build()?;
    pool.alloc::<u8>(bytes)?;
    Ok(pool.stats().fallbacks)
}

fn way(name: String, size: String, fallbacks: GrowthFallbacks) -> Finding {
    if fallbacks.not_registered > 0 {
        return Finding::notice(
            name,
            format!("{size}, by cudaHostAlloc: the driver refuses to register memory"),
            "nothing for pools, which grow more slowly; Device::register fails here, so copy from \
             buffers of a pool, or from pageable memory",
        );
    }
    if fallbacks.in_parts > 0 {
        return Finding::notice(
            name,
            format!("{size}, in parts: the driver refuses to register it in one call"),
            "nothing; copies are split where two parts meet",
        );
    }
    Finding::good(name, format!("{size} at once, by registration"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;
    use pinlane::CudaCode;
    use pinlane::driver::Call;
    use pinlane::emulated::{Builder, Emulator, Fault};

    const MIB: usize = 1 << 20;

    fn on(machine: Builder, limit: usize) -> Finding {
        let emulator = machine.build();
        emulator.limit_page_locked(limit);
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let found = finding("pages".into(), &device, 64 * MIB);
        assert_eq!(emulator.findings(), []);
        found
    }

    #[test]
    fn each_way_of_page_locking_is_named() {
        let all = on(Emulator::builder(), usize::MAX);
        assert_eq!(all, Finding::good("pages", "64 MiB at once, by registration"));
        let refused = Fault::forever(Call::HostRegister, CudaCode::NOT_SUPPORTED);
        let refused = on(Emulator::builder().fault(refused), usize::MAX);
        assert_eq!(refused.state, State::Notice);
        assert!(refused.found.starts_with("64 MiB, by cudaHostAlloc"), "{refused:?}");
        let parts = Emulator::builder().page_lock_limit(16 * MIB, CudaCode::MEMORY_ALLOCATION);
        let parts = on(parts, usize::MAX);
        assert_eq!(parts.state, State::Notice);
        assert!(parts.found.starts_with("64 MiB, in parts"), "{parts:?}");
    }

    #[test]
    fn a_system_that_allows_little_is_noticed() {
        let some = on(Emulator::builder(), 20 * MIB);
        assert_eq!(some.state, State::Notice);
        assert!(some.found.starts_with("16 MiB can be page-locked; 64 MiB cannot"), "{some:?}");
        let none = on(Emulator::builder(), MIB);
        assert_eq!(none.state, State::Wrong);
        assert!(none.found.starts_with("4 MiB cannot be: "), "{none:?}");
    }
}
