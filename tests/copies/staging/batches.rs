//! Random batches by every route, against `memcpy`.
//!
//! Host ranges lie in one piece of pageable memory, one block of a pool and one registered vector;
//! device ranges in one shared buffer, next to each other or not, or in buffers of their own.

use std::ops::Range;

use pinlane::emulated::{Emulator, Execution};
use pinlane::{
    Device, DeviceBuf, DeviceSlice, ErrorKind, PinnedPool, Result, Stream, Ticket,
    batch::{Download, Downloads, HostSliceMut, Route, Upload, Uploads},
};
use proptest::prelude::*;

use super::support::{
    ByRoute, ROUTES, SLOT, bytes, config, contents, device_of, install_team, pinned, shared, tiny,
    upload, views,
};
use crate::common::support::{Stalled, assert_nothing_is_left};

#[derive(Clone, Copy, Debug)]
enum Memory {
    Ordinary,
    Pinned,
    Registered,
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    bytes: usize,
    memory: Memory,
    /// The bytes between this copy and the previous one in the same memory, on either side.
    host_gap: usize,
    device_gap: usize,
    /// In a buffer of its own on the device.
    own: bool,
}

#[derive(Clone, Debug)]
struct Batch {
    copies: Vec<Copy>,
    /// `None`: the route that the rules choose.
    path: Option<Route>,
    execution: Execution,
    seed: u64,
    driver_has_batches: bool,
}

fn copy(longest: usize, memory: impl Strategy<Value = Memory>) -> impl Strategy<Value = Copy> {
    let bytes = prop_oneof![1 => Just(0), 5 => 1..700usize, 2 => 0..=longest];
    let gap = || prop_oneof![Just(0), 0..64usize];
    let parts = (bytes, memory, gap(), gap(), prop::bool::weighted(0.3));
    parts.prop_map(|(bytes, memory, host_gap, device_gap, own)| Copy {
        bytes,
        memory,
        host_gap,
        device_gap,
        own,
    })
}

fn batch(longest: usize, most: usize) -> impl Strategy<Value = Batch> {
    use Memory::{Ordinary, Pinned, Registered};
    let ordinary = prop::collection::vec(copy(longest, Just(Ordinary)), 0..most);
    let locked = prop_oneof![2 => Just(Pinned), 1 => Just(Registered)];
    let locked = prop::collection::vec(copy(longest, locked), 0..most);
    let mixed = prop_oneof![Just(Ordinary), Just(Pinned), Just(Registered)];
    let mixed = prop::collection::vec(copy(longest, mixed), 0..most);
    let path = prop_oneof![
        2 => Just(None),
        5 => prop::sample::select(&ROUTES[..]).prop_map(Some),
    ];
    let execution = prop_oneof![Just(Execution::Eager), Just(Execution::Lazy)];
    let copies = prop_oneof![2 => ordinary, 1 => locked, 2 => mixed];
    let parts = (copies, path, execution, any::<u64>(), prop::bool::weighted(0.8));
    parts.prop_map(|(copies, path, execution, seed, driver_has_batches)| Batch {
        copies,
        path,
        execution,
        seed,
        driver_has_batches,
    })
}

impl Batch {
    fn emulator(&self) -> Emulator {
        let builder = Emulator::builder().execution(self.execution).seed(self.seed);
        builder.batches(self.driver_has_batches).build()
    }

    /// Whether the forced route, if any, is possible: see [`Route`].
    fn is_possible(&self) -> bool {
        match self.path {
            None | Some(Route::Copies) => true,
            _ if self.copies.iter().all(|copy| copy.bytes == 0) => true,
            Some(Route::BatchCall) => self.driver_has_batches,
            Some(Route::Kernel) => true,
            Some(other) => panic!("a new path: {other}"),
        }
    }

    fn of<'b>(&'b self, chosen: impl Fn(&Copy) -> bool + 'b) -> impl Iterator<Item = Copy> + 'b {
        self.copies.iter().copied().filter(move |copy| chosen(copy))
    }

    fn ranges(copies: impl Iterator<Item = (usize, usize)>) -> Vec<Range<usize>> {
        let mut end = 0;
        let range = |(gap, bytes)| {
            let start = end + gap;
            end = start + bytes;
            start..end
        };
        copies.map(range).collect()
    }

