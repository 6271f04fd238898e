//! Uploads of files that are in memory: the time to load a model without a disk.
//!
//! The file is a safetensors file with tensors of 32 MiB, like that of the peers
//! (`benches/peers/loaders.py`). A load is everything that a program does: opening the file,
//! reading its header, allocating device memory, copying. The first load is measured in a fresh
//! process, which runs this program again.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use pinlane::{Device, DeviceBuf, Stream, file::FileReader};
use serde_json::{Map, Value, json};

use super::ceiling::Ceiling;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::folder;
use super::common::timing::{median, medians, samples_of, seconds};
use super::{Bench, GIB, MIB, rate};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The option that makes this program load one file and print the seconds.
pub const FIRST_LOAD: &str = "first-load";
/// The same, with a warm-up.
pub const WARM_LOAD: &str = "warm-load";
/// The same, with a warm-up, to one buffer.
pub const ONE_LOAD: &str = "one-load";

const FRESH_PROCESSES: usize = 3;

const METHOD: &str = "a safetensors file of tensors of 32 MiB, in the page cache or in tmpfs, from \
    opening it until every tensor is in device memory of its own; median, in turns with the \
    reference";
const FIRST: &str =
    "the first such load of a process that has opened the device; median of 3 processes";
const WARM: &str = "the same, with Device::warm_up as its first call; median of 3 processes";
const ONE: &str = "the same, with Device::warm_up as its first call, to views of one buffer; \
    median of 3 processes";

/// How often a file is uploaded in a loop.
const OFTEN: usize = 10;

const MAPPED: &str = "the tensors of such a file, which is open, to device memory that they have \
    already; median, in turns with the reference";
const MAPPED_FIRST: &str = "the same once, from opening the file to closing it, which maps it and \
    page-locks it first, and unlocks it";
const MAPPED_OFTEN: &str = "the same ten times, from opening the file to closing it";
const SLOTS: &str = "FileReader::open: by way of slots";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let full: &[_] = &[("8g6", 256, 32 * MIB), ("134m", 4, 32 * MIB)];
    let shapes = if bench.quick { &[("2m", 2, MIB)] } else { full };
    for &(shape, count, bytes) in shapes {
        let name = format!("file.h2d.{shape}");
        if !report.wants(&name) {
            continue;
        }
        let folder = match folder::with_room(bench.files.as_deref(), count * bytes) {
            Ok(folder) => folder,
            Err(reason) => {
                report.skip(&name, reason);
                continue;
            }
        };
        let path = folder.join(format!("pinlane-bench-{}-{shape}.safetensors", std::process::id()));
        let file = Temporary::create(path, count, bytes)?;
        measure(bench, report, &name, &file.0, (count, bytes))?;
        mapped(bench, report, &format!("{name}.mapped"), &file.0)?;
    }
    Ok(())
}

fn measure(
    bench: &Bench,
    report: &mut Report,
    name: &str,
    path: &Path,
    (count, bytes): (usize, usize),
) -> Result<()> {
    let samples = if bench.quick { 3 } else { 7 };
    let (mut first, mut warm, mut one) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..FRESH_PROCESSES {
        first.push(in_fresh_process(FIRST_LOAD, path)?);
        warm.push(in_fresh_process(WARM_LOAD, path)?);
        one.push(in_fresh_process(ONE_LOAD, path)?);
    }
    let stream = bench.device.stream()?;
    let ceiling = Ceiling::new(bench, GIB.min(count * bytes))?;
    let mut failure = None;
    let [ours, bare] = medians(
        samples,
        [
            &mut || {
                let mut loaded = Ok(Vec::new());
                let time = seconds(|| {
                    loaded = load(&bench.device, &stream, path);
                    Ok(())
                });
                if let Err(error) = loaded {
                    failure.get_or_insert(error);
                }
                time
            },
            &mut || ceiling.copies(Way::H2D, count, bytes),
        ],
    )?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let (total, reference) =
        (count * bytes, bench.bare.name("as many bare cudaMemcpyAsync, pinned"));
    for (name, time, method, samples) in [
        (name.to_owned(), ours, METHOD, samples),
        (format!("{name}.first"), median(first), FIRST, FRESH_PROCESSES),
        (format!("{name}.first.warm_up"), median(warm), WARM, FRESH_PROCESSES),
        (format!("{name}.first.one"), median(one), ONE, FRESH_PROCESSES),
    ] {
        report.add(
            Figure::higher(name, rate(total, time), "GB/s")
                .beside(reference, rate(total, bare))
                .by(method, samples),
        );
    }
    Ok(())
}

