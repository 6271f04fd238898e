//! Where a call was made: the first line outside of this crate.
//!
//! A backtrace with its lines costs as much as thousands of operations. So it is taken only if the
//! builder asks for it. A library that makes the calls for a program needs less: it notes the
//! addresses that a call returns to ([`Callers`]), whose lines are looked up when there is a
//! finding.

use std::backtrace::Backtrace;
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pinlane_base::sources::Sources;

/// A line of the program that made a call.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The file, as the debug information or the interpreter names it.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The function, if an interpreter runs the program.
    pub function: Option<String>,
    /// The text of the line, if an interpreter runs the program and the file could be read.
    pub source: Option<String>,
    /// The interpreter's functions that led to the call, the innermost first, those of libraries
    /// included. At most 8; none if no interpreter runs the program.
    pub callers: Vec<Frame>,
    /// Whether the interpreter does not know the thread that made the call: `callers` are those of
    /// its main thread at that time.
    pub by_worker: bool,
}

/// A function that an interpreter runs, and the line that it has come to.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The file, as the interpreter names it.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The function.
    pub function: String,
}

impl Frame {
    /// A function at a line.
    pub fn new(file: String, line: u32, function: String) -> Self {
        Frame { file, line, function }
    }
}

impl fmt::Display for Frame {
    /// The last part of the path, the line and the function.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} in {}", last_part(&self.file), self.line, self.function)
    }
}

fn last_part(file: &str) -> &str {
    file.rsplit(['/', '\\']).next().unwrap_or_default()
}

impl fmt::Display for Site {
    /// The last part of the path, and the line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", last_part(&self.file), self.line)
    }
}

impl Site {
    /// A line, and nothing else.
    pub fn new(file: String, line: u32) -> Self {
        let (function, source, callers) = (None, None, Vec::new());
        Site { file, line, function, source, callers, by_worker: false }
    }

    /// The lines of a finding's text that end with this place.
    pub(crate) fn as_line(&self, before: &str) -> String {
        let details = self.details().map(|details| format!("\n    {details}"));
        format!("\n  {before} {self}{}", details.unwrap_or_default())
    }

    /// What a text says of an interpreter's line besides its place: the function, the text of the
    /// line, the library's line that made the call, and whether another thread made it.
    pub(crate) fn details(&self) -> Option<String> {
        let mut text = format!("in {}", self.function.as_ref()?);
        if let Some(source) = &self.source {
            text += &format!(": {source}");
        }
        let is_here = |frame: &&Frame| frame.line == self.line && frame.file == self.file;
        if let Some(library) = self.callers.first().filter(|frame| !is_here(frame)) {
            text += &format!("  ({library})");
        }
        if self.by_worker {
            text += "  (on another thread, while the main thread was here)";
        }
        Some(text)
    }

    /// Where the caller of this crate is, as far as its debug information says.
    #[cold]
    pub(crate) fn capture() -> Option<Site> {
        let here = std::env::current_dir().unwrap_or_default();
        let here = here.to_str().unwrap_or_default();
        let backtrace = capturing::alone(|| Backtrace::force_capture().to_string());
        first_outside(&backtrace, here, &left_out())
    }
}

/// Crates above this one whose lines are no program's.
static ABOVE: [AtomicPtr<Sources>; 4] = [const { AtomicPtr::new(ptr::null_mut()) }; 4];

/// From now on, sites skip the lines of these sources: they belong to a crate that makes calls for
/// programs. At most 4 such crates count.
pub fn leave_out(sources: &'static Sources) {
    let own = ptr::from_ref(sources).cast_mut();
    for place in &ABOVE {
        let was =
            place.compare_exchange(ptr::null_mut(), own, Ordering::Release, Ordering::Relaxed);
        if was.is_ok() || was == Err(own) {
            return;
        }
    }
}

/// The sources of this crate, of those below it, and of those above that have said so.
fn left_out() -> Vec<Sources> {
    let [file, package] = pinlane_driver::SOURCES;
    let own = pinlane_base::own_sources!("races/site.rs");
    let below = [own, pinlane_base::SOURCES, Sources::new(file, "lib.rs", package)];
    // SAFETY: null, or what `leave_out` was given, which is `'static`.
    let above = ABOVE.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    below.into_iter().chain(above.copied()).collect()
}

/// The standard library takes a lock for a backtrace. In a child that is forked during a backtrace,
/// this lock would stay held. So a fork waits until no thread takes a backtrace.
mod capturing {
    use std::cell::UnsafeCell;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Lock(UnsafeCell<libc::pthread_mutex_t>);

    // SAFETY: a mutex of the C library is for all threads.
    unsafe impl Sync for Lock {}

    static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    static FORKS_WAIT: AtomicBool = AtomicBool::new(false);