    /// The ranges of the copies of a memory, in order, and its length.
    fn on_host(&self, chosen: impl Fn(Memory) -> bool) -> (Vec<Range<usize>>, usize) {
        let copies = self.of(|copy| chosen(copy.memory));
        let ranges = Self::ranges(copies.map(|copy| (copy.host_gap, copy.bytes)));
        let end = ranges.last().map_or(0, |range| range.end);
        (ranges, end + 64)
    }

    /// The ranges of the copies into the shared buffer.
    fn on_device(&self) -> (Vec<Range<usize>>, usize) {
        let copies = self.of(|copy| !copy.own);
        let ranges = Self::ranges(copies.map(|copy| (copy.device_gap, copy.bytes)));
        let end = ranges.last().map_or(0, |range| range.end);
        (ranges, end + 64)
    }
}

/// Asserts that there is an error exactly when the path is impossible.
fn check_kind<T>(possible: bool, result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => {
            assert!(possible, "an impossible path was taken");
            Some(value)
        }
        Err(error) => {
            assert_eq!((error.kind(), possible), (ErrorKind::Unsupported, false), "{error}");
            None
        }
    }
}

fn upload_batch(stream: &Stream, path: Option<Route>, items: &mut [Upload]) -> Result<Ticket> {
    match path {
        None => stream.upload_batch(items),
        Some(path) => stream.upload_batch_by(path, items),
    }
}

fn download_batch(stream: &Stream, path: Option<Route>, items: &mut [Download]) -> Result<Ticket> {
    match path {
        None => stream.download_batch(items),
        Some(path) => stream.download_batch_by(path, items),
    }
}

/// The buffers on the device: the shared one, and each copy's own where it has one.
struct OnDevice {
    shared: DeviceBuf<u8>,
    own: Vec<DeviceBuf<u8>>,
}

impl OnDevice {
    /// Contents of the shared buffer, then of the others.
    fn contents(&self, device: &Device) -> Vec<Vec<u8>> {
        std::iter::once(&self.shared).chain(&self.own).map(|gpu| contents(device, gpu)).collect()
    }

    fn fill(device: &Device, batch: &Batch, seed: Option<u64>) -> OnDevice {
        let fill = |length: usize, number: u64| {
            let data = seed.map_or(vec![0xee; length], |seed| bytes(length, seed + number));
            upload(device, &data)
        };
        let own = batch.of(|copy| copy.own).zip(1..);
        let own = own.map(|(copy, n)| fill(copy.device_gap + copy.bytes + 9, n)).collect();
        OnDevice { shared: fill(batch.on_device().1, 0), own }
    }
}

fn check_upload(device: &Device, batch: &Batch) {
    let pool = PinnedPool::builder(device).build().unwrap();
    let stream = device.stream().unwrap();
    let (in_ordinary, ordinary) = batch.on_host(|memory| matches!(memory, Memory::Ordinary));
    let (in_pinned, locked) = batch.on_host(|memory| matches!(memory, Memory::Pinned));
    let (in_registered, registered) = batch.on_host(|memory| matches!(memory, Memory::Registered));
    let mut ordinary = bytes(ordinary, batch.seed ^ 1);
    let pinned_bytes = bytes(locked, batch.seed ^ 2);
    let registered_bytes = bytes(registered, batch.seed ^ 3);
    let locked = pinned(&pool, &pinned_bytes);
    let registered = device.register(registered_bytes.clone()).unwrap();

    let mut gpu = OnDevice::fill(device, batch, None);
    let (on_shared, length) = batch.on_device();
    let mut model = vec![vec![0xee; length]];
    model
        .extend(batch.of(|copy| copy.own).map(|copy| vec![0xee; copy.device_gap + copy.bytes + 9]));

    let mut shared_views = views(&mut gpu.shared, on_shared.iter().cloned()).into_iter();
    let mut own_buffers = gpu.own.iter_mut();
    let (mut places, mut number) = (on_shared.iter().cloned(), 0);
    let mut hosts = [in_ordinary.into_iter(), in_pinned.into_iter(), in_registered.into_iter()];
    let mut items = Vec::new();
    for copy in &batch.copies {
        let range = hosts[copy.memory as usize].next().unwrap();
        let (dst, home, place) = if copy.own {
            let buffer = own_buffers.next().unwrap();
            number += 1;
            let place = copy.device_gap..copy.device_gap + copy.bytes;
            (buffer.slice_mut(place.clone()).unwrap(), number, place)
        } else {
            (shared_views.next().unwrap(), 0, places.next().unwrap())
        };
        let (item, source) = match copy.memory {
            Memory::Ordinary => (Upload::new(&ordinary[range.clone()], dst), &ordinary[range]),
            Memory::Pinned => {
                (Upload::new(locked.slice(range.clone()).unwrap(), dst), &pinned_bytes[range])
            }
            Memory::Registered => (
                Upload::new(registered.slice(range.clone()).unwrap(), dst),
                &registered_bytes[range],
            ),
        };
        model[home][place].copy_from_slice(source);
        items.push(item);
    }
    let result = upload_batch(&stream, batch.path, &mut items);
    drop(items);
    // The caller may reuse it at once.
    ordinary.fill(0x77);
    drop((locked, registered));
    let done = check_kind(batch.is_possible(), result);
    if done.is_none() {
        let untouched = |buffer: &mut Vec<u8>| buffer.fill(0xee);
        model.iter_mut().for_each(untouched);
    }
    assert!(gpu.contents(device) == model, "not what memcpy would do");
}

