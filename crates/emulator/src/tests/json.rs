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
    site.map_or(Value::Null, |site| json!({ "file": site.file, "line": site.line }))
}

fn used(used: &RacingUse, call: &str, access: &str) -> Value {
    json!({
        "call": call, "operation": used.operation, "access": access, "agent": used.agent,
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
                "first": used(&race.first, "Fill", "write"),
                "second": used(&race.second, "CopyD2D", "read"),
                "memory": {
                    "kind": "device 0", "start": format!("{:#018x}", a), "bytes": BYTES,
                    "generation": race.memory.generation, "site": site(race.memory.site.as_ref()),
                },
                "start": format!("{:#018x}", a), "bytes": BYTES,
                "seen": race.seen, "missing": race.missing,
            },
        });
        assert_eq!(parsed(&finding), expected);
    }
}

#[test]
fn any_text_is_the_same_behind_json() {
    let mut findings = Findings::new(Execution::Eager, 7);
    let message = "a \"quoted\" back\\slash,\n\ttab \u{1} \u{7f} \u{85} é \u{1f980}";
    findings.report(FindingKind::BadFree, message);
    let expected = json!({
        "kind": "BadFree", "message": message, "mode": "eager", "seed": 7, "race": null,
    });
    assert_eq!(parsed(&findings.list()[0]), expected);
}
