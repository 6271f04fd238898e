//! Measures the zoo and prints docs/zoo.md: `scripts/zoo`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pinlane_zoo::measure::{LIMIT, STARTS, median};
use pinlane_zoo::outcome::{End, Outcome};
use pinlane_zoo::program::MODES;
use pinlane_zoo::{Language, Program};

/// With how many seeds each twin is run in each mode.
const TWIN_SEEDS: u64 = 50;

/// What was measured of one program.
struct Measured {
    eager: Outcome,
    is_found: bool,
    /// By mode, those with seeds.
    needed: Vec<Option<u64>>,
}

fn with_seeds() -> impl Iterator<Item = &'static str> {
    MODES.into_iter().filter(|&mode| mode != "eager")
}

fn measure(program: &Program, twins: &AtomicU64) -> Measured {
    for mode in with_seeds() {
        for seed in 1..=TWIN_SEEDS {
            let outcome = program.run(true, mode, seed);
            assert!(outcome.is_clean(), "{}, {mode} seed {seed}: {outcome:?}", program.file());
            twins.fetch_add(1, Ordering::Relaxed);
        }
    }
    let eager = program.run(false, "eager", 0);
    let is_found = program.is_found(&eager);
    let needed = with_seeds().map(|mode| median(program, mode)).collect();
    eprintln!("{}", program.file());
    Measured { eager, is_found, needed }
}

/// Measures all programs, with a thread for each core.
fn measure_all(programs: &[Program], twins: &AtomicU64) -> Vec<Measured> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(program) = programs.get(at)
                {
                    let measured = measure(program, twins);
                    done.lock().expect("no thread panics under it").insert(at, measured);
                }
            });
        }
    });
    done.into_inner().expect("all threads have ended").into_values().collect()
}

/// `https://github.com/owner/name/issues/7` as a link named `owner/name#7`.
fn link(address: &str) -> String {
    let parts: Vec<&str> = address.split('/').collect();
    match parts[..] {
        ["https:", "", "github.com", owner, name, _, number] => {
            format!("[{owner}/{name}#{number}]({address})")
        }
        _ => format!("<{address}>"),
    }
}

fn row(program: &Program, measured: &Measured) -> String {
    let kinds: Vec<&str> = program.header.finds.iter().map(|found| &*found.kind).collect();
    let found = if measured.is_found { kinds.join(", ") } else { "-".to_owned() };
    let eager = if measured.eager.end == End::Right { "well" } else { "wrong" };
    let needed = measured.needed.iter().map(|n| n.map_or("-".into(), |n| n.to_string()));
    let needed = needed.collect::<Vec<_>>().join(" | ");
    let file = program.file();
    let (title, report) = (&program.header.title, link(&program.header.report));
    format!(
        "| [`{file}`](../crates/zoo/programs/{file}) | {title} {report} | {found} | {eager} | \
         {needed} |"
    )
}

fn main() {
    let programs: Vec<Program> = Language::ALL.into_iter().flat_map(Program::all).collect();
    let twins = AtomicU64::new(0);
    let measured = measure_all(&programs, &twins);

    print!("{}", page(&programs, &measured, twins.into_inner()));
}

/// The whole page.
fn page(programs: &[Program], measured: &[Measured], twins: u64) -> String {
    let count = programs.len();
    let [rust, c, cpp] = Language::ALL.map(|l| programs.iter().filter(|p| p.language == l).count());
    let found = measured.iter().filter(|m| m.is_found).count();
    let has_pair = |program: &Program| program.header.finds.iter().any(|f| f.pair.is_some());
    let both = programs.iter().zip(measured);
    let by_order = both.clone().filter(|(p, m)| m.is_found && has_pair(p)).count();
    let later = both.filter(|(_, m)| !m.is_found).map(|(_, m)| m.needed.iter().flatten().min());
    let most = later.map(|fewest| fewest.copied().unwrap_or(u64::MAX)).max();
    let rest = count - found;
    let rest = match most {
        None => String::new(),
        Some(most) if most > LIMIT => format!("- {rest} are not all found.\n"),
        Some(most) => format!(
            "- Wrong results show the other {rest}, after {most} schedules of some kind at most.\n"
        ),
    };
    let modes: Vec<&str> = with_seeds().collect();
    let names = modes.iter().map(|mode| format!("**{mode}**")).collect::<Vec<_>>().join(", ");
    let rows: Vec<String> = programs.iter().zip(measured).map(|(p, m)| row(p, m)).collect();
    format!(
        "# The bug zoo

<!-- Written by scripts/zoo. -->

Small programs, each made after a bug that happened to somebody. Each has a twin that differs only
by the fix. `crates/zoo/programs` has {rust} in Rust, {c} in C and {cpp} in C++. Those
in C and C++ are linked with the [drop-in CUDA runtime](drop-in.md).

What finds the bugs:

- One eager run finds {found} of {count}, {by_order} of them by the order of the calls.
{rest}- Nothing is found in the twins, in {twins} runs.

The columns:

- **Eager run finds**: the kind of the finding that names the bug. A race names two operations; the
  comment at the top of each program says which.
- **It ends**: whether the program itself finds its result right in that run.
- {names}: how many schedules of that
  kind it takes until the run goes wrong by itself: wrong bytes, a crash, or a finding about what
  happened to the bytes. The median of {STARTS} searches, each from another seed. `-` is more than
  {LIMIT}.

| program | what happened | eager run finds | it ends | {} |
|---|---|---|---|{}
{}
",
        modes.join(" | "),
        "---:|".repeat(modes.len()),
        rows.join("\n"),
    )
}
