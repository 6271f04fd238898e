//! Rule 18: the object of an address or a raw handle stays its owner's.

use pinlane::emulated::FindingKind;
use pinlane::pool::PageLocking;
use pinlane::{CudaCode, Device};

use crate::common;

const LEN: usize = 1 << 12;

/// A CUDA program and a pool share a machine. The program's calls get addresses and handles of
/// objects that are not its own.
#[test]
fn rule_18_a_program_ends_nothing_that_others_have() {
    let emulator = common::machine().build_for_program().expect("room for addresses");
    let device = Device::of_emulator(&emulator, 0).unwrap();
    let pool = common::pool(&device).build().unwrap();
    let allocated = common::pool(&device).page_locking(PageLocking::Allocate).build().unwrap();
    let stream = device.stream().unwrap();
    let mut host = pool.alloc::<u8>(LEN).unwrap();
    let other = allocated.alloc::<u8>(LEN).unwrap();
    let mut large = pool.alloc::<u8>(64 << 20).unwrap();
    let mut gpu = device.alloc::<u8>(LEN).unwrap();
    host.write().unwrap().fill(7);
    large.write().unwrap().fill(8);
    stream.upload(&host, &mut gpu).unwrap().wait().unwrap();

    let usage = emulator.usage();
    // Where the data begin, and where the allocation may begin that they lie in.
    let places = [&host, &large, &other].map(|buffer| buffer.as_ptr().addr()).into_iter();
    for address in places.flat_map(|at| [at, at & !4095, at & !((2 << 20) - 1)]) {
        let at = std::ptr::without_provenance_mut(address);
        for managed in [false, true] {
            assert_eq!(emulator.free_host(at, managed), Err(CudaCode::INVALID_VALUE));
        }
        assert_ne!(emulator.unregister(at), Ok(()));
        assert_eq!(emulator.free(at), Err(CudaCode::INVALID_VALUE));
        assert_eq!(
            emulator.free_async(emulator.default_stream(false), at),
            Err(CudaCode::INVALID_VALUE)
        );
    }
    let on_device = gpu.as_device_ptr() as usize;
    let at = std::ptr::without_provenance_mut(on_device);
    assert_eq!(emulator.free(at), Err(CudaCode::INVALID_VALUE));
    assert_eq!(
        emulator.free_async(emulator.default_stream(false), at),
        Err(CudaCode::INVALID_VALUE)
    );

    assert_eq!(emulator.usage(), usage, "all is there");
    let kinds: Vec<FindingKind> = emulator.findings().iter().map(|f| f.kind).collect();
    assert!(kinds.contains(&FindingKind::BadFree));
    stream.download(&gpu, large.slice_mut(..LEN).unwrap()).unwrap().wait().unwrap();
    assert_eq!((large.read().unwrap()[LEN - 1], host.read().unwrap()[LEN - 1]), (7, 7));
}

/// The program frees its own objects, once.
#[test]
fn rule_18_a_program_frees_its_own_once() {
    let emulator = common::machine().build_for_program().expect("room for addresses");
    let (host, on_device) =
        (emulator.host_alloc(LEN, 0, false).unwrap(), emulator.malloc(LEN).unwrap());
    assert_eq!((emulator.free_host(host, false), emulator.free(on_device)), (Ok(()), Ok(())));
    let again = Err(CudaCode::INVALID_VALUE);
    assert_eq!((emulator.free_host(host, false), emulator.free(on_device)), (again, again));
}
