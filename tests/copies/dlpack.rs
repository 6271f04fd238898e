//! Tensors of DLPack: what becomes of the memory when its uses are unknown. The conversion between
//! buffers and tensors is tested from C and Python (`tests/ffi`).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinlane::dlpack::{
    self, DataType, Imported, ImportedReadOnly, Layout, ManagedTensor, Place, Tensor,
};
use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{CudaCode, ErrorKind, PinnedBuf};

use crate::common::support::{BLOCK, Rig, eventually, on_lazy_machines, raw, watched};

const BYTES: Layout<'static> = Layout {
    dtype: DataType::U8,
    shape: &[BLOCK as i64],
    strides: None,
    offset_bytes: 0,
    read_only: false,
    page_locked: false,
};

fn deleted(tensor: NonNull<ManagedTensor>) {
    // SAFETY: each test deletes a tensor that it owns, once.
    unsafe { dlpack::delete(tensor) };
}

/// As [`on_lazy_machines`], for tests in which memory is kept forever, together with the machine
/// that it belongs to. `scripts/lsan.supp` names this function.
fn on_machines_that_leak(test: impl Fn(Rig) + Send + 'static) {
    watched(move || (0..12).for_each(|seed| test(Rig::new(Execution::Lazy, seed, 1))));
}

fn buffer(rig: &Rig) -> PinnedBuf<u8> {
    rig.pool.alloc(BLOCK).unwrap()
}

#[test]
fn a_tensor_that_is_refused_gives_its_buffer_back() {
    on_lazy_machines(1, |rig| {
        let long = Layout { shape: &[BLOCK as i64 + 1], ..BYTES };
        let refused = buffer(&rig).into_dlpack(&long, None).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::OutOfRange);
        assert_eq!(refused.value.len(), BLOCK);
        drop(refused);
        let gpu = rig.device.alloc::<u32>(BLOCK / 4).unwrap();
        let refused = gpu.into_dlpack(&long, &rig.stream).unwrap_err();
        assert_eq!((refused.error.kind(), refused.value.len()), (ErrorKind::OutOfRange, BLOCK / 4));
        drop(refused);
        rig.assert_nothing_is_left();
    });
}

