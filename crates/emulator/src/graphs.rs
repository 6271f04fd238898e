//! Graphs: how they are launched, and the memory that they allocate.
//!
//! A launch runs the operations on as many streams as they were captured on, with the waits that
//! were captured ([`branches`](super::branches)).
//!
//! What a capture allocates and frees in stream order are nodes, too. The address of such memory is
//! fixed by the capture, and each launch allocates it anew. What a launch leaves allocated, the
//! program may free, or a flag of the executable graph says that the next launch frees it.

use super::finding::FindingKind;
use super::machine::{Executable, Graph, Machine, Node};
use super::memory::host::{Access, HostUse};
use super::memory::look;
use super::memory::made::MadeOnDevice;
use super::operation::{Action, Transfer};
use super::races::MemoryKind;
use super::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DevicePtr, DriverResult, Ordinal};

/// The memory that nodes allocate.
fn allocated(nodes: &[Node]) -> impl Iterator<Item = DevicePtr> {
    nodes.iter().filter_map(|node| match node.action {
        Action::Alloc { ptr } => Some(ptr),
        _ => None,
    })
}

impl Node {
    fn is_of_memory(&self) -> bool {
        matches!(self.action, Action::Alloc { .. } | Action::Free { .. })
    }
}

impl Machine {
    /// Makes an executable graph.
    pub(super) fn instantiate(&mut self, key: Key, frees_on_launch: bool) -> DriverResult<Key> {
        let nodes = self.graphs.get(key).expect("just found").nodes.clone();
        let is_of = |other: &Graph| other.executable.as_ref().is_some_and(|it| it.graph == key);
        if nodes.iter().any(Node::is_of_memory) && self.graphs.values().any(is_of) {
            return Err(CudaCode::INVALID_VALUE);
        }
        let held = self.hold(nodes.iter().map(|node| &node.action));
        allocated(&nodes).for_each(|ptr| self.memory.shared_with_graph(ptr));
        let executable = Executable { graph: key, held, frees_on_launch, launched: None };
        Ok(self.graphs.insert(Graph { nodes, executable: Some(executable) }))
    }

