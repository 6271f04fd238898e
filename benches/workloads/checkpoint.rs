//! Saves all tensors of a device to files in memory. Reference: as many bare copies to page-locked
//! memory, and no file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use pinlane::{Device, DeviceBuf, PinnedPool, Stream};

use super::common::bare::Bare;
use super::common::figures::{Figure, Report};
use super::common::folder;
use super::common::timing::{Sample, Samples, clocked};
use super::mapping::Mapping;
use super::{Bench, MIB, pattern};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The option that says how many tensors there are.
pub const TENSORS: &str = "tensors";

const NAME: &str = "workload.checkpoint";
const TENSOR: usize = 32 * MIB;
const DEFAULT: usize = 256;
/// The files of the second way, each written by a thread, and how much it downloads at a time.
const SHARDS: usize = 8;
const CHUNK: usize = 8 * MIB;
const SAMPLES: usize = 5;

const MAPPED: &str = "tensors of 32 MiB, each a buffer of its own, to one new file in tmpfs that \
    is mapped, by one download_batch; from creating the file until all is in it, host's clock; \
    median, in turns with the reference";
const SHARDED: &str = "the same to 8 new files, by a thread each: it downloads 8 MiB to \
    page-locked memory while it writes those before";
const FIRST: &str = "the first time in this process";

/// The way of the bytes to files.
#[derive(Clone, Copy)]
enum Way {
    Mapped,
    Shards,
}

struct Checkpoint {
    device: Device,
    stream: Stream,
    pool: PinnedPool,
    tensors: Vec<DeviceBuf<u8>>,
    folder: PathBuf,
    bare: Bare,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (count, bytes) = match (bench.tensors, bench.small) {
        (Some(count), _) => (count, TENSOR),
        (None, true) => (10, MIB),
        (None, false) => (DEFAULT, TENSOR),
    };
    let name = match (count, bytes) {
        (DEFAULT, TENSOR) => format!("{NAME}.8g6"),
        _ => format!("{NAME}.{count}x{}mib", bytes / MIB),
    };
    if !report.wants(&name) {
        return Ok(());
    }
    let parent = match folder::with_room(bench.files.as_deref(), count * bytes) {
        Ok(parent) => parent,
        Err(reason) => {
            report.skip(&name, reason);
            return Ok(());
        }
    };
    let checkpoint = Checkpoint::new(bench, &parent, count, bytes)?;
    let ways = [Way::Mapped, Way::Shards];
    let mut first = Vec::new();
    for way in ways {
        first.push(checkpoint.save(way)?);
        checkpoint.check(checkpoint.share(way));
    }
    let (mut runs, mut bare) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..bench.samples(SAMPLES) {
        for (way, runs) in ways.into_iter().zip(&mut runs) {
            runs.push(checkpoint.save(way)?);
        }
        bare.push(clocked(|| checkpoint.bare())?);
    }
    let reference = bench.bare.name("as many bare cudaMemcpyAsync, pinned");
    let (bare, total) = (Samples::new(bare), count * bytes);
    let ceiling = total as f64 / bare.median() / 1e9;
    for ((way, runs), first) in ways.into_iter().zip(runs).zip(first) {
        let (suffix, method) = match way {
            Way::Mapped => ("", MAPPED),
            Way::Shards => (".shards", SHARDED),
        };
        let name = format!("{name}{suffix}");
        let (runs, first) = (Samples::new(runs), Samples::new(vec![first]));
        report.add(
            Figure::rate(&*name, total, &runs).beside(reference, ceiling).by(method, runs.count()),
        );
        report.add(Figure::cores(&name, total, &runs, (reference, &bare)));
        report.add(
            Figure::rate(format!("{name}.first"), total, &first)
                .beside(reference, ceiling)
                .by(FIRST, 1),
        );
    }
    Ok(())
}

impl Checkpoint {
    fn new(bench: &Bench, parent: &Path, count: usize, bytes: usize) -> Result<Self> {
        let stream = bench.device.stream()?;
        let (mut tensors, mut contents) = (Vec::new(), vec![0; bytes]);
        for number in 0..count {
            let mut tensor = bench.device.alloc(bytes)?;
            pattern::write(number, &mut contents);
            stream.upload_slice(&contents, &mut tensor)?.wait()?;
            tensors.push(tensor);
        }
        Ok(Checkpoint {
            device: bench.device.clone(),
            stream,
            pool: bench.pool(2 * SHARDS * CHUNK)?,
            tensors,
            folder: parent.join(format!("pinlane-checkpoint-{}", std::process::id())),
            bare: bench.bare.another(&bench.device)?,
        })
    }

