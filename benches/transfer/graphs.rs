//! Graphs: what a launch costs beside the bare call, and a step by a graph beside its calls.

use pinlane::driver::{Driver, RawGraph, RawStream};
use pinlane::graph::Key;
use pinlane::{DeviceBuf, Graph, PinnedBuf, Result, Stream};

use super::common::figures::{Figure, Report};
use super::common::timing::{medians, seconds};
use super::{Bench, KIB, MIB};

/// The bytes of each copy of the graphs whose launch is measured.
const SMALL: usize = 64;

const LAUNCH: &str = "Graph::launch, the call alone, the stream drained after each row of calls, \
    or after each call (.written); median, in turns with the reference, which launches the same \
    work on other buffers in the same way";
const STEP: &str = "the host writes its input, uploads it, a kernel fills a part, downloads, and \
    the host reads the result; by a graph; median, in turns with the same by three calls";

/// How many buffers the measured graphs have.
const OPERANDS: [usize; 3] = [2, 10, 1000];

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if report.wants("graph.launch") {
        for operands in OPERANDS {
            launch(bench, report, operands)?;
        }
    }
    if report.wants("graph.step") {
        for (name, bytes) in [("4kib", 4 * KIB), ("64kib", 64 * KIB), ("1mib", MIB)] {
            step(bench, report, name, bytes)?;
        }
    }
    Ok(())
}

/// One upload for each pair of buffers, by this crate.
fn ours(bench: &Bench, operands: usize) -> Result<(Graph, Key<PinnedBuf<u8>>)> {
    let pool = bench.pool()?;
    let mut capture = bench.device.capture()?;
    let mut first = None;
    for _ in 0..operands / 2 {
        let host = capture.own(pool.alloc_zeroed::<u8>(SMALL)?);
        let gpu = capture.own(bench.device_memory(SMALL)?);
        capture.upload(host, gpu)?;
        first.get_or_insert(host);
    }
    Ok((capture.finish()?, first.expect("at least one")))
}

/// The same graph by the driver's calls, and the memory that it uses.
struct Bare {
    graph: RawGraph,
    _hosts: Vec<PinnedBuf<u8>>,
    _gpus: Vec<DeviceBuf<u8>>,
}

fn bare(bench: &Bench, driver: &dyn Driver, operands: usize) -> Result<Bare> {
    let (pool, mut hosts, mut gpus) = (bench.pool()?, Vec::new(), Vec::new());
    for _ in 0..operands / 2 {
        hosts.push(pool.alloc_zeroed::<u8>(SMALL)?);
        gpus.push(bench.device_memory(SMALL)?);
    }
    let stream = bench.device.stream()?;
    let raw = RawStream { device: stream.device_ordinal(), handle: stream.as_raw().addr() };
    // SAFETY: the stream is live and new; the memory lives as long as the graph.
    let graph = unsafe {
        driver.capture_begin(raw).expect("a new stream");
        for (host, gpu) in hosts.iter().zip(&gpus) {
            let copied = driver.copy_h2d(raw, gpu.as_device_ptr(), host.as_ptr(), SMALL);
            copied.expect("a captured copy");
        }
        driver.capture_end(raw).expect("a capture of copies")
    };
    Ok(Bare { graph, _hosts: hosts, _gpus: gpus })
}

