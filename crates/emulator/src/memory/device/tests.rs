use super::*;

fn memory() -> DeviceMemory {
    DeviceMemory::new(2, 1 << 20, 1)
}

fn allocate(memory: &mut DeviceMemory, device: Ordinal, bytes: usize) -> DevicePtr {
    let address = memory.reserve(device, bytes).unwrap();
    memory.commit(address);
    address
}

#[test]
fn addresses_are_not_canonical_and_say_their_device() {
    let mut memory = memory();
    for device in [0, 1] {
        let address = allocate(&mut memory, device, 1);
        assert_eq!(address % ALIGNMENT, 0);
        assert_eq!(memory.device_of(address), Some(device));
        // Canonical: the bits from 47 (four levels of page tables) or 56 (five) up are equal.
        assert!(![0, u64::MAX >> 56].contains(&(address >> 56)));
    }
    assert_eq!(memory.device_of(TAG | 2 << DEVICE_SHIFT), None);
    assert_eq!(memory.device_of(0x7fff_0000_1000), None);
}

#[test]
fn every_access_outside_an_allocation_is_refused() {
    let mut memory = memory();
    let address = memory.reserve(0, 100).unwrap();
    assert!(memory.read(address, 1).is_err(), "before the allocation is reached");
    memory.commit(address);
    assert!(memory.read(address, 100).is_ok());
    assert!(memory.read(address + 99, 1).is_ok());
    assert!(memory.read(address + 99, 2).is_err());
    assert!(memory.read(address + 100, 1).is_err());
    assert!(memory.read(address, usize::MAX).is_err());
    assert!(memory.write(address - 1, 1).is_err());
    memory.retire(address).unwrap();
    assert!(memory.read(address, 1).is_ok(), "freed, but not yet in stream order");
    memory.release(address);
    assert!(memory.read(address, 1).is_err());
    assert!(memory.retire(address).is_err());
}

#[test]
fn capacity_counts_from_call_to_call() {
    let mut memory = memory();
    let all = memory.reserve(0, 1 << 20).unwrap();
    assert_eq!(memory.reserve(0, 1), Err(CudaCode::MEMORY_ALLOCATION));
    assert!(memory.reserve(1, 1).is_ok());
    memory.retire(all).unwrap();
    assert!(memory.retire(all).is_err(), "freed twice");
    assert_eq!(memory.free_and_total(0), (1 << 20, 1 << 20));
    assert_eq!(memory.reserve(0, usize::MAX), Err(CudaCode::MEMORY_ALLOCATION));
}

#[test]
fn addresses_come_back_only_when_there_are_no_others() {
    let mut memory = DeviceMemory { shift: 14, ..memory() };
    let [a, b, c] = [1000, 2000, 3000].map(|bytes| allocate(&mut memory, 1, bytes));
    let release = |memory: &mut DeviceMemory, address| {
        memory.retire(address).unwrap();
        memory.release(address);
    };
    release(&mut memory, a);
    let fourth = allocate(&mut memory, 1, 4000);
    assert!(a < b && b < c && c < fourth, "the first addresses rest as long as they can");
    release(&mut memory, b);
    assert_eq!(memory.reserve(1, 5000), Err(CudaCode::MEMORY_ALLOCATION));
    let all = allocate(&mut memory, 1, 3000);
    assert_eq!(all, a, "of the first and the second");
    assert!(memory.write(a, 3000).is_ok() && memory.write(c, 3000).is_ok());
    assert_eq!(memory.device_of(all), Some(1));
    release(&mut memory, fourth);
    assert_eq!(allocate(&mut memory, 1, 4000), fourth, "the last one");
}

#[test]
fn copies_cross_devices_and_move_within_an_allocation() {
    let mut memory = memory();
    let (a, b) = (allocate(&mut memory, 0, 8), allocate(&mut memory, 1, 8));
    memory.write(a, 8).unwrap().copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    memory.copy(b + 1, a, 7).unwrap();
    assert_eq!(memory.read(b + 1, 7).unwrap(), [1, 2, 3, 4, 5, 6, 7]);
    memory.copy(a + 2, a, 4).unwrap();
    assert_eq!(memory.read(a, 8).unwrap(), [1, 2, 1, 2, 3, 4, 7, 8]);
}
