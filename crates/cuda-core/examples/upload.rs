//! A tensor in cuda-core's memory from a page-locked buffer and from a pageable slice, by pinlane,
//! and by cuda-core itself.
//!
//! ```sh
//! scripts/cuda-core cargo run --manifest-path crates/cuda-core/Cargo.toml --example upload
//! ```
//!
//! It needs a GPU, or the drop-in libcuda.so.1 (docs/drop-in.md). It prints the sums 500, 1000 and
//! 500.

use std::error::Error;

use cuda_core::{Context, DeviceBuffer};
use pinlane::{Device, PinnedPool};
use pinlane_cuda_core::SharedStream;

/// A tensor of a program: cuda-core's memory, and a shape.
struct Tensor {
    memory: DeviceBuffer<f32>,
    shape: [usize; 2],
}

impl Tensor {
    fn zeros(stream: &SharedStream, shape: [usize; 2]) -> Result<Self, Box<dyn Error>> {
        let memory = DeviceBuffer::zeroed(stream.cuda_core(), shape[0] * shape[1])?;
        Ok(Tensor { memory, shape })
    }

    fn sum(&self, stream: &SharedStream) -> Result<f32, Box<dyn Error>> {
        let mut values = vec![0.0; self.shape[0] * self.shape[1]];
        stream.download_slice(&self.memory, &mut values)?; // the data is there
        Ok(values.iter().sum())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let context = Context::new(0)?;
    let device = Device::open(0)?;
    let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;
    let stream = SharedStream::new(&device, &context.new_stream()?)?;
    let shape = [10, 100];

    // From a page-locked buffer: the copy is enqueued, and the buffer may be dropped at once.
    let mut host = pool.alloc::<f32>(1000)?;
    host.write()?.fill(0.5);
    let mut first = Tensor::zeros(&stream, shape)?;
    stream.upload(&host, &mut first.memory)?;

    // From pageable memory, through pinlane's page-locked slots.
    let mut second = Tensor::zeros(&stream, shape)?;
    stream.upload_slice(&[1.0; 1000], &mut second.memory)?;

    // By cuda-core, from the same page-locked buffer.
    let memory = stream.lend_host(&host, |host| {
        // SAFETY: a use on this stream, outside of captures, which `lend_host` waits for.
        unsafe { DeviceBuffer::from_host_async_unchecked(stream.cuda_core(), host) }
    })??;
    drop(host);
    let third = Tensor { memory, shape };

    println!("{}", device.name());
    for tensor in [first, second, third] {
        println!("{}", tensor.sum(&stream)?);
    }
    Ok(())
}
