//! A launch must not write memory that the host reads.

use pinlane::graph::Key;
use pinlane::{Graph, PinnedBuf, Result, Stream};

fn race(graph: &mut Graph, output: Key<PinnedBuf<u8>>, stream: &Stream) -> Result<u8> {
    let bytes = graph.get(output)?.read()?;
    graph.launch(stream)?;
    Ok(bytes[0])
}

fn main() {}
