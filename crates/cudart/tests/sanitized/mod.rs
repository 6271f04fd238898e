//! `threads.cpp` under a thread sanitizer, which knows nothing of the library.

use super::support::watched;

const CASES: [&str; 6] = ["synchronize", "event", "query", "two_streams", "download", "many"];

#[test]
fn what_the_calls_order_is_no_race_to_a_thread_sanitizer() {
    let Some(app) = watched("threads") else { return };
    for name in CASES {
        for (mode, seed) in [("eager", 0), ("lazy", 1), ("lazy", 2), ("random", 3), ("chunked", 4)]
        {
            let run = app.given(name).with(mode, seed, &[]);
            assert_eq!((run.status, &*run.stdout), (Some(0), "done\n"), "{name} {mode}: {run:?}");
            assert!(run.findings.is_empty(), "{name}: {run:?}");
        }
    }
}

#[test]
fn what_they_do_not_order_is_a_race_still() {
    let Some(app) = watched("threads") else { return };
    for name in CASES {
        let run = app.given(name).with("eager", 0, &[("RACES", "1")]);
        assert!(run.stderr.contains("ThreadSanitizer: data race"), "{name}: {run:?}");
    }
}
