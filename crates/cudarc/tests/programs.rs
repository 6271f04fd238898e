//! Random programs: buffers of both crates, copies by either, on streams of both, with waits,
//! accesses and drops in between. Each element of each buffer has a value that a plain model knows,
//! because both crates promise the order of the calls.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, CudaView};
use pinlane::{Device, DeviceBuf, PinnedBuf, PinnedPool, Stream};
use pinlane_cudarc::SharedStream;

use crate::harness::programs::{self, Outcome, Steps, check};
use crate::harness::random::Random;

/// Elements of a buffer. All have the same length.
const LEN: usize = 24 << 10;

/// Memory of cudarc.
struct Slice {
    memory: CudaSlice<u32>,
    model: Vec<u32>,
    /// cudarc has one event for all reads of a slice. It forgets a read when another stream reads,
    /// so the program makes the next of cudarc's own reads wait for it.
    last_read: Option<CudaEvent>,
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
    context: Arc<CudaContext>,
    device: Device,
    pool: PinnedPool,
    shared: Vec<SharedStream>,
    streams: Vec<Stream>,
    slices: Vec<Slice>,
    hosts: Vec<Host>,
    owns: Vec<Own>,
    /// cudarc orders the uses of its memory only as long as one of its streams exists.
    _first: Arc<CudaStream>,
    steps: Steps,
}

impl Slice {
    /// A part that cudarc may read on `stream`.
    fn for_read(&self, stream: &CudaStream, part: &Range<usize>) -> Outcome<CudaView<'_, u32>> {
        if let Some(earlier) = &self.last_read {
            stream.wait(earlier)?;
        }
        Ok(self.memory.slice(part.clone()))
    }

    /// A read is on `stream`.
    fn was_read(&mut self, stream: &CudaStream) -> Outcome {
        self.last_read = Some(stream.record_event(None)?);
        Ok(())
    }
}

