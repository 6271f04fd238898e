//! Registered memory of the user comes back only when the device is done with it, whatever fails.
//! The tests run on the emulated device, which can stall streams, fail calls, and detect misuse.

mod faults;
mod process;

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinlane::driver::{Call, HostFlags};
use pinlane::emulated::{Execution, Fault};
use pinlane::memory::{HostMemory, ReadOnlyMemory};
use pinlane::{CudaCode, Device, ErrorKind, Refused};

use crate::common::support::{LEN, Rig, eventually, watched};

const ANY: CudaCode = CudaCode::UNKNOWN;
const BYTES: usize = LEN * size_of::<u32>();
/// All ways to wait.
const WAITS: [Call; 4] =
    [Call::EventSynchronize, Call::EventQuery, Call::StreamSynchronize, Call::StreamQuery];

/// Machines that run everything at once, and machines that run nothing before the program waits.
fn on_machines(test: impl Fn(Rig) + Send + 'static) {
    watched(move || {
        test(Rig::new(Execution::Eager, 0, 4));
        (0..8).for_each(|seed| test(Rig::new(Execution::Lazy, seed, 4)));
    });
}

/// Elements that count how often they have been dropped.
#[derive(Debug)]
struct Counted {
    elements: Vec<u32>,
    drops: Arc<AtomicUsize>,
}

// SAFETY: the elements are those of a vector, which nothing else uses.
unsafe impl HostMemory for Counted {
    type Element = u32;

    fn elements(&mut self) -> &mut [u32] {
        &mut self.elements
    }
}

// SAFETY: as above; nothing writes to them until the owner is given back or drops.
unsafe impl ReadOnlyMemory for Counted {
    type Element = u32;

