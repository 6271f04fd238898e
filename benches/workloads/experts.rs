//! Weights on demand: each step computes with a few experts of a large host set, while the experts
//! of the next step are uploaded. Reference: the longer of the two alone, the copies by bare calls.

use std::time::Duration;

use pinlane::batch::{Upload, Uploads};
use pinlane::{DeviceBuf, DeviceSliceMut, PinnedBuf, Result, Stream};

use super::common::bare::Bare;
use super::common::figures::{Figure, Report};
use super::common::numbers::scattered;
use super::common::product::Product;
use super::common::timing::samples_of;
use super::{Bench, KIB, MIB, busy, pattern};

const NAME: &str = "workload.experts";
/// The experts of the set, and those of a step. In a run each is used once.
const SET: usize = 256;
const CHOSEN: usize = 16;
const EXPERT: usize = 8 * MIB;
const PRODUCTS: usize = 2;
const SPIN: Duration = Duration::from_micros(3000);

const METHOD: &str = "a step of 16: 16 of 256 experts of 8 MiB each, page-locked or pageable and \
    each a buffer of its own, go to one of two places on the device, while the step before \
    computes: 2 products of 8192 x 8192 in bfloat16, or 3 ms of a spinning kernel without cuBLAS; \
    from the first call until the last step is done, host's clock; median, in turns with the \
    reference";
const REFERENCE: &str = "the longer of the computing alone and bare copies alone";

struct Experts {
    copies: Stream,
    pinned: Vec<PinnedBuf<u8>>,
    pageable: Vec<Vec<u8>>,
    places: [Vec<DeviceBuf<u8>>; 2],
    order: Vec<usize>,
    compute: Compute,
    /// The checksums of the experts on the device, in the order of their use.
    sums: DeviceBuf<u64>,
    bare: Bare,
}

enum Compute {
    Products(Box<Product>),
    Spin(Stream),
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants(NAME) {
        return Ok(());
    }
    let mut experts = Experts::new(bench, report)?;
    for pinned in [true, false] {
        experts.steps(pinned)?;
        experts.check()?;
    }
    let [pinned, pageable, compute, bare] = samples_of(
        &mut experts,
        bench.samples(21),
        [&|it| it.steps(true), &|it| it.steps(false), &Experts::compute_alone, &Experts::bare],
    )?;
    let steps = SET / CHOSEN;
    let longer = compute.median().max(bare.median());
    for (place, runs) in [("pinned", pinned), ("pageable", pageable)] {
        let name = format!("{NAME}.{place}");
        report.add(
            Figure::millis(&*name, &runs.each(steps))
                .beside(REFERENCE, longer / steps as f64 * 1e3)
                .by(METHOD, runs.count()),
        );
        let bytes = SET * experts.pinned[0].len();
        report.add(Figure::cores(&name, bytes, &runs, ("bare copies alone", &bare)));
    }
    Ok(())
}

impl Experts {
    fn new(bench: &Bench, report: &mut Report) -> Result<Self> {
        let bytes = if bench.small { 16 * KIB } else { EXPERT };
        let pool = bench.pool(SET * bytes)?;
        let mut pinned: Vec<PinnedBuf<u8>> =
            (0..SET).map(|_| pool.alloc(bytes)).collect::<Result<_>>()?;
        for (number, expert) in pinned.iter_mut().enumerate() {
            pattern::write(number, expert.write()?);
        }
        let pageable = pinned.iter().map(|expert| Ok(expert.read()?.to_vec()));
        let pageable = pageable.collect::<Result<_>>()?;
        let place = || (0..CHOSEN).map(|_| bench.device_memory(bytes)).collect::<Result<_>>();
        let compute = match busy::product(bench, report, &format!("{NAME}.products"))? {
            Some(product) => Compute::Products(product.into()),
            None => Compute::Spin(bench.device.stream()?),
        };
        Ok(Experts {
            copies: bench.device.stream()?,
            pinned,
            pageable,
            places: [place()?, place()?],
            order: scattered(SET, SET).into_iter().map(|expert| expert as usize).collect(),
            compute,
            sums: bench.device.alloc(SET)?,
            bare: bench.bare.another(&bench.device)?,
        })
    }

    /// Runs all steps. The buffers order the reuse of a place, and the arrival of its experts.
    fn steps(&mut self, from_pinned: bool) -> Result<()> {
        let Experts { copies, pinned, pageable, places, order, compute, sums, .. } = self;
        for (step, chosen) in order.chunks(CHOSEN).enumerate() {
            let place = &mut places[step % 2];
            let list = chosen.iter().zip(place.iter_mut()).map(|(&expert, to)| {
                let to = DeviceSliceMut::from(to);
                if from_pinned {
                    Upload::new(&pinned[expert], to)
                } else {
                    Upload::new(&pageable[expert], to)
                }
            });
            copies.upload_list(&mut list.collect::<Uploads<'_>>())?;
            compute.step(place, sums, step * CHOSEN)?;
        }
        compute.stream().synchronize()
    }

    fn compute_alone(&mut self) -> Result<()> {
        for step in 0..SET / CHOSEN {
            self.compute.step(&self.places[step % 2], &mut self.sums, step * CHOSEN)?;
        }
        self.compute.stream().synchronize()
    }

    fn bare(&mut self) -> Result<()> {
        for (n, &expert) in self.order.iter().enumerate() {
            let (from, to) = (&self.pinned[expert], &self.places[n / CHOSEN % 2][n % CHOSEN]);
            // SAFETY: both have the same length, and are borrowed exclusively through `self`. They
            // are idle: every run is waited for, as these copies are below.
            unsafe { self.bare.upload(to.as_device_ptr(), from.as_ptr(), from.len()) };
        }
        self.bare.synchronize()
    }

    /// Checks that every step has read its own experts, and resets the sums.
    fn check(&mut self) -> Result<()> {
        let mut sums = vec![0u64; SET];
        self.copies.download_slice(&self.sums, &mut sums)?;
        for (&expert, sum) in self.order.iter().zip(sums) {
            let expected = pinlane::checksum(&self.pageable[expert]);
            assert_eq!(sum, expected, "{NAME}: the bytes of expert {expert} did not arrive");
        }
        self.copies.fill(&mut self.sums, 0)?.wait()
    }
}

impl Compute {
    fn stream(&self) -> &Stream {
        match self {
            Compute::Products(product) => product.stream(),
            Compute::Spin(stream) => stream,
        }
    }

    /// Enqueues the work of a step. It uses the experts from its beginning to its end.
    fn step(
        &mut self,
        experts: &[DeviceBuf<u8>],
        sums: &mut DeviceBuf<u64>,
        first: usize,
    ) -> Result<()> {
        for (n, expert) in experts.iter().enumerate() {
            self.stream().checksum(expert, sums.slice_mut(first + n..first + n + 1)?)?;
        }
        match self {
            Compute::Products(product) => product.enqueue(PRODUCTS)?,
            Compute::Spin(stream) => drop(stream.busy(SPIN)?),
        }
        for expert in experts {
            // SAFETY: nothing is enqueued.
            unsafe { self.stream().foreign(&[expert], &mut [], |_| ())? };
        }
        Ok(())
    }
}
