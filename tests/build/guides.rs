//! The programs of the guides in docs/guide run, eagerly and as late as CUDA allows, without
//! findings of the emulated device.

use std::fs;
use std::path::{Path, PathBuf};

use pinlane::emulated::{Emulator, Execution};
use pinlane::{Device, PinnedPool, Result};

use crate::sources::read;

#[path = "../../docs/guide/coming-from.rs"]
mod coming_from;
#[path = "../../docs/guide/lessons.rs"]
mod lessons;

#[allow(dead_code)] // the program's own start
#[path = "../../examples/transfers.rs"]
mod transfers;

fn lessons_on(device: &Device, file: &Path) -> Result<()> {
    let pool = PinnedPool::builder(device).max_bytes(64 << 20).build()?;
    let stream = device.stream()?;
    lessons::fill_in_place(device, &pool, &stream)?;
    lessons::ordinary_memory(device, &stream)?;
    lessons::many(device, &stream)?;
    lessons::reuse_the_source(device, &pool, &stream)?;
    lessons::read_when_there(device, &pool, &stream)?;
    lessons::overlap(device, &pool)?;
    lessons::download_while_computing(device, &pool)?;
    lessons::prefetch(device, &pool, &stream)?;
    lessons::file(device, &stream, file)?;
    lessons::budget(device)?;
    lessons::time(device, &pool, &stream)?;
    Ok(())
}

#[test]
fn the_programs_of_the_lessons_run_and_nothing_is_found() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lessons");
    fs::write(&file, vec![0; 8 + 4 * 1100]).expect("a file of the test");
    let runs = [(Execution::Eager, 1), (Execution::Lazy, 2), (Execution::Random, 3)];
    for (execution, seed) in runs {
        let machine = Emulator::builder().execution(execution).seed(seed).build();
        let device = Device::of_emulator(&machine, 0).expect("a machine has a device");
        lessons_on(&device, &file).expect("every program ends well");
        assert_eq!(machine.findings(), [], "seed {seed}");
    }
}

#[test]
fn the_programs_beside_those_of_others_run() {
    coming_from::pytorch().expect("it ends well");
    coming_from::cudarc().expect("it ends well");
}

#[test]
fn the_transfers_run() {
    let device = Device::emulated().expect("the emulated device always opens");
    transfers::options(&device).expect("before the first copy");
    transfers::all(&device).expect("all of it");
}

const LESSONS: &str = "docs/guide/pinned-memory.md";

/// The names in the last column of the table of lessons: `program x` and similar.
fn shown_by(text: &str) -> Vec<(&str, &str)> {
    let mut shown = Vec::new();
    for row in text.lines().filter(|line| line.starts_with('|') && line.contains("](#")) {
        let last = row.trim_end_matches([' ', '|']).rsplit(" | ").next().expect("a column");
        for part in last.split("; ") {
            let (kind, names) = part.split_once(' ').expect("a kind, then names");
            let names = names.split('`').skip(1).step_by(2);
            shown.extend(names.map(|name| (kind.trim_end_matches('s'), name)));
        }
    }
    shown
}

#[test]
fn what_shows_a_lesson_is_in_the_guide() {
    let (text, programs) = (read(LESSONS), read("docs/guide/lessons.rs"));
    let shown = shown_by(&text);
    assert!(shown.len() > 30, "{shown:?}");
    for (kind, name) in shown {
        let place = match kind {
            "program" => format!("{{{{#include lessons.rs:{name}}}}}"),
            "finding" => format!("{{{{#include findings/{name}.txt}}}}"),
            "figure" => format!("<!--= {name} "),
            _ => continue,
        };
        assert!(text.contains(&place), "the table names {kind} {name}; there is no {place}");
    }
    for line in programs.lines() {
        let Some(name) = line.strip_prefix("// ANCHOR: ") else { continue };
        assert!(
            text.contains(&format!("{{{{#include lessons.rs:{name}}}}}")),
            "{name} is not shown"
        );
        assert!(text.contains(&format!("`{name}`")), "{name} shows no lesson");
    }
}

/// The chapters whose code is included from files that tests compile and run.
fn guides() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("PINLANE_PROJECT"));
    let folder = fs::read_dir(root.join("docs/guide")).expect("the guides");
    let guides = folder.map(|entry| Path::new("docs/guide").join(entry.expect("one").file_name()));
    let guides = guides.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let others = ["docs/testing.md", "docs/drop-in.md", "docs/tool.md"].map(PathBuf::from);
    let read = |path: PathBuf| (read(path.to_str().expect("UTF-8")), path);
    guides.chain(others).map(read).map(|(text, path)| (path, text)).collect()
}

/// mdBook shows nothing for a missing passage, and does not report it.
#[test]
fn every_passage_that_a_guide_names_is_there() {
    let mut passages = 0;
    for (path, text) in guides() {
        for part in text.split("{{#include ").skip(1) {
            let name = part.split("}}").next().expect("its end");
            let Some((file, anchor)) = name.split_once(':') else { continue };
            let file = path.with_file_name(file);
            let shown = read(file.to_str().expect("UTF-8"));
            let mut lines = shown.lines().map(|line| line.trim().trim_start_matches("// "));
            let begins = lines.any(|line| line == format!("ANCHOR: {anchor}"));
            let ends = lines.any(|line| line == format!("ANCHOR_END: {anchor}"));
            assert!(begins && ends, "{}: {name} is not there", path.display());
            passages += 1;
        }
    }
    assert!(passages > 20, "{passages}");
}

/// Except one program, which `tests/emulated/guide.rs` compares with its chapter.
#[test]
fn no_guide_has_code_of_its_own() {
    let own = read("tests/emulated/guide.rs");
    for (path, text) in guides() {
        for block in text.split("```").skip(1).step_by(2) {
            let (language, block) = block.split_once('\n').expect("a language, then code");
            let is_code = !["sh", "text", ""].contains(&language);
            let is_shown = block.starts_with("{{#include ") || own.contains(block);
            assert!(is_shown || !is_code, "{}: {block}", path.display());
        }
    }
}
