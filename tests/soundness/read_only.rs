//! Rule 24: memory that is registered for reading only is a source, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinlane::batch::Upload;
use pinlane::driver::{Call, HostFlags, StreamFlags};
use pinlane::emulated::{Builder, Execution, Fault, FindingKind};
use pinlane::memory::{ReadOnlyMemory, RegisteredReadOnly};
use pinlane::{CudaCode, Device, ErrorKind, Refused};

use crate::common::mapping::Mapping;
use crate::common::{self, Target};
use crate::support::{LEN, Rig, watched};

fn machine() -> Builder {
    common::registering_machine().devices(2)
}

fn device() -> Device {
    match common::target() {
        Target::Emulated => Device::of_emulator(&machine().build(), 0).unwrap(),
        Target::Cuda => common::device(),
    }
}

fn on_lazy_machines(test: impl Fn(Rig) + Send + 'static) {
    watched(move || {
        let lazy = |seed| machine().execution(Execution::Lazy).seed(seed).build();
        (0..12).for_each(|seed| test(Rig::on(lazy(seed), 4)));
    });
}

static TABLE: [u32; LEN] = [3; LEN];

/// Uploads memory in every way, and gives the owner back.
fn goes_up<O: ReadOnlyMemory>(device: &Device, owner: O) -> O
where
    O::Element: PartialEq + std::fmt::Debug,
{
    let stream = device.stream().unwrap();
    let registered = device.register_read_only(owner).unwrap();
    let len = registered.len();
    let [mut whole, mut parts] = [(); 2].map(|()| device.alloc::<O::Element>(len).unwrap());
    stream.upload(&registered, &mut whole).unwrap();
    let (front, back) = parts.as_slice_mut().split_at_mut(len / 3).unwrap();
    let cut = |range: std::ops::Range<usize>| registered.slice(range).unwrap();
    let items = [Upload::new(cut(0..len / 3), front), Upload::new(cut(len / 3..len), back)];
    stream.upload_batch(items).unwrap();
    for gpu in [&whole, &parts] {
        let mut host = vec![bytemuck::Zeroable::zeroed(); len];
        stream.download_slice(gpu, &mut host).unwrap();
        assert!(host == *registered, "some bytes are wrong");
    }
    registered.into_inner().unwrap()
}

#[test]
fn rule_24_every_owner_goes_up_and_comes_back() {
    let device = device();
    let numbers: Vec<u32> = (0..LEN as u32).map(|index| index.wrapping_mul(0x9E37_79B9)).collect();
    assert_eq!(goes_up(&device, numbers.clone()), numbers);
    assert_eq!(*goes_up(&device, numbers.clone().into_boxed_slice()), numbers);
    let shared: Arc<[u32]> = numbers.clone().into();
    assert!(Arc::ptr_eq(&goes_up(&device, shared.clone()), &shared));
    assert_eq!(goes_up(&device, &TABLE[..]), TABLE);
    let bytes: Vec<u8> = (0..20_001u32).map(|index| (index % 251) as u8).collect();
    let mapping = goes_up(&device, Mapping::to_read(&bytes));
    assert_eq!(mapping.into_inner().as_ref(), bytes);
}

