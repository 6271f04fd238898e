//! The operations of programs, and their strategies: one for each family of programs.

use pinlane::driver::Call;
use proptest::prelude::*;

use super::graphs;
use super::model::Part;
use super::parts;
use super::releases::{self, Step};
use super::strided::Shape;
use super::tensors::Elements;

#[derive(Clone, Debug)]
pub enum Op {
    AllocHost {
        len: usize,
        byte: u8,
    },
    Register {
        device: usize,
        len: usize,
        byte: u8,
    },
    /// Up to `len` bytes of the program's own, as a tensor.
    ImportTensor {
        device: usize,
        elements: Elements,
        len: usize,
        byte: u8,
    },
    /// A whole host buffer as a tensor, which then becomes a buffer again.
    ExportTensor {
        host: usize,
        device: usize,
        elements: Elements,
    },
    AllocDevice {
        device: usize,
        len: usize,
        byte: u8,
    },
    Write {
        host: usize,
        part: Part,
        byte: u8,
    },
    Read {
        host: usize,
        part: Part,
    },
    TryRead {
        host: usize,
    },
    ReadOnThread {
        host: usize,
    },
    Upload {
        stream: usize,
        host: usize,
        from: Part,
        device: usize,
        to: usize,
    },
    Download {
        stream: usize,
        device: usize,
        from: Part,
        host: usize,
        to: usize,
    },
    Copy {
        stream: usize,
        src: usize,
        from: Part,
        dst: usize,
        to: usize,
    },
    /// The slice lies in pageable memory, or in the pool's.
    UploadSlice {
        stream: usize,
        device: usize,
        part: Part,
        byte: u8,
        pooled: bool,
    },
    /// From memory that is registered for reading only, twice. The owner is asked back or dropped.
    UploadToRead {
        stream: usize,
        device: usize,
        part: Part,
        byte: u8,
        drops: bool,
    },
    DownloadSlice {
        stream: usize,
        device: usize,
        part: Part,
        pooled: bool,
    },
    UploadBatch {
        stream: usize,
        device: usize,
        pieces: usize,
        host: usize,
        byte: u8,
    },
    DownloadBatch {
        stream: usize,
        device: usize,
        pieces: usize,
    },
    /// From a host buffer, or from pageable memory.
    UploadRows {
        stream: usize,
        host: usize,
        device: usize,
        numbers: Vec<u8>,
        pageable: Option<u8>,
    },
    DownloadRows {
        stream: usize,
        device: usize,
        host: usize,
        numbers: Vec<u8>,
        pageable: bool,
    },
    /// From a host buffer, or from pageable memory.
    UploadStrided {
        stream: usize,
        host: usize,
        device: usize,
        shape: Shape,
        pageable: Option<u8>,
    },
    DownloadStrided {
        stream: usize,
        device: usize,
        host: usize,
        shape: Shape,
        pageable: bool,
    },
    CopyStrided {
        stream: usize,
        src: usize,
        dst: usize,
        shape: Shape,
    },
    /// Up and down, twice.
    SwapPairs {
        stream: usize,
        host: usize,
        device: usize,
        pieces: usize,
        byte: u8,
    },
    Fill {
        stream: usize,
        device: usize,
        part: Part,
        pattern: Vec<u8>,
    },
    Checksum {
        stream: usize,
        device: usize,
        part: Part,
    },
    DropHost {
        host: usize,
    },
    DropDevice {
        device: usize,
    },
    ReplaceStream {
        stream: usize,
    },
    Busy {
        stream: usize,
        micros: u64,
    },
    Wait {
        ticket: usize,
    },
    Poll {
        ticket: usize,
    },
    Synchronize {
        stream: usize,
    },
    HostFunction {
        stream: usize,
    },
    /// Registers a slice while `inner` runs, which may panic at its end.
    Borrow {
        device: usize,
        len: usize,
        byte: u8,
        inner: Vec<Inner>,
        panics: bool,
    },
    /// Loses a device here, or in the middle of a later call.
    Lose {
        device: usize,
    },
    LoseInside {
        call: Call,
        nth: u64,
    },
    /// The runtime reports that it is unloading: from now on, or in one later call.
    Unload,
    UnloadInside {
        call: Call,
        nth: u64,
    },
    /// Puts long work on a stream, until `Release` or until the program must wait for it.
    Stall {
        stream: usize,
    },
    StallLegacy {
        device: usize,
    },
    Release,
    /// Another thread uploads pageable memory.
    UploadElsewhere {
        stream: usize,
        len: usize,
        byte: u8,
    },
    Parts(parts::Step),
    Releases(Step),
    Graphs(graphs::Step),
    Task {
        awaits: Awaits,
        then: Then,
        by: Executor,
    },
}

