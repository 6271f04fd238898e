//! Random programs: buffers of both crates, copies by either, on streams of both, with waits,
//! accesses and drops in between. Each element of each buffer has a value that a plain model knows:
//! pinlane promises the order of the calls, and cuda-core refuses a call that it would not order.
//! A refused call must have a reason, and no effect.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cuda_core::{Context, DeviceBuffer, DriverError};
use pinlane::{Device, DeviceBuf, PinnedBuf, PinnedPool, Stream};
use pinlane_cuda_core::{Error, SharedStream};

use crate::harness::programs::{self, Outcome, Steps, check};
use crate::harness::random::Random;

/// Elements of a buffer. All have the same length.
const LEN: usize = 24 << 10;

/// How many calls cuda-core has refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Memory of cuda-core.
struct Buffer {
    memory: DeviceBuffer<u32>,
    model: Vec<u32>,
    /// The streams that may still use it.
    users: HashSet<usize>,
}

/// Page-locked memory.
struct Host {
    memory: PinnedBuf<u32>,
    model: Vec<u32>,
}

/// Device memory of pinlane.
struct Own {
    memory: DeviceBuf<u32>,
    model: Vec<u32>,
}

struct Program {
    random: Random,
    context: Arc<Context>,
    device: Device,
    pool: PinnedPool,
    shared: Vec<SharedStream>,
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
    hosts: Vec<Host>,
    owns: Vec<Own>,
    steps: Steps,
}

/// What cuda-core's own call has come to, in a closure or not.
fn flat<R>(result: Result<Result<R, DriverError>, Error>) -> Result<R, Error> {
    Ok(result??)
}

impl Buffer {
    fn new(memory: DeviceBuffer<u32>, model: Vec<u32>) -> Self {
        Buffer { memory, model, users: HashSet::new() }
    }

    /// Uses the memory on a stream. A refused call is repeated when all work is complete.
    fn on<R>(
        &mut self,
        stream: &SharedStream,
        mut call: impl FnMut(&mut DeviceBuffer<u32>) -> Result<R, Error>,
    ) -> Outcome<R> {
        let handle = stream.cuda_core().cu_stream() as usize;
        let value = match call(&mut self.memory) {
            Err(Error::InUse) if self.users.iter().all(|&user| user == handle) => {
                return Err("refused, and only this stream has used the memory".into());
            }
            Err(Error::InUse) => {
                REFUSED.fetch_add(1, Relaxed);
                self.users.clear();
                self.memory.context().synchronize()?;
                call(&mut self.memory)?
            }
            result => result?,
        };
        self.users.insert(handle);
        Ok(value)
    }
}

impl Program {
    fn begin(seed: u64) -> Outcome<Self> {
        let context = Context::new(0)?;
        let device = Device::open(0)?;
        // So small that blocks in flight are waited for.
        let pool = PinnedPool::builder(&device).max_bytes(6 * 4 * LEN).build()?;
        let mut program = Program {
            random: Random(seed),
            shared: vec![SharedStream::new(&device, &context.default_stream())?],
            streams: vec![device.stream()?],
            buffers: Vec::new(),
            hosts: Vec::new(),
            owns: Vec::new(),
            steps: Steps::default(),
            context,
            device,
            pool,
        };
        for _ in 0..2 {
            let stream = program.new_stream()?;
            program.shared.push(stream);
            let memory = program.device.alloc(LEN)?;
            let mut own = Own { memory, model: program.random.values(LEN) };
            program.streams[0].upload_slice(&own.model, &mut own.memory)?;
            program.owns.push(own);
        }
        for _ in 0..3 {
            let host = program.new_host()?;
            program.hosts.push(host);
            let buffer = program.new_buffer()?;
            program.buffers.push(buffer);
        }
        Ok(program)
    }

    fn new_stream(&self) -> Outcome<SharedStream> {
        Ok(SharedStream::new(&self.device, &self.context.new_stream()?)?)
    }

    fn new_host(&mut self) -> Outcome<Host> {
        let mut host = Host { memory: self.pool.alloc(LEN)?, model: self.random.values(LEN) };
        host.memory.write()?.copy_from_slice(&host.model);
        Ok(host)
    }

    fn new_buffer(&mut self) -> Outcome<Buffer> {
        let by = self.random.below(self.shared.len());
        let memory = DeviceBuffer::zeroed(self.shared[by].cuda_core(), LEN)?;
        Ok(Buffer::new(memory, vec![0; LEN]))
    }

    /// A stream of pinlane.
    fn stream(&mut self) -> Stream {
        let by = self.random.below(self.shared.len() + self.streams.len());
        match self.shared.get(by) {
            Some(shared) => shared.pinlane().clone(),
            None => self.streams[by - self.shared.len()].clone(),
        }
    }

