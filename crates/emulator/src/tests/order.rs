//! The race checker against a plain model: a set of predecessors for each operation.
//!
//! Random programs use every kind of stream, events, and waits of the host. The model knows all
//! that is ordered before an operation, bit by bit. At the first race that the model sees, the
//! checker must report a race that the model sees too. Before that, it must report nothing.

use proptest::prelude::*;

use super::*;
use pinlane_driver::RawEvent;

const STREAMS: usize = 7;
const MEMORIES: usize = 3;
const EVENTS: usize = 4;
/// A set of operations is a word.
const STEPS: usize = 128;

#[derive(Clone, Debug)]
enum Step {
    Fill {
        stream: usize,
        memory: usize,
        part: (usize, usize),
    },
    /// The same part of two memories.
    Copy {
        stream: usize,
        to: usize,
        from: usize,
        part: (usize, usize),
    },
    /// A kernel with declared uses of rows.
    Launch {
        stream: usize,
        memory: usize,
        rows: Rows,
        writes: bool,
    },
    Record {
        event: usize,
        stream: usize,
    },
    Wait {
        stream: usize,
        event: usize,
    },
    SynchronizeStream(usize),
    SynchronizeEvent(usize),
    QueryStream(usize),
    QueryEvent(usize),
    /// A new stream replaces a non-blocking or a blocking one.
    Replace(usize),
}

fn part() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![
        3 => Just((0, BYTES)),
        2 => (0..BYTES - 1, 1..BYTES).prop_map(|(at, len)| (at, len.min(BYTES - at))),
    ]
}

/// Where the first row begins, how long a row is, how many there are, and their stride.
type Rows = (usize, usize, usize, usize);

fn rows() -> impl Strategy<Value = Rows> {
    (0..BYTES - 1, 1..8_usize, 1..8_usize, 1..12_usize).prop_map(|(at, len, rows, stride)| {
        let len = len.min(BYTES - at);
        (at, len, rows.min((BYTES - at - len) / stride + 1), stride)
    })
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || 0..STREAMS;
    prop_oneof![
        4 => (stream(), 0..MEMORIES, part())
            .prop_map(|(stream, memory, part)| Step::Fill { stream, memory, part }),
        4 => (stream(), 0..MEMORIES, 1..MEMORIES, part()).prop_map(|(stream, from, by, part)| {
            Step::Copy { stream, to: (from + by) % MEMORIES, from, part }
        }),
        4 => (stream(), 0..MEMORIES, rows(), any::<bool>()).prop_map(
            |(stream, memory, rows, writes)| Step::Launch { stream, memory, rows, writes },
        ),
        3 => (0..EVENTS, stream()).prop_map(|(event, stream)| Step::Record { event, stream }),
        3 => (stream(), 0..EVENTS).prop_map(|(stream, event)| Step::Wait { stream, event }),
        1 => stream().prop_map(Step::SynchronizeStream),
        1 => (0..EVENTS).prop_map(Step::SynchronizeEvent),
        1 => stream().prop_map(Step::QueryStream),
        1 => (0..EVENTS).prop_map(Step::QueryEvent),
        1 => (2..STREAMS).prop_map(Step::Replace),
    ]
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..STEPS)
}

/// What is ordered before something, as a set of operations.
type Past = u128;

/// A memory, a set of its bytes, and whether it is written.
type Used = (usize, u64, bool);

fn bytes_of((at, len): (usize, usize)) -> u64 {
    (u64::MAX >> (BYTES - len)) << at
}

/// An operation: the stream it is on and how many came before it there, and what it uses.
struct Done {
    stream: String,
    position: u64,
    uses: Vec<Used>,
}

/// The machine and the model, in step.
struct Pair {
    rig: Rig,
    streams: [RawStream; STREAMS],
    events: [RawEvent; EVENTS],
    memories: [DevicePtr; MEMORIES],
    done: Vec<Done>,
    host: Past,
    on_stream: [Past; STREAMS],
    /// How many operations each stream had.
    counts: [u64; STREAMS],
    names: [String; STREAMS],
    recorded: [Option<Past>; EVENTS],
    /// Of blocking streams that are gone.
    gone: Past,
    /// The next letter.
    next: u8,
}

/// The legacy and the per-thread stream come first, then two blocking ones; the others are not.
fn is_blocking(stream: usize) -> bool {
    stream < 4
}

