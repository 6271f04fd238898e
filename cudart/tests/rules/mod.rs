//! The rules of docs/semantics.md on the drop-in library: the programs in this folder, which know
//! nothing of this project and run on a GPU as they stand, with every choice that a seed can make.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{App, Run, folder, header_sets};

/// How many seeds a test is run with, beside the eager run.
const SEEDS: u64 = 16;

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
    let mut choices = seen(rule, &app.with("eager", 0, &devices));
    (1..=SEEDS).for_each(|seed| choices.extend(seen(rule, &app.with("lazy", seed, &devices))));
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
    for headers in header_sets().into_iter().flatten() {
        let app = folder("rules", Some(headers));
        let run = app.with("eager", 0, &[("PINLANE_CUDART_DEVICES", "2")]);
        assert_eq!(run.status, Some(0), "{run:#?}");
        assert!(run.stdout.contains("; 0 failed"), "{run:#?}");
    }
}