    fn step(&mut self) -> Outcome {
        let shared = self.random.below(self.shared.len());
        let b = self.random.below(self.buffers.len());
        let h = self.random.below(self.hosts.len());
        let o = self.random.below(self.owns.len());
        let (part, step) = (self.random.part(LEN), self.random.below(25));
        let line = format!("{step}: shared {shared}, buffer {b}, host {h}, own {o}, {part:?}");
        self.steps.push(line);
        let stream = self.shared[shared].clone();
        let cuda = stream.cuda_core().clone();
        let some = self.stream();
        let (buffer, host, own) = (&mut self.buffers[b], &mut self.hosts[h], &mut self.owns[o]);
        match step {
            // Copies by pinlane, with cuda-core's memory.
            0..=3 => {
                buffer.on(&stream, |memory| {
                    stream.upload(host.memory.slice(part.clone())?, (memory, part.clone()))
                })?;
                buffer.model[part.clone()].copy_from_slice(&host.model[part]);
            }
            4..=7 => {
                buffer.on(&stream, |memory| {
                    let to = host.memory.slice_mut(part.clone())?;
                    stream.download(memory.slice(part.clone())?, to)
                })?;
                host.model[part.clone()].copy_from_slice(&buffer.model[part]);
            }
            8 => {
                let values = self.random.values(part.len());
                buffer
                    .on(&stream, |memory| stream.upload_slice(&values, (memory, part.clone())))?;
                buffer.model[part].copy_from_slice(&values);
            }
            9 => {
                let mut values = vec![0; part.len()];
                buffer.on(&stream, |memory| {
                    stream.download_slice(memory.slice(part.clone())?, &mut values)
                })?;
                check("download_slice", &values, &buffer.model[part])?;
            }
            // cuda-core's own copies, with page-locked memory of pinlane.
            10 | 11 => {
                buffer.on(&stream, |memory| {
                    flat(stream.lend_host(&host.memory, |host| {
                        // SAFETY: a use on this stream, which `lend_host` waits for.
                        unsafe { memory.copy_from_host_async_unchecked(&cuda, host) }
                    }))
                })?;
                buffer.model.copy_from_slice(&host.model);
            }
            12 => {
                let memory = stream.lend_host(&host.memory, |host| {
                    // SAFETY: a use on this stream, which `lend_host` waits for.
                    unsafe { DeviceBuffer::from_host_async_unchecked(&cuda, host) }
                })??;
                *buffer = Buffer::new(memory, host.model.clone());
                buffer.users.insert(cuda.cu_stream() as usize);
            }
            // cuda-core's own copies, with device memory of pinlane.
            13 => {
                buffer.on(&stream, |memory| {
                    // SAFETY: memory of that device, of which only a copy is left.
                    flat(unsafe {
                        stream.lend_device(&own.memory, |own| {
                            memory.copy_from_device_async(own, &cuda)
                        })
                    })
                })?;
                buffer.model.copy_from_slice(&own.model);
            }
            14 => {
                buffer.on(&stream, |memory| {
                    // SAFETY: memory of that device, of which only a copy is left.
                    flat(unsafe {
                        stream.lend_device_mut(&mut own.memory, |own| {
                            own.copy_from_device_async(memory, &cuda)
                        })
                    })
                })?;
                own.model.copy_from_slice(&buffer.model);
            }
            15 => {
                let to = own.memory.slice_mut(part.clone())?;
                // SAFETY: memory of that device, of which only a fill is left.
                unsafe { stream.lend_device_mut(to, |to| to.zero_async(&cuda)) }??;
                own.model[part].fill(0);
            }
            // cuda-core by itself.
            16 => {
                buffer.on(&stream, |memory| Ok(memory.zero_async(&cuda)?))?;
                buffer.model.fill(0);
            }
            17 => {
                let found = buffer.on(&stream, |memory| Ok(memory.to_host_vec(&cuda)?))?;
                check("to_host_vec", &found, &buffer.model)?;
            }
            // pinlane by itself.
            18 => {
                let from = host.memory.slice(part.clone())?;
                some.upload(from, own.memory.slice_mut(part.clone())?)?;
                own.model[part.clone()].copy_from_slice(&host.model[part]);
            }
            19 => {
                let from = own.memory.slice(part.clone())?;
                some.download(from, host.memory.slice_mut(part.clone())?)?;
                host.model[part.clone()].copy_from_slice(&own.model[part]);
            }
            // The host.
            20 => check("read", host.memory.slice(part.clone())?.read()?, &host.model[part])?,
            21 => {
                let values = self.random.values(part.len());
                let to = host.memory.slice_mut(part.clone())?;
                to.into_write()?.copy_from_slice(&values);
                host.model[part].copy_from_slice(&values);
            }
            22 => some.busy(Duration::from_micros(100)).map(drop)?,
            // Waits and drops.
            23 => match self.random.below(3) {
                0 => cuda.join(self.shared[0].cuda_core())?,
                1 => some.wait_for(&stream.pinlane().record()?)?,
                _ => self.shared[1 + shared % 2] = self.new_stream()?,
            },
            _ => match self.random.below(2) {
                0 => {
                    self.hosts.swap_remove(h);
                    let host = self.new_host()?;
                    self.hosts.push(host);
                }
                _ => {
                    self.buffers.swap_remove(b);
                    let buffer = self.new_buffer()?;
                    self.buffers.push(buffer);
                }
            },
        }
        Ok(())
    }

    fn all_steps(&mut self) -> Outcome {
        for _ in 0..60 {
            self.step()?;
        }
        // Half of the programs end in the middle of everything.
        if self.random.below(2) == 0 {
            return Ok(());
        }
        for host in &self.hosts {
            check("read at the end", host.memory.read()?, &host.model)?;
        }
        for buffer in &mut self.buffers {
            let mut values = vec![0; LEN];
            buffer.on(&self.shared[1], |memory| {
                self.shared[1].download_slice(&*memory, &mut values)
            })?;
            check("download_slice at the end", &values, &buffer.model)?;
        }
        Ok(())
    }
}

impl programs::Program for Program {
    fn new(seed: u64) -> Outcome<Self> {
        Program::begin(seed)
    }

    fn run(&mut self) -> Outcome {
        self.all_steps()?;
        Ok(self.context.check_err()?)
    }

    fn steps(&mut self) -> &mut Steps {
        &mut self.steps
    }
}

/// Runs programs with these seeds; all must agree with the model.
pub fn run(seed: u64, count: u64) -> bool {
    let passed = programs::run::<Program>(seed, count);
    println!("{} calls were refused, and repeated", REFUSED.load(Relaxed));
    passed
}
