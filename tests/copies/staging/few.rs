//! Few slices up and down by the copy engine: cut into chunks as if they were one.

use pinlane::batch::{Download, Route, Upload};
use pinlane::driver::Call::{CopyBatch, CopyD2H, CopyH2D, MoveItems};
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::staging::Staging;
use pinlane::{CudaCode, Device, DeviceBuf};
use proptest::prelude::*;

use super::support::{
    ByRoute, EXECUTIONS, SLOT, bytes, config, contents, device, device_of, install_team, shared,
    tiny, upload,
};
use crate::common::support::{assert_nothing_is_left, watched};

/// Of [`tiny`] and [`shared`] rings: no portion is shorter, except the last of a slot.
const LEAST: usize = 512;
/// Bytes beside the slices of a buffer.
const GAP: usize = 13;

/// Slices, each with what lies before it on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// The slice before it.
    Slice,
    Gap,
    /// The end of another buffer.
    Buffer,
}

#[derive(Clone, Debug)]
struct List {
    slices: Vec<(usize, Before)>,
    seed: u64,
}

fn list(longest: usize, most: usize) -> impl Strategy<Value = List> {
    let bytes = prop_oneof![1 => Just(0), 4 => 1..2000usize, 2 => 0..=longest];
    let before = prop_oneof![Just(Before::Slice), Just(Before::Gap), Just(Before::Buffer)];
    let slices = prop::collection::vec((bytes, before), 1..most);
    (slices, any::<u64>()).prop_map(|(slices, seed)| List { slices, seed })
}

impl List {
    fn contents(&self) -> Vec<Vec<u8>> {
        let slices = self.slices.iter().zip(self.seed..);
        slices.map(|(&(length, _), seed)| bytes(length, seed)).collect()
    }

    /// For each buffer, the gaps before its slices and their lengths.
    fn buffers(&self) -> Vec<Vec<(usize, usize)>> {
        let mut buffers = vec![Vec::new()];
        for &(length, before) in &self.slices {
            if before == Before::Buffer {
                buffers.push(Vec::new());
            }
            let gap = if before == Before::Gap { GAP } else { 0 };
            buffers.last_mut().unwrap().push((gap, length));
        }
        buffers
    }

    /// What each buffer holds if its slices have these contents, and `beside` is between them.
    fn model(&self, contents: &[Vec<u8>], beside: u8) -> Vec<Vec<u8>> {
        let mut contents = contents.iter();
        let model = |slices: Vec<(usize, usize)>| {
            let mut model = Vec::new();
            for (gap, _) in slices {
                model.extend(std::iter::repeat_n(beside, gap));
                model.extend(contents.next().unwrap());
            }
            model.extend([beside; GAP]);
            model
        };
        self.buffers().into_iter().map(model).collect()
    }

    /// Copies that are needed: one for all slices that follow each other in a buffer.
    fn runs(&self) -> usize {
        let runs = |slices: Vec<(usize, usize)>| {
            let (mut runs, mut is_open) = (0, false);
            for (gap, length) in slices {
                is_open &= gap == 0;
                runs += usize::from(length > 0 && !is_open);
                is_open |= length > 0;
            }
            runs
        };
        self.buffers().into_iter().map(runs).sum()
    }

    fn bytes(&self) -> usize {
        self.slices.iter().map(|slice| slice.0).sum()
    }

    fn uploads<'a>(&self, from: &'a [Vec<u8>], to: &'a mut [DeviceBuf<u8>]) -> Vec<Upload<'a>> {
        let mut from = from.iter();
        let mut items = Vec::new();
        for (gpu, slices) in to.iter_mut().zip(self.buffers()) {
            let mut rest = Some(gpu.as_slice_mut());
            for (gap, length) in slices {
                let (_, behind) = rest.take().unwrap().split_at_mut(gap).unwrap();
                let (view, behind) = behind.split_at_mut(length).unwrap();
                rest = Some(behind);
                items.push(Upload::new(&from.next().unwrap()[..], view));
            }
        }
        items
    }