/// Uploads of a file that is mapped and page-locked, beside those by way of slots: the first, later
/// ones, and a loop of ten. With the time of the host's cores.
fn mapped(bench: &Bench, report: &mut Report, name: &str, path: &Path) -> Result<()> {
    let ranges = ranges(path)?;
    let total = ranges.iter().map(|&(_, bytes)| bytes).sum::<usize>();
    let (device, stream) = (&bench.device, bench.device.stream()?);
    let allocate = |&(_, bytes): &(u64, usize)| device.alloc::<u8>(bytes);
    let mut tensors = ranges.iter().map(allocate).collect::<pinlane::Result<Vec<_>>>()?;
    let upload = |file: &FileReader, times: usize, tensors: &mut Vec<DeviceBuf<u8>>| {
        (0..times).try_for_each(|_| {
            let places = ranges.iter().map(|&(offset, _)| offset).zip(&mut *tensors);
            stream.upload_file_ranges(file, places)?.wait()
        })
    };
    let opened = FileReader::open_mapped(device, path)?;
    if !opened.is_mapped() {
        report.skip(name, "this device cannot page-lock what is mapped for reading only");
        return Ok(());
    }
    let slots = FileReader::open(path)?;
    let samples = if bench.quick { 3 } else { 7 };
    let again = samples_of(
        &mut tensors,
        samples,
        [&|tensors| upload(&opened, 1, tensors), &|tensors| upload(&slots, 1, tensors)],
    )?;
    drop(opened);
    let mut from_the_start = |times: usize| {
        samples_of(
            &mut tensors,
            samples,
            [
                &|tensors| upload(&FileReader::open_mapped(device, path)?, times, tensors),
                &|tensors| upload(&FileReader::open(path)?, times, tensors),
            ],
        )
    };
    let (first, often) = (from_the_start(1)?, from_the_start(OFTEN)?);
    for (name, method, times, [ours, theirs]) in [
        (name.to_owned(), MAPPED, 1, again),
        (format!("{name}.first"), MAPPED_FIRST, 1, first),
        (format!("{name}.ten"), MAPPED_OFTEN, OFTEN, often),
    ] {
        let bytes = total * times;
        report.add(
            Figure::rate(&name, bytes, &ours)
                .beside(SLOTS, rate(bytes, theirs.median()))
                .by(method, samples),
        );
        report.add(Figure::cores(&name, bytes, &ours, (SLOTS, &theirs)));
    }
    Ok(())
}

/// Loads every tensor of a file into its own device memory.
fn load(device: &Device, stream: &Stream, path: &Path) -> Result<Vec<DeviceBuf<u8>>> {
    let ranges = ranges(path)?;
    let file = FileReader::open(path)?;
    let allocate = |&(_, bytes): &(u64, usize)| device.alloc::<u8>(bytes);
    let mut tensors = ranges.iter().map(allocate).collect::<pinlane::Result<Vec<_>>>()?;
    let places = ranges.iter().map(|&(offset, _)| offset).zip(&mut tensors);
    stream.upload_file_ranges(&file, places)?.wait()?;
    Ok(tensors)
}

/// Loads every tensor of a file into views of one buffer.
fn load_to_one(device: &Device, stream: &Stream, path: &Path) -> Result<Vec<DeviceBuf<u8>>> {
    let ranges = ranges(path)?;
    let file = FileReader::open(path)?;
    let mut memory = device.alloc::<u8>(ranges.iter().map(|&(_, bytes)| bytes).sum())?;
    let (mut places, mut rest) = (Vec::with_capacity(ranges.len()), memory.as_slice_mut());
    for (offset, bytes) in ranges {
        let (place, behind) = rest.split_at_mut(bytes)?;
        places.push((offset, place));
        rest = behind;
    }
    stream.upload_file_ranges(&file, places)?.wait()?;
    Ok(vec![memory])
}

/// The offset in the file and the size of each tensor, in bytes.
fn ranges(path: &Path) -> Result<Vec<(u64, usize)>> {
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let mut header = vec![0; usize::try_from(u64::from_le_bytes(length))?];
    file.read_exact(&mut header)?;
    let start = 8 + header.len() as u64;
    let header: Map<String, Value> = serde_json::from_slice(&header)?;
    let mut ranges = Vec::with_capacity(header.len());
    for tensor in header.values() {
        let offset = |index: usize| tensor["data_offsets"][index].as_u64().ok_or("no offsets");
        let (from, to) = (offset(0)?, offset(1)?);
        ranges.push((start + from, usize::try_from(to - from)?));
    }
    ranges.sort_unstable(); // in the order of the file
    Ok(ranges)
}

/// The whole work of a process that was started for a first load, by one of the options.
pub fn first_load(device: &Device, path: &str, option: &str) -> Result<()> {
    let stream = device.stream()?;
    let start = Instant::now();
    if option != FIRST_LOAD {
        device.warm_up();
    }
    let load = if option == ONE_LOAD { load_to_one } else { load };
    let tensors = load(device, &stream, Path::new(path))?;
    println!("{}", start.elapsed().as_secs_f64());
    drop(tensors); // not part of the load
    Ok(())
}

fn in_fresh_process(option: &str, path: &Path) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    let done = command.arg(format!("--{option}")).arg(path).output()?;
    let (said, error) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    said.trim().parse().map_err(|_| format!("a first load printed {said:?}: {error}").into())
}

/// A file that is removed when the measurement ends, also by an error.
struct Temporary(PathBuf);

impl Temporary {
    /// A safetensors file. Every tensor has the same contents, which are not zeroes.
    fn create(path: PathBuf, count: usize, bytes: usize) -> Result<Self> {
        let mut header = Map::new();
        for index in 0..count {
            let offsets = [index * bytes, (index + 1) * bytes];
            let tensor = json!({"dtype": "U8", "shape": [bytes], "data_offsets": offsets});
            header.insert(format!("layers.{index}.weight"), tensor);
        }
        let mut header = Value::from(header).to_string();
        while header.len() % 8 != 0 {
            header.push(' ');
        }
        let contents: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
        let file = Temporary(path);
        let mut out = File::create(&file.0)?;
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        (0..count).try_for_each(|_| out.write_all(&contents))?;
        Ok(file)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