/// What happens to borrowed memory while it is borrowed.
#[derive(Clone, Debug)]
pub enum Inner {
    Upload { stream: usize, from: Part, device: usize, to: usize },
    Download { stream: usize, device: usize, from: Part, to: usize },
    Read { part: Part },
    Write { part: Part, byte: u8 },
    Other(Op),
}

/// What a task waits for first.
#[derive(Clone, Copy, Debug)]
pub enum Awaits {
    Memory { len: usize },
    Ticket { ticket: usize },
}

/// What a task does when it is woken.
#[derive(Clone, Copy, Debug)]
pub enum Then {
    End,
    Alloc { len: usize },
    AwaitMemory { len: usize },
    Wait { ticket: usize },
    AwaitTicket { ticket: usize },
}

/// Who runs a task.
#[derive(Clone, Copy, Debug)]
pub enum Executor {
    /// Its waker runs it at once.
    Inline,
    /// It is polled once and forgotten.
    Forgetful,
    /// Its waker panics, and it is never polled again.
    PanicsInWake,
    PanicsInDrop,
    /// The program runs it, and sleeps until it is woken.
    Blocking,
}

/// What may happen in a program besides copies and borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Plain,
    LostDevices,
    DefaultStreams,
    Wakers,
    Unloading,
    Releases,
    Graphs,
}

/// Programs whose buffers have up to `1500 * scale` bytes.
pub fn program(family: Family, scale: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        21 => memory(scale),
        37 => copies(),
        7 => streams(),
        6 => borrow(family, scale),
        (if family == Family::Graphs { 60 } else { 8 }) => special(family, scale, false),
    ];
    prop::collection::vec(op, 1..60)
}

/// An index of a buffer, a stream or a ticket.
fn index() -> impl Strategy<Value = usize> {
    0..8usize
}

/// Numbers of rows.
fn numbers() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..12)
}

/// Rows that lie a pitch apart.
fn shape() -> impl Strategy<Value = Shape> {
    // Often of one pitch, so that their columns count.
    let rows = prop_oneof![3 => Just(4), 2 => 1..9usize];
    let fill = prop_oneof![1 => Just(255), 2 => Just(100), 2 => any::<u8>()];
    let of_two = prop::option::weighted(0.3, 0..2usize);
    (rows, fill, any::<u8>(), of_two).prop_map(|(rows, fill, at, of_two)| Shape {
        rows,
        fill,
        at,
        of_two,
    })
}

/// Few sizes, so that the pool reuses blocks.
fn len(scale: usize) -> impl Strategy<Value = usize> {
    let len = prop_oneof![4 => Just(100), 2 => Just(300), 1 => 0..1500usize];
    len.prop_map(move |len| len * scale)
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        Just(Part { start: 0, len: 255 }),
        any::<(u8, u8)>().prop_map(|(start, len)| Part { start, len }),
    ]
}

/// Makes buffers, uses them on the host, and drops them.
fn memory(scale: usize) -> BoxedStrategy<Op> {
    let len = move || len(scale);
    prop_oneof![
        4 => (len(), any::<u8>()).prop_map(|(len, byte)| Op::AllocHost { len, byte }),
        2 => (index(), len(), any::<u8>())
            .prop_map(|(device, len, byte)| Op::Register { device, len, byte }),
        1 => (index(), elements(), len(), any::<u8>()).prop_map(
            |(device, elements, len, byte)| Op::ImportTensor { device, elements, len, byte }
        ),
        1 => (index(), index(), elements())
            .prop_map(|(host, device, elements)| Op::ExportTensor { host, device, elements }),
        3 => alloc_device(scale),
        4 => (index(), part(), any::<u8>())
            .prop_map(|(host, part, byte)| Op::Write { host, part, byte }),
        3 => (index(), part()).prop_map(|(host, part)| Op::Read { host, part }),
        1 => index().prop_map(|host| Op::TryRead { host }),
        1 => index().prop_map(|host| Op::ReadOnThread { host }),
        3 => index().prop_map(|host| Op::DropHost { host }),
        2 => index().prop_map(|device| Op::DropDevice { device }),
    ]
    .boxed()
}

