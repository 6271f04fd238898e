//! The rules of docs/semantics.md on the drop-in library: the programs in this folder, which know
//! nothing of this project and run on a GPU as they stand, with every choice that a seed can make.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use crate::support::{App, Run, folder, toolkit};

/// The modes that a test is run in, each with the seeds up to that number.
const MODES: [(&str, u64); 5] =
    [("eager", 1), ("lazy", 12), ("random", 3), ("chunked", 3), ("pct", 2)];

/// A test, as the program describes it.
struct Rule {
    name: String,
    choices: Vec<String>,
    findings: Vec<String>,
}

fn words(list: &str) -> Vec<String> {
    list.split(", ").filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn rules(app: &App) -> Vec<Rule> {
    let listed = app.given("--list").eager().stdout;
    let rule = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [name, choices, findings] = columns[..] else { panic!("{line:?}") };
        Rule { name: name.to_owned(), choices: words(choices), findings: words(findings) }
    };
    listed.lines().map(rule).collect()
}

/// Checks one run; gives the choices that it has seen.
fn seen(rule: &Rule, run: &Run) -> BTreeSet<String> {
    assert!(run.status == Some(0) && !run.stdout.contains("skipped"), "{}: {run:#?}", rule.name);
    let kinds = run.kinds();
    let is_expected =
        |kind: &&str| rule.findings.iter().any(|finding| finding.trim_end_matches('?') == *kind);
    let other: Vec<_> = kinds.iter().filter(|kind| !is_expected(kind)).collect();
    assert!(other.is_empty(), "{}: {other:?}, {run:#?}", rule.name);
    for finding in rule.findings.iter().filter(|finding| !finding.ends_with('?')) {
        assert!(kinds.contains(&finding.as_str()), "{}: no {finding}, {run:#?}", rule.name);
    }
    run.stdout.lines().filter_map(|line| line.strip_prefix("saw: ")).map(str::to_owned).collect()
}

/// Runs a test in all modes. Each choice that it declares is taken by some seed, but for those that
/// only a GPU takes.
fn check(app: &App, rule: &Rule) {
    let app = app.given(&rule.name);
    let devices = [("PINLANE_CUDART_DEVICES", "2")];
    let mut choices = BTreeSet::new();
    for (mode, seeds) in MODES {
        (1..=seeds).for_each(|seed| choices.extend(seen(rule, &app.with(mode, seed, &devices))));
    }
    for choice in rule.choices.iter().filter(|choice| !choice.ends_with('?')) {
        assert!(choices.contains(choice), "{}: no seed takes {choice:?}", rule.name);
    }
}

#[test]
fn every_rule_holds_in_every_mode_and_every_choice_is_taken() {
    let app = folder("rules", None);
    let (rules, next) = (rules(&app), AtomicUsize::new(0));
    assert!(rules.len() > 50);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(rule) = rules.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(&app, rule);
                }
            });
        }
    });
}

#[test]
fn the_rules_are_the_same_with_the_headers_of_the_toolkit() {
    let Some(headers) = toolkit() else { return };
    let app = folder("rules", Some(headers));
    let run = app.with("eager", 0, &[("PINLANE_CUDART_DEVICES", "2")]);
    assert_eq!(run.status, Some(0), "{run:#?}");
    assert!(run.stdout.contains("; 0 failed"), "{run:#?}");
}

/// The sources of the conformance tests, by their paths in the project.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut all = Vec::new();
    for folder in ["crates/cudart/tests/rules", "tests/emulated", "tests/emulated/races"] {
        for file in fs::read_dir(root.join(folder)).expect("is there").flatten() {
            if let Ok(text) = fs::read_to_string(file.path()) {
                all.push((format!("{folder}/{}", file.file_name().display()), text));
            }
        }
    }
    all
}

/// The rows of the table of rules: number, source, tests, on hardware.
fn rows() -> Vec<Vec<String>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let page = fs::read_to_string(root.join("docs/semantics.md")).expect("is there");
    let table = page.split("\n# The rules, tested").nth(1).expect("the page has the section");
    let table = table.split("\n# ").next().expect("a part");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn every_rule_has_a_row_and_a_test_by_its_number() {
    let (rows, sources) = (rows(), sources());
    let numbers: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let expected: Vec<String> = (1..=36).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected);
    for row in &rows {
        let [number, source, tests, hardware] = &row[..] else { panic!("{row:?}") };
        let name = format!("rule_{number:0>2}_");
        assert!(!source.is_empty() && !hardware.is_empty(), "rule {number}: an empty cell");
        // The row names just those files that have such tests.
        let named: BTreeSet<&str> = tests.split('`').skip(1).step_by(2).collect();
        let have = sources.iter().filter(|(_, text)| text.contains(&name));
        let short = |path: &'_ str| -> String {
            path.trim_start_matches("crates/cudart/tests/").trim_start_matches("tests/").to_owned()
        };
        let have: BTreeSet<String> = have.map(|(path, _)| short(path)).collect();
        assert!(!have.is_empty(), "rule {number} has no test");
        assert_eq!(named, have.iter().map(String::as_str).collect(), "rule {number}");
    }
}