/// Uploads only read, and so the host reads meanwhile. The owner waits for them.
#[test]
fn rule_24_the_host_reads_in_the_middle_of_an_upload() {
    on_lazy_machines(|rig| {
        let shared: Arc<[u32]> = vec![7; LEN].into();
        let registered = rig.device.register_read_only(shared.clone()).unwrap();
        let mut gpu = rig.gpu();
        rig.stall(&rig.stream);
        rig.stream.upload(&registered, &mut gpu).unwrap();
        assert_eq!((registered[5], registered.as_slice().read().unwrap()), (7, &shared[..]));
        rig.release(&rig.stream);
        let owner = registered.into_inner().unwrap();
        assert_eq!(rig.emulator.usage().host_blocks, 0, "no upload uses it any more");
        drop((owner, shared));
        assert_eq!(rig.contents(&gpu), [7; LEN]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

/// An owner that counts how often it has been dropped.
struct Counted(Box<[u32]>, Arc<AtomicUsize>);

// SAFETY: the elements are those of a box, which nothing else uses.
unsafe impl ReadOnlyMemory for Counted {
    type Element = u32;

    fn elements(&self) -> &[u32] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fill(0);
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn rule_24_a_drop_waits_for_uploads_and_forgetting_leaks_the_owner() {
    on_lazy_machines(|rig| {
        let drops = Arc::new(AtomicUsize::new(0));
        let owner = || Counted(vec![9; LEN].into(), drops.clone());
        let (mut gpu, mut other) = (rig.gpu(), rig.gpu());
        let registered = rig.device.register_read_only(owner()).unwrap();
        rig.stream.upload(&registered, &mut gpu).unwrap();
        drop(registered);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        let registered = rig.device.register_read_only(owner()).unwrap();
        rig.stream.upload(&registered, &mut other).unwrap();
        std::mem::forget(registered);
        assert_eq!((rig.contents(&gpu), rig.contents(&other)), (vec![9; LEN], vec![9; LEN]));
        assert_eq!((drops.load(Ordering::SeqCst), rig.emulator.usage().host_blocks), (1, 1));
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_24_what_is_mapped_for_reading_only_needs_the_flag() {
    let (driver, device) = common::driver();
    let mapping = Mapping::new(&[5; 8192]);
    let start = std::ptr::NonNull::from(mapping.as_ref()).cast();
    let flags = HostFlags::default();
    // SAFETY: the call fails: the range is not writable.
    let plain = unsafe { driver.host_register(device, start, 8192, flags) };
    assert_eq!(plain, Err(CudaCode::INVALID_VALUE));
    // SAFETY: mapped for longer than it is registered; nothing writes to it.
    unsafe {
        let flags = HostFlags { read_only: true, ..flags };
        driver.host_register(device, start, 8192, flags).unwrap();
        driver.host_unregister(start).unwrap();
    }
}

#[test]
fn rule_24_a_device_without_the_flag_takes_what_is_writable() {
    let machine = machine().read_only_registration(false).build();
    let device = Device::of_emulator(&machine, 0).unwrap();
    goes_up(&device, vec![1u32; LEN]);
    let Refused { value, error } =
        device.register_read_only(Mapping::to_read(&[4; 100])).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("upload it as a plain slice"), "{error}");
    assert_eq!(value.into_inner().as_ref(), [4; 100]);
    let (stream, mut gpu) = (device.stream().unwrap(), device.alloc::<u8>(100).unwrap());
    stream.upload_slice(&[4; 100][..], &mut gpu).unwrap();
    drop((stream, gpu, device));
    assert_eq!(machine.findings(), []);
}

/// The owner comes back from every refusal, and nothing stays page-locked.
#[test]
fn rule_24_a_refusal_gives_the_owner_back() {
    let rig = Rig::on(machine().build(), 4);
    let shared: Arc<[u32]> = vec![1; LEN].into();
    let first = rig.device.register_read_only(shared.clone()).unwrap();
    let Refused { value, error } =
        rig.device.register_read_only(shared.clone()).map(drop).unwrap_err();
    assert_eq!(error.cuda_code(), Some(CudaCode::HOST_MEMORY_ALREADY_REGISTERED));
    assert!(Arc::ptr_eq(&value, &shared));
    drop((first, value));
    for code in [CudaCode::INVALID_VALUE, CudaCode::MEMORY_ALLOCATION, CudaCode::UNKNOWN] {
        rig.emulator.inject(Fault::once(Call::HostRegister, code));
        let refused = rig.device.register_read_only(shared.clone()).map(drop).unwrap_err();
        assert_eq!(refused.error.cuda_code(), Some(code));
    }
    rig.emulator.inject(Fault::once(Call::HostUnregister, CudaCode::UNKNOWN));
    let registered = rig.device.register_read_only(shared.clone()).unwrap();
    let Refused { value: registered, error } = registered.into_inner().map(drop).unwrap_err();
    assert_eq!(error.cuda_code(), Some(CudaCode::UNKNOWN));
    assert_eq!(*registered, [1; LEN]);
    registered.into_inner().unwrap();
    assert_eq!(Arc::strong_count(&shared), 1);
    rig.assert_nothing_is_left();
}

/// The emulated device names a write to such memory, whoever asks for it.
#[test]
fn rule_24_a_device_that_writes_is_found() {
    let machine = machine().build();
    let (driver, memory) = (machine.driver(), vec![1u8; 4096]);
    let start = std::ptr::NonNull::from(&memory[..]).cast::<u8>();
    let flags = HostFlags { read_only: true, ..HostFlags::default() };
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    // SAFETY: all memory lives until the stream is synchronized; the download fails.
    unsafe {
        driver.host_register(0, start, 4096, flags).unwrap();
        let gpu = driver.device_alloc(stream, 4096).unwrap();
        driver.copy_h2d(stream, gpu, start.as_ptr(), 4096).unwrap();
        let download = driver.copy_d2h(stream, start.as_ptr(), gpu, 64);
        assert_eq!(download, Err(CudaCode::INVALID_VALUE));
        driver.stream_synchronize(stream).unwrap();
    }
    let findings = machine.findings();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].kind, FindingKind::BadCopy);
    assert!(findings[0].message.contains("registered for reading only"), "{}", findings[0]);
    assert_eq!(memory, [1; 4096]);
}

fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn rule_17_and_24_memory_to_read_may_be_shared_by_threads() {
    is_send_and_sync::<RegisteredReadOnly<Arc<[u32]>>>();
    is_send_and_sync::<RegisteredReadOnly<Vec<u8>>>();
}
