//! Copies beside a matrix product: their speed, and the loss of the product.

use pinlane::Result;

use super::Bench;
use super::common::cublas::Elements;
use super::common::figures::{Figure, Report};
use super::common::product::{Product, Work, busy};

const SAMPLES: usize = 9;

const BUSY: &str = "GB/s of the same work, over and over on a thread of its own, while 16 products \
    of 8192 x 8192 in bfloat16 run; median, in turns with the reference, which does so too";
const LOSS: &str = "the time of those products over that of products alone, in turns, less 1";

/// The product that workloads run beside, if it is possible here. If not, `name` is skipped.
pub fn product(bench: &Bench, report: &mut Report, name: &str) -> Result<Option<Product>> {
    match Product::open(&bench.device, &bench.bare, bench.cublas.as_deref(), Elements::Bfloat16)? {
        Ok(product) => Ok(Some(product)),
        Err(reason) => {
            report.skip(name, reason);
            Ok(None)
        }
    }
}

/// Figures of our work, and of the reference's, which copy `bytes` bytes each time.
pub fn figures<S: Send>(
    report: &mut Report,
    product: &mut Product,
    (name, bytes): (&str, usize),
    subject: &mut S,
    reference: &'static str,
    both: [Work<'_, S>; 2],
) -> Result<()> {
    let [ours, theirs] = busy(product, subject, SAMPLES, both)?;
    let rate = |often: f64| often * bytes as f64 / 1e9;
    report.add(
        Figure::higher(format!("{name}.busy"), rate(ours.often), "GB/s")
            .beside(reference, rate(theirs.often))
            .by(BUSY, SAMPLES),
    );
    report.add(
        Figure::lower(format!("{name}.busy.loss"), ours.loss, "ratio")
            .beside(reference, theirs.loss)
            .by(LOSS, SAMPLES),
    );
    Ok(())
}
