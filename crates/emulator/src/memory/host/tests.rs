use super::*;

const REGISTERED: DriverResult<()> = Err(CudaCode::HOST_MEMORY_ALREADY_REGISTERED);

#[test]
fn a_block_is_aligned_and_initialised() {
    let mut memory = HostMemory::new(3);
    let ptr = memory.allocate(0, 4099).unwrap();
    assert_eq!(ptr.as_ptr().addr() % PAGE, 0);
    // SAFETY: the block is page-locked and this test's own.
    let bytes = unsafe { memory.bytes(HostPtr(ptr.as_ptr()), 4099) };
    assert!(bytes.iter().all(|&byte| byte != 0));
    assert_eq!(memory.usage(), (4099, 1));
    // SAFETY: `bytes` is not used any more.
    assert_eq!(unsafe { memory.free(ptr) }, Ok(Removal::Clean));
    assert_eq!(memory.usage(), (0, 0));
    assert_eq!(memory.allocate(0, 0), None);
}

#[test]
fn a_block_in_flight_is_quarantined() {
    let mut memory = HostMemory::new(3);
    let ptr = memory.allocate(0, 100).unwrap();
    let host = HostPtr(ptr.as_ptr());
    let read = HostUse::new(host, 10, Access::Read);
    memory.begin_use(&read, 1);
    // SAFETY: no reference into the block exists.
    assert_eq!(unsafe { memory.free(ptr) }, Ok(Removal::InFlight(1)));
    assert!(!memory.is_page_locked(host, 1));
    assert!(memory.end_use(&read, 1), "the memory is still there");
    assert_eq!((memory.usage(), memory.quarantined()), ((0, 0), 1));
    // SAFETY: no reference into the block exists.
    assert_eq!(unsafe { memory.free(ptr) }, Err(Refusal::Mismatch));
}

#[test]
fn registered_ranges_never_overlap_and_leave_by_their_start() {
    let mut memory = HostMemory::new(3);
    let mut owned = vec![0u8; 64];
    let at = |offset: usize, owned: &mut [u8]| NonNull::new(&raw mut owned[offset]).unwrap();
    let (start, middle, end) = (at(8, &mut owned), at(12, &mut owned), at(16, &mut owned));
    assert_eq!(memory.register(0, start, 8, Purpose::Any), Ok(()));
    assert_eq!(memory.register(0, start, 8, Purpose::Any), REGISTERED);
    assert_eq!(memory.register(0, middle, 8, Purpose::Any), REGISTERED);
    assert_eq!(memory.register(0, at(0, &mut owned), 64, Purpose::Any), REGISTERED);
    assert_eq!(memory.register(0, end, 8, Purpose::Any), Ok(()), "disjoint ranges on one page");
    assert_eq!(memory.usage(), (16, 2));
    assert!(!memory.is_page_locked(HostPtr(start.as_ptr()), 16), "in one range each");
    assert_eq!(memory.unregister(middle), Err(Refusal::Mismatch));
    assert_eq!(memory.unregister(at(0, &mut owned)), Err(Refusal::Unknown));
    assert_eq!(memory.unregister(start), Ok(Removal::Clean));
    assert_eq!(memory.unregister(start), Err(Refusal::Unknown));
    assert_eq!(memory.usage(), (8, 1));
}

#[test]
fn pending_uses_are_known_by_range_and_way() {
    let mut memory = HostMemory::new(3);
    let ptr = memory.allocate(0, 100).unwrap();
    let at = |offset: usize| HostPtr(ptr.as_ptr().wrapping_add(offset));
    let read = HostUse::new(at(10), 10, Access::Read);
    memory.begin_use(&read, 1);
    assert!(memory.is_pending(at(19), 5, Access::Read));
    assert!(!memory.is_pending(at(20), 5, Access::Read));
    assert!(!memory.is_pending(at(19), 5, Access::Write));
    assert!(memory.end_use(&read, 1));
    assert!(!memory.is_pending(at(0), 100, Access::Read));
    // SAFETY: no reference into the block exists.
    assert_eq!(unsafe { memory.free(ptr) }, Ok(Removal::Clean));
}