    fn elements(&self) -> &[u32] {
        &self.elements
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

fn counted(value: u32) -> (Counted, impl Fn() -> usize) {
    let drops = Arc::new(AtomicUsize::new(0));
    let owner = Counted { elements: vec![value; LEN], drops: drops.clone() };
    (owner, move || drops.load(Ordering::SeqCst))
}

fn numbers(len: usize) -> Vec<u32> {
    (0..len as u32).map(|index| index.wrapping_mul(0x9E37_79B9)).collect()
}

fn fail_forever(rig: &Rig, calls: &[Call]) {
    calls.iter().for_each(|&call| rig.emulator.inject(Fault::forever(call, ANY)));
}

#[test]
fn copies_go_both_ways_bit_by_bit() {
    on_machines(|rig| {
        let source = rig.device.register(numbers(LEN)).unwrap();
        let mut target = rig.device.register(vec![0; LEN].into_boxed_slice()).unwrap();
        let (mut gpu, other) = (rig.gpu(), rig.device.stream().unwrap());
        rig.stream.upload(&source, &mut gpu).unwrap();
        other.download(&gpu, &mut target).unwrap();
        assert_eq!(target.read().unwrap(), numbers(LEN));
        rig.stream.fill(&mut gpu, 5).unwrap();
        let (part, to) = (gpu.slice(3..7).unwrap(), target.slice_mut(1..5).unwrap());
        rig.stream.download(part, to).unwrap();
        assert_eq!(target.slice(..6).unwrap().read().unwrap()[1..5], [5; 4]);
        target.write().unwrap()[0] = 1;
        let target = target.into_inner().unwrap();
        assert_eq!((target[0], &target[1..5], &target[5..]), (1, &[5; 4][..], &numbers(LEN)[5..]));
        drop((source, gpu, other));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn any_device_may_use_it() {
    on_machines(|rig| {
        let second = Device::of_emulator(&rig.emulator, 1).unwrap();
        let (stream, mut gpu) = (second.stream().unwrap(), second.alloc(LEN).unwrap());
        let mut slice = numbers(LEN);
        let copy = rig.device.with_registered(&mut slice, |mut view| {
            stream.upload(view.as_slice(), &mut gpu).unwrap();
            view.reborrow().into_write().unwrap().fill(0);
            stream.download(&gpu, view).unwrap()
        });
        assert!(copy.unwrap().is_done().unwrap(), "waited for, though another device's");
        assert_eq!(slice, numbers(LEN));
        drop((stream, gpu, second));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn parts_of_a_view_are_tracked_each_for_itself() {
    on_machines(|rig| {
        let (mut slice, mut gpu) = (numbers(LEN), rig.gpu());
        rig.device
            .with_registered(&mut slice, |mut view| {
                rig.stall(&rig.stream);
                let (part, to) = (view.as_slice().slice(8..).unwrap(), gpu.slice_mut(8..).unwrap());
                let tail = part.slice(2..4).unwrap();
                rig.stream.upload(part.clone(), to).unwrap();
                assert_eq!(tail.read().unwrap(), &numbers(LEN)[10..12]);
                let mut front = view.slice_mut(4..9).unwrap();
                assert_eq!(front.slice_mut(..6).unwrap_err_kind(), ErrorKind::OutOfRange);
                front.slice_mut(..4).unwrap().try_into_write().unwrap().fill(9);
                let early = front.slice_mut(4..).unwrap().try_into_write().unwrap_err();
                assert_eq!(early.kind(), ErrorKind::NotReady);
                rig.release(&rig.stream);
            })
            .unwrap();
        assert_eq!((slice[4], slice[8]), (9, numbers(LEN)[8]));
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

trait ErrKind {
    fn unwrap_err_kind(self) -> ErrorKind;
}

impl<T> ErrKind for pinlane::Result<T> {
    fn unwrap_err_kind(self) -> ErrorKind {
        self.map(drop).unwrap_err().kind()
    }
}

#[test]
fn rule_02_an_owner_dropped_in_flight_outlives_its_copies() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        let mut copy = rig.gpu();
        let other = rig.device.stream().unwrap();
        rig.stream.upload(&registered, &mut gpu).unwrap();
        other.upload(&registered, &mut copy).unwrap();
        assert_eq!(drops(), 0);
        drop(registered);
        assert_eq!((drops(), rig.emulator.usage().host_blocks), (1, 0));
        assert_eq!(rig.contents(&gpu), [7; LEN]);
        assert_eq!(rig.contents(&copy), [7; LEN]);
        drop((gpu, copy, other));
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_02_forgetting_leaks_the_owner_and_nothing_else() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (mut registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.upload(&registered, &mut gpu).unwrap();
        forget(rig.stream.download(&gpu, &mut registered).unwrap());
        forget(registered);
        assert_eq!(rig.contents(&gpu), [7; LEN]);
        assert_eq!((drops(), rig.emulator.usage().host_blocks), (0, 1));
        let (mut slice, mut second) = (vec![1; LEN], rig.gpu());
        let forgetful = rig.device.with_registered(&mut slice, |mut view| {
            rig.stream.upload(view.as_slice(), &mut second).unwrap();
            #[allow(clippy::forget_non_drop)] // a view has no `Drop`, and must not need one
            forget(view.reborrow());
            #[allow(clippy::forget_non_drop)]
            forget(view);
        });
        forgetful.unwrap();
        slice.fill(2);
        assert_eq!(rig.contents(&second), [1; LEN]);
        rig.assert_no_misuse();
    });
}

#[test]
fn the_owner_comes_back_when_the_device_is_done() {
    on_machines(|rig| {
        let (owner, drops) = counted(7);
        let (mut registered, mut gpu) = (rig.device.register(owner).unwrap(), rig.gpu());
        rig.stream.upload(&registered, &mut gpu).unwrap();
        rig.stream.fill(&mut gpu, 8).unwrap();
        rig.stream.download(&gpu, &mut registered).unwrap();
        let mut owner = registered.into_inner().unwrap();
        assert_eq!((&owner.elements[..], drops()), (&[8; LEN][..], 0));
        assert_eq!(rig.emulator.usage().host_blocks, 0);
        owner.elements.push(3);
        let again = rig.device.register(owner).unwrap();
        assert_eq!(again.read().unwrap()[LEN], 3);
        drop((again, gpu));
        assert_eq!(drops(), 1);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn foreign_work_counts_as_a_use() {
    on_machines(|rig| {
        let mut registered = rig.device.register(numbers(LEN)).unwrap();
        rig.stall(&rig.stream);
        // SAFETY: nothing is launched.
        unsafe { rig.stream.foreign(&[], &mut [&mut registered], |_| ()) }.unwrap();
        assert_eq!(registered.try_read().unwrap_err().kind(), ErrorKind::NotReady);
        assert_eq!(registered.try_write().unwrap_err().kind(), ErrorKind::NotReady);
        rig.release(&rig.stream);
        drop(registered);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn rule_01_a_scope_ends_when_the_device_is_done_even_if_it_unwinds() {
    on_machines(|rig| {
        let (mut slice, mut gpu) = (vec![1; LEN], rig.gpu());
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            rig.device.with_registered(&mut slice, |view| {
                rig.stream.upload(view.as_slice(), &mut gpu).unwrap();
                rig.stream.fill(&mut gpu, 6).unwrap();
                rig.stream.download(&gpu, view).unwrap();
                panic!("on purpose");
            })
        }));
        assert!(unwound.is_err());
        assert_eq!(slice, [6; LEN]);
        assert_eq!(rig.emulator.usage().host_blocks, 0);
        slice.fill(7);
        assert_eq!(rig.contents(&gpu), [6; LEN]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn neighbours_on_one_page_and_odd_addresses_are_registered_each_for_itself() {
    on_machines(|rig| {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(1001).collect();
        let expected = bytes.clone();
        let mut gpu = rig.device.alloc::<u8>(bytes.len()).unwrap();
        let (left, right) = bytes[1..].split_at_mut(333);
        rig.device
            .with_registered(left, |left| {
                rig.stream.upload(left.as_slice(), gpu.slice_mut(1..334).unwrap()).unwrap();
                rig.device.with_registered(right, |right| {
                    assert_eq!(rig.emulator.usage().host_blocks, 2);
                    rig.stream.upload(right.as_slice(), gpu.slice_mut(334..).unwrap()).unwrap();
                })
            })
            .unwrap()
            .unwrap();
        bytes.fill(0);
        rig.device
            .with_registered(&mut bytes, |all| rig.stream.download(&gpu, all).unwrap())
            .unwrap();
        assert_eq!(bytes[1..], expected[1..]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn no_elements_are_no_work() {
    on_machines(|rig| {
        let mut gpu = rig.device.alloc::<u32>(0).unwrap();
        let mut empty = rig.device.register(Vec::<u32>::with_capacity(8)).unwrap();
        assert!(empty.is_empty() && empty.write().unwrap().is_empty());
        rig.stream.upload(&empty, &mut gpu).unwrap();
        assert_eq!(empty.into_inner().unwrap().capacity(), 8);
        drop(rig.device.register(vec![(); 3]).unwrap());
        let len = rig.device.with_registered(&mut [0u64; 0], |view| view.len());
        assert_eq!(len.unwrap(), 0);
        let calls = [Call::HostRegister, Call::HostUnregister].map(|call| rig.emulator.calls(call));
        assert_eq!(calls, [0, 0]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn what_is_page_locked_already_is_refused() {
    on_machines(|rig| {
        let (driver, mut slice) = (rig.emulator.driver(), numbers(LEN));
        for (first, len) in [(0, LEN), (0, 1), (LEN - 1, 1), (LEN / 2, 7)] {
            let part = NonNull::from(&mut slice[first..first + len]).cast();
            let (bytes, flags) = (len * size_of::<u32>(), HostFlags::default());
            // SAFETY: the elements live, and nothing uses them, until they are unregistered below.
            unsafe { driver.host_register(0, part, bytes, flags) }.unwrap();
            let Refused { value, error } = rig.device.register(slice).unwrap_err();
            slice = value;
            assert_eq!(error.kind(), ErrorKind::InvalidValue);
            assert_eq!(error.cuda_code(), Some(CudaCode::HOST_MEMORY_ALREADY_REGISTERED));
            assert!(error.to_string().contains(&format!("{BYTES} bytes")), "{error}");
            let error = rig.device.with_registered(&mut slice, |_| panic!("not registered"));
            assert_eq!(error.unwrap_err_kind(), ErrorKind::InvalidValue);
            // SAFETY: it was registered above, and nothing was enqueued.
            unsafe { driver.host_unregister(part) }.unwrap();
        }
        drop(rig.device.register(slice).unwrap());
        rig.assert_nothing_is_left();
    });
}

#[test]
fn memory_that_cannot_be_page_locked_comes_back_with_the_remedy() {
    for (code, kind, hint) in [
        (CudaCode::INVALID_VALUE, ErrorKind::InvalidValue, "MAP_PRIVATE"),
        (CudaCode::MEMORY_ALLOCATION, ErrorKind::OutOfHostMemory, "ulimit"),
        (CudaCode::NOT_SUPPORTED, ErrorKind::Unsupported, "cudaHostRegister"),
        (ANY, ErrorKind::Cuda, "cudaHostRegister"),
    ] {
        let rig = Rig::new(Execution::Eager, 0, 1);
        let (owner, drops) = counted(3);
        rig.emulator.inject(Fault::once(Call::HostRegister, code));
        let Refused { value, error } = rig.device.register(owner).unwrap_err();
        assert_eq!((error.kind(), error.cuda_code()), (kind, Some(code)));
        assert!(error.to_string().contains(hint), "{error}");
        assert_eq!((&value.elements[..], drops()), (&[3; LEN][..], 0));
        drop(rig.device.register(value).unwrap());
        rig.assert_nothing_is_left();
    }
}