fn check_download(device: &Device, batch: &Batch) {
    let pool = PinnedPool::builder(device).build().unwrap();
    let stream = device.stream().unwrap();
    let (in_ordinary, ordinary) = batch.on_host(|memory| matches!(memory, Memory::Ordinary));
    let gpu = OnDevice::fill(device, batch, Some(batch.seed));
    let sources = gpu.contents(device);
    let mut ordinary = vec![0x11; ordinary];
    let mut model = ordinary.clone();
    // Views of one page-locked buffer cannot be exclusive at the same time, so every copy has a
    // buffer of its own.
    let is_locked = |copy: &Copy| !matches!(copy.memory, Memory::Ordinary);
    let own_host = |copy: Copy| pinned(&pool, &vec![0x11; copy.host_gap + copy.bytes + 7]);
    let mut locked: Vec<_> = batch.of(is_locked).map(own_host).collect();
    let mut locked_model = Vec::new();

    let (mut rest, mut at) = (&mut ordinary[..], 0);
    let mut in_ordinary = in_ordinary.into_iter();
    let mut locked_hosts = locked.iter_mut();
    let (mut places, mut number) = (batch.on_device().0.into_iter(), 0);
    let mut items = Vec::new();
    for copy in &batch.copies {
        let (src, source): (DeviceSlice<'_, u8>, _) = if copy.own {
            number += 1;
            let place = copy.device_gap..copy.device_gap + copy.bytes;
            (gpu.own[number - 1].slice(place.clone()).unwrap(), &sources[number][place])
        } else {
            let place = places.next().unwrap();
            (gpu.shared.slice(place.clone()).unwrap(), &sources[0][place])
        };
        let dst: HostSliceMut<'_, u8> = if is_locked(copy) {
            let range = copy.host_gap..copy.host_gap + copy.bytes;
            let mut expected = vec![0x11; copy.host_gap + copy.bytes + 7];
            expected[range.clone()].copy_from_slice(source);
            locked_model.push(expected);
            locked_hosts.next().unwrap().slice_mut(range).unwrap().into()
        } else {
            let range = in_ordinary.next().unwrap();
            model[range.clone()].copy_from_slice(source);
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(range.start - at);
            let (dst, behind) = behind.split_at_mut(range.len());
            (rest, at) = (behind, range.end);
            dst.into()
        };
        items.push(Download::new(src, dst));
    }
    let result = download_batch(&stream, batch.path, &mut items);
    drop(items);
    let done = check_kind(batch.is_possible(), result);
    if done.is_none() {
        model.fill(0x11);
        locked_model.iter_mut().for_each(|model| model.fill(0x11));
    }
    assert!(ordinary == model, "not what memcpy would do");
    let locked: Vec<_> = locked.iter().map(|host| host.read().unwrap().to_vec()).collect();
    assert!(locked == locked_model, "not what memcpy would do, page-locked");
}

fn check(batch: &Batch, staging: pinlane::staging::Staging) {
    let emulator = batch.emulator();
    let device = device_of(&emulator, 0, staging);
    check_upload(&device, batch);
    check_download(&device, batch);
    drop(device);
    assert_nothing_is_left(&emulator);
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn batches_are_what_memcpy_would_do(batch in batch(3 * SLOT + 1, 12)) {
        check(&batch, tiny());
    }
}

