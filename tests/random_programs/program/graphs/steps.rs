//! What programs do with graphs, and its strategies.

use proptest::prelude::*;

use super::super::model::Part;

/// What a program does with graphs.
#[derive(Clone, Debug)]
pub enum Step {
    /// Captures work on some of the program's buffers, which then are the graph's. `joined` says
    /// whether other code captures, and this crate's work joins.
    Make {
        device: usize,
        hosts: Vec<usize>,
        gpus: Vec<usize>,
        work: Vec<Operation>,
        joined: bool,
    },
    Launch {
        graph: usize,
        stream: usize,
    },
    Write {
        graph: usize,
        host: usize,
        part: Part,
        byte: u8,
    },
    Read {
        graph: usize,
        host: usize,
    },
    /// From a host buffer of the program to a device buffer of the graph.
    UploadTo {
        graph: usize,
        gpu: usize,
        stream: usize,
        host: usize,
        from: Part,
        to: usize,
    },
    /// From a device buffer of the graph to a host buffer of the program.
    DownloadFrom {
        graph: usize,
        gpu: usize,
        stream: usize,
        host: usize,
        from: Part,
        to: usize,
    },
    Rebind {
        graph: usize,
        host: usize,
        with: usize,
    },
    RebindOnDevice {
        graph: usize,
        gpu: usize,
        with: usize,
    },
    Drop {
        graph: usize,
    },
    /// Ends the graph in a host function of that stream, and drops its buffers there if it `gives`
    /// them. When the function is over, the pool gives memory back to the system.
    EndInside {
        graph: usize,
        stream: usize,
        gives: bool,
    },
    /// The buffers are the program's again.
    GiveBack {
        graph: usize,
    },
}

/// An operation of a graph, and how it is captured.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The number of its branch.
    pub branch: u32,
    pub by: By,
    pub work: Work,
}

/// Who captures an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Us,
    /// Other code, on the handle of the stream, in the call that names the buffers.
    OthersInTheCall,
    /// The same after the call, as in C.
    OthersAfterIt,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub enum Work {
    Upload { host: usize, from: Part, gpu: usize, to: usize },
    Download { gpu: usize, from: Part, host: usize, to: usize },
    Copy { src: usize, from: Part, dst: usize, to: usize },
    Fill { gpu: usize, part: Part, byte: u8 },
}

fn index() -> impl Strategy<Value = usize> {
    0..8usize
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        Just(Part { start: 0, len: 255 }),
        any::<(u8, u8)>().prop_map(|(start, len)| Part { start, len }),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        3 => (index(), part(), index(), index())
            .prop_map(|(host, from, gpu, to)| Work::Upload { host, from, gpu, to }),
        3 => (index(), part(), index(), index())
            .prop_map(|(gpu, from, host, to)| Work::Download { gpu, from, host, to }),
        1 => (index(), part(), index(), index())
            .prop_map(|(src, from, dst, to)| Work::Copy { src, from, dst, to }),
        1 => (index(), part(), any::<u8>())
            .prop_map(|(gpu, part, byte)| Work::Fill { gpu, part, byte }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let by = prop_oneof![
        4 => Just(By::Us),
        1 => Just(By::OthersInTheCall),
        1 => Just(By::OthersAfterIt),
    ];
    (0..3u32, by, work()).prop_map(|(branch, by, work)| Operation { branch, by, work })
}

pub fn step() -> impl Strategy<Value = Step> {
    let joined = || prop::bool::weighted(0.2);
    let some = || prop::collection::vec(index(), 1..4);
    let ways = || (index(), index(), index(), index(), part(), index());
    prop_oneof![
        3 => (index(), some(), some(), prop::collection::vec(operation(), 1..6), joined())
            .prop_map(|(device, hosts, gpus, work, joined)| {
                Step::Make { device, hosts, gpus, work, joined }
            }),
        8 => (index(), index()).prop_map(|(graph, stream)| Step::Launch { graph, stream }),
        4 => (index(), index(), part(), any::<u8>())
            .prop_map(|(graph, host, part, byte)| Step::Write { graph, host, part, byte }),
        3 => (index(), index()).prop_map(|(graph, host)| Step::Read { graph, host }),
        3 => ways().prop_map(|(graph, gpu, stream, host, from, to)| {
            Step::UploadTo { graph, gpu, stream, host, from, to }
        }),
        3 => ways().prop_map(|(graph, gpu, stream, host, from, to)| {
            Step::DownloadFrom { graph, gpu, stream, host, from, to }
        }),
        2 => (index(), index(), index())
            .prop_map(|(graph, host, with)| Step::Rebind { graph, host, with }),
        1 => (index(), index(), index())
            .prop_map(|(graph, gpu, with)| Step::RebindOnDevice { graph, gpu, with }),
        1 => index().prop_map(|graph| Step::Drop { graph }),
        2 => (index(), index(), any::<bool>())
            .prop_map(|(graph, stream, gives)| Step::EndInside { graph, stream, gives }),
        1 => index().prop_map(|graph| Step::GiveBack { graph }),
    ]
}
