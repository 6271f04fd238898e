//! A drawing of a trace: a row for each track, a lane in it for each depth of nesting, time to the
//! right.

use std::collections::BTreeMap;
use std::time::Duration;

use super::span::{Kind, Span, Track};

const WIDTH: f64 = 900.0;
/// Where time begins; the names of tracks are to the left.
const LEFT: f64 = 170.0;
/// The space above the first track, for the legend.
const TOP: f64 = 34.0;
/// The height of a lane.
const LANE: f64 = 22.0;
/// The space between two tracks.
const GAP: f64 = 8.0;
/// The space below the last track, for the axis.
const BOTTOM: f64 = 42.0;
/// The approximate width of a letter.
const LETTER: f64 = 7.6;
/// A span is short if its bar is narrower than this.
const SHORT: f64 = 2.0;
/// Short spans of one kind share a bar if the gap between them is narrower than this.
const CLOSE: f64 = 0.4;

/// The drawing has its own background, because a page may be dark while the system is light.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1f2937}.p{fill:#fff}\
    .g{stroke:#9ca3af;stroke-opacity:.5}.l{fill:#0b1220}@media(prefers-color-scheme:dark)\
    {text{fill:#e5e7eb}.p{fill:#161b22}.l{fill:#0b1220}}";

/// Light enough for dark text, and visible on light and on dark pages.
fn color(kind: Kind) -> &'static str {
    match kind {
        Kind::OnDevice => "#7cb0f5",
        Kind::Enqueue => "#f2b950",
        Kind::Wait => "#c3c9d2",
        Kind::Stage => "#6fcf9f",
        Kind::PageLock => "#f08a86",
    }
}

/// Maps times to x coordinates.
struct Scale {
    first: f64,
    seconds: f64,
}

impl Scale {
    fn of(spans: &[Span]) -> Self {
        let first = spans.first().map_or(0.0, |span| span.start.as_secs_f64());
        let last = spans.iter().map(|span| span.end.as_secs_f64()).fold(first, f64::max);
        Scale { first, seconds: (last - first).max(1e-6) }
    }

    fn x(&self, time: Duration) -> f64 {
        LEFT + (time.as_secs_f64() - self.first) / self.seconds * (WIDTH - LEFT - 20.0)
    }

    /// The ticks of the axis: the time of each, and its label, which counts from the first span.
    fn ticks(&self) -> Vec<(Duration, String)> {
        let rough = self.seconds / 8.0;
        let ten = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * ten).into_iter().find(|&step| step >= rough);
        let step = step.unwrap_or(10.0 * ten);
        let (unit, size) = match self.seconds {
            seconds if seconds < 2e-3 => ("us", 1e-6),
            seconds if seconds < 2.0 => ("ms", 1e-3),
            _ => ("s", 1.0),
        };
        let digits = usize::from(step / size < 0.995) + usize::from(step / size < 0.0995);
        let times = (0..).map(|n| f64::from(n) * step).take_while(|&time| time <= self.seconds);
        let tick = |time| {
            let place = Duration::from_secs_f64(self.first + time);
            (place, format!("{:.digits$} {unit}", time / size))
        };
        times.map(tick).collect()
    }
}

/// One or more spans, drawn as one rectangle.
struct Bar<'t> {
    span: &'t Span,
    lane: usize,
    from: f64,
    to: f64,
    /// How many spans it stands for.
    count: usize,
}

impl Bar<'_> {
    /// Whether it takes a short span that begins at `from`. A long span keeps its own bar, with its
    /// name.
    fn takes(&self, kind: Kind, from: f64) -> bool {
        let is_short = self.count > 1 || self.to - self.from < SHORT;
        is_short && self.span.kind == kind && from - self.to < CLOSE
    }
}

/// The bars of a track, and how many lanes they take. `spans` are sorted by their starts.
fn bars<'t>(spans: &[&'t Span], scale: &Scale) -> (Vec<Bar<'t>>, usize) {
    let mut ends: Vec<Duration> = Vec::new();
    let mut last: Vec<usize> = Vec::new();
    let mut bars: Vec<Bar<'t>> = Vec::new();
    for &span in spans {
        let lane = ends.iter().position(|&end| end <= span.start).unwrap_or(ends.len());
        let (from, to) = (scale.x(span.start), scale.x(span.end));
        if lane == ends.len() {
            ends.push(span.end);
            last.push(usize::MAX);
        }
        ends[lane] = span.end;
        let is_short = to - from < SHORT;
        match bars.get_mut(last[lane]) {
            Some(bar) if is_short && bar.takes(span.kind, from) => {
                bar.to = bar.to.max(to);
                bar.count += 1;
            }
            _ => {
                last[lane] = bars.len();
                bars.push(Bar { span, lane, from, to, count: 1 });
            }
        }
    }
    (bars, ends.len())
}

