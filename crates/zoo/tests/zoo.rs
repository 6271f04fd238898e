//! Every program of the zoo is found, in one eager run wherever the calls tell enough; and of the
//! twins, nothing is. What the book prints of some of them is what is found.

use std::collections::HashSet;
use std::fs;

use pinlane_zoo::measure::LIMIT;
use pinlane_zoo::outcome::{End, Outcome};
use pinlane_zoo::program::MODES;
use pinlane_zoo::{Language, Program};

/// With how many seeds each mode is run.
const SEEDS: u64 = 5;

fn schedules() -> impl Iterator<Item = (&'static str, u64)> {
    let seeds = |mode| if mode == "eager" { 1 } else { SEEDS };
    MODES.into_iter().flat_map(move |mode| (1..=seeds(mode)).map(move |seed| (mode, seed)))
}

/// Looks at all programs of a language; panics with what is wrong with all of them.
fn look_at(language: Language, look: impl Fn(&Program) -> Vec<String>) {
    let programs = Program::all(language);
    assert!(programs.len() > 5);
    let wrong: Vec<String> = programs
        .iter()
        .flat_map(|program| {
            look(program).into_iter().map(|what| format!("{}: {what}", program.file()))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A program gives its findings in every run, whatever the schedule; the first run is an eager one.
/// Where the machine cannot know of an access, some schedule shows the harm.
fn is_found(program: &Program) -> Vec<String> {
    if !program.is_known_by_calls() {
        let goes_wrong = |seed| program.run(false, "lazy", seed).went_wrong();
        let found = (1..=LIMIT).any(goes_wrong);
        return if found { vec![] } else { vec!["no schedule shows it".into()] };
    }
    let missed = |(mode, seed)| {
        let outcome = program.run(false, mode, seed);
        let found = program.is_found(&outcome);
        (!found).then(|| format!("{mode} with seed {seed}: {outcome:?}"))
    };
    // A call that waits in vain takes time, whatever the seed.
    let hangs = program.header.finds.iter().any(|found| found.kind == "Deadlock");
    let schedules = schedules().filter(|&(_, seed)| !hangs || seed == 1);
    schedules.filter_map(missed).collect()
}

fn twin_is_clean(program: &Program) -> Vec<String> {
    let unclean = |(mode, seed)| {
        let outcome = program.run(true, mode, seed);
        (!outcome.is_clean()).then(|| format!("{mode} with seed {seed}: {outcome:?}"))
    };
    schedules().filter_map(unclean).collect()
}

#[test]
fn programs_in_rust_are_found() {
    look_at(Language::Rust, is_found);
}

#[test]
fn programs_in_c_are_found() {
    look_at(Language::C, is_found);
}

#[test]
fn programs_in_cpp_are_found() {
    look_at(Language::Cpp, is_found);
}

#[test]
fn of_the_twins_in_rust_nothing_is() {
    look_at(Language::Rust, twin_is_clean);
}

#[test]
fn of_the_twins_in_c_nothing_is() {
    look_at(Language::C, twin_is_clean);
}

#[test]
fn of_the_twins_in_cpp_nothing_is() {
    look_at(Language::Cpp, twin_is_clean);
}

#[test]
fn each_program_has_a_report_of_its_own() {
    let all: Vec<Program> = Language::ALL.into_iter().flat_map(Program::all).collect();
    assert!(all.len() >= 30, "{}", all.len());
    let reports: HashSet<&str> = all.iter().map(|program| &*program.header.report).collect();
    assert_eq!(reports.len(), all.len());
    for program in &all {
        let Program { header, .. } = program;
        assert!(header.report.starts_with("https://"), "{}", program.file());
        assert!(header.title.ends_with('.') && header.wrong.ends_with('.'), "{}", program.file());
    }
}

#[test]
fn a_program_in_rust_is_no_module_by_accident() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/programs")).unwrap();
    let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
    let in_rust = names.filter(|name| name.ends_with(".rs") && name != "mod.rs").count();
    assert_eq!(in_rust, Program::all(Language::Rust).len(), "programs/mod.rs lists all");
}

#[test]
fn an_eager_run_of_most_programs_goes_well() {
    let all: Vec<Program> = Language::ALL.into_iter().flat_map(Program::all).collect();
    let well = |program: &&Program| program.run(false, "eager", 0).end == End::Right;
    let well = all.iter().filter(well).count();
    assert!(well * 3 > all.len() * 2, "{well} of {}", all.len());
}

/// The findings of a program, each as it is printed, but for addresses, which differ from run to
/// run, and for long lines, which are wrapped.
fn printed(outcome: &Outcome) -> String {
    let texts = outcome.findings.iter().map(|found| format!("{}: {}\n", found.kind, found.message));
    let text: String = texts.collect();
    let mut parts = text.split("0x");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
        let is_address = part.len() - rest.len() > 8;
        if is_address { text + "ADDRESS" + rest } else { text + "0x" + part }
    });
    text.lines().map(wrapped).collect()
}

fn wrapped(line: &str) -> String {
    match line.get(..96).and_then(|start| start.rfind(' ')) {
        Some(end) => {
            format!("{}\n{}", &line[..end], wrapped(&format!("{:14}{}", "", &line[end + 1..])))
        }
        None => format!("{line}\n"),
    }
}

/// `PINLANE_FINDINGS=overwrite` writes them anew.
#[test]
fn the_book_prints_what_an_eager_run_finds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/findings");
    let overwrite = std::env::var("PINLANE_FINDINGS").is_ok_and(|value| value == "overwrite");
    let all: Vec<Program> = Language::ALL.into_iter().flat_map(Program::all).collect();
    let mut wrong = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let program = all.iter().find(|program| program.name == name).expect(name);
        let found = printed(&program.run(false, "eager", 0));
        if overwrite {
            fs::write(&path, &found).unwrap();
        }
        let shown = fs::read_to_string(&path).unwrap();
        if found.is_empty() || shown != found {
            wrong.push(format!("{name} is printed as\n{shown}and finds\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}PINLANE_FINDINGS=overwrite", wrong.join("\n"));
}
