//! Every figure in README.md and the guides comes from a file in docs/measured: `scripts/figures`
//! writes it between two marks, and reports figures without marks. Such files are few, and each is
//! cited.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::sources::{files, read};

/// The output of the script for some texts if it finds a mistake; for all texts if none is named.
fn mistakes(texts: &[&Path]) -> Option<String> {
    let mut script = Command::new("python3");
    script.current_dir(env!("PINLANE_PROJECT")).args(["scripts/figures", "--check"]).args(texts);
    let output = script.output().expect("Python runs");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A file of the test.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("a file of the test");
    path
}

fn mistakes_in(name: &str, text: &str) -> Option<String> {
    mistakes(&[&file(name, text)])
}

/// The mark of README.md that names its file, and that file's name.
fn source() -> (String, String) {
    let readme = read("README.md");
    let marks: Vec<&str> = readme.lines().filter(|line| line.contains("figures: ")).collect();
    assert_eq!(marks.len(), 1, "the figures of README.md come from one run: {marks:?}");
    let name = marks[0].split_whitespace().nth(2).expect("`<!-- figures: FILE -->`");
    (marks[0].to_owned(), name.to_owned())
}

#[test]
fn every_figure_in_the_texts_is_that_of_its_file() {
    assert_eq!(mistakes(&[]), None);
}

#[test]
fn a_figure_that_differs_is_found() {
    let (mark, _) = source();
    let readme = read("README.md");
    let (_, row) = readme.split_once("<!--= pool.hit.t1 -->").expect("README.md has that figure");
    let (figure, _) = row.split_once("<!--/-->").expect("the mark ends");
    let text = |figure| format!("{mark}\nIt takes <!--= pool.hit.t1 -->{figure}<!--/--> ns.\n");
    assert_eq!(mistakes_in("right.md", &text(figure)), None);
    let said = mistakes_in("wrong.md", &text("0.123")).expect("the file has another figure");
    assert!(said.contains("wrong.md:2: pool.hit.t1 is 0.123"), "{said}");
}

#[test]
fn a_figure_that_no_file_has_is_found() {
    let (mark, name) = source();
    let text = format!("{mark}\nIt takes <!--= pool.hit -->1<!--/--> ns.\n");
    let said = mistakes_in("unknown.md", &text).expect("there is no such figure");
    assert!(said.contains(&format!("no figure pool.hit in docs/measured/{name}")), "{said}");
    let text = |figure| format!("{mark}\nIt takes <!--= pool.hit.t1 {figure} ns.\n");
    let said = mistakes_in("peer.md", &text("nobody -->1<!--/-->")).expect("no such peer");
    assert!(said.contains("pool.hit.t1 has no nobody"), "{said}");
    assert_eq!(mistakes_in("may_lack.md", &text("nobody? -->-<!--/-->")), None);
}

#[test]
fn a_figure_without_marks_is_found() {
    let prose = mistakes_in("typed.md", "It takes\n22.2 ns.\n").expect("nothing traces it");
    assert!(prose.contains("typed.md:2: `22.2 ns.` is typed"), "{prose}");
    assert!(mistakes_in("share.md", "It reaches 96% of it.\n").is_some());
    let table = "| what | ns |\n|---|---:|\n| a hit | 22.2 |\n";
    let table = mistakes_in("table.md", table).expect("nothing traces it");
    assert!(table.contains("table.md:3: `22.2` is typed"), "{table}");
    let begins = format!("{}\nA hit takes\n<!--= pool.hit.t1 -->22.2<!--/--> ns.\n", source().0);
    let begins = mistakes_in("begins.md", &begins).expect("the paragraph ends before it");
    assert!(begins.contains("begins.md:3: a mark begins the line"), "{begins}");
    assert_eq!(mistakes_in("code.md", "```\nit took 22.2 ns\n```\nand `22.2 ns`\n"), None);
}

#[test]
fn the_files_of_docs_measured_are_few_and_each_is_cited() {
    let measured = files("docs/measured");
    let measured: Vec<_> = measured.iter().filter(|path| !path.ends_with("README.md")).collect();
    assert!(!measured.is_empty());
    assert!(measured.len() <= 15, "{} files; what does no text need?", measured.len());
    let mut texts = files("docs");
    texts.retain(|path| path.ends_with(".md") && !path.starts_with("docs/measured"));
    texts.extend(["README.md".into(), "src/copy/route.rs".into()]);
    let texts: String = texts.iter().map(|path| read(path)).collect();
    for path in measured {
        // The timelines in a folder belong to the file with the folder's name.
        let name = path.strip_prefix("docs/measured/").expect("a file of that folder");
        let folder = name.split_once('/').map(|(folder, _)| format!("{folder}.json"));
        let name = folder.unwrap_or(name.to_owned());
        assert!(texts.contains(&name), "no text cites {path}");
    }
}

#[test]
fn the_parts_of_different_runs_are_not_merged() {
    let part = |name: &str, commit: &str, figure: &str| {
        let machine = r#"{"gpu": "a", "driver": "1", "cpu": "b", "cores": 2}"#;
        let figures = format!(r#"[{{"name": "{figure}", "value": 2.0, "unit": "ns"}}]"#);
        let rest = format!(r#""skipped": {{}}, "machine": {machine}, "figures": {figures}"#);
        file(name, &format!(r#"{{"commit": "{commit}", "date": "2026-01-01", {rest}}}"#))
    };
    let merge = |parts: [&Path; 2], out: &Path| -> Output {
        let mut script = Command::new("python3");
        script
            .current_dir(env!("PINLANE_PROJECT"))
            .args(["scripts/bundle-run", "--merge"])
            .args(parts);
        script.arg("--json").arg(out).output().expect("Python runs")
    };
    let (copies, pool) = (part("copies.json", "c1", "copy"), part("pool.json", "c1", "pool.hit"));
    let whole = file("whole.json", "");
    assert!(merge([&copies, &pool], &whole).status.success());
    let text = fs::read_to_string(&whole).expect("it has written the whole");
    assert!(text.contains("\"copy\"") && text.contains("\"pool.hit\""), "{text}");
    let later = part("later.json", "c2", "pool.hit");
    let refused = merge([&copies, &later], &whole);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not one run"), "{refused:?}");
}