/// Consumers access host memory at once, so an export waits for the device's writes.
#[test]
fn a_tensor_on_the_host_has_what_was_on_its_way() {
    on_lazy_machines(1, |rig| {
        let mut gpu = rig.device.alloc::<u8>(BLOCK).unwrap();
        rig.stream.fill(&mut gpu, 7).unwrap();
        let mut host = buffer(&rig);
        rig.stream.download(&gpu, &mut host).unwrap();
        let tensor = host.into_dlpack(&BYTES, None).unwrap();
        // SAFETY: live, and this is its only consumer.
        let data = unsafe { tensor.as_ref() }.tensor.data.cast::<u8>().cast_const();
        rig.emulator.host_reads(data, BLOCK);
        // SAFETY: the bytes of the tensor, which nothing writes.
        assert!(unsafe { std::slice::from_raw_parts(data, BLOCK) }.iter().all(|&byte| byte == 7));
        deleted(tensor);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

/// A graph may use the memory at every replay.
#[test]
fn memory_that_is_deleted_while_its_consumer_captures_is_kept() {
    on_machines_that_leak(|rig| {
        let consumer = rig.device.stream().unwrap();
        let tensor = buffer(&rig).into_dlpack(&BYTES, Some(&consumer)).unwrap();
        rig.emulator.begin_capture(raw(&consumer)).unwrap();
        deleted(tensor);
        assert_eq!(rig.emulator.end_capture(raw(&consumer)), Ok(0), "alive, nothing recorded");
        assert_eq!(rig.pool.stats().live_bytes, BLOCK);
        assert_eq!(rig.pool.alloc::<u8>(1).unwrap_err().kind(), ErrorKind::BudgetExhausted);
        rig.assert_no_misuse();
    });
}

/// The use cannot be recorded, so the deletion waits for the stream. If that fails too, the memory
/// is kept.
#[test]
fn memory_whose_last_use_cannot_be_known_is_never_reused() {
    for can_wait in [true, false] {
        on_machines_that_leak(move |rig| {
            let consumer = rig.device.stream().unwrap();
            let tensor = buffer(&rig).into_dlpack(&BYTES, Some(&consumer)).unwrap();
            let busy = consumer.busy(std::time::Duration::from_micros(1)).unwrap();
            for call in [Call::EventCreate, Call::EventRecord] {
                rig.emulator.inject(Fault::forever(call, CudaCode::MEMORY_ALLOCATION));
            }
            if !can_wait {
                rig.emulator.inject(Fault::forever(Call::StreamSynchronize, CudaCode::UNKNOWN));
            }
            deleted(tensor);
            rig.emulator.clear_faults();
            let kept = if can_wait { 0 } else { BLOCK };
            assert_eq!((rig.pool.stats().live_bytes, rig.device.quarantined_bytes()), (kept, kept));
            assert_eq!(busy.is_done().unwrap(), can_wait);
        });
    }
}

#[test]
fn a_tensor_may_be_deleted_in_a_host_function() {
    on_lazy_machines(1, |rig| {
        let consumer = rig.device.stream().unwrap();
        let tensor = buffer(&rig).into_dlpack(&BYTES, Some(&consumer)).unwrap();
        let address = tensor.as_ptr().expose_provenance();
        let delete = move || {
            deleted(NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap());
        };
        rig.stream.launch_host(delete).unwrap().wait().unwrap();
        eventually("the memory is the pool's again", || rig.pool.stats().live_bytes == 0);
        rig.assert_no_misuse();
    });
}

/// How often the deleter of a producer was called.
struct Producer {
    tensor: ManagedTensor,
    shape: [i64; 1],
    deletions: Arc<AtomicUsize>,
}

impl Producer {
    fn make(memory: *mut c_void, place: Place) -> (NonNull<ManagedTensor>, Arc<AtomicUsize>) {
        unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
            // SAFETY: the context is the box of `make`, and this is its only deletion.
            let producer = unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Producer>()) };
            producer.deletions.fetch_add(1, Ordering::Relaxed);
        }
        let deletions = Arc::<AtomicUsize>::default();
        let producer = Box::into_raw(Box::new(Producer {
            tensor: ManagedTensor {
                version: dlpack::VERSION,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete),
                flags: 0,
                tensor: Tensor {
                    data: memory,
                    device: place,
                    ndim: 1,
                    dtype: DataType::U8,
                    shape: std::ptr::null_mut(),
                    strides: std::ptr::null_mut(),
                    byte_offset: 0,
                },
            },
            shape: [BLOCK as i64],
            deletions: deletions.clone(),
        }));
        // SAFETY: just allocated.
        let this = unsafe { &mut *producer };
        this.tensor.manager_ctx = producer.cast();
        this.tensor.tensor.shape = this.shape.as_mut_ptr();
        // SAFETY: as above.
        (NonNull::new(unsafe { &raw mut (*producer).tensor }).unwrap(), deletions)
    }
}

#[test]
fn an_imported_tensor_is_deleted_when_its_last_use_is_complete() {
    on_lazy_machines(1, |rig| {
        let mut memory = vec![1u8; BLOCK];
        let place = Place { device_type: Place::CPU, device_id: 0 };
        let (tensor, deletions) = Producer::make(memory.as_mut_ptr().cast(), place);
        // SAFETY: a live tensor, of memory that is not touched before the deletion.
        let imported = unsafe { Imported::new(tensor) }.unwrap();
        let registered = rig.device.register(imported).unwrap();
        let mut gpu = rig.device.alloc::<u8>(BLOCK).unwrap();
        let upload = rig.stream.upload(&*registered, &mut gpu).unwrap();
        assert!(!upload.is_done().unwrap() && deletions.load(Ordering::Relaxed) == 0);
        drop(registered);
        assert!(upload.is_done().unwrap() && deletions.load(Ordering::Relaxed) == 1);
        assert_eq!(memory, [1; BLOCK]);
        rig.assert_no_misuse();
    });
}

