//! Saves the weights of all GPUs to one safetensors file while kernels continue to change them,
//! loads the file and checks it. Without a GPU: on an emulated machine with two devices.
//!
//! ```text
//! cargo run --release --example checkpoint [FILE [TENSORS]]      of 8 MiB, on each device; 16
//!
//!   kernels | step | snapshot | step | step | step ...      the snapshot is a copy on the device
//!   copies                    | download 0 | download 1 | download 2 | ...
//!   thread                                 | write 0    | write 1    | ...
//! ```
//!
//! Each device has a thread and two streams. No line here orders them: the order follows from the
//! buffers that the calls name. `load_safetensors FILE` loads the file as well.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Instant;
use std::{env, process, thread};

use pinlane::emulated::Emulator;
use pinlane::file::FileReader;
use pinlane::{Device, DeviceBuf, PinnedBuf, PinnedPool, Stream};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The length of each tensor.
const ELEMENTS: usize = 2 << 20;
const BYTES: usize = ELEMENTS * size_of::<u32>();
/// How many tensors are in flight while one is written.
const AHEAD: usize = 3;

/// The part of one device.
struct Shard {
    /// The number of its first tensor, counted over all devices, and its offset in the file.
    first: usize,
    place: u64,
    pool: PinnedPool,
    kernels: Stream,
    copies: Stream,
    weights: Vec<DeviceBuf<u32>>,
    snapshot: Vec<DeviceBuf<u32>>,
}

fn main() -> Result<()> {
    let named = env::args().nth(1);
    let count = env::args().nth(2).map_or(Ok(16), |count| count.parse())?;
    let scratch = env::temp_dir().join(format!("pinlane-checkpoint-{}", process::id()));
    let path = named.as_ref().map_or(scratch, Into::into);
    let devices = devices()?;
    let header = header(devices.len() * count)?;
    let new = |(number, device)| Shard::new(device, number * count, count, header.len());
    let mut shards = devices.iter().enumerate().map(new).collect::<Result<Vec<_>>>()?;
    println!("{} devices ({}), {count} tensors of 8 MiB on each", devices.len(), devices[0].name());

    phase("snapshot", &mut shards, &Shard::take_snapshot)?;
    let file = File::create(&path)?;
    file.write_all_at(&header, 0)?;
    phase("saved", &mut shards, &|shard| shard.save(&file))?;
    let file = FileReader::open(&path)?;
    phase("loaded", &mut shards, &|shard| shard.load(&file))?;
    phase("checked", &mut shards, &Shard::check)?;
    if named.is_none() {
        fs::remove_file(&path)?;
    }
    Ok(())
}

/// All GPUs; without one, an emulated machine with two devices.
fn devices() -> pinlane::Result<Vec<Device>> {
    let machine = Emulator::builder().devices(2).build();
    match Device::available().as_slice() {
        [] => (0..2).map(|ordinal| Device::of_emulator(&machine, ordinal)).collect(),
        gpus => gpus.iter().map(|gpu| Device::open(gpu.ordinal)).collect(),
    }
}

/// The beginning of the file: the length of the JSON, and the JSON.
fn header(tensors: usize) -> Result<Vec<u8>> {
    let tensor = |number: usize| {
        let data_offsets = (number * BYTES, (number + 1) * BYTES);
        let info = TensorInfo { dtype: Dtype::U32, shape: vec![ELEMENTS], data_offsets };
        (format!("weights.{number}"), info)
    };
    let json = serde_json::to_vec(&Metadata::new(None, (0..tensors).map(tensor).collect())?)?;
    Ok([&(json.len() as u64).to_le_bytes(), json.as_slice()].concat())
}

impl Shard {
    fn new(device: &Device, first: usize, count: usize, header: usize) -> Result<Self> {
        let (kernels, copies) = (device.stream()?, device.stream()?);
        let (mut weights, mut snapshot) = (Vec::new(), Vec::new());
        for number in first..first + count {
            let mut buffer = device.alloc(ELEMENTS)?;
            copies.upload_slice(&values(number), &mut buffer)?;
            weights.push(buffer);
            snapshot.push(device.alloc(ELEMENTS)?);
        }
        copies.synchronize()?;
        let pool = PinnedPool::builder(device).build()?;
        let place = (header + first * BYTES) as u64;
        Ok(Shard { first, place, pool, kernels, copies, weights, snapshot })
    }

    fn take_snapshot(&mut self) -> Result<()> {
        for (weights, snapshot) in self.weights.iter().zip(&mut self.snapshot) {
            self.kernels.copy(weights, snapshot)?;
        }
        Ok(self.kernels.synchronize()?) // only for the clock
    }

    fn save(&mut self, file: &File) -> Result<()> {
        let write = |(number, block): (usize, PinnedBuf<u32>)| {
            let bytes = bytemuck::cast_slice(block.read()?); // waits until it has arrived
            Result::Ok(file.write_all_at(bytes, self.place + (number * BYTES) as u64)?)
        };
        let mut coming = VecDeque::new();
        for (number, snapshot) in self.snapshot.iter().enumerate() {
            let mut block = self.pool.alloc(ELEMENTS)?;
            self.copies.download(snapshot, &mut block)?;
            coming.push_back((number, block));
            self.kernels.fill(&mut self.weights[number], 0)?; // a step of the training
            if coming.len() > AHEAD {
                coming.pop_front().map_or(Ok(()), write)?;
            }
        }
        coming.into_iter().try_for_each(write)
    }

    fn load(&mut self, file: &FileReader) -> Result<()> {
        let places = (self.place..).step_by(BYTES);
        self.copies.upload_file_ranges(file, places.zip(&mut self.weights))?;
        Ok(self.copies.synchronize()?)
    }

    fn check(&mut self) -> Result<()> {
        let mut back = vec![0; ELEMENTS];
        for (number, weights) in (self.first..).zip(&self.weights) {
            self.copies.download_slice(weights, &mut back)?;
            assert!(back == values(number), "weights.{number} came back as they were");
        }
        Ok(())
    }
}

fn values(tensor: usize) -> Vec<u32> {
    (0..ELEMENTS as u32).map(|index| index ^ (tensor as u32) << 24).collect()
}

type Work<'w> = &'w (dyn Fn(&mut Shard) -> Result<()> + Sync);

/// Does the work of all devices at once, and prints the speed.
fn phase(name: &str, shards: &mut [Shard], work: Work<'_>) -> Result<()> {
    let bytes: usize = shards.iter().map(|shard| shard.weights.len() * BYTES).sum();
    let start = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = shards.iter_mut().map(|it| scope.spawn(move || work(it))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{name:<9} {:7.1} ms  {:6.2} GB/s", seconds * 1e3, bytes as f64 / seconds / 1e9);
    Ok(())
}
