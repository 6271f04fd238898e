//! Releases in host functions, refused threads, pipelines, and files.
//!
//! A separate thread releases what a host function drops. If it cannot be started, the memory is
//! lost and counted: the devices then have exactly these bytes in quarantine. A batch is never
//! lost.

use std::sync::OnceLock;
use std::thread;

use pinlane::file::FileReader;
use pinlane::prefetch::{DeviceBatch, Prefetch};
use pinlane::{CudaCode, Error, ErrorKind, Ticket};
use proptest::prelude::*;

use super::behind::Set;
use super::model::{first_change, paint, pick};
use super::{Host, Machine, Memory, OnDevice, Part};
use crate::common::refused::refuse_threads;

/// Bytes of the file that all programs read.
const FILE: usize = 20_000;

#[derive(Clone, Debug)]
pub enum Step {
    /// Drops a buffer, of the host or of a device, in a host function of that stream.
    DropInside {
        stream: usize,
        buffer: usize,
        of_host: bool,
    },
    /// From now on no thread can be started by the program, or in host functions.
    RefuseThreads {
        here: bool,
    },
    File {
        stream: usize,
        device: usize,
        part: Part,
        offset: usize,
    },
    Pipeline(Pipeline),
}

/// A pipeline whose batches are checked and dropped in different ways.
#[derive(Clone, Debug)]
pub struct Pipeline {
    stream: usize,
    len: usize,
    depth: usize,
    workers: usize,
    /// Whether batches are dropped after the pipeline.
    late: bool,
    drops: Vec<Drops>,
}

#[derive(Clone, Copy, Debug)]
enum Drops {
    Here,
    OnThread,
    Inside { stream: usize },
}

pub fn step(scale: usize) -> BoxedStrategy<Step> {
    let index = || 0..8usize;
    let part = || any::<(u8, u8)>().prop_map(|(start, len)| Part { start, len });
    let drops = prop_oneof![
        Just(Drops::Here),
        Just(Drops::OnThread),
        index().prop_map(|stream| Drops::Inside { stream }),
    ];
    let drops = prop::collection::vec(drops, 0..6);
    let pipeline = (index(), 0..1500usize, 1..4usize, 1..3usize, any::<bool>(), drops);
    prop_oneof![
        8 => (index(), index(), any::<bool>())
            .prop_map(|(stream, buffer, of_host)| Step::DropInside { stream, buffer, of_host }),
        1 => prop::bool::weighted(0.3).prop_map(|here| Step::RefuseThreads { here }),
        3 => (index(), index(), part(), 0..FILE)
            .prop_map(|(stream, device, part, offset)| Step::File { stream, device, part, offset }),
        2 => pipeline.prop_map(move |(stream, len, depth, workers, late, drops)| {
            Step::Pipeline(Pipeline { stream, len: len * scale, depth, workers, late, drops })
        }),
    ]
    .boxed()
}

#[derive(Default)]
pub(super) struct Releases {
    pub(super) refused_here: bool,
    refused_inside: bool,
    /// Bytes that were forgotten, of devices and of registered memory.
    lost: usize,
    /// The tickets of the host functions that drop something.
    drops: Vec<Ticket>,
}

impl Releases {
    /// Whether a call fails because a thread cannot be started.
    pub(super) fn explains(&self, error: &Error) -> bool {
        const OPERATING_SYSTEM: CudaCode = CudaCode(304);
        let kind = error.kind() == ErrorKind::Unsupported;
        self.refused_here && (kind || error.cuda_code() == Some(OPERATING_SYSTEM))
    }
}

fn byte_of_file(at: usize) -> u8 {
    (at * at % 65_521 % 251) as u8
}

/// The file's name is removed once it is open.
fn file() -> &'static FileReader {
    static FILE_READER: OnceLock<FileReader> = OnceLock::new();
    FILE_READER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("pinlane-programs-{}", std::process::id()));
        let bytes: Vec<u8> = (0..FILE).map(byte_of_file).collect();
        std::fs::write(&path, bytes).expect("the temporary folder takes files");
        let reader = FileReader::open(&path).expect("just written");
        std::fs::remove_file(&path).expect("just written");
        reader
    })
}

impl Machine {
    pub(super) fn releases_step(&mut self, step: &Step) {
        match step {
            Step::DropInside { stream, buffer, of_host: true } => {
                self.drop_host_inside(*stream, *buffer);
            }
            Step::DropInside { stream, buffer, of_host: false } => {
                self.drop_device_inside(*stream, *buffer);
            }
            Step::RefuseThreads { here: true } => {
                refuse_threads();
                self.releases.refused_here = true;
            }
            Step::RefuseThreads { here: false } => self.refuse_threads_inside(),
            Step::File { stream, device, part, offset } => {
                self.upload_file(*stream, *device, *part, *offset);
            }
            Step::Pipeline(pipeline) => self.pipeline(pipeline),
        }
    }

    fn drop_host_inside(&mut self, stream: usize, host: usize) {
        let Some(index) = pick(host, &self.hosts) else { return };
        let Host { buffer, uses, .. } = self.hosts.swap_remove(index);
        let bytes = match &buffer {
            Memory::Pool(_) => 0, // needs no thread
            Memory::Registered(_) | Memory::Tensor(_) => buffer.len(),
        };
        self.pool_uses |= uses.for_writing();
        self.drop_inside(stream, buffer, bytes);
    }