    extern "C" fn take() {
        // SAFETY: the mutex is initialised, and never destroyed.
        unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
    }

    extern "C" fn give_back() {
        // SAFETY: this thread has taken it; the only thread of a child is the one that forked.
        unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) };
    }

    /// `work` does not unwind.
    pub(super) fn alone<R>(work: impl FnOnce() -> R) -> R {
        if !FORKS_WAIT.swap(true, Ordering::Relaxed) {
            // SAFETY: the functions are there for the whole life of the process, and allowed where
            // they are called. If it fails, a fork does not wait.
            unsafe { libc::pthread_atfork(Some(take), Some(give_back), Some(give_back)) };
        }
        take();
        let result = work();
        give_back();
        result
    }
}

/// Finds the first frame with a line that is neither of these sources nor of the standard library,
/// in a backtrace as the standard library prints it. `here` is the folder that its paths may begin
/// at. Builds with little debug information name functions without their crates.
fn first_outside(backtrace: &str, here: &str, left_out: &[Sources]) -> Option<Site> {
    let mut function = "";
    for line in backtrace.lines().map(str::trim_start) {
        if let Some(place) = line.strip_prefix("at ") {
            if is_outside(function)
                && !is_left_out(place, here, left_out)
                && let Some(site) = site_of(place)
            {
                return Some(site);
            }
        } else {
            let number_and_name = line.split_once(": ");
            function = number_and_name.map_or("", |(_, name)| name.trim());
        }
    }
    None
}

fn is_left_out(place: &str, here: &str, left_out: &[Sources]) -> bool {
    let of_std = place.starts_with("/rustc/") || place.contains("/rustlib/src/rust/library/");
    let inside = left_out.iter().any(|sources| sources.contain(place, here));
    of_std || inside && !place.contains("/tests")
}

fn is_outside(function: &str) -> bool {
    let name = function.trim_start_matches(['<', '&', '(', '*']);
    let name = name.strip_prefix("dyn ").or(name.strip_prefix("impl ")).unwrap_or(name);
    const INSIDE: [&str; 10] = [
        "std::",
        "core::",
        "alloc::",
        "test::",
        // Reserved for compilers and the C library: it calls `main`, and copies memory.
        "__",
        "rust_",
        "pinlane::",
        "pinlane_",
        // The C++ wrapper, whose names are not demangled.
        "_ZN7pinlane",
        "_ZNK7pinlane",
    ];
    // Where threads begin, in the C library.
    const BEGIN: [&str; 3] = ["start_thread", "clone", "clone3"];
    let inside = INSIDE.iter().any(|prefix| name.starts_with(prefix)) || BEGIN.contains(&name);
    !function.is_empty() && (!inside || name.contains("::tests::"))
}

/// Splits `path:line:column` or `path:line`.
fn site_of(place: &str) -> Option<Site> {
    let mut parts = place.rsplitn(3, ':');
    let (last, middle, rest) = (parts.next()?, parts.next()?, parts.next());
    let (file, line) = match (middle.parse::<u32>(), rest) {
        (Ok(line), Some(file)) => (file.to_owned(), line),
        _ => (place.strip_suffix(last)?.strip_suffix(':')?.to_owned(), last.parse().ok()?),
    };
    Some(Site::new(file, line))
}

/// The addresses that a call returns to, the innermost first; 0 after the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Callers(pub [usize; Callers::MOST]);

thread_local! {
    /// Of the call that the thread is in.
    static CALLERS: Cell<Callers> = const { Cell::new(Callers::NONE) };
}

impl Callers {
    /// How many addresses are kept: some of them may have no line.
    pub const MOST: usize = 4;

    /// Of no call.
    pub const NONE: Self = Callers([0; Callers::MOST]);

    /// Of a call that are found when they are needed, as most calls need none.
    pub const LATER: Self = Callers([usize::MAX; Callers::MOST]);

    /// One address.
    pub fn of(at: usize) -> Self {
        let mut callers = Callers::NONE;
        callers.0[0] = at;
        callers
    }

    /// Those of the call that the calling thread is in.
    pub fn current() -> Self {
        CALLERS.try_with(Cell::get).unwrap_or_default()
    }

    /// The calling thread makes a call from there, from now on. Gives the callers until now.
    pub fn exchange(self) -> Self {
        CALLERS.try_with(|callers| callers.replace(self)).unwrap_or_default()
    }
}

/// Who finds lines for a machine.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// The line of a call: of the first address that has one.
    pub look_up: fn(&Callers) -> Option<Site>,
    /// The callers of the call that the thread is in, which has noted [`Callers::LATER`].
    pub callers: fn() -> Callers,
    /// The line that the thread is in, outside of any call, if an interpreter runs it.
    pub here: fn() -> Option<Site>,
    /// Notes the same in the handler of a signal: it takes no lock and allocates nothing.
    pub note: fn(&mut Note),
    /// What stands for a note; `None` if no interpreter ran the thread.
    pub noted: fn(&Note) -> Option<Callers>,
}

