//! Async/await: allocations, tickets and batches are futures, for any executor; `run` is a small
//! one.
//!
//! ```text
//! answers: [100, 200, 300]
//! ```

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use pinlane::{Device, PinnedPool, Result, Stream};

/// Answers a request: memory, a copy, work on the device, a copy back. It waits without a thread.
async fn answer(device: &Device, pool: &PinnedPool, stream: &Stream, number: u32) -> Result<u32> {
    let mut host = pool.alloc_async::<u32>(100).await?; // waits for room, if there is none
    host.write()?.fill(0);
    let mut gpu = device.alloc::<u32>(100)?;
    stream.upload(&host, &mut gpu)?;
    stream.fill(&mut gpu, number)?; // your kernels here
    stream.download(&gpu, &mut host)?.await?; // a future that is dropped cancels no copy
    Ok(host.read()?.iter().sum()) // does not block: the copy is done
}

fn main() -> Result<()> {
    let device = Device::open_or_emulated()?;
    let pool = PinnedPool::builder(&device).build()?;
    let streams = (0..3).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let requests = streams.iter().zip(1..);
    let answers = run(requests.map(|(stream, number)| answer(&device, &pool, stream, number)));
    println!("answers: {:?}", answers.into_iter().collect::<Result<Vec<_>>>()?);
    Ok(())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs all futures on this thread, which sleeps while none of them can continue.
fn run<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut tasks: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    loop {
        for (future, output) in tasks.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                *output = Some(value);
            }
        }
        if tasks.iter().all(|(_, output)| output.is_some()) {
            return tasks.into_iter().filter_map(|(_, output)| output).collect();
        }
        thread::park(); // until a future wakes it
    }
}