impl Program {
    fn begin(seed: u64) -> Outcome<Self> {
        let context = CudaContext::new(0)?;
        let device = Device::open(0)?;
        // So small that blocks in flight are waited for.
        let pool = PinnedPool::builder(&device).max_bytes(6 * 4 * LEN).build()?;
        let mut program = Program {
            random: Random(seed),
            _first: context.new_stream()?,
            shared: vec![SharedStream::new(&device, &context.default_stream())?],
            streams: vec![device.stream()?],
            slices: Vec::new(),
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
            let slice = program.new_slice()?;
            program.slices.push(slice);
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

    fn new_slice(&mut self) -> Outcome<Slice> {
        let by = self.random.below(self.shared.len());
        let memory = self.shared[by].cudarc().alloc_zeros(LEN)?;
        Ok(Slice { memory, model: vec![0; LEN], last_read: None })
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
        let s = self.random.below(self.slices.len());
        let h = self.random.below(self.hosts.len());
        let o = self.random.below(self.owns.len());
        let (part, step) = (self.random.part(LEN), self.random.below(26));
        let line = format!("{step}: shared {shared}, slice {s}, host {h}, own {o}, {part:?}");
        self.steps.push(line);
        let stream = self.shared[shared].clone();
        let cudarc = stream.cudarc().clone();
        let some = self.stream();
        match step {
            // Copies by pinlane, with cudarc's memory.
            0..=2 => {
                let (slice, host) = (&mut self.slices[s], &self.hosts[h]);
                let from = host.memory.slice(part.clone())?;
                stream.upload(from, slice.memory.slice_mut(part.clone()))?;
                slice.model[part.clone()].copy_from_slice(&host.model[part]);
            }
            3..=5 => {
                let (slice, host) = (&mut self.slices[s], &mut self.hosts[h]);
                let to = host.memory.slice_mut(part.clone())?;
                stream.download(slice.memory.slice(part.clone()), to)?;
                slice.was_read(&cudarc)?;
                host.model[part.clone()].copy_from_slice(&slice.model[part]);
            }
            6 => {
                let values = self.random.values(part.len());
                let slice = &mut self.slices[s];
                stream.upload_slice(&values, slice.memory.slice_mut(part.clone()))?;
                slice.model[part].copy_from_slice(&values);
            }
            7 => {
                let slice = &mut self.slices[s];
                let mut values = vec![0; part.len()];
                stream.download_slice(slice.memory.slice(part.clone()), &mut values)?;
                slice.was_read(&cudarc)?;
                check("download_slice", &values, &slice.model[part])?;
            }
            // cudarc's own copies, with page-locked memory of pinlane.
            8..=10 => {
                let (slice, host) = (&mut self.slices[s], &self.hosts[h]);
                let mut to = slice.memory.slice_mut(part.clone());
                let from = host.memory.slice(part.clone())?;
                stream.lend_host(from, |from| cudarc.memcpy_htod(from, &mut to))??;
                slice.model[part.clone()].copy_from_slice(&host.model[part]);
            }
            11..=13 => {
                let (slice, host) = (&mut self.slices[s], &mut self.hosts[h]);
                let from = slice.for_read(&cudarc, &part)?;
                let to = host.memory.slice_mut(part.clone())?;
                stream.lend_host_mut(to, |to| cudarc.memcpy_dtoh(&from, to))??;
                slice.was_read(&cudarc)?;
                host.model[part.clone()].copy_from_slice(&slice.model[part]);
            }
            14 => {
                let host = &self.hosts[h];
                let memory = stream.lend_host(&host.memory, |from| cudarc.clone_htod(from))??;
                self.slices[s] = Slice { memory, model: host.model.clone(), last_read: None };
            }
            // cudarc's own copies, with device memory of pinlane.
            15 => {
                let (slice, own) = (&mut self.slices[s], &self.owns[o]);
                let mut to = slice.memory.slice_mut(part.clone());
                let from = own.memory.slice(part.clone())?;
                stream.lend_device(from, |from| cudarc.memcpy_dtod(from, &mut to))??;
                slice.model[part.clone()].copy_from_slice(&own.model[part]);
            }
            16 => {
                let (slice, own) = (&mut self.slices[s], &mut self.owns[o]);
                let from = slice.for_read(&cudarc, &part)?;
                let to = own.memory.slice_mut(part.clone())?;
                stream.lend_device_mut(to, |to| cudarc.memcpy_dtod(&from, to))??;
                slice.was_read(&cudarc)?;
                own.model[part.clone()].copy_from_slice(&slice.model[part]);
            }
            // cudarc by itself.
            17 => {
                let slice = &mut self.slices[s];
                cudarc.memset_zeros(&mut slice.memory.slice_mut(part.clone()))?;
                slice.model[part].fill(0);
            }
            18 => {
                let mut values = vec![0; part.len()];
                let slice = &mut self.slices[s];
                cudarc.memcpy_dtoh(&slice.for_read(&cudarc, &part)?, &mut values)?;
                slice.was_read(&cudarc)?;
                cudarc.synchronize()?;
                check("memcpy_dtoh", &values, &slice.model[part])?;
            }
            // pinlane by itself.
            19 => {
                let (host, own) = (&self.hosts[h], &mut self.owns[o]);
                let from = host.memory.slice(part.clone())?;
                some.upload(from, own.memory.slice_mut(part.clone())?)?;
                own.model[part.clone()].copy_from_slice(&host.model[part]);
            }
            20 => {
                let (host, own) = (&mut self.hosts[h], &self.owns[o]);
                let from = own.memory.slice(part.clone())?;
                some.download(from, host.memory.slice_mut(part.clone())?)?;
                host.model[part.clone()].copy_from_slice(&own.model[part]);
            }
            // The host.
            21 => {
                let host = &self.hosts[h];
                check("read", host.memory.slice(part.clone())?.read()?, &host.model[part])?;
            }
            22 => {
                let values = self.random.values(part.len());
                let host = &mut self.hosts[h];
                let to = host.memory.slice_mut(part.clone())?;
                to.into_write()?.copy_from_slice(&values);
                host.model[part].copy_from_slice(&values);
            }
            23 => some.busy(Duration::from_micros(100)).map(drop)?,
            // Waits and drops.
            24 => match self.random.below(3) {
                0 => cudarc.join(self.shared[0].cudarc())?,
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
                    self.slices.swap_remove(s);
                    let slice = self.new_slice()?;
                    self.slices.push(slice);
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
        for slice in &self.slices {
            let mut values = vec![0; LEN];
            self.shared[1].download_slice(&slice.memory, &mut values)?;
            check("download_slice at the end", &values, &slice.model)?;
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
    programs::run::<Program>(seed, count)
}