/// Where an interpreter was, in words that only it understands; all 0 if none ran the thread.
pub type Note = [usize; 16];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Line(Site),
    Callers(Callers),
}

#[derive(Debug)]
struct Entry {
    place: Place,
    /// Its line, once it was looked up.
    site: OnceCell<Option<Site>>,
}

/// The sites of a machine, by numbers that fit into the record of a use. Number 0 is no site.
#[derive(Debug, Default)]
pub(super) struct Sites {
    list: Vec<Entry>,
    numbers: HashMap<Place, u32>,
    /// That of the call which is being made.
    current: u32,
    lines: Option<Lines>,
    /// The last callers and their number: many calls come from a loop.
    last: (Callers, u32),
}

impl Sites {
    /// The most sites that are kept apart.
    const MOST: usize = 1 << 20;
    /// The number of a call whose callers were not asked for yet.
    const UNASKED: u32 = u32::MAX;

    pub(super) fn set(&mut self, site: Option<Site>) {
        // Else the call has been noted by its callers.
        if self.lines.is_none() {
            self.current = site.map_or(0, |site| self.number(Place::Line(site)));
        }
    }

    /// From now on calls are known by their callers.
    pub(super) fn look_up_by(&mut self, lines: Lines) {
        self.lines = Some(lines);
    }

    /// The line of the program that the calling thread is in, outside of any call.
    #[cold]
    pub(super) fn of_host(&self) -> Option<Site> {
        self.lines.and_then(|lines| (lines.here)()).or_else(Site::capture)
    }

    /// What stands for a place that a handler has noted.
    #[cold]
    pub(super) fn noted(&self, callers: Callers, note: &Note) -> Callers {
        self.lines.and_then(|lines| (lines.noted)(note)).unwrap_or(callers)
    }

    pub(super) fn are_looked_up(&self) -> bool {
        self.lines.is_some()
    }

    /// The calling thread has the machine now.
    #[inline]
    pub(super) fn set_callers(&mut self) {
        if self.lines.is_some() {
            self.current = Sites::UNASKED;
        }
    }

    /// Asks for the callers of the call that is being made.
    #[cold]
    fn ask(&mut self) {
        let callers = match (Callers::current(), self.lines) {
            (Callers::LATER, Some(lines)) => (lines.callers)(),
            (callers, _) => callers,
        };
        if callers != self.last.0 {
            let is_none = callers == Callers::default();
            let number = if is_none { 0 } else { self.number(Place::Callers(callers)) };
            self.last = (callers, number);
        }
        self.current = self.last.1;
    }

    fn number(&mut self, place: Place) -> u32 {
        if let Some(&number) = self.numbers.get(&place) {
            return number;
        }
        if self.list.len() == Self::MOST {
            return 0;
        }
        self.list.push(Entry { place: place.clone(), site: OnceCell::new() });
        let number = self.list.len() as u32;
        self.numbers.insert(place, number);
        number
    }

    /// Another site is that of the call.
    #[inline]
    pub(super) fn exchange(&mut self, site: u32) -> u32 {
        std::mem::replace(&mut self.current, site)
    }

    #[inline]
    pub(super) fn current(&mut self) -> u32 {
        if self.current == Sites::UNASKED {
            self.ask();
        }
        self.current
    }