    fn downloads<'a>(&self, from: &'a [DeviceBuf<u8>], to: &'a mut [Vec<u8>]) -> Vec<Download<'a>> {
        let mut to = to.iter_mut();
        let mut items = Vec::new();
        for (gpu, slices) in from.iter().zip(self.buffers()) {
            let mut at = 0;
            for (gap, length) in slices {
                let view = gpu.slice(at + gap..at + gap + length).unwrap();
                at += gap + length;
                items.push(Download::new(view, &mut to.next().unwrap()[..]));
            }
        }
        items
    }

    /// Up and down, against `memcpy`. No portion has more copies than runs. Returns how many calls
    /// came down.
    fn check(&self, emulator: &Emulator, device: &Device, route: Route) -> u64 {
        let source = self.contents();
        let stream = device.stream().unwrap();
        let before =
            self.model(&source.iter().map(|it| vec![0xee; it.len()]).collect::<Vec<_>>(), 0xee);
        let mut gpus: Vec<_> = before.iter().map(|bytes| upload(device, bytes)).collect();
        let calls = || [CopyH2D, CopyD2H, CopyBatch, MoveItems].map(|call| emulator.calls(call));
        // Every portion may cut a run, and so may every slot.
        let most = (self.runs() + self.bytes() / LEAST + 2) as u64;

        let start = calls();
        stream.upload_batch_by(route, self.uploads(&source, &mut gpus)).unwrap();
        let up = calls();
        assert_eq!(up[3], start[3], "no kernel");
        assert!(up[0] - start[0] <= most, "{} copies of {most}", up[0] - start[0]);
        if route == Route::Copies {
            assert_eq!(up[2], start[2], "no batch");
        }
        let found: Vec<_> = gpus.iter().map(|gpu| contents(device, gpu)).collect();
        assert!(found == self.model(&source, 0xee), "not what memcpy would do");

        let start = calls();
        let mut target: Vec<_> = source.iter().map(|it| vec![0x11; it.len()]).collect();
        stream.download_batch_by(route, self.downloads(&gpus, &mut target)).unwrap();
        assert!(target == source, "not what memcpy would do");
        let down = calls();
        assert_eq!(down[3], start[3], "no kernel");
        assert!(down[1] - start[1] <= most, "{} copies of {most}", down[1] - start[1]);
        down[1] - start[1] + down[2] - start[2]
    }
}

