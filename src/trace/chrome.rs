//! Chrome's trace event format: complete events (`X`), and names of tracks (`M`).

use std::collections::BTreeSet;

use super::launch::Launch;
use super::span::{Span, Track};
use pinlane_base::json::text;

/// The format's process number of the host. That of device n is `HOST + 1 + n`.
const HOST: i64 = 1;

pub(super) fn write(spans: &[Span], missing: usize) -> String {
    let tracks: BTreeSet<&Track> = spans.iter().map(|span| &span.track).collect();
    let mut events = Vec::new();
    for track in &tracks {
        let (process, thread) = place(track);
        let name = match track {
            Track::OfThread { .. } => "host".to_owned(),
            Track::OfStream { device, .. } => format!("device {device}"),
        };
        for (what, thread, name) in
            [("process_name", 0, name), ("thread_name", thread, track.to_string())]
        {
            let name = text(&name);
            let place = format!(r#""pid":{process},"tid":{thread}"#);
            events
                .push(format!(r#"{{"ph":"M","name":"{what}",{place},"args":{{"name":{name}}}}}"#));
        }
    }
    events.extend(spans.iter().map(complete));
    let events = events.join(",\n");
    format!(
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"missing\":{missing}}},\
         \"traceEvents\":[\n{events}\n]}}\n"
    )
}

fn complete(span: &Span) -> String {
    let (process, thread) = place(&span.track);
    let (name, kind) = (text(span.name), span.kind.word());
    let start = span.start.as_secs_f64() * 1e6;
    let length = (span.end - span.start).as_secs_f64() * 1e6;
    let bytes = Some(span.bytes).filter(|&bytes| bytes > 0);
    let mut args: Vec<_> = bytes.iter().map(|bytes| format!(r#""bytes":{bytes}"#)).collect();
    if let Some(launch) = &span.launch {
        describe(launch, &mut args);
    }
    let args = match args.is_empty() {
        true => String::new(),
        false => format!(r#","args":{{{}}}"#, args.join(",")),
    };
    let place = format!(r#""pid":{process},"tid":{thread}"#);
    let time = format!(r#""ts":{start:.3},"dur":{length:.3}"#);
    format!(r#"{{"ph":"X","name":{name},"cat":"{kind}",{place},{time}{args}}}"#)
}

/// The arguments of a launch.
fn describe(launch: &Launch, args: &mut Vec<String>) {
    args.extend(launch.totals.iter().map(|total| {
        let (word, count, bytes) = (total.action.word(), total.count, total.bytes);
        format!(r#""{word}":{{"count":{count},"bytes":{bytes}}}"#)
    }));
    let operations: Vec<_> = launch.operations.iter().map(text).collect();
    args.push(format!(r#""operations":[{}]"#, operations.join(",")));
    if launch.left_out > 0 {
        args.push(format!(r#""left_out":{}"#, launch.left_out));
    }
}

/// The format's process number and thread number of a track.
fn place(track: &Track) -> (i64, u64) {
    match *track {
        Track::OfThread { number, .. } => (HOST, number as u64 + 1),
        Track::OfStream { device, number } => (HOST + 1 + i64::from(device), number + 1),
    }
}