    pub(super) fn get(&self, number: u32) -> Option<Site> {
        let Entry { place, site } = self.list.get((number as usize).checked_sub(1)?)?;
        let find = || match place {
            Place::Line(site) => Some(site.clone()),
            Place::Callers(callers) => (self.lines?.look_up)(callers),
        };
        site.get_or_init(find).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_outside_of_the_crate_is_the_site() {
        let backtrace = "   0: std::backtrace::Backtrace::create
             at /rustc/abc/library/std/src/backtrace.rs:331:13
   1: <pinlane::driver::emulated::runtime::Runtime as pinlane::driver::Kernels>::fill
             at ./src/driver/emulated/kernels.rs:22:9
   2: pinlane_stream_fill
             at ./src/capi/kernels.rs:10:1
   3: _ZN7pinlane6stream4fillEv
             at ./include/pinlane/cpp/stream.hpp:40
   4: __memset_avx2
             at ../sysdeps/x86_64/multiarch/memset.S:235
   4: start_thread
             at ./nptl/pthread_create.c:442:8
   4: clone3
             at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81
   4: app::without_a_line
   5: app::work
             at /home/me/app/src/main.rs:41:5
   6: main";
        let site = first_outside(backtrace, "/build", &[]).unwrap();
        assert_eq!((site.line, site.to_string()), (41, "main.rs:41".to_owned()));
        assert_eq!(first_outside("   0: std::x\n             at a.rs:1:1", "/build", &[]), None);
    }

    #[test]
    fn functions_without_their_crates_are_known_by_their_files() {
        const OWN: [Sources; 2] = [
            Sources::new("crates/emulator/src/lib.rs", "lib.rs", "/build/pinlane/crates/emulator"),
            Sources::new("cudart/src/lib.rs", "lib.rs", "/build/pinlane/cudart"),
        ];
        let backtrace = "   0: force_capture
             at /rustc/abc/library/std/src/backtrace.rs:331:13
   1: capture
             at /build/pinlane/crates/emulator/src/races/site.rs:31:24
   2: cudaMemcpyAsync
             at /build/pinlane/cudart/src/copies.rs:40:5
   3: main
             at /build/pinlane/examples/main.rs:41:5";
        assert_eq!(first_outside(backtrace, "/", &OWN).unwrap().to_string(), "main.rs:41");
        // Run in a folder of a crate's.
        let backtrace = backtrace.replace("/build/pinlane/cudart/", "./");
        let site = first_outside(&backtrace, "/build/pinlane/cudart", &OWN).unwrap();
        assert_eq!(site.to_string(), "main.rs:41");
    }

    #[test]
    fn this_crate_is_left_out_and_crates_above_it_are_once_they_say_so() {
        static ABOVE_IT: Sources = Sources::new("above/src/lib.rs", "lib.rs", "/build/above");
        let here = std::env::current_dir().unwrap();
        let is_left_out = |place| is_left_out(place, here.to_str().unwrap(), &left_out());
        assert!(is_left_out(concat!(env!("CARGO_MANIFEST_DIR"), "/src/machine.rs:7:1")));
        assert!(!is_left_out("/build/above/src/copies.rs:7:1"));
        leave_out(&ABOVE_IT);
        leave_out(&ABOVE_IT);
        assert!(is_left_out("/build/above/src/copies.rs:7:1"));
        assert!(!is_left_out("/build/above/examples/main.rs:7:1"));
    }

    #[test]
    fn places_with_and_without_a_column_are_understood() {
        let site = |place| site_of(place).map(|site| (site.file, site.line));
        assert_eq!(site("a/b.cpp:41"), Some(("a/b.cpp".into(), 41)));
        assert_eq!(site("C:\\b.rs:41:7"), Some(("C:\\b.rs".into(), 41)));
        assert_eq!(site("C:\\b.rs:41"), Some(("C:\\b.rs".into(), 41)));
        assert_eq!(site("nowhere"), None);
    }

    #[test]
    fn a_site_keeps_its_number() {
        let (mut sites, a) = (Sites::default(), Site::new("a".into(), 1));
        sites.set(Some(a.clone()));
        let number = sites.current();
        sites.set(Some(Site { line: 2, ..a.clone() }));
        assert_ne!(sites.current(), number);
        sites.set(Some(a.clone()));
        assert_eq!((sites.current(), sites.get(number)), (number, Some(a)));
        sites.set(None);
        let none = sites.current();
        assert_eq!(sites.get(none), None);
    }

    #[test]
    fn callers_are_those_of_the_thread_and_looked_up_when_asked_for() {
        let mut sites = Sites::default();
        sites.look_up_by(Lines {
            look_up: |callers| Some(Site::new("a".into(), callers.0[0] as u32)),
            callers: || Callers::of(43),
            here: || None,
            note: |_| {},
            noted: |_| None,
        });
        let line = |sites: &mut Sites| {
            let current = sites.current();
            sites.get(current).map(|site| site.line)
        };
        let former = Callers([41, 0, 0, 0]).exchange();
        sites.set_callers();
        assert_eq!(line(&mut sites), Some(41));
        sites.set(Some(Site::new("b".into(), 1)));
        assert_eq!(line(&mut sites), Some(41), "callers say it better");
        let number = sites.current();
        assert_eq!(Callers([42, 0, 0, 0]).exchange(), Callers([41, 0, 0, 0]));
        sites.set_callers();
        assert_eq!(line(&mut sites), Some(42));
        std::thread::scope(|scope| {
            let current = || {
                sites.set_callers();
                sites.current()
            };
            assert_eq!(scope.spawn(current).join().unwrap(), 0, "another thread is in no call");
        });
        assert_eq!(Callers([41, 0, 0, 0]).exchange(), Callers([42, 0, 0, 0]));
        sites.set_callers();
        let earlier = sites.exchange(7);
        sites.exchange(earlier);
        assert_eq!(sites.current(), number);
        Callers::LATER.exchange();
        sites.set_callers();
        assert_eq!(line(&mut sites), Some(43));
        former.exchange();
    }
}
