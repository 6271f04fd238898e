//! A matrix product that fills the GPU, and simultaneous work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use pinlane::{Device, DeviceBuf, Result, Stream};

use super::bare::Bare;
use super::cublas::{Cublas, Elements};
use super::held::Held;
use super::timing::median;

const ORDER: i32 = 8192;
/// How many products a measurement makes.
pub const PRODUCTS: usize = 16;

pub struct Product {
    cublas: Cublas,
    stream: Stream,
    held: Held,
    elements: Elements,
    factors: [DeviceBuf<u8>; 2],
    result: DeviceBuf<u8>,
}

impl Product {
    /// The product of matrices of these elements. `place` is cuBLAS's file or folder. Without the
    /// library, the reason.
    pub fn open(
        device: &Device,
        bare: &Bare,
        place: Option<&str>,
        elements: Elements,
    ) -> Result<std::result::Result<Product, String>> {
        if bare.is_emulated() {
            return Ok(Err("the emulated device runs no kernels of other libraries".into()));
        }
        let cublas = match Cublas::open(place) {
            Ok(cublas) => cublas,
            Err(reason) => return Ok(Err(reason)),
        };
        let matrix = || {
            let bytes = elements.bytes() * (ORDER as usize) * (ORDER as usize);
            bare.device_memory(device, bytes)
        };
        Ok(Ok(Product {
            cublas,
            stream: device.stream()?,
            held: Held::new(device, bare),
            elements,
            factors: [matrix()?, matrix()?],
            result: matrix()?,
        }))
    }

    /// The stream on which the products run.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues `count` products.
    pub fn enqueue(&mut self, count: usize) -> Result<()> {
        let Product { cublas, stream, elements, factors, result, .. } = self;
        multiply(cublas, stream, *elements, factors, result, count)
    }

    /// Device time of [`PRODUCTS`] products.
    pub fn seconds(&mut self) -> Result<f64> {
        let Product { cublas, stream, held, elements, factors, result } = self;
        held.seconds(&[stream], || multiply(cublas, stream, *elements, factors, result, PRODUCTS))
    }
}

fn multiply(
    cublas: &Cublas,
    stream: &Stream,
    elements: Elements,
    [a, b]: &[DeviceBuf<u8>; 2],
    result: &mut DeviceBuf<u8>,
    count: usize,
) -> Result<()> {
    let factors = [a.as_device_ptr(), b.as_device_ptr()];
    let to = result.as_device_ptr();
    for _ in 0..count {
        // SAFETY: the work is enqueued on the given stream. It reads the two factors and writes the
        // result, which have the size of such matrices. It captures nothing. The device is the one
        // that was current when the library was opened: the first.
        unsafe {
            stream.foreign(&[a, b], &mut [&mut *result], |raw| {
                cublas.multiply(raw, elements, ORDER, factors, to);
            })?;
        }
    }
    Ok(())
}

/// Measures while another thread works repeatedly. Also returns how often per second it did.
pub fn beside(
    mut work: impl FnMut() -> Result<()> + Send,
    measure: impl FnOnce() -> Result<f64>,
) -> Result<(f64, f64)> {
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (stop, rounds) = (&stop, &rounds);
        let worker = scope.spawn(move || -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                let done = work();
                rounds.fetch_add(1, Ordering::Relaxed);
                done?;
            }
            Ok(())
        });
        while rounds.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let (start, before) = (Instant::now(), rounds.load(Ordering::Relaxed));
        let time = measure();
        let made = rounds.load(Ordering::Relaxed) - before;
        let often = made as f64 / start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        worker.join().expect("no panic")?;
        Ok((time?, often))
    })
}

/// The results of work beside the product.
pub struct Busy {
    /// How often a second the work was done; median.
    pub often: f64,
    /// How much longer the product took than alone, in turns: the ratio of the times, minus 1.
    pub loss: f64,
}

/// Work of a subject, on its own thread.
pub type Work<'a, S> = &'a (dyn Fn(&mut S) -> Result<()> + Sync);

/// Each kind of work beside the product, in turns with the product alone.
pub fn busy<S: Send, const N: usize>(
    product: &mut Product,
    subject: &mut S,
    samples: usize,
    works: [Work<'_, S>; N],
) -> Result<[Busy; N]> {
    let mut alone = Vec::new();
    let mut times: [Vec<f64>; N] = [const { Vec::new() }; N];
    let mut often: [Vec<f64>; N] = [const { Vec::new() }; N];
    for _ in 0..samples {
        alone.push(product.seconds()?);
        for (lane, work) in works.iter().enumerate() {
            let (time, rate) = beside(|| work(subject), || product.seconds())?;
            times[lane].push(time);
            often[lane].push(rate);
        }
    }
    let alone = median(alone);
    let mut lanes = times.into_iter().zip(often);
    Ok(std::array::from_fn(|_| {
        let (times, often) = lanes.next().expect("N of them");
        Busy { often: median(often), loss: median(times) / alone - 1.0 }
    }))
}