/// Elements of every width.
fn elements() -> impl Strategy<Value = Elements> {
    let bits = prop_oneof![3 => 1u8..8, 1 => prop::sample::select(vec![8, 16, 32, 64]), 1 => 1u8..];
    let elements = (bits, prop_oneof![3 => Just(1u16), 1 => 1u16..5], any::<bool>());
    elements.prop_map(|(bits, lanes, padded)| Elements { bits, lanes, padded })
}

fn alloc_device(scale: usize) -> impl Strategy<Value = Op> {
    (index(), len(scale), any::<u8>()).prop_map(|(device, len, byte)| Op::AllocDevice {
        device,
        len,
        byte,
    })
}

fn copies() -> BoxedStrategy<Op> {
    prop_oneof![
        8 => (index(), index(), part(), index(), index()).prop_map(
            |(stream, host, from, device, to)| Op::Upload { stream, host, from, device, to }
        ),
        8 => (index(), index(), part(), index(), index()).prop_map(
            |(stream, device, from, host, to)| Op::Download { stream, device, from, host, to }
        ),
        5 => (index(), index(), part(), index(), index())
            .prop_map(|(stream, src, from, dst, to)| Op::Copy { stream, src, from, dst, to }),
        4 => (index(), index(), part(), any::<u8>(), any::<bool>()).prop_map(
            |(stream, device, part, byte, pooled)| Op::UploadSlice {
                stream,
                device,
                part,
                byte,
                pooled,
            }
        ),
        2 => (index(), index(), part(), any::<u8>(), any::<bool>()).prop_map(
            |(stream, device, part, byte, drops)| Op::UploadToRead {
                stream,
                device,
                part,
                byte,
                drops,
            }
        ),
        3 => (index(), index(), part(), any::<bool>()).prop_map(
            |(stream, device, part, pooled)| Op::DownloadSlice { stream, device, part, pooled }
        ),
        3 => (index(), index(), 1..12usize, index(), any::<u8>()).prop_map(
            |(stream, device, pieces, host, byte)| Op::UploadBatch {
                stream,
                device,
                pieces,
                host,
                byte,
            }
        ),
        2 => (index(), index(), 1..12usize)
            .prop_map(|(stream, device, pieces)| Op::DownloadBatch { stream, device, pieces }),
        2 => (index(), index(), index(), numbers(), prop::option::of(any::<u8>())).prop_map(
            |(stream, host, device, numbers, pageable)| Op::UploadRows {
                stream,
                host,
                device,
                numbers,
                pageable,
            }
        ),
        2 => (index(), index(), index(), numbers(), any::<bool>()).prop_map(
            |(stream, device, host, numbers, pageable)| Op::DownloadRows {
                stream,
                device,
                host,
                numbers,
                pageable,
            }
        ),
        2 => (index(), index(), index(), shape(), prop::option::of(any::<u8>())).prop_map(
            |(stream, host, device, shape, pageable)| Op::UploadStrided {
                stream,
                host,
                device,
                shape,
                pageable,
            }
        ),
        2 => (index(), index(), index(), shape(), any::<bool>()).prop_map(
            |(stream, device, host, shape, pageable)| Op::DownloadStrided {
                stream,
                device,
                host,
                shape,
                pageable,
            }
        ),
        1 => (index(), index(), index(), shape())
            .prop_map(|(stream, src, dst, shape)| Op::CopyStrided { stream, src, dst, shape }),
        2 => (index(), index(), index(), 1..12usize, any::<u8>()).prop_map(
            |(stream, host, device, pieces, byte)| Op::SwapPairs {
                stream,
                host,
                device,
                pieces,
                byte,
            }
        ),
        4 => parts::step().prop_map(Op::Parts),
        2 => (index(), index(), part(), prop::collection::vec(any::<u8>(), 1..=16))
            .prop_map(|(stream, device, part, pattern)| Op::Fill { stream, device, part, pattern }),
        2 => (index(), index(), part())
            .prop_map(|(stream, device, part)| Op::Checksum { stream, device, part }),
    ]
    .boxed()
}

fn streams() -> BoxedStrategy<Op> {
    prop_oneof![
        1 => index().prop_map(|stream| Op::ReplaceStream { stream }),
        2 => (index(), 1..50u64).prop_map(|(stream, micros)| Op::Busy { stream, micros }),
        1 => any::<usize>().prop_map(|ticket| Op::Wait { ticket }),
        1 => any::<usize>().prop_map(|ticket| Op::Poll { ticket }),
        1 => index().prop_map(|stream| Op::Synchronize { stream }),
        1 => index().prop_map(|stream| Op::HostFunction { stream }),
    ]
    .boxed()
}

