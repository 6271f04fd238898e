//! The events of a pool, in a process of their own, because the process has one subscriber for all
//! threads.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{CudaCode, ErrorKind, PinnedPool};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::common::process::is_alone;
use crate::support::{BLOCK, LEN, Rig, eventually, watched};

/// The fields of an event, including its message.
#[derive(Clone, Debug, Default)]
struct Seen {
    level: String,
    fields: BTreeMap<String, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().into(), format!("{value:?}"));
    }
}

/// Records the pool's events, and reads a pool's numbers at each: that would hang if the pool were
/// locked.
#[derive(Default)]
struct Watch {
    pool: Mutex<Option<PinnedPool>>,
    seen: Mutex<Vec<Seen>>,
    panics: Mutex<bool>,
}

impl Watch {
    fn seen(&self, message: &str) -> Vec<Seen> {
        let all = self.seen.lock().unwrap();
        all.iter().filter(|event| event.fields["message"] == message).cloned().collect()
    }
}

struct Handle(Arc<Watch>);

impl Subscriber for Handle {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pinlane::pool"
    }

    fn event(&self, event: &Event<'_>) {
        let pool = self.0.pool.lock().unwrap().clone();
        if let Some(pool) = pool {
            let _ = pool.stats();
        }
        let level = event.metadata().level().to_string();
        let mut seen = Seen { level, fields: BTreeMap::new() };
        event.record(&mut seen);
        self.0.seen.lock().unwrap().push(seen);
        if *self.0.panics.lock().unwrap() {
            panic!("on purpose");
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An event in the documentation's list: its level, its message and its fields.
type Listed = (String, String, BTreeSet<String>);

/// The rows of the documentation's list.
fn listed() -> Vec<Listed> {
    let rows = include_str!("../../src/pool/events.md").lines();
    let cells = rows.filter_map(|row| row.strip_prefix("| `")?.strip_suffix("` |"));
    cells
        .map(|row| {
            let cells: Vec<&str> = row.split("` | `").collect();
            let [level, message, fields] = cells[..] else { panic!("{row}") };
            (level.into(), message.into(), fields.split("`, `").map(str::to_owned).collect())
        })
        .collect()
}

/// Asserts that each event is in the list with the same fields, and counts them.
fn check_listed(watch: &Watch) -> usize {
    let listed = listed();
    let mut found = BTreeSet::new();
    for event in &*watch.seen.lock().unwrap() {
        let message = event.fields["message"].clone();
        let fields = event.fields.keys().filter(|name| *name != "message").cloned().collect();
        let own = (event.level.clone(), message.clone(), fields);
        assert!(listed.contains(&own), "{own:?} is not in {listed:?}");
        found.insert(message);
    }
    found.len()
}

#[test]
fn the_list_of_events_has_those_of_the_source_and_no_others() {
    let source = include_str!("../../src/pool/trace.rs");
    let (_, calls) = source.split_once("/// Memory was page-locked.").expect("the first event");
    // A message is the only text in the call that makes its event.
    let messages = calls.split("event!(").skip(1).filter_map(|call| call.split('"').nth(1));
    let messages: BTreeSet<&str> = messages.collect();
    let listed = listed();
    assert_eq!(listed.iter().map(|(_, message, _)| &**message).collect::<BTreeSet<_>>(), messages);
}

#[test]
fn events_arrive_with_nothing_locked_and_may_panic() {
    if !is_alone(module_path!(), "events_arrive_with_nothing_locked_and_may_panic") {
        return;
    }
    watched(|| {
        let watch = Arc::new(Watch::default());
        tracing::subscriber::set_global_default(Handle(watch.clone())).unwrap();
        for panics in [false, true] {
            *watch.panics.lock().unwrap() = panics;
            watch.seen.lock().unwrap().clear();
            one_of_each(&watch);
            // All except the event for memory that the system does not take back.
            assert_eq!(check_listed(&watch), listed().len() - 1);
        }
    });
}

fn one_of_each(watch: &Watch) {
    let rig = Rig::new(Execution::Lazy, 0, 1);
    *watch.pool.lock().unwrap() = Some(rig.pool.clone());
    let level = |seen: &[Seen]| seen[0].level.clone();
    let number = |seen: &Seen, field: &str| seen.fields[field].parse::<usize>().unwrap();

    let (host, mut gpu) = (rig.host(1), rig.gpu());
    eventually("growth is reported", || watch.seen("page-locked").len() == 1);
    let grew = watch.seen("page-locked");
    assert_eq!(level(&grew), Level::DEBUG.to_string());
    assert_eq!((number(&grew[0], "bytes"), number(&grew[0], "block_bytes")), (BLOCK, BLOCK));
    assert_eq!(grew[0].fields["not_registered"], "false");

    assert_eq!(rig.pool.alloc::<u32>(LEN).unwrap_err().kind(), ErrorKind::BudgetExhausted);
    eventually("its end is reported", || watch.seen("no block").len() == 1);
    let timeout = Duration::from_millis(1);
    let late = rig.pool.alloc_timeout::<u32>(LEN, timeout).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let huge = rig.pool.alloc::<u32>(2 * LEN).unwrap_err();
    assert_eq!(huge.kind(), ErrorKind::BudgetExhausted);
    let failed = watch.seen("no block");
    assert_eq!(level(&failed), Level::WARN.to_string());
    let sizes: Vec<usize> = failed.iter().map(|event| number(event, "block_bytes")).collect();
    assert_eq!(sizes, [BLOCK, BLOCK, 2 * BLOCK]);
    assert_eq!(failed[1].fields["error"], late.to_string());

    drop(host);
    // A request that is served before the pool finds that there is no room has not waited.
    let patience = Duration::from_secs(30);
    eventually("a request waits", || {
        let host = rig.host(1);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| rig.pool.alloc_timeout::<u32>(LEN, patience));
            eventually("it waits", || rig.pool.stats().waiting == 1);
            thread::yield_now();
            drop(host);
            drop(waiting.join().unwrap().unwrap());
        });
        rig.pool.stats().waits.count > 0
    });
    eventually("a wait is reported", || !watch.seen("waited for room").is_empty());
    let waited = watch.seen("waited for room");
    assert_eq!((waited.len(), number(&waited[0], "block_bytes")), (1, BLOCK));
    let _ = number(&waited[0], "micros");
    assert_eq!(rig.pool.stats().waits.count, 1);

    assert_eq!(rig.pool.trim().unwrap(), BLOCK);
    assert_eq!(number(&watch.seen("given back")[0], "bytes"), BLOCK);

    let host = rig.host(1);
    rig.stall(&rig.stream);
    rig.stream.upload(&host, &mut gpu).unwrap();
    drop(host);
    for call in [Call::EventQuery, Call::EventSynchronize] {
        rig.emulator.inject(Fault::forever(call, CudaCode::UNKNOWN));
    }
    let spent = rig.pool.alloc::<u32>(LEN).unwrap_err();
    assert_eq!(spent.kind(), ErrorKind::BudgetExhausted);
    const LOST: &str = "quarantined: the device cannot say if it is done";
    eventually("the loss is reported", || !watch.seen(LOST).is_empty());
    let lost = watch.seen(LOST);
    assert_eq!((level(&lost), number(&lost[0], "bytes")), (Level::ERROR.to_string(), BLOCK));
    // The next round has events of its own.
    let told = |message, times| eventually("all came", || watch.seen(message).len() == times);
    told("page-locked", 2);
    told("no block", 4);
    rig.assert_no_misuse();
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Allocates from the pool at each event, and waits for the memory.
struct Allocates(PinnedPool, AtomicUsize);