pub(super) fn draw(all: &[Span]) -> String {
    let scale = Scale::of(all);
    let mut tracks: BTreeMap<&Track, Vec<&Span>> = BTreeMap::new();
    all.iter().for_each(|span| tracks.entry(&span.track).or_default().push(span));
    let (mut body, mut y) = (String::new(), TOP);
    for (track, spans) in &tracks {
        let (bars, lanes) = bars(spans, &scale);
        let middle = y + LANE * lanes as f64 / 2.0 + 4.0;
        let name = escaped(&shortened(&track.to_string(), ((LEFT - 16.0) / LETTER) as usize));
        body += &format!("<text x=\"8\" y=\"{middle:.1}\">{name}</text>\n");
        bars.iter().for_each(|bar| draw_bar(&mut body, bar, y));
        y += LANE * lanes as f64 + GAP;
    }
    let height = y + BOTTOM;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>{STYLE}</style>\n\
         <rect class=\"p\" width=\"100%\" height=\"100%\" rx=\"4\"/>\n"
    );
    legend(&mut out, all);
    for (time, label) in scale.ticks() {
        let x = scale.x(time);
        let (top, text) = (TOP - 4.0, y + 16.0);
        out += &format!(
            "<path class=\"g\" d=\"M{x:.1} {top}V{y:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{text:.1}\" text-anchor=\"middle\">{label}</text>\n"
        );
    }
    out.push_str(&body);
    out.push_str("</svg>\n");
    out
}

fn legend(out: &mut String, all: &[Span]) {
    let mut x = LEFT;
    for kind in Kind::ALL {
        if all.iter().all(|span| span.kind != kind) {
            continue;
        }
        let (word, color) = (kind.word(), color(kind));
        *out += &format!(
            "<rect x=\"{x:.1}\" y=\"8\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{color}\"/>\
             <text x=\"{:.1}\" y=\"19\">{word}</text>\n",
            x + 17.0
        );
        x += 17.0 + LETTER * word.len() as f64 + 22.0;
    }
}

fn draw_bar(out: &mut String, bar: &Bar<'_>, y: f64) {
    let Bar { span, from, count, .. } = *bar;
    let width = (bar.to - from).max(0.8);
    let y = y + LANE * bar.lane as f64;
    let fill = color(span.kind);
    let (text, height) = (y + LANE / 2.0 + 4.0, LANE - 3.0);
    let title = match count {
        1 => escaped(&described(span)) + &parts(span),
        _ => format!("{} and {} more", escaped(span.name), count - 1),
    };
    *out += &format!(
        "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" rx=\"2\" \
         fill=\"{fill}\"><title>{title}</title></rect>\n"
    );
    let short = span.name.rsplit("::").next().unwrap_or(span.name);
    let fits = |label: &&str| LETTER * label.len() as f64 + 8.0 < width;
    if let Some(label) = [span.name, short].into_iter().find(fits).filter(|_| count == 1) {
        let (x, label) = (from + 4.0, escaped(label));
        *out += &format!("<text class=\"l\" x=\"{x:.1}\" y=\"{text:.1}\">{label}</text>\n");
    }
}

fn described(span: &Span) -> String {
    let micros = (span.end - span.start).as_secs_f64() * 1e6;
    match span.bytes {
        0 => format!("{}: {micros:.1} us", span.name),
        // The device's clock may not have advanced during the span.
        bytes if micros == 0.0 => format!("{}: {bytes} bytes", span.name),
        bytes => {
            let rate = bytes as f64 / micros / 1e3;
            format!("{}: {bytes} bytes in {micros:.1} us, {rate:.1} GB/s", span.name)
        }
    }
}

/// A line for each kind of operation in a launch.
fn parts(span: &Span) -> String {
    let totals = span.launch.iter().flat_map(|launch| &launch.totals);
    totals.map(|total| format!("\n{total}")).collect()
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Escaped for XML. Control characters, which XML does not allow, are replaced.
fn escaped(text: &str) -> String {
    let text = text.replace(char::is_control, "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_spans_share_a_bar_and_a_long_one_keeps_its_own() {
        let track = Track::OfThread { number: 0, name: String::new() };
        let span = |start, end| Span {
            track: track.clone(),
            kind: Kind::OnDevice,
            name: "Stream::upload",
            bytes: 1,
            start: Duration::from_micros(start),
            end: Duration::from_micros(end),
            launch: None,
        };
        let spans = [span(0, 500), span(500, 501), span(501, 502), span(502, 503), span(900, 1000)];
        let scale = Scale::of(&spans);
        let (bars, lanes) = bars(&spans.iter().collect::<Vec<_>>(), &scale);
        let counts: Vec<usize> = bars.iter().map(|bar| bar.count).collect();
        assert_eq!((counts.as_slice(), lanes), (&[1, 3, 1][..], 1));
    }

    #[test]
    fn odd_names_and_spans_of_no_length_are_drawn() {
        let track = Track::OfThread { number: 0, name: "a\u{1}b\u{1b} <c>".to_owned() };
        let (kind, start, end) = (Kind::OnDevice, Duration::ZERO, Duration::ZERO);
        let name = "Stream::upload";
        let svg = draw(&[Span { track, kind, name, bytes: 7, start, end, launch: None }]);
        assert!(svg.contains("<title>Stream::upload: 7 bytes</title>"), "{svg}");
        assert!(svg.contains(">a\u{fffd}b\u{fffd} &lt;c&gt;</text>"), "{svg}");
    }
}