fn borrow(family: Family, scale: usize) -> impl Strategy<Value = Op> {
    let on_view = prop_oneof![
        3 => (index(), part(), index(), index())
            .prop_map(|(stream, from, device, to)| Inner::Upload { stream, from, device, to }),
        5 => (index(), index(), part(), index())
            .prop_map(|(stream, device, from, to)| Inner::Download { stream, device, from, to }),
        1 => part().prop_map(|part| Inner::Read { part }),
        1 => (part(), any::<u8>()).prop_map(|(part, byte)| Inner::Write { part, byte }),
    ];
    let inner = prop_oneof![
        6 => on_view,
        1 => copies().prop_map(Inner::Other),
        1 => streams().prop_map(Inner::Other),
        2 => special(family, scale, true).prop_map(Inner::Other),
    ];
    let inner = prop::collection::vec(inner, 0..8);
    (index(), len(scale), any::<u8>(), inner, prop::bool::weighted(0.1)).prop_map(
        |(device, len, byte, inner, panics)| Op::Borrow { device, len, byte, inner, panics },
    )
}

/// The special operations of the family.
fn special(family: Family, scale: usize, borrowed: bool) -> BoxedStrategy<Op> {
    let inside = || (prop::sample::select(&Call::ALL[..]), 1..20u64);
    match family {
        Family::Plain => copies(),
        // Rarely, so that there is something to lose, but often inside borrows.
        Family::LostDevices => prop_oneof![
            if borrowed { 8 } else { 1 } => index().prop_map(|device| Op::Lose { device }),
            1 => inside().prop_map(|(call, nth)| Op::LoseInside { call, nth }),
            6 => alloc_device(scale),
        ]
        .boxed(),
        Family::Unloading => prop_oneof![
            if borrowed { 8 } else { 1 } => Just(Op::Unload),
            1 => inside().prop_map(|(call, nth)| Op::UnloadInside { call, nth }),
            6 => alloc_device(scale),
        ]
        .boxed(),
        Family::DefaultStreams => prop_oneof![
            1 => index().prop_map(|stream| Op::Stall { stream }),
            2 => index().prop_map(|device| Op::StallLegacy { device }),
            1 => Just(Op::Release),
            3 => (index(), 0..5 * 4096usize, any::<u8>()).prop_map(
                move |(stream, len, byte)| Op::UploadElsewhere { stream, len: len * scale, byte }
            ),
        ]
        .boxed(),
        Family::Graphs => prop_oneof![
            1 => index().prop_map(|stream| Op::Stall { stream }),
            1 => Just(Op::Release),
            20 => graphs::step().prop_map(Op::Graphs),
        ]
        .boxed(),
        Family::Releases => releases::step(scale).prop_map(Op::Releases).boxed(),
        Family::Wakers => prop_oneof![
            1 => index().prop_map(|stream| Op::Stall { stream }),
            1 => Just(Op::Release),
            6 => (awaits(scale), then(scale), executor())
                .prop_map(|(awaits, then, by)| Op::Task { awaits, then, by }),
        ]
        .boxed(),
    }
}

fn awaits(scale: usize) -> impl Strategy<Value = Awaits> {
    prop_oneof![
        len(scale).prop_map(|len| Awaits::Memory { len }),
        any::<usize>().prop_map(|ticket| Awaits::Ticket { ticket }),
    ]
}

fn then(scale: usize) -> impl Strategy<Value = Then> {
    prop_oneof![
        Just(Then::End),
        len(scale).prop_map(|len| Then::Alloc { len }),
        len(scale).prop_map(|len| Then::AwaitMemory { len }),
        any::<usize>().prop_map(|ticket| Then::Wait { ticket }),
        any::<usize>().prop_map(|ticket| Then::AwaitTicket { ticket }),
    ]
}

fn executor() -> impl Strategy<Value = Executor> {
    prop_oneof![
        4 => Just(Executor::Inline),
        1 => Just(Executor::Forgetful),
        1 => Just(Executor::PanicsInWake),
        1 => Just(Executor::PanicsInDrop),
        1 => Just(Executor::Blocking),
    ]
}
