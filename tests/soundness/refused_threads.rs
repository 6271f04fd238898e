//! Rule 19: releases in host functions, if no thread can be started for them.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pinlane::ErrorKind;
use pinlane::dlpack::{self, DataType, Layout, ManagedTensor, Place, Tensor};
use pinlane::emulated::Execution;
use pinlane::memory::HostMemory;

use crate::common::refused::refuse_threads;
use crate::common::{Pages, pages, pool};
use crate::support::{BLOCK, LEN, Rig, watched};

/// Runs `release` in a host function whose thread cannot start another, while `rig.stream` has
/// pending work that nothing waits for.
fn without_threads(rig: &Rig, release: impl FnOnce() + Send + 'static) {
    let stream = rig.device.stream().unwrap();
    let inside = move || {
        refuse_threads();
        release();
    };
    stream.launch_host(inside).unwrap().wait().unwrap();
}

/// On lazy machines, where pending work runs only when the program waits for it.
fn on_machines(test: impl Fn(Rig) + Send + 'static) {
    watched(move || (0..4).for_each(|seed| test(Rig::new(Execution::Lazy, seed, 1))));
}

#[test]
fn rule_19_device_memory_is_counted_and_never_freed() {
    on_machines(|rig| {
        let mut gpu = rig.gpu();
        let ticket = rig.stream.fill(&mut gpu, 7).unwrap();
        let before = rig.emulator.usage().device_bytes;
        without_threads(&rig, move || drop(gpu));
        assert_eq!(rig.device.quarantined_bytes(), BLOCK);
        ticket.wait().unwrap();
        assert_eq!(rig.emulator.usage().device_bytes, before);
        rig.assert_no_misuse();
    });
}

/// Memory that records when it is given back.
struct Owner(Vec<u32>, Arc<AtomicBool>);

// SAFETY: the elements are those of a vector that is not touched.
unsafe impl HostMemory for Owner {
    type Element = u32;

    fn elements(&mut self) -> &mut [u32] {
        &mut self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
    }
}

#[test]
fn rule_19_registered_memory_is_counted_and_its_owner_kept() {
    if pages() == Pages::Refused {
        return; // there is no registered memory
    }
    on_machines(|rig| {
        let given_back = Arc::<AtomicBool>::default();
        let owner = Owner(vec![1; LEN], given_back.clone());
        let registered = rig.device.register(owner).map_err(|refused| refused.error).unwrap();
        let mut gpu = rig.gpu();
        let ticket = rig.stream.upload(&*registered, &mut gpu).unwrap();
        without_threads(&rig, move || drop(registered));
        ticket.wait().unwrap();
        assert_eq!(rig.device.quarantined_bytes(), BLOCK);
        assert!(!given_back.load(Ordering::Relaxed));
        rig.assert_no_misuse();
    });
}

/// A tensor of another library in device memory, which counts its deletions.
fn tensor_of(memory: *mut c_void, deletions: &'static AtomicUsize) -> NonNull<ManagedTensor> {
    unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
        // SAFETY: the context is the counter of `tensor_of`.
        unsafe { &*(*tensor).manager_ctx.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
    }
    let tensor = Tensor {
        data: memory,
        device: Place { device_type: Place::EXTENSION, device_id: 0 },
        ndim: 1,
        dtype: DataType::U8,
        shape: Box::leak(Box::new(BLOCK as i64)),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    NonNull::from(Box::leak(Box::new(ManagedTensor {
        version: dlpack::VERSION,
        manager_ctx: std::ptr::from_ref(deletions).cast_mut().cast(),
        deleter: Some(delete),
        flags: 0,
        tensor,
    })))
}

#[test]
fn rule_19_an_imported_tensor_is_counted_and_not_deleted() {
    static DELETIONS: AtomicUsize = AtomicUsize::new(0);
    on_machines(|rig| {
        let mut inner = rig.device.alloc::<u8>(BLOCK).unwrap();
        rig.stream.fill(&mut inner, 0).unwrap();
        let data = std::ptr::without_provenance_mut(inner.as_device_ptr() as usize);
        // SAFETY: a live tensor, of memory that nothing else uses.
        let mut gpu = unsafe { rig.stream.import_dlpack(tensor_of(data, &DELETIONS)) }.unwrap();
        let ticket = rig.stream.fill(&mut gpu, 3).unwrap();
        without_threads(&rig, move || drop(gpu));
        assert_eq!(DELETIONS.load(Ordering::Relaxed), 0, "its memory is still written");
        assert_eq!(rig.device.quarantined_bytes(), BLOCK);
        ticket.wait().unwrap();
        rig.assert_no_misuse();
    });
}

/// An exported tensor, as a consumer deletes it.
struct Exported(NonNull<ManagedTensor>);

// SAFETY: the deleter may be called on any thread.
unsafe impl Send for Exported {}

impl Exported {
    fn delete(self) {
        // SAFETY: live, and not used afterwards.
        unsafe { self.0.as_ref().deleter.unwrap()(self.0.as_ptr()) };
    }
}

#[test]
fn rule_19_an_exported_tensor_is_counted_and_not_reused() {
    on_machines(|rig| {
        let layout = Layout { shape: &[BLOCK as i64], ..Layout::new(DataType::U8) };
        let consumer = rig.device.stream().unwrap();
        let host = rig.pool.alloc::<u8>(BLOCK).unwrap();
        let exported = Exported(host.into_dlpack(&layout, Some(&consumer)).unwrap());
        // The consumer's work is on its way when the tensor is deleted.
        rig.stall(&consumer);
        without_threads(&rig, move || exported.delete());
        assert_eq!(rig.device.quarantined_bytes(), BLOCK);
        let reused = rig.pool.try_alloc::<u8>(BLOCK);
        assert_eq!(reused.map(drop).unwrap_err().kind(), ErrorKind::NotReady);

        let gpu = rig.device.alloc::<u8>(BLOCK).unwrap();
        let before = rig.emulator.usage().device_bytes;
        let exported = Exported(gpu.into_dlpack(&layout, &consumer).unwrap());
        without_threads(&rig, move || exported.delete());
        assert_eq!(rig.device.quarantined_bytes(), 2 * BLOCK);
        assert_eq!(rig.emulator.usage().device_bytes, before);
        rig.assert_no_misuse();
    });
}

#[test]
fn rule_19_pools_and_streams_leak() {
    on_machines(|rig| {
        let [idle, closed] = [(); 2].map(|()| pool(&rig.device).max_bytes(BLOCK).build().unwrap());
        drop(idle.alloc::<u32>(LEN).unwrap());
        let buffer = closed.alloc::<u32>(LEN).unwrap();
        drop(closed);
        let stream = rig.device.stream().unwrap();
        let before = (rig.emulator.usage().host_bytes, rig.device.live_streams());
        // A pool with free memory, the last buffer of a closed one, and the last owner of a stream.
        without_threads(&rig, move || drop((idle, buffer, stream)));
        // The stream of the host function has ended, or is about to. The other stays.
        assert_eq!(rig.emulator.usage().host_bytes, before.0);
        assert!(rig.device.live_streams() >= before.1);
        rig.assert_no_misuse();
    });
}
