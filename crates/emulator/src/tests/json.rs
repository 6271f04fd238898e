//! Findings as JSON, read by another crate.

use serde_json::{Value, json};

use super::*;
use crate::finding::Findings;

fn parsed(finding: &Finding) -> Value {
    let text = finding.to_json();
    assert!(!text.contains('\n'), "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn site(site: Option<&Site>) -> Value {
    let frame = |f: &Frame| json!({ "file": f.file, "line": f.line, "function": f.function });
    site.map_or(Value::Null, |site| {
        json!({
            "file": site.file, "line": site.line, "function": site.function,
            "callers": site.callers.iter().map(frame).collect::<Vec<_>>(),
            "thread": site.by_worker.then_some("worker"),
        })
    })
}

fn used(used: &RacingUse, on: RawStream, call: &str, access: &str) -> Value {
    json!({
        "call": call, "operation": used.operation, "access": access, "agent": used.agent,
        "stream": format!("{:#x}", on.handle), "device": on.device,
        "position": used.position, "site": site(used.site.as_ref()),
        "label": used.label, "start": format!("{:#018x}", used.start), "bytes": used.bytes,
    })
}

#[test]
fn a_race_has_all_its_fields_in_json() {
    for sites in [false, true] {
        let lazy = Emulator::builder().execution(Execution::Pct { depth: 2 }).seed(u64::MAX);
        let rig = Rig::new(lazy.sites(sites));
        let (first, second, a, b) = (rig.stream(0), rig.stream(0), rig.memory(0), rig.memory(0));
        rig.fill(first, a, 1).unwrap();
        rig.mark(first);
        Emulator::label_calls(Some("copy_ of a"));
        rig.copy_part(second, b, a, BYTES);
        Emulator::label_calls(None);
        rig.synchronize(first).unwrap();
        rig.synchronize(second).unwrap();

        let finding = rig.emulator.findings().remove(0);
        let race = finding.race().unwrap();
        assert!(sites || race.first.site.is_none());
        let labels = (race.first.label.as_deref(), race.second.label.as_deref());
        assert_eq!(labels, (None, Some("copy_ of a")));
        assert!(finding.message.contains("  stream B of device 0 #1  copy_ of a\n"), "{finding}");
        if cfg!(debug_assertions) {
            assert!(!sites || race.first.site.is_some(), "only a stripped program has no lines");
        }
        let expected = json!({
            "kind": "Race", "message": finding.message, "mode": "pct:2", "seed": u64::MAX,
            "race": {
                "first": used(&race.first, first, "Fill", "write"),
                "second": used(&race.second, second, "CopyD2D", "read"),
                "memory": {
                    "kind": "device 0", "start": format!("{:#018x}", a), "bytes": BYTES,
                    "generation": race.memory.generation, "site": site(race.memory.site.as_ref()),
                },
                "start": format!("{:#018x}", a), "bytes": BYTES,
                "seen": race.seen, "missing": race.missing,
            },
            "site": null, "label": null,
        });
        assert_eq!(parsed(&finding), expected);
    }
}

#[test]
fn default_streams_and_the_host_are_known_by_what_they_are() {
    for handle in [0, RawStream::LEGACY, RawStream::PER_THREAD] {
        let rig = Rig::eager();
        let on = RawStream { device: 0, handle };
        let host = rig.host();
        rig.download(on, host, rig.memory(0)).unwrap();
        rig.emulator.host_reads(host.as_ptr(), 1);
        let race = &parsed(&rig.emulator.findings()[0])["race"];
        let known = if handle == RawStream::PER_THREAD { "0x2" } else { "0x0" };
        assert_eq!(
            (&race["first"]["stream"], &race["first"]["device"]),
            (&json!(known), &json!(0))
        );
        assert_eq!(
            (&race["second"]["stream"], &race["second"]["device"]),
            (&json!(null), &json!(null))
        );
        rig.synchronize(on).unwrap();
    }
}

#[test]
fn any_text_is_the_same_behind_json() {
    let mut findings = Findings::new(Execution::Eager, 7);
    let message = "a \"quoted\" back\\slash,\n\ttab \u{1} \u{7f} \u{85} é \u{1f980}";
    findings.report(FindingKind::BadFree, message, None, None);
    let expected = json!({
        "kind": "BadFree", "message": message, "mode": "eager", "seed": 7, "race": null,
        "site": null, "label": null,
    });
    assert_eq!(parsed(&findings.list()[0]), expected);
    findings.report(FindingKind::BadFree, "free", None, Some("copy_ \"x\""));
    let labelled = &findings.list()[1];
    assert_eq!(labelled.message, "free\n  called for copy_ \"x\"");
    assert_eq!(parsed(labelled)["label"], json!("copy_ \"x\""));
}

#[test]
fn a_line_of_an_interpreter_has_its_function_and_its_callers() {
    let mut findings = Findings::new(Execution::Eager, 7);
    let frame = |file: &str, line, function: &str| Frame::new(file.into(), line, function.into());
    let mut at = Site::new("/a/train.py".into(), 51);
    at.function = Some("step".into());
    at.callers = vec![frame("/lib/tensor.py", 7, "to"), frame("/a/train.py", 51, "step")];
    findings.report(FindingKind::BadFree, "free", Some(at.clone()), None);
    at.source = Some("x.to(\"cuda\")".into());
    at.by_worker = true;
    findings.report(FindingKind::BadFree, "free", Some(at.clone()), None);
    at.callers.remove(0);
    at.by_worker = false;
    findings.report(FindingKind::BadFree, "free", Some(at.clone()), None);
    let texts = [
        "free\n  called at train.py:51\n    in step  (tensor.py:7 in to)",
        "free\n  called at train.py:51\n    in step: x.to(\"cuda\")  (tensor.py:7 in to)  \
         (on another thread, while the main thread was here)",
        "free\n  called at train.py:51\n    in step: x.to(\"cuda\")",
    ];
    for (finding, text) in findings.list().iter().zip(texts) {
        assert_eq!(finding.message, text);
        assert_eq!(parsed(finding)["site"], site(finding.site()));
    }
    let worker = &parsed(&findings.list()[1])["site"];
    assert_eq!((&worker["thread"], &worker["function"]), (&json!("worker"), &json!("step")));
    assert_eq!(worker["callers"][0]["function"], "to");
}
