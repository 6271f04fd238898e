//! A thousand pageable slices of a million floats each: more than any cache holds.

use pinlane::{
    DeviceBuf, Result, Stream,
    batch::{Downloads, Uploads},
};

use super::ceiling::Ceiling;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::timing::{medians_of, seconds};
use super::{Bench, GIB, MIB, TENSOR};

const BATCH: &str = "1000 pageable slices of 4,000,000 bytes to a device buffer each, or back, in \
    one batch whose list was made before, until the data is there, host's clock; median, in turns \
    with the reference";
const LOOP: &str = "1000 pageable slices of 4,000,000 bytes to a device buffer each, or back, one \
    call for each, until the data is there, host's clock; median, in turns with the reference";

struct Slices {
    stream: Stream,
    host: Vec<Vec<u8>>,
    gpu: Vec<DeviceBuf<u8>>,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (count, shape, room) =
        if bench.quick { (4, "4x4mb", 16 * MIB) } else { (1000, "1000x4mb", GIB) };
    let names = ["h2d", "d2h"].map(|way| format!("staged.{way}.{shape}"));
    if !names.iter().any(|name| report.wants(name)) {
        return Ok(());
    }
    let samples = if bench.quick { 3 } else { 7 };
    let mut slices = Slices {
        stream: bench.device.stream()?,
        host: vec![vec![1; TENSOR]; count],
        gpu: (0..count).map(|_| bench.device_memory(TENSOR)).collect::<Result<_>>()?,
    };
    let ceiling = Ceiling::new(bench, room)?;
    for (name, way) in names.into_iter().zip([Way::H2D, Way::D2H]) {
        let [batch, one_by_one, bare] = medians_of(
            &mut slices,
            samples,
            [&|slices| slices.batch(way), &|slices| slices.one_by_one(way), &|_| {
                ceiling.copies(way, count, TENSOR)
            }],
        )?;
        let reference =
            bench.bare.name("1000 bare cudaMemcpyAsync, from or to 1 GiB of pinned memory");
        for (name, time, method) in
            [(format!("{name}.loop"), one_by_one, LOOP), (name, batch, BATCH)]
        {
            report.add(
                Figure::lower(name, time * 1e3, "ms")
                    .beside(reference, bare * 1e3)
                    .by(method, samples),
            );
        }
    }
    Ok(())
}

impl Slices {
    fn batch(&mut self, way: Way) -> Result<f64> {
        let Slices { stream, host, gpu } = self;
        match way {
            Way::H2D => {
                let mut list: Uploads<'_> = host.iter().zip(gpu).collect();
                seconds(|| stream.upload_list(&mut list)?.wait())
            }
            Way::D2H => {
                let mut list: Downloads<'_> = gpu.iter().zip(host).collect();
                seconds(|| stream.download_list(&mut list)?.wait())
            }
        }
    }

    fn one_by_one(&mut self, way: Way) -> Result<f64> {
        let Slices { stream, host, gpu } = self;
        seconds(|| {
            for (host, gpu) in host.iter_mut().zip(gpu) {
                match way {
                    Way::H2D => drop(stream.upload_slice(host, gpu)?),
                    Way::D2H => stream.download_slice(&*gpu, host)?,
                }
            }
            stream.synchronize()
        })
    }
}