impl Pair {
    fn new(builder: Builder) -> Self {
        let emulator = builder.memory_bytes(1 << 20).build();
        let rig = Rig { driver: emulator.driver(), emulator };
        let default = |handle| RawStream { device: 0, handle };
        let memories = [(); MEMORIES].map(|()| rig.memory(0));
        let mut pair = Pair {
            streams: [default(RawStream::LEGACY); STREAMS],
            events: [(); EVENTS].map(|()| rig.driver.event_create(0, false).unwrap()),
            memories,
            done: Vec::new(),
            host: 0,
            on_stream: [0; STREAMS],
            counts: [0; STREAMS],
            names: [(); STREAMS].map(|()| String::new()),
            recorded: [None; EVENTS],
            gone: 0,
            next: b'A' + MEMORIES as u8,
            rig,
        };
        pair.streams[1] = default(RawStream::PER_THREAD);
        // The machine makes it when it is first named.
        pair.rig.query(pair.streams[1]).unwrap();
        pair.names[0] = "legacy stream".into();
        pair.names[1] = format!("per-thread stream {}", pair.letter());
        (2..STREAMS).for_each(|stream| pair.create(stream));
        pair
    }

    fn letter(&mut self) -> char {
        // Past Z, the names of streams are not compared.
        self.next += 1;
        char::from(self.next - 1)
    }

    fn create(&mut self, stream: usize) {
        let flags = StreamFlags { blocking: is_blocking(stream), priority: 0 };
        self.streams[stream] = self.rig.driver.stream_create(0, flags).unwrap();
        self.names[stream] = format!("stream {}", self.letter());
        (self.on_stream[stream], self.counts[stream]) = (0, 0);
    }

    /// The operations that the next operation of a stream comes after, without events.
    fn past_of_next(&self, stream: usize) -> Past {
        let mut past = self.on_stream[stream] | self.host;
        if stream == 0 {
            let blocking = (0..STREAMS).filter(|&other| is_blocking(other));
            past |= blocking.map(|other| self.on_stream[other]).fold(self.gone, |a, b| a | b);
        } else if is_blocking(stream) {
            past |= self.on_stream[0];
        }
        past
    }

    fn enqueue(&mut self, at: usize, also: Past, uses: Vec<Used>) -> Past {
        let past = self.past_of_next(at) | also;
        self.counts[at] += 1;
        self.on_stream[at] = past;
        if !uses.is_empty() {
            self.on_stream[at] |= 1 << self.done.len();
            let (stream, position) = (self.names[at].clone(), self.counts[at]);
            self.done.push(Done { stream, position, uses });
        }
        self.on_stream[at]
    }

    /// The operations that race with one: their numbers.
    fn races_of(&self, past: Past, uses: &[Used]) -> Vec<usize> {
        let conflicts = |other: &Done| {
            uses.iter().any(|&(memory, bytes, writes)| {
                let mut uses = other.uses.iter();
                uses.any(|&(m, b, w)| m == memory && (w || writes) && b & bytes != 0)
            })
        };
        let parallel = |&at: &usize| past >> at & 1 == 0 && conflicts(&self.done[at]);
        (0..self.done.len()).filter(parallel).collect()
    }

    fn uses_of(step: &Step) -> Option<(usize, Vec<Used>)> {
        match *step {
            Step::Fill { stream, memory, part } => {
                Some((stream, vec![(memory, bytes_of(part), true)]))
            }
            Step::Copy { stream, to, from, part } => {
                let bytes = bytes_of(part);
                Some((stream, vec![(from, bytes, false), (to, bytes, true)]))
            }
            Step::Launch { stream, memory, rows: (at, len, rows, stride), writes } => {
                let row = |row: usize| bytes_of((at + row * stride, len));
                let bytes = (0..rows).map(row).fold(0, |all, row| all | row);
                Some((stream, vec![(memory, bytes, writes)]))
            }
            _ => None,
        }
    }