/// Its memory is a constant, which nothing could write to.
#[test]
fn a_read_only_tensor_is_a_source_of_uploads() {
    static TABLE: [u8; BLOCK] = [6; BLOCK];
    on_lazy_machines(1, |rig| {
        for (kind, blocks) in [(Place::CPU, 1), (Place::CUDA_HOST, 0)] {
            let place = Place { device_type: kind, device_id: 0 };
            let data = TABLE.as_ptr().cast_mut().cast();
            let (mut tensor, deletions) = Producer::make(data, place);
            // SAFETY: a live tensor, which only this test has.
            unsafe { tensor.as_mut() }.flags = ManagedTensor::READ_ONLY;
            // SAFETY: as above; it is refused.
            let refused = unsafe { Imported::new(tensor) }.err().unwrap();
            assert!(refused.to_string().contains("the tensor is read-only"), "{refused}");
            // SAFETY: as above; its memory does not change.
            let imported = unsafe { ImportedReadOnly::new(tensor) }.unwrap();
            let before = rig.emulator.usage().host_blocks;
            let registered = rig.device.register_read_only(imported).unwrap();
            assert_eq!(rig.emulator.usage().host_blocks, before + blocks);
            if kind == Place::CPU {
                let mut gpu = rig.device.alloc::<u8>(BLOCK).unwrap();
                rig.stream.upload(&registered, &mut gpu).unwrap();
                drop(registered);
                let mut found = vec![0; BLOCK];
                rig.stream.download_slice(&gpu, &mut found).unwrap();
                assert_eq!(found, TABLE);
            } else {
                let _ = registered.into_inner().unwrap().into_raw();
                assert_eq!(deletions.load(Ordering::Relaxed), 0);
                deleted(tensor);
            }
            assert_eq!(deletions.load(Ordering::Relaxed), 1);
        }
        rig.assert_no_misuse();
    });
}

#[test]
fn a_tensor_is_not_deleted_while_its_uses_cannot_be_known() {
    on_machines_that_leak(|rig| {
        let mut inner = rig.device.alloc::<u8>(BLOCK).unwrap();
        rig.stream.fill(&mut inner, 0).unwrap();
        let data = std::ptr::without_provenance_mut(inner.as_device_ptr() as usize);
        let place = Place { device_type: Place::EXTENSION, device_id: 0 };
        let (tensor, deletions) = Producer::make(data, place);
        // SAFETY: a live tensor, of memory that nothing else uses.
        let mut gpu = unsafe { rig.stream.import_dlpack(tensor) }.unwrap();
        rig.stream.fill(&mut gpu, 3).unwrap();
        let before = rig.device.quarantined_bytes();
        for call in [Call::EventSynchronize, Call::StreamSynchronize, Call::EventQuery] {
            rig.emulator.inject(Fault::forever(call, CudaCode::UNKNOWN));
        }
        drop(gpu);
        rig.emulator.clear_faults();
        assert_eq!(deletions.load(Ordering::Relaxed), 0);
        assert_eq!(rig.device.quarantined_bytes(), before + BLOCK);
        rig.stream.synchronize().unwrap();
        drop(inner);
    });
}

#[test]
fn a_tensor_of_another_device_stays_its_callers() {
    on_lazy_machines(1, |rig| {
        let place = Place { device_type: Place::EXTENSION, device_id: 1 };
        let (tensor, deletions) = Producer::make(std::ptr::without_provenance_mut(4096), place);
        // SAFETY: a live tensor, which is refused.
        let refused = unsafe { rig.stream.import_dlpack(tensor) }.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongDevice);
        // SAFETY: as above.
        let refused = unsafe { Imported::new(tensor) }.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::InvalidValue);
        assert_eq!(deletions.load(Ordering::Relaxed), 0);
        deleted(tensor);
    });
}