proptest! {
    #![proptest_config(config(40))]

    /// Enough bytes that a team helps, and enough copies that a slot has many units.
    #[test]
    fn large_batches_are_what_memcpy_would_do(batch in batch(150_000, 24)) {
        install_team(2);
        check(&batch, shared());
    }
}

/// More copies than fit into one list, than one thread records, and than have room for their items
/// in one slot.
#[test]
fn thousands_of_copies() {
    install_team(2);
    for (number, path) in ROUTES.into_iter().map(Some).chain([None]).enumerate() {
        for memory in [Memory::Ordinary, Memory::Pinned] {
            let copy = |n: usize| Copy {
                bytes: n * 7 % 50,
                memory,
                host_gap: n % 3,
                device_gap: n % 2,
                own: n.is_multiple_of(64),
            };
            let batch = Batch {
                copies: (0..2500).map(copy).collect(),
                path,
                execution: if number % 2 == 0 { Execution::Eager } else { Execution::Lazy },
                seed: number as u64,
                driver_has_batches: true,
            };
            check(&batch, tiny());
            check(&batch, shared());
        }
    }
}

/// So many buffers that several threads look at them and record their uses, with no list of them.
#[test]
fn each_of_thousands_of_buffers_knows_of_its_copy() {
    install_team(2);
    let emulator = Emulator::new();
    let device = device_of(&emulator, 0, shared());
    let pool = PinnedPool::builder(&device).build().unwrap();
    let stream = device.stream().unwrap();
    let mut hosts: Vec<_> = (0..2500).map(|n| pinned(&pool, &bytes(64, n))).collect();
    let mut gpus: Vec<_> = hosts.iter().map(|_| device.alloc::<u8>(64).unwrap()).collect();
    for _ in 0..2 {
        let stalled = Stalled::new(&emulator, &stream);
        stream.upload_batch(hosts.iter().zip(&mut gpus)).unwrap();
        for host in &mut hosts {
            host.try_read().unwrap();
            assert_eq!(host.try_write().unwrap_err().kind(), ErrorKind::NotReady);
        }
        drop(stalled);
        hosts.iter_mut().for_each(|host| host.write().unwrap().fill(0));

        let stalled = Stalled::new(&emulator, &stream);
        stream.download_batch(gpus.iter().zip(&mut hosts)).unwrap();
        for host in &hosts {
            assert_eq!(host.try_read().unwrap_err().kind(), ErrorKind::NotReady);
        }
        drop(stalled);
        for (n, host) in (0..).zip(&hosts) {
            assert_eq!(host.read().unwrap(), bytes(64, n), "{n}");
        }
    }
}

/// Each submission copies what the list has by then, up and down.
#[test]
fn lists_grow_between_submissions() {
    let emulator = Emulator::builder().execution(Execution::Lazy).build();
    let device = device_of(&emulator, 0, tiny());
    let pool = PinnedPool::builder(&device).build().unwrap();
    let stream = device.stream().unwrap();
    for route in ROUTES {
        let (plain, pinned) = (bytes(700, 1), [2, 3].map(|seed| pinned(&pool, &bytes(900, seed))));
        let mut gpus = [700, 900, 900].map(|length| upload(&device, &vec![0; length]));
        let [first, second, third] = &mut gpus;
        let mut list = Uploads::from_iter([(&pinned[0], second)]).route(route);
        stream.upload_list(&mut list).unwrap();
        list.push((&pinned[1], third));
        stream.upload_list(&mut list).unwrap();
        list.push((&plain[..], first));
        stream.upload_list(&mut list).unwrap();
        let sent = [plain.clone(), bytes(900, 2), bytes(900, 3)];
        assert_eq!(gpus.each_ref().map(|gpu| contents(&device, gpu)), sent, "{route:?}");

        let mut back = vec![0; 700];
        let mut hosts = [900, 900].map(|length| pool.alloc_zeroed::<u8>(length).unwrap());
        let [one, two] = &mut hosts;
        let mut list = Downloads::from_iter([(&gpus[1], one)]).route(route);
        stream.download_list(&mut list).unwrap();
        list.push((&gpus[2], two));
        stream.download_list(&mut list).unwrap();
        list.push((&gpus[0], &mut back[..]));
        stream.download_list(&mut list).unwrap();
        let [one, two] = hosts.map(|host| host.read().unwrap().to_vec());
        assert_eq!([back, one, two], sent, "{route:?}");
    }
}