fn launch(bench: &Bench, report: &mut Report, operands: usize) -> Result<()> {
    let samples = if bench.quick { 3 } else { 61 };
    // Few enough that no call waits for room in the stream.
    let calls = if operands > 100 { 4 } else { 20 };
    let stream = bench.device.stream()?;
    let driver = bench.bare.driver();
    let bare = bare(bench, &*driver, operands)?;
    let (mut graph, input) = ours(bench, operands)?;
    let mut other = ours(bench, operands)?.0;
    let raw = bench.bare.raw();
    let launch_bare = || {
        // SAFETY: the graph and the stream are live, and nothing else uses the memory. The launches
        // are waited for before either ends.
        unsafe { driver.graph_launch(bare.graph, raw) }.expect("a live graph");
        Ok(())
    };
    let [launched, written, in_a_row, drained] = medians(
        samples,
        [
            &mut || {
                let time = seconds(|| (0..calls).try_for_each(|_| other.launch(&stream).map(drop)));
                stream.synchronize()?;
                time
            },
            // A buffer is given out before each launch, and then nothing is pending.
            &mut || {
                let mut time = 0.0;
                for _ in 0..calls {
                    graph.slice_mut(input)?.into_write()?[0] += 1;
                    time += seconds(|| graph.launch(&stream).map(drop))?;
                    stream.synchronize()?;
                }
                Ok(time)
            },
            &mut || {
                let time = seconds(|| (0..calls).try_for_each(|_| launch_bare()));
                bench.bare.synchronize()?;
                time
            },
            &mut || {
                let mut time = 0.0;
                for _ in 0..calls {
                    time += seconds(launch_bare)?;
                    bench.bare.synchronize()?;
                }
                Ok(time)
            },
        ],
    )?;
    // SAFETY: the graph is live, and not used any more.
    unsafe { driver.graph_destroy(bare.graph) }.expect("a live graph");
    let micros = |time: f64| time / calls as f64 * 1e6;
    let name = bench.bare.name("bare cuGraphLaunch");
    for (suffix, time, reference) in [("", launched, in_a_row), (".written", written, drained)] {
        report.add(
            Figure::lower(format!("graph.launch.{operands}{suffix}"), micros(time), "us")
                .beside(name, micros(reference))
                .by(LAUNCH, samples),
        );
    }
    Ok(())
}

/// What the host writes and reads, and the buffer on the device.
struct Buffers {
    input: PinnedBuf<u8>,
    gpu: DeviceBuf<u8>,
    output: PinnedBuf<u8>,
}

fn buffers(bench: &Bench, bytes: usize) -> Result<Buffers> {
    let pool = bench.pool()?;
    let (input, output) = (pool.alloc_zeroed(bytes)?, pool.alloc_zeroed(bytes)?);
    Ok(Buffers { input, gpu: bench.device_memory(bytes)?, output })
}

impl Buffers {
    fn step(&mut self, stream: &Stream) -> Result<()> {
        let filled = self.gpu.len() / 2;
        self.input.write()?[0] += 1;
        stream.upload(&self.input, &mut self.gpu)?;
        stream.fill(self.gpu.slice_mut(..filled)?, 7)?;
        stream.download(&self.gpu, &mut self.output)?;
        assert_eq!(self.output.read()?[0], 7);
        Ok(())
    }
}

fn step(bench: &Bench, report: &mut Report, name: &str, bytes: usize) -> Result<()> {
    let samples = bench.samples(bytes);
    let stream = bench.device.stream()?;
    let mut by_calls = buffers(bench, bytes)?;
    let mut capture = bench.device.capture()?;
    let Buffers { input, gpu, output } = buffers(bench, bytes)?;
    let (input, output) = (capture.own(input), capture.own(output));
    let gpu = capture.own(gpu);
    capture.upload(input, gpu)?;
    capture.fill(gpu.slice(..bytes / 2), 7)?;
    capture.download(gpu, output)?;
    let mut graph = capture.finish()?;
    let [by_graph, by_calls] = medians(
        samples,
        [
            &mut || {
                seconds(|| {
                    graph.slice_mut(input)?.into_write()?[0] += 1;
                    graph.launch(&stream)?;
                    assert_eq!(graph.get(output)?.read()?[0], 7);
                    Ok(())
                })
            },
            &mut || seconds(|| by_calls.step(&stream)),
        ],
    )?;
    report.add(
        Figure::lower(format!("graph.step.{name}"), by_graph * 1e6, "us")
            .beside("three calls", by_calls * 1e6)
            .by(STEP, samples),
    );
    Ok(())
}
