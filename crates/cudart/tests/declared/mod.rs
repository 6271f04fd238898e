//! Kernels that a program launches with what they use (`pinlane_dropin.h`).

use crate::in_all_modes;
use crate::support::{library, program};

const FUNCTIONS: [&str; 5] =
    ["pinlane_label", "pinlane_launch", "pinlane_storage", "pinlane_unsupported", "pinlane_used"];

#[test]
fn the_functions_of_its_own_are_exported_by_both_libraries_and_no_others() {
    for major in [12, 13] {
        let names = library().symbols(major);
        let mut own: Vec<_> = names.iter().filter(|name| name.starts_with("pinlane_")).collect();
        own.sort();
        assert_eq!(own, FUNCTIONS);
    }
}

#[test]
fn work_runs_in_the_order_of_its_stream_and_its_data_is_dropped_once() {
    in_all_modes(&program("declared", None).given("right"), |run| {
        assert_eq!((run.status, run.findings.len()), (Some(0), 1), "{run:?}");
        let found = "pinlane_launch names 0x999, which is no live stream";
        assert!(run.findings[0].contains(found), "{run:?}");
        let made: Vec<&str> = run.stdout.split_whitespace().collect();
        assert_eq!((made[0], made[4]), (made[2], "some"), "{run:?}");
    });
}

#[test]
fn declared_uses_that_nothing_orders_race_in_every_run() {
    let app = program("declared", None);
    for (how, first, second) in [
        ("columns", "kernel left", "kernel right"),
        ("rows", "kernel all", "kernel some"),
        ("again", "kernel all", "kernel some"),
        ("host", "kernel of the host", "host "),
    ] {
        let app = app.given(how);
        in_all_modes(&app, |run| {
            assert_eq!((run.status, run.kinds()), (Some(0), vec!["Race"]), "{how}, {run:?}");
            let named = [("first: ", first), ("second:", second)]
                .map(|(role, name)| run.findings[0].contains(&format!("  {role} {name}")));
            assert_eq!(named, [true; 2], "{how}: {run:?}");
            assert!(run.findings[0].matches("declared.cpp:").count() > 1, "{run:?}");
        });
        for mode in ["eager", "lazy", "random", "chunked", "pct:2"] {
            let run = app.with(mode, 3, &[("WAITS", "1")]);
            assert_eq!((run.status, run.kinds()), (Some(0), vec![]), "{how}, {run:?}");
        }
    }
    in_all_modes(&app.given("others"), |run| {
        assert_eq!((run.status, run.kinds()), (Some(0), vec![]), "{run:?}");
    });
}

#[test]
fn findings_carry_labels_and_what_is_unsupported() {
    in_all_modes(&program("declared", None).given("labels"), |run| {
        let kinds = ["Race", "Race", "Unsupported", "Unsupported"];
        assert_eq!((run.status, run.kinds()), (Some(0), kinds.to_vec()), "{run:?}");
        let [plain, both, unsupported, inner] = &run.findings[..] else { panic!("{run:?}") };
        let (zero, add) = ("zero_ float32[300, 64]", "add_ float32[300, 64]");
        let (zeroed, added) = (format!("\"label\":\"{zero}\""), format!("\"label\":\"{add}\""));
        assert!(plain.contains(&zeroed) && plain.contains("\"label\":null"), "{plain}");
        assert!(both.contains(&zeroed) && both.contains(&added), "{both}");
        assert!(both.contains(&format!("stream B #2  {add}\\u000a")), "{both}");
        let said = "aten::nothing has no CPU operator\\u000a  called at declared.cpp:";
        assert!(unsupported.contains(said) && !unsupported.contains("called for"), "{unsupported}");
        assert!(inner.contains("  called for inner\""), "{inner}");
    });
}

#[test]
fn work_does_not_run_on_freed_memory_nor_after_the_end_of_the_process() {
    let app = program("declared", None);
    in_all_modes(&app.given("freed"), |run| {
        assert_eq!((run.status, run.kinds()), (Some(0), vec!["IllegalAddress"]), "{run:?}");
        assert_eq!(run.stdout, "1 made, 1 dropped, none ran\n", "{run:?}");
        assert!(run.findings[0].contains("kernel too late on stream"), "{run:?}");
    });
    let mut ends = std::collections::BTreeSet::new();
    in_all_modes(&app.given("never"), |run| {
        assert_eq!((run.status, run.kinds()), (Some(0), vec![]), "{run:?}");
        ends.insert(run.stdout.clone());
    });
    let both = ["none", "some"].map(|some| format!("1 made, 1 dropped, {some} ran\n"));
    assert!(ends.into_iter().eq(both), "eagerly it ran, and lazily it never did");
}
