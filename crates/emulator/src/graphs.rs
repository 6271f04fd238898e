//! Graphs: what a capture has recorded, and its replays (rule 34).
//!
//! A replay runs the operations in the order in which they were captured, on the stream of the
//! launch. CUDA may run them in any order that the captured streams and events allow; races within
//! a graph are not looked for.

use super::finding::FindingKind;
use super::machine::{GRAPH_TAG, Graph, Machine};
use super::memory::host::HostUse;
use super::operation::Action;
use super::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;

impl Machine {
    /// Keeps what a capture has recorded; gives its handle.
    pub(super) fn graph_create(&mut self, nodes: Vec<Action>) -> usize {
        // What orders the nodes while they are captured is not replayed.
        let is_work = |node: &Action| !matches!(node, Action::Mark { .. } | Action::Join);
        let nodes = nodes.into_iter().filter(is_work).collect();
        self.graphs.insert(Graph { nodes, held: Vec::new() }).to_handle(GRAPH_TAG)
    }

    fn graph(&mut self, call: &str, handle: usize) -> DriverResult<Key> {
        let key = Key::from_handle(handle, GRAPH_TAG);
        match key.filter(|&key| self.graphs.get(key).is_some()) {
            Some(key) => Ok(key),
            None if handle == 0 => Err(CudaCode::INVALID_VALUE),
            None => {
                let message = format!("{call} names {handle:#x}, which is no live graph");
                Err(self.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_VALUE))
            }
        }
    }

    /// Makes an executable graph, which holds the memory that its replays use.
    pub(super) fn graph_instantiate(&mut self, call: &str, handle: usize) -> DriverResult<usize> {
        let key = self.graph(call, handle)?;
        let nodes = self.graphs.get(key).expect("just found").nodes.clone();
        let id = self.next_operation();
        let uses = nodes.iter().flat_map(Action::host_claims).filter(|host| !host.pageable);
        let held: Vec<(HostUse, u64)> = uses.map(|host| (host.clone(), id)).collect();
        held.iter().for_each(|(host, id)| self.host.begin_use(host, *id));
        Ok(self.graphs.insert(Graph { nodes, held }).to_handle(GRAPH_TAG))
    }

    /// Enqueues all operations of a graph.
    pub(super) fn graph_launch(
        &mut self,
        call: &str,
        handle: usize,
        stream: Key,
    ) -> DriverResult<()> {
        let key = self.graph(call, handle)?;
        let nodes = self.graphs.get(key).expect("just found").nodes.clone();
        nodes.into_iter().try_for_each(|node| self.submit(stream, Vec::new(), node))
    }

    /// Destroys a graph, or an executable one. What is launched drains.
    pub(super) fn graph_destroy(&mut self, call: &str, handle: usize) -> DriverResult<()> {
        let key = self.graph(call, handle)?;
        let graph = self.graphs.remove(key).expect("just found");
        for (host, id) in &graph.held {
            // If the memory is gone, that was reported when it went.
            let _ = self.host.end_use(host, *id);
        }
        Ok(())
    }
}