    fn run(&mut self, step: &Step) {
        let rig = &self.rig;
        let at = |memory: usize, (at, _): (usize, usize)| self.memories[memory] + at as u64;
        match *step {
            Step::Fill { stream, memory, part } => {
                rig.fill_part(self.streams[stream], at(memory, part), part.1);
            }
            Step::Copy { stream, to, from, part } => {
                rig.copy_part(self.streams[stream], at(to, part), at(from, part), part.1);
            }
            Step::Launch { stream, memory, rows: (at, bytes, rows, stride), writes } => {
                let start = self.memories[memory] + at as u64;
                let [bytes, rows, stride] = [bytes, rows, stride].map(|number| number as u64);
                let uses = [DeclaredUse { start, bytes, rows, stride, writes, later: false }];
                let launch = |work| {
                    // SAFETY: the work does nothing.
                    unsafe {
                        rig.emulator.launch_declared(self.streams[stream], "rows", &uses, work)
                    }
                };
                launch(Box::new(Vec::new)).unwrap();
            }
            Step::Record { event, stream } => {
                rig.record(self.events[event], self.streams[stream]).unwrap();
                self.recorded[event] = Some(self.enqueue(stream, 0, vec![]));
            }
            Step::Wait { stream, event } => {
                rig.wait(self.streams[stream], self.events[event]).unwrap();
                if let Some(past) = self.recorded[event] {
                    self.enqueue(stream, past, vec![]);
                }
            }
            Step::SynchronizeStream(stream) => {
                rig.synchronize(self.streams[stream]).unwrap();
                self.host |= self.on_stream[stream];
            }
            Step::SynchronizeEvent(event) => {
                rig.synchronize_event(self.events[event]).unwrap();
                self.host |= self.recorded[event].unwrap_or(0);
            }
            Step::QueryStream(stream) => {
                if rig.query(self.streams[stream]) == Ok(Poll::Done) {
                    self.host |= self.on_stream[stream];
                }
            }
            Step::QueryEvent(event) => {
                if rig.query_event(self.events[event]) == Ok(Poll::Done) {
                    self.host |= self.recorded[event].unwrap_or(0);
                }
            }
            Step::Replace(stream) => {
                rig.destroy_stream(self.streams[stream]).unwrap();
                if is_blocking(stream) {
                    self.gone |= self.on_stream[stream];
                }
                self.create(stream);
            }
        }
        if let Some((stream, uses)) = Self::uses_of(step) {
            self.enqueue(stream, 0, uses);
        }
    }
}

fn builders() -> [Builder; 2] {
    let lazy = Emulator::builder().execution(Execution::Lazy).seed(3);
    [Emulator::builder(), lazy]
}

fn check_first_race(program: &[Step], builder: Builder) -> Result<bool, TestCaseError> {
    let mut pair = Pair::new(builder);
    for step in program {
        let racing = Pair::uses_of(step)
            .map_or(vec![], |(stream, uses)| pair.races_of(pair.past_of_next(stream), &uses));
        pair.run(step);
        let findings = pair.rig.emulator.findings();
        if racing.is_empty() {
            prop_assert_eq!(findings, []);
            continue;
        }
        prop_assert!(!findings.is_empty(), "{:?} races", step);
        let second = pair.done.last().expect("it races");
        for finding in findings {
            let race = finding.race().expect("it is one");
            let named = |done: &Done, used: &RacingUse| {
                let is_named = done.stream.bytes().last().is_some_and(|letter| letter <= b'Z');
                used.position == done.position && (!is_named || used.agent == done.stream)
            };
            prop_assert!(named(second, &race.second));
            prop_assert!(racing.iter().any(|&at| named(&pair.done[at], &race.first)));
        }
        return Ok(true);
    }
    Ok(false)
}

/// Puts events and waits where the model says that they are missing.
fn check_ordered(program: &[Step], builder: Builder) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(builder);
    for step in program.iter().take(STEPS / 2) {
        if let Some((stream, uses)) = Pair::uses_of(step) {
            for other in 0..STREAMS {
                let racing = pair.races_of(pair.past_of_next(stream), &uses);
                if racing.iter().any(|&at| pair.on_stream[other] >> at & 1 == 1) {
                    pair.run(&Step::Record { event: 0, stream: other });
                    pair.run(&Step::Wait { stream, event: 0 });
                }
            }
            // Only the legacy stream can be ordered after the work of a stream that is gone.
            if !pair.races_of(pair.past_of_next(stream), &uses).is_empty() {
                continue;
            }
        }
        pair.run(step);
        prop_assert_eq!(pair.rig.emulator.findings(), []);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_first_race_of_a_program_is_the_models(program in program()) {
        for builder in builders() {
            check_first_race(&program, builder)?;
        }
    }

    #[test]
    fn a_program_whose_conflicts_are_ordered_has_no_finding(program in program()) {
        for builder in builders() {
            check_ordered(&program, builder)?;
        }
    }
}
