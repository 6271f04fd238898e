//! Every figure in README.md and the guides comes from a file in docs/measured: `scripts/figures`
//! writes it between two marks, and finds what no mark stands around.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What the script says about some texts, if it finds a mistake. All texts, if none is named.
fn mistakes(texts: &[&Path]) -> Option<String> {
    let mut script = Command::new("python3");
    script.current_dir(env!("CARGO_MANIFEST_DIR")).args(["scripts/figures", "--check"]).args(texts);
    let output = script.output().expect("Python runs");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

fn mistakes_in(name: &str, text: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("a file of the test");
    mistakes(&[&path])
}

#[test]
fn every_figure_in_the_texts_is_that_of_its_file() {
    assert_eq!(mistakes(&[]), None);
}

#[test]
fn a_figure_that_differs_is_found() {
    let text = |figure| {
        format!(
            "<!-- figures: 2026-11-21-nvidia-h100.json -->\n\
             It takes <!--= pool.hit.t1 -->{figure}<!--/--> ns.\n"
        )
    };
    assert_eq!(mistakes_in("right.md", &text("22.2")), None);
    let said = mistakes_in("wrong.md", &text("22.3")).expect("the file has another figure");
    assert!(said.contains("wrong.md:2: pool.hit.t1 is 22.3"), "{said}");
}

#[test]
fn a_figure_that_no_file_has_is_found() {
    let text = "<!-- figures: 2026-11-21-nvidia-h100.json -->\n<!--= pool.hit -->1<!--/--> ns\n";
    let said = mistakes_in("unknown.md", text).expect("there is no such figure");
    assert!(said.contains("no figure pool.hit in docs/measured/2026-11-21"), "{said}");
}

#[test]
fn a_figure_without_marks_is_found() {
    let prose = mistakes_in("typed.md", "It takes\n22.2 ns.\n").expect("nothing traces it");
    assert!(prose.contains("typed.md:2: `22.2 ns.` is typed"), "{prose}");
    assert!(mistakes_in("share.md", "It reaches 96% of it.\n").is_some());
    let table = "| what | ns |\n|---|---:|\n| a hit | 22.2 |\n";
    let table = mistakes_in("table.md", table).expect("nothing traces it");
    assert!(table.contains("table.md:3: `22.2` is typed"), "{table}");
    let begins = "<!-- figures: 2026-11-21-nvidia-h100.json -->\nA hit takes\n\
                  <!--= pool.hit.t1 -->22.2<!--/--> ns.\n";
    let begins = mistakes_in("begins.md", begins).expect("the paragraph ends before it");
    assert!(begins.contains("begins.md:3: a mark begins the line"), "{begins}");
    assert_eq!(mistakes_in("code.md", "```\nit took 22.2 ns\n```\nand `22.2 ns`\n"), None);
}
