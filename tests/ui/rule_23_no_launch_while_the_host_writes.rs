//! A launch must not read memory that the host has borrowed for writing.

use pinlane::graph::Key;
use pinlane::{Graph, PinnedBuf, Result, Stream};

fn race(graph: &mut Graph, input: Key<PinnedBuf<u8>>, stream: &Stream) -> Result<()> {
    let bytes = graph.slice_mut(input)?.into_write()?;
    graph.launch(stream)?;
    bytes[0] = 1;
    Ok(())
}

fn main() {}