    /// Saves in an empty folder.
    fn save(&self, way: Way) -> Result<Sample> {
        self.remove();
        fs::create_dir(&self.folder)?;
        let mut saved = Ok(());
        let sample = clocked(|| {
            saved = match way {
                Way::Mapped => self.map(),
                Way::Shards => self.shard(),
            };
            Ok(())
        })?;
        saved.map(|()| sample)
    }

    /// How many tensors a file has.
    fn share(&self, way: Way) -> usize {
        match way {
            Way::Mapped => self.tensors.len(),
            Way::Shards => self.tensors.len().div_ceil(SHARDS),
        }
    }

    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder); // it may not be there
    }

    fn map(&self) -> Result<()> {
        let bytes = self.tensors[0].len();
        let mut file = Mapping::create(&self.folder.join("0"), self.tensors.len() * bytes)?;
        let places = file.bytes().chunks_exact_mut(bytes);
        self.stream.download_batch(self.tensors.iter().zip(places))?.wait()?;
        Ok(())
    }

    fn shard(&self) -> Result<()> {
        let share = self.share(Way::Shards);
        thread::scope(|scope| {
            let write = |(number, tensors): (usize, _)| {
                let path = self.folder.join(number.to_string());
                scope.spawn(move || self.write(&path, tensors).map_err(|error| error.to_string()))
            };
            let threads: Vec<_> = self.tensors.chunks(share).enumerate().map(write).collect();
            for thread in threads {
                thread.join().expect("no panic")?;
            }
            Ok(())
        })
    }

    /// Writes a file of some tensors.
    fn write(&self, path: &Path, tensors: &[DeviceBuf<u8>]) -> Result<()> {
        let (file, stream) = (File::create_new(path)?, self.device.stream()?);
        // The destination of the current download, and the previous one, whose bytes are written.
        let mut buffers = [self.pool.alloc::<u8>(CHUNK)?, self.pool.alloc(CHUNK)?];
        let mut before = None;
        let mut offset = 0;
        let chunks = tensors.iter().flat_map(|tensor| {
            let starts = (0..tensor.len()).step_by(CHUNK);
            starts.map(|start| tensor.slice(start..(start + CHUNK).min(tensor.len())))
        });
        for chunk in chunks {
            let chunk = chunk?;
            let bytes = chunk.len();
            stream.download(chunk, buffers[0].slice_mut(..bytes)?)?;
            if let Some((at, bytes)) = before.replace((offset, bytes)) {
                file.write_all_at(&buffers[1].read()?[..bytes], at)?;
            }
            offset += bytes as u64;
            buffers.swap(0, 1);
        }
        if let Some((at, bytes)) = before {
            file.write_all_at(&buffers[1].read()?[..bytes], at)?;
        }
        Ok(())
    }

    fn bare(&self) -> pinlane::Result<()> {
        let mut buffer = self.pool.alloc::<u8>(self.tensors[0].len())?;
        let to = buffer.write()?.as_mut_ptr();
        for tensor in &self.tensors {
            // SAFETY: both have the same length and are idle: every save is waited for, as these
            // copies are below. The block has no other user.
            unsafe { self.bare.download(to, tensor.as_device_ptr(), tensor.len()) };
        }
        self.bare.synchronize()
    }

    /// Checks every byte of files with `share` tensors each.
    fn check(&self, share: usize) {
        let (bytes, count) = (self.tensors[0].len(), self.tensors.len());
        thread::scope(|scope| {
            for first in 0..SHARDS {
                scope.spawn(move || {
                    let mut found = vec![0; bytes];
                    for number in (first..count).step_by(SHARDS) {
                        let path = self.folder.join((number / share).to_string());
                        let at = (number % share * bytes) as u64;
                        File::open(path)
                            .and_then(|file| file.read_exact_at(&mut found, at))
                            .expect("a file has its tensors");
                        pattern::check(NAME, number, &found);
                    }
                });
            }
        });
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        self.remove();
    }
}
