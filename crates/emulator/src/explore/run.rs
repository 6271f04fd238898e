//! One run of a program, and how it ended.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::OnceLock;

use crate::emulator::{Builder, Emulator};
use crate::finding::{Finding, FindingKind};
use crate::schedule::Replay;
use pinlane_base::process::PerProcess;

/// What a program that is explored may return: nothing, or a result, whose error is a failure.
pub trait Outcome {
    /// Why the run failed, if it did.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<T, E: fmt::Display> Outcome for Result<T, E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| format!("it returned an error: {error}"))
    }
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The failure of the program itself.
    pub(super) failure: Option<String>,
    pub(super) findings: Vec<Finding>,
    pub(super) replay: Replay,
    pub(super) operations: u64,
    /// How many choices there were at each point, for a search that tries all of them.
    pub(super) path: Vec<(usize, usize)>,
}

impl Ended {
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some() || !self.findings.is_empty()
    }

    /// Whether it fails as another run does: the program does, or a finding is of the same kind.
    pub(super) fn fails_as(&self, other: &Ended) -> bool {
        let kind = |ended: &Ended| ended.findings.first().map(|finding| finding.kind);
        match &other.failure {
            Some(_) => self.failure.is_some(),
            None => {
                let wanted: Option<FindingKind> = kind(other);
                self.findings.iter().any(|finding| Some(finding.kind) == wanted)
            }
        }
    }
}

/// Runs a program on a new machine.
pub(super) fn run<R: Outcome>(builder: Builder, program: impl FnOnce(&Emulator) -> R) -> Ended {
    let machine = builder.record(true).build();
    let failure = quietly(|| program(&machine).failure()).unwrap_or_else(Some);
    Ended {
        failure,
        findings: machine.findings(),
        replay: machine.replay().expect("it is written down"),
        operations: machine.operations(),
        path: machine.path(),
    }
}

thread_local! {
    /// What panics of this thread say, while they are not printed.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls it; the error is what it said when it panicked. That is not printed: one bug makes
/// hundreds of runs fail. Panics of other threads are.
fn quietly<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: PerProcess<OnceLock<()>> = PerProcess::new();
    HOOK.get().get_or_init(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let is_ours = SAID.try_with(|said| match &mut *said.borrow_mut() {
                Some(said) => {
                    *said = describe(info);
                    true
                }
                None => false,
            });
            if is_ours != Ok(true) {
                before(info);
            }
        }));
    });
    let outer = SAID.replace(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(call));
    let said = SAID.replace(outer).unwrap_or_default();
    result.map_err(|payload| {
        let said = if said.is_empty() { message(&*payload) } else { said };
        // Dropping what a program panicked with may panic, too; then it is kept.
        catch_unwind(AssertUnwindSafe(|| drop(payload))).unwrap_or_else(std::mem::forget);
        format!("it panicked: {said}")
    })
}

fn describe(info: &PanicHookInfo) -> String {
    let place = info.location().map(|place| format!(", at {place}")).unwrap_or_default();
    message(info.payload()) + &place
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".into())
}