    fn drop_device_inside(&mut self, stream: usize, device: usize) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let OnDevice { buffer, .. } = self.on_device.swap_remove(index);
        let bytes = buffer.len();
        self.drop_inside(stream, buffer, bytes);
    }

    pub(super) fn drop_inside(&mut self, stream: usize, what: impl Send + 'static, bytes: usize) {
        let lane = stream % self.lanes.len();
        let behind = self.enqueue(lane, Set::default());
        let launched = self.lanes[lane].stream.launch_host(move || drop(what));
        // A function that was refused was dropped on this thread.
        let forgotten = launched.is_ok() && self.releases.refused_inside;
        self.releases.lost += if forgotten { bytes } else { 0 };
        self.releases.drops.extend(launched.as_ref().ok().cloned());
        self.note_ticket(launched, behind);
    }

    /// One thread calls all host functions of the machine.
    fn refuse_threads_inside(&mut self) {
        self.wait_for_drops();
        let launched = self.lanes[0].stream.launch_host(refuse_threads);
        let behind = self.enqueue(0, Set::default());
        if let Some(ticket) = self.accept(launched, behind) {
            self.accept(ticket.wait(), behind);
            self.releases.refused_inside = true;
        }
    }

    /// Waits until everything that host functions drop is released or lost, also on streams that
    /// have been replaced.
    pub(super) fn wait_for_drops(&mut self) {
        for ticket in std::mem::take(&mut self.releases.drops) {
            self.accept(ticket.wait(), Set::default());
        }
    }

    fn upload_file(&mut self, stream: usize, device: usize, part: Part, offset: usize) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let lane = self.lane_of(stream, self.on_device[index].device);
        let behind = self.enqueue(lane, self.on_device[index].uses.for_writing());
        self.may_wait_for(behind);
        let on_device = &mut self.on_device[index];
        let range = part.of(on_device.model.len());
        let offset = offset % (FILE - range.len());
        let view = on_device.buffer.slice_mut(range.clone()).expect("in range");
        let uploaded = self.lanes[lane].stream.upload_file(file(), offset as u64, view);
        on_device.uses.write_by(behind);
        for (at, byte) in on_device.model[range].iter_mut().enumerate() {
            *byte = uploaded.is_ok().then(|| byte_of_file(offset + at));
        }
        self.note_ticket(uploaded, behind);
    }

    fn pipeline(&mut self, pipeline: &Pipeline) {
        let &Pipeline { len, depth, workers, late, .. } = pipeline;
        let lane = pipeline.stream % self.lanes.len();
        let behind = self.enqueue(lane, self.behind.own(self.lanes[lane].device));
        self.may_wait_for(behind | self.pool_uses);
        let stream = self.lanes[lane].stream.clone();
        let batches = (0..8u8).map(move |number| {
            let mut bytes = vec![0; len];
            paint(&mut bytes, number);
            bytes
        });
        let prefetch = Prefetch::new(batches, &self.pool, &stream).depth(depth).workers(workers);
        let Some(mut batches) = self.accept(prefetch.start(), behind) else { return };
        let mut held = Vec::new();
        for &drops in &pipeline.drops {
            let next = batches.next().expect("another one");
            let Some(batch) = self.accept(next, behind) else { continue };
            let mut bytes = vec![0xee; len];
            let slice = batch.slice::<u8>("0").expect("its only slice");
            let downloaded = stream.download_slice(slice, &mut bytes);
            if self.accept(downloaded, behind).is_some() {
                let change = first_change(&bytes, batch.index() as u8);
                assert_eq!(change, None, "batch {} differs from the model", batch.index());
            }
            if late { held.push((batch, drops)) } else { self.drop_batch(batch, drops) }
        }
        drop(batches);
        for (batch, drops) in held {
            // Without its pipeline and without a thread the batch would be lost.
            let here = self.releases.refused_inside && matches!(drops, Drops::Inside { .. });
            self.drop_batch(batch, if here { Drops::Here } else { drops });
        }
    }

    fn drop_batch(&mut self, batch: DeviceBatch, drops: Drops) {
        match drops {
            Drops::OnThread if !self.releases.refused_here => {
                thread::spawn(move || drop(batch)).join().expect("it does not panic");
            }
            Drops::Here | Drops::OnThread => drop(batch),
            Drops::Inside { stream } => {
                let lane = stream % self.lanes.len();
                let behind = self.enqueue(lane, Set::default());
                let launched = self.lanes[lane].stream.launch_host(move || drop(batch));
                if let Some(ticket) = self.accept(launched, behind) {
                    self.accept(ticket.wait(), behind);
                }
            }
        }
    }

    pub(super) fn has_refused_threads(&self) -> bool {
        self.releases.refused_inside
    }

    /// Bytes that the devices never free, because no thread could be started for it.
    pub fn lost_bytes(&self) -> usize {
        self.releases.lost
    }

    /// Asserts that nothing else is lost while all calls work.
    pub(super) fn check_lost(&mut self) {
        self.wait_for_drops();
        if !self.trouble.has_begun() {
            let lost: usize = self.devices.iter().map(|device| device.quarantined_bytes()).sum();
            assert_eq!(lost, self.releases.lost, "bytes that the devices have quarantined");
        }
    }
}
