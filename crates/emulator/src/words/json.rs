//! Findings as JSON: one line each, for programs that read reports.
//!
//! Addresses are strings, because many readers of JSON keep only 53 bits of a number.

use crate::finding::Finding;
use crate::races::{Frame, Race, RacingMemory, RacingUse, Site};
use pinlane_base::json::text;

impl Finding {
    /// The finding as one JSON object, on one line. Its members are `kind` (the name of the
    /// [`FindingKind`](crate::FindingKind)), `message`, `mode` (the [`Execution`](crate::Execution)
    /// as a text, such as `pct:3`), `seed` and `race`, which is `null` or an object with the fields
    /// of [`Race`]. Addresses and handles are strings, such as `"0xdea0000000002000"`. `call`,
    /// `site` and `label` are `null` where they are not known. `site` is where a call was made: of
    /// a finding without a race, of both uses, and of the allocation; `label` is what it was made
    /// for. `stream` and `device` are those of a use, and `null` for one by the host.
    ///
    /// The members of a `site` are `file`, `line`, `function`, `callers` and `thread`. The last
    /// three are `null`, `[]` and `null` unless an interpreter runs the program ([`Site`]):
    /// `callers` are objects with the first three members, and `thread` is `"worker"` where the
    /// interpreter's main thread stands for the one that made the call.
    #[must_use]
    pub fn to_json(&self) -> String {
        object([
            ("kind", text(format_args!("{:?}", self.kind))),
            ("message", text(&self.message)),
            ("mode", text(self.execution)),
            ("seed", self.seed.to_string()),
            ("race", or_null(self.race(), race)),
            ("site", or_null(self.site(), site)),
            ("label", or_null(self.label().as_ref(), |label| text(label))),
        ])
    }
}

fn race(race: &Race) -> String {
    let seen: Vec<String> = race.seen.iter().map(text).collect();
    object([
        ("first", used(&race.first)),
        ("second", used(&race.second)),
        ("memory", memory(&race.memory)),
        ("start", address(race.start)),
        ("bytes", race.bytes.to_string()),
        ("seen", format!("[{}]", seen.join(","))),
        ("missing", text(&race.missing)),
    ])
}

fn used(used: &RacingUse) -> String {
    object([
        ("call", or_null(used.call.as_ref(), |call| text(format_args!("{call:?}")))),
        ("operation", text(&used.operation)),
        ("access", text(used.access)),
        ("agent", text(&used.agent)),
        ("stream", or_null(used.stream.as_ref(), |on| text(format_args!("{:#x}", on.handle)))),
        ("device", or_null(used.stream.as_ref(), |on| on.device.to_string())),
        ("position", used.position.to_string()),
        ("site", or_null(used.site.as_ref(), site)),
        ("label", or_null(used.label.as_ref(), |label| text(label))),
        ("start", address(used.start)),
        ("bytes", used.bytes.to_string()),
    ])
}

fn memory(memory: &RacingMemory) -> String {
    object([
        ("kind", text(memory.kind)),
        ("start", address(memory.start)),
        ("bytes", memory.bytes.to_string()),
        ("generation", memory.generation.to_string()),
        ("site", or_null(memory.site.as_ref(), site)),
    ])
}

fn site(site: &Site) -> String {
    let callers: Vec<String> = site.callers.iter().map(frame).collect();
    object([
        ("file", text(&site.file)),
        ("line", site.line.to_string()),
        ("function", or_null(site.function.as_ref(), |name| text(name))),
        ("callers", format!("[{}]", callers.join(","))),
        ("thread", or_null(site.by_worker.then_some(&"worker"), |thread| text(thread))),
    ])
}

fn frame(frame: &Frame) -> String {
    object([
        ("file", text(&frame.file)),
        ("line", frame.line.to_string()),
        ("function", text(&frame.function)),
    ])
}

fn object<const N: usize>(members: [(&str, String); N]) -> String {
    let members = members.map(|(key, value)| format!("\"{key}\":{value}"));
    format!("{{{}}}", members.join(","))
}

fn or_null<T>(value: Option<&T>, show: impl FnOnce(&T) -> String) -> String {
    value.map_or_else(|| "null".to_owned(), show)
}

fn address(address: u64) -> String {
    format!("\"{address:#018x}\"")
}
