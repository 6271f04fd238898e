//! A server on tokio whose requests and answers lie in page-locked memory: no copy on the host
//! between the socket and the device.
//!
//! ```text
//! cargo run -p pinlane-tokio-example
//! ```

use std::error::Error;
use std::net::Ipv4Addr;

use bytes::Bytes;
use pinlane::{Device, PinnedPool, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The bytes of a request. Its answer has as many.
const REQUEST: usize = 1 << 20;

// ANCHOR: sockets
/// Receives a request into page-locked memory, works on it on the device, and sends the answer.
async fn answer(mut socket: TcpStream, pool: PinnedPool, stream: Stream) -> Result<()> {
    let mut request = pool.alloc_async::<u8>(REQUEST).await?;
    socket.read_exact(request.write()?).await?; // page-locked memory is a `&mut [u8]` like others

    let device = stream.device();
    let (mut input, mut output) = (device.alloc::<u8>(REQUEST)?, device.alloc::<u8>(REQUEST)?);
    stream.upload(&request, &mut input)?;
    stream.copy(&input, &mut output)?; // your kernels here
    stream.download(&output, &mut request)?.await?; // the task sleeps until it is there

    // An owner that any crate of the network can send; its last clone gives the memory back.
    let mut answer = Bytes::from_owner(request.freeze()?);
    socket.write_all_buf(&mut answer).await?;
    Ok(())
}
// ANCHOR_END: sockets

/// Sends a request that is full of one byte, and returns the answer.
async fn ask(port: u16, byte: u8) -> Result<Vec<u8>> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    socket.write_all(&vec![byte; REQUEST]).await?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await?;
    Ok(answer)
}

async fn serve_and_ask(pool: PinnedPool, stream: Stream) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    let clients = [1, 2, 3].map(|byte| (byte, tokio::spawn(ask(port, byte))));
    let mut tasks = Vec::new();
    for _ in &clients {
        let (socket, _) = listener.accept().await?;
        tasks.push(tokio::spawn(answer(socket, pool.clone(), stream.clone())));
    }
    for task in tasks {
        task.await??;
    }
    for (byte, client) in clients {
        assert!(client.await?? == vec![byte; REQUEST], "the answer to {byte}");
    }
    Ok(())
}

fn main() -> Result<()> {
    let device = Device::open_or_emulated()?;
    // Room for two requests: the third waits for it, without a thread.
    let pool = PinnedPool::builder(&device).max_bytes(2 * REQUEST).build()?;
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(serve_and_ask(pool.clone(), device.stream()?))?;
    let most = pool.stats().peak_bytes;
    println!("3 answers of {REQUEST} bytes each, in {most} bytes of page-locked memory");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_client_gets_its_bytes() {
        super::main().expect("all of them");
    }
}