    /// Holds the page-locked memory that operations use.
    fn hold<'a>(&mut self, actions: impl Iterator<Item = &'a Action>) -> Vec<(HostUse, u64)> {
        let id = self.next_operation();
        let uses = actions.flat_map(Action::host_claims).filter(|host| !host.pageable);
        let held: Vec<(HostUse, u64)> = uses.map(|host| (host.clone(), id)).collect();
        held.iter().for_each(|(host, id)| self.host.begin_use(host, *id));
        held
    }

    /// How many operations of executable graphs use a page-locked block.
    pub(super) fn named_by_graphs(&self, start: usize, bytes: usize) -> usize {
        let block = start..start + bytes.max(1);
        let executables = self.graphs.values().filter_map(|graph| graph.executable.as_ref());
        let held = executables.flat_map(|it| &it.held).map(|(host, _)| host);
        held.filter(|host| !host.named && block.contains(&host.ptr.address())).count()
    }

    /// Gives a copy of an executable graph other addresses, for the launches to come. It is the
    /// node that the graph's capture has numbered so.
    pub(super) fn set_copy(
        &mut self,
        graph: Key,
        node: u64,
        call: Call,
        transfer: Transfer,
    ) -> DriverResult<()> {
        let found = self.graphs.get_mut(graph).expect("found by the caller");
        let executable = found.executable.as_mut().ok_or(CudaCode::INVALID_VALUE)?;
        let node = found.nodes.iter_mut().find(|one| one.number == node);
        let action = &mut node.ok_or(CudaCode::INVALID_VALUE)?.action;
        match action {
            Action::Copy(was, old) if *was == call && old.bytes() == transfer.bytes() => {}
            _ => return Err(CudaCode::INVALID_VALUE),
        }
        let new = Action::Copy(call, transfer);
        let old = std::mem::replace(action, new.clone());
        let given_up = old.host_claims().filter_map(|host| {
            let is_it =
                |held: &(HostUse, u64)| held.0.ptr == host.ptr && held.0.bytes == host.bytes;
            Some(executable.held.swap_remove(executable.held.iter().position(is_it)?))
        });
        let given_up: Vec<_> = given_up.collect();
        self.end_uses(&given_up);
        let held = self.hold([&new].into_iter());
        let found = self.graphs.get_mut(graph).and_then(|graph| graph.executable.as_mut());
        found.expect("found above").held.extend(held);
        Ok(())
    }

    /// A graph that is not destroyed, and will not be launched, holds no memory of the host.
    pub(super) fn disarm(&mut self, handle: usize) {
        let Some((key, _)) = self.graphs.find(handle) else { return };
        let graph = self.graphs.get_mut(key).and_then(|graph| graph.executable.as_mut());
        let held = graph.map_or(Vec::new(), |it| std::mem::take(&mut it.held));
        self.end_uses(&held);
    }

    pub(super) fn drop_graph(&mut self, key: Key) {
        let Graph { nodes, executable } = self.graphs.remove(key).expect("found by the caller");
        self.end_uses(&executable.map_or(Vec::new(), |it| it.held));
        allocated(&nodes).for_each(|ptr| self.memory.left_by_graph(ptr));
    }

    /// A capture is over: what it has allocated is there only after a launch.
    pub(super) fn end_captured_memory(&mut self, graph: Key) {
        let nodes = &self.graphs.get(graph).expect("found by the caller").nodes;
        allocated(nodes).for_each(|ptr| self.memory.end_captured(ptr));
    }

    /// Allocates memory in a capture.
    pub(super) fn capture_alloc(
        &mut self,
        key: Key,
        device: Ordinal,
        bytes: usize,
    ) -> DriverResult<DevicePtr> {
        let (site, pool) = (self.races.called().site, self.pools.of_graphs(device));
        let ptr = self.memory.reserve_for_graph(device, bytes, site)?;
        self.memory.note(ptr, MadeOnDevice { pool: Some(pool) });
        self.races.allocated(MemoryKind::OnDevice(device), ptr, bytes);
        let captured = self.submit(key, Vec::new(), Action::Alloc { ptr });
        if captured.is_err() {
            self.memory.end_captured(ptr);
            self.memory.left_by_graph(ptr);
        }
        captured.map(|()| ptr)
    }

    /// Frees memory in a capture: what this one has allocated, or another graph allocates.
    pub(super) fn capture_free(&mut self, key: Key, ptr: DevicePtr) -> DriverResult<()> {
        let capture = self.streams.get(key).and_then(|stream| stream.capture);
        let capture = self.captures.get(capture.expect("asked by the caller"));
        let graph = self.graphs.get(capture.expect("its streams outlive it").graph);
        let nodes = &graph.expect("lives as long as its capture").nodes;
        let is_own = allocated(nodes).any(|own| own == ptr);
        if is_own && self.memory.allocation_of(ptr).is_none() {
            return Err(self.bad_free(format!("{ptr:#x} is freed already in this capture")));
        }
        self.submit(key, Vec::new(), Action::Free { ptr })?;
        if is_own {
            self.memory.end_captured(ptr);
        }
        Ok(())
    }

    /// Launches a graph, after its earlier launches.
    pub(super) fn launch_graph(&mut self, graph: Key, on: Key) -> DriverResult<()> {
        let found = self.graphs.get(graph).expect("found by the caller");
        let nodes = found.nodes.clone();
        let is_captured = self.streams.get(on).is_some_and(|stream| stream.capture.is_some());
        let Some(executable) = found.executable.as_ref().filter(|_| !is_captured) else {
            if nodes.iter().any(Node::is_of_memory) {
                return Err(CudaCode::NOT_SUPPORTED);
            }
            let mut nodes = nodes.into_iter();
            return nodes.try_for_each(|node| self.submit(on, Vec::new(), node.action));
        };
        let (frees, last) = (executable.frees_on_launch, executable.launched.clone());
        let is_there = |&ptr: &DevicePtr| self.memory.allocation_of(ptr).is_some();
        let left: Vec<DevicePtr> = allocated(&nodes).filter(is_there).collect();
        if !left.is_empty() && !frees {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.check_room(&nodes, &left)?;
        if let Some((position, knowledge)) = last
            && position.stream != on
        {
            self.follow(on, &[(position, knowledge)])?;
        }
        left.into_iter().try_for_each(|ptr| self.device_free(on, ptr))?;
        let mut branches = self.fork(on, &nodes)?;
        let launched = nodes.into_iter().try_for_each(|node| {
            let launch = self.races.relabel(node.label);
            let stream = self.branch_of(&branches, &node);
            let launched = stream.and_then(|stream| {
                self.launch_node(stream, node.action)?;
                self.note_node(&mut branches, node.number, stream);
                Ok(())
            });
            self.races.relabel(launch);
            launched
        });
        let joined = self.join(branches);
        let last = Some((self.tail(on), self.knowledge(on)));
        let found = self.graphs.get_mut(graph).and_then(|graph| graph.executable.as_mut());
        found.expect("found above").launched = last;
        launched.and(joined)
    }

    fn launch_node(&mut self, on: Key, action: Action) -> DriverResult<()> {
        match action {
            Action::Alloc { ptr } => {
                let (device, bytes, site) = self.memory.allocate_again(ptr);
                self.pools.take(self.pools.of_graphs(device), bytes);
                self.races.allocated_at(MemoryKind::OnDevice(device), ptr, bytes, site);
                self.submit(on, Vec::new(), action)
            }
            Action::Free { ptr } => self.device_free(on, ptr),
            _ if self.misses_memory(on, &action) => Ok(()),
            _ => self.submit(on, Vec::new(), action),
        }
    }

    /// Reports pageable memory that a node uses and that is not mapped any more.
    fn misses_memory(&mut self, on: Key, action: &Action) -> bool {
        let is_gone =
            |host: &&HostUse| host.pageable && look::is_gone(host.ptr.address(), host.bytes);
        let Some(host) = action.host_uses().find(is_gone) else { return false };
        let (kind, role) = match host.access {
            Access::Read => (FindingKind::SourceChanged, "source"),
            Access::Write => (FindingKind::DestinationChanged, "destination"),
        };
        let message = format!(
            "the {role} of {} of a graph, {} bytes at {:#x}, was unmapped before the launch on \
             {}: it must stay until the graph is destroyed",
            action.name(),
            host.bytes,
            host.ptr.address(),
            self.describe(on)
        );
        self.report(kind, message);
        true
    }

    /// Fails unless each device has room for the most that the nodes allocate at one time, once
    /// what is left of earlier launches is freed.
    fn check_room(&self, nodes: &[Node], left: &[DevicePtr]) -> DriverResult<()> {
        let mut room = self.memory.room();
        let mut change = |ptr: DevicePtr, sign: isize| {
            let Some((device, bytes)) = self.memory.of_graph(ptr) else { return true };
            let room = &mut room[device as usize];
            *room += sign * bytes as isize;
            *room >= 0
        };
        for &ptr in left {
            change(ptr, 1);
        }
        let has_room = nodes.iter().all(|node| match node.action {
            Action::Alloc { ptr } => change(ptr, -1),
            Action::Free { ptr } => change(ptr, 1),
            _ => true,
        });
        if has_room { Ok(()) } else { Err(CudaCode::MEMORY_ALLOCATION) }
    }
}