impl Subscriber for Allocates {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pinlane::pool"
    }

    fn event(&self, _: &Event<'_>) {
        // Otherwise its own events would never end.
        if !INSIDE.replace(true) {
            let number = self.1.fetch_add(1, Ordering::Relaxed);
            // Varying sizes, so that the pool must do more than reuse a block.
            let _ = self.0.alloc_timeout::<u32>(LEN * (1 + number % 2), Duration::from_secs(3600));
            INSIDE.set(false);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_may_allocate_from_the_pool() {
    if !is_alone(module_path!(), "a_subscriber_may_allocate_from_the_pool") {
        return;
    }
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 4);
        let subscriber = Allocates(rig.pool.clone(), AtomicUsize::new(0));
        tracing::subscriber::set_global_default(subscriber).unwrap();
        thread::scope(|scope| {
            for thread in 0..4 {
                let pool = &rig.pool;
                scope.spawn(move || {
                    for round in 0..20 {
                        let len = LEN * (1 + (thread + round) % 2);
                        let host = pool.alloc_timeout::<u32>(len, Duration::from_secs(3600));
                        drop(host.unwrap());
                        if round % 5 == 0 {
                            pool.trim().unwrap();
                        }
                    }
                });
            }
        });
        rig.assert_no_misuse();
    });
}
