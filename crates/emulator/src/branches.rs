//! The branches of a launch: what a capture has recorded on several streams runs on as many.
//!
//! The first branch is the stream of the launch. The others are streams of this launch alone. They
//! begin when that stream has come to the launch, and what comes after the launch waits for all.
//! Between them there are only the waits that were captured, so a missing one is a race.

use std::collections::HashMap;

use super::machine::{Machine, Node};
use super::operation::{Action, Position};
use super::races::{Kind, Knowledge};
use super::words::slots::Key;
use pinlane_driver::{DriverResult, StreamFlags};

/// A place in a stream, and what is known there.
type Place = (Position, Option<Knowledge>);

#[derive(Debug)]
pub(super) struct Branches {
    streams: Vec<Key>,
    /// Where the nodes are that have been enqueued.
    nodes: HashMap<u64, Place>,
}

impl Machine {
    /// Begins a launch of the nodes.
    pub(super) fn fork(&mut self, on: Key, nodes: &[Node]) -> DriverResult<Branches> {
        let others = nodes.iter().map(|node| node.branch).max().unwrap_or(0);
        let mut streams = vec![on];
        if others > 0 {
            // A stalled stream has not come to the launch, though it has nothing to do.
            self.submit(on, Vec::new(), Action::Join)?;
            let begun = [self.place(on)];
            let device = self.streams.get(on).expect("found by the caller").device;
            for _ in 0..others {
                let stream = self.add_stream(device, StreamFlags::default(), Kind::Branch);
                streams.push(stream);
                self.follow(stream, &begun)?;
            }
        }
        Ok(Branches { streams, nodes: HashMap::new() })
    }

    /// The stream of the next node. It waits for what the node depends on.
    pub(super) fn branch_of(&mut self, branches: &Branches, node: &Node) -> DriverResult<Key> {
        let stream = branches.streams[node.branch];
        let before = node.after.iter().filter_map(|number| branches.nodes.get(number));
        let elsewhere: Vec<Place> = before.filter(|it| it.0.stream != stream).cloned().collect();
        self.follow(stream, &elsewhere)?;
        Ok(stream)
    }

    /// A node was enqueued.
    pub(super) fn note_node(&self, branches: &mut Branches, number: u64, stream: Key) {
        if branches.streams.len() > 1 {
            branches.nodes.insert(number, self.place(stream));
        }
    }

    /// Ends a launch: its stream waits for all branches.
    pub(super) fn join(&mut self, branches: Branches) -> DriverResult<()> {
        let (on, others) = branches.streams.split_first().expect("the stream of the launch");
        let ends: Vec<Place> = others.iter().map(|&stream| self.place(stream)).collect();
        let joined = self.follow(*on, &ends);
        others.iter().for_each(|&stream| self.stream_destroy(stream));
        joined
    }

    fn place(&self, stream: Key) -> Place {
        (self.tail(stream), self.knowledge(stream))
    }

    /// What a stream is given from now on waits for all that.
    pub(super) fn follow(&mut self, stream: Key, places: &[Place]) -> DriverResult<()> {
        if places.is_empty() {
            return Ok(());
        }
        let agent = self.streams.get(stream).expect("found by the caller").agent;
        let told = places.iter().filter_map(|(_, knowledge)| knowledge.as_ref());
        told.for_each(|told| self.races.learns(agent, told));
        let waits = places.iter().map(|&(position, _)| position).collect();
        self.submit(stream, waits, Action::Join)
    }
}
