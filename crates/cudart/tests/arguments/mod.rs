//! What an H100 answers to odd and wrong arguments, and the drop-in library.
//!
//! The program in this folder asks the questions; its `main.cpp` says how to run it on a GPU.
//! `h100.txt` is what one answered (driver 580.159.04, CUDA 13.0). `differences.txt` has the
//! answers of the drop-in that stay different, each after its reason, which docs/semantics.md has.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use crate::support::folder;

/// Answers by the names of the questions.
type Answers = BTreeMap<String, String>;

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arguments");
    fs::read_to_string(folder.join(name)).expect("is there")
}

/// Between the name and the answer are two spaces at least, or the name is as long as it can be.
fn answer(line: &str) -> (String, String) {
    let at = line.find(" last ").and_then(|end| line[..end].rfind(' '));
    let at = at.or_else(|| line.find(" died, ")).expect("a line has an answer");
    (line[..at].trim().to_owned(), line[at..].trim().to_owned())
}

fn answers(text: &str) -> Answers {
    text.lines().map(answer).collect()
}

/// The differences that stay, and their reasons: paragraphs, of which each begins with its reason.
fn differences() -> (Answers, Vec<String>) {
    let text = file("differences.txt");
    let (mut stay, mut reasons) = (Answers::new(), Vec::new());
    for paragraph in text.split("\n\n") {
        let (reason, differences): (Vec<&str>, Vec<&str>) =
            paragraph.lines().partition(|line| line.starts_with("# "));
        reasons.push(reason.iter().map(|line| &line[2..]).collect::<Vec<_>>().join(" "));
        stay.extend(differences.into_iter().map(answer));
    }
    (stay, reasons)
}

#[test]
fn the_drop_in_answers_as_a_gpu_but_for_the_differences_that_stay() {
    let app = folder("arguments", None);
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let run = app.given(&jobs.to_string()).with("eager", 0, &[("PINLANE_CUDART_QUIET", "1")]);
    assert_eq!(run.status, Some(0), "{run:#?}");
    let (ours, gpus, (stay, _)) = (answers(&run.stdout), answers(&file("h100.txt")), differences());
    assert!(ours.len() >= 405, "{} questions", ours.len());
    let asked: Vec<_> = ours.keys().collect();
    assert_eq!(asked, gpus.keys().collect::<Vec<_>>(), "run the program on a GPU again");
    let as_gpu = |name: &String, answer: &String| gpus[name] == *answer;
    let wrong = ours
        .iter()
        .filter(|&(name, answer)| !as_gpu(name, answer) && stay.get(name) != Some(answer));
    let wrong: Vec<_> = wrong.map(|(name, ours)| (name, ours, &gpus[name])).collect();
    assert!(wrong.is_empty(), "name, ours, the GPU's: {wrong:#?}");
    // A difference that is gone can leave the list.
    let agreed = stay.keys().filter(|&name| as_gpu(name, &ours[name]));
    agreed.for_each(|name| eprintln!("no difference any more: {name}"));
}

#[test]
fn every_difference_that_stays_has_its_reason_in_the_semantics() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let page = fs::read_to_string(root.join("docs/semantics.md")).expect("is there");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(&page);
    let (stay, reasons) = differences();
    assert!(!stay.is_empty() && !reasons.is_empty());
    for reason in reasons {
        assert!(page.contains(&words(&reason)), "docs/semantics.md lacks: {reason}");
    }
}