proptest! {
    #![proptest_config(config(150))]

    /// More than 64 are no longer few: they are too short.
    #[test]
    fn a_list_is_copied_as_if_it_were_one_slice(
        list in prop_oneof![list(3 * SLOT + 1, 12), list(2000, 80)],
        batches: bool,
        seed: u64,
    ) {
        for (execution, options) in EXECUTIONS.into_iter().zip([tiny(), shared()]) {
            let emulator = Emulator::builder().execution(execution).seed(seed);
            let emulator = emulator.batches(batches).build();
            let device = device_of(&emulator, 0, options);
            list.check(&emulator, &device, if batches { Route::BatchCall } else { Route::Copies });
            drop(device);
            assert_nothing_is_left(&emulator);
        }
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn a_team_shares_the_chunks_of_a_list(list in list(150_000, 16), seed: u64) {
        install_team(3);
        for execution in [Execution::Random, Execution::Chunked, Execution::Lazy] {
            let emulator = Emulator::builder().execution(execution).seed(seed).build();
            let device = device_of(&emulator, 0, shared());
            list.check(&emulator, &device, Route::BatchCall);
            drop(device);
            assert_nothing_is_left(&emulator);
        }
    }
}

/// More than 64 slices that are long, down, with empty ones among them.
#[test]
fn a_team_shares_the_chunks_of_many_long_slices() {
    install_team(3);
    let before = [Before::Slice, Before::Gap, Before::Slice, Before::Buffer];
    let length = |n: usize| if n % 7 == 3 { 0 } else { 70_000 + 257 * n };
    let slices = (0..100).map(|n| (length(n), before[n % 4])).collect();
    let list = List { slices, seed: 5 };
    for execution in [Execution::Random, Execution::Lazy] {
        let emulator = Emulator::builder().execution(execution).seed(3).build();
        let device = device_of(&emulator, 0, Staging::new());
        // An eighth at a time, where the way of many slices makes half as many calls.
        assert_eq!(list.check(&emulator, &device, Route::BatchCall), 9);
        drop(device);
        assert_nothing_is_left(&emulator);
    }
}

/// Slices next to each other are one copy, those of two buffers are two, by one call if there is
/// one.
#[test]
fn a_portion_is_one_call() {
    for (batches, route) in [(true, Route::BatchCall), (false, Route::Copies)] {
        let emulator = Emulator::builder().batches(batches).build();
        let device = device_of(&emulator, 0, shared());
        let stream = device.stream().unwrap();
        let calls = || [CopyH2D, CopyD2H, CopyBatch].map(|call| emulator.calls(call));
        for (before, copies) in [(Before::Slice, 1), (Before::Gap, 9), (Before::Buffer, 9)] {
            let list = List { slices: vec![(500, before); 9], seed: 1 };
            let source = list.contents();
            let mut gpus: Vec<_> =
                list.model(&source, 0).iter().map(|it| upload(&device, it)).collect();
            let mut target: Vec<_> = source.iter().map(|it| vec![0; it.len()]).collect();
            let start = calls();
            stream.upload_batch_by(route, list.uploads(&source, &mut gpus)).unwrap();
            stream.download_batch_by(route, list.downloads(&gpus, &mut target)).unwrap();
            let made: Vec<_> = start.iter().zip(calls()).map(|(a, b)| b - a).collect();
            let is_batch = batches && copies > 1;
            assert_eq!(made, if is_batch { [0, 0, 2] } else { [copies, copies, 0] }, "{before:?}");
            assert!(target == source);
        }
        assert_eq!(emulator.findings(), []);
    }
}

/// A portion is in flight when the next one fails: its slot and its memory are in use.
#[test]
fn what_a_failed_list_has_enqueued_stays_in_use() {
    watched(|| {
        for up in [true, false] {
            let emulator = Emulator::builder().execution(Execution::Lazy).seed(8).build();
            let device = device(&emulator);
            let source = bytes(SLOT / 4, 1);
            let new = || [(); 12].map(|()| upload(&device, &source));
            let mut gpus = new();
            let mut target = vec![0; 3 * SLOT];
            let other = upload(&device, &target);
            let streams = [(); 2].map(|()| device.stream().unwrap());
            let mut copy = |gpus: &mut [DeviceBuf<u8>]| match up {
                true => streams[0]
                    .upload_batch_by(Route::BatchCall, gpus.iter_mut().map(|gpu| (&source, gpu))),
                false => {
                    let items = gpus.iter().zip(target.chunks_mut(SLOT / 4));
                    streams[0].download_batch_by(Route::BatchCall, items)
                }
            };
            // The slots exist, and all earlier work is done.
            copy(&mut gpus).unwrap().wait().unwrap();
            for freed in [false, true] {
                emulator.inject(Fault::once(CopyBatch, CudaCode::UNKNOWN).nth(2));
                let error = copy(&mut gpus).unwrap_err();
                assert!(error.to_string().contains("cudaErrorUnknown"), "{error}");
                if freed {
                    // Freed as soon as the copies allow it.
                    gpus = new();
                } else {
                    gpus.iter_mut().for_each(|gpu| drop(streams[1].fill(gpu, 7).unwrap()));
                }
                // By way of the same slots.
                let mut back = vec![1; 3 * SLOT];
                streams[1].download_slice(&other, &mut back).unwrap();
                assert!(back.iter().all(|&byte| byte == 0));
            }
            drop((gpus, other));
            assert_eq!(emulator.findings(), []);
        }
    });
}
