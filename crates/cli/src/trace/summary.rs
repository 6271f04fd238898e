//! How long copies, kernels, launches of graphs and threads took, how long kernels ran beside
//! copies, and how many bytes went where.

use std::fmt;
use std::time::Duration;

use pinlane::trace::{Action, Kind, Span, Trace};
use serde_json::{Value, json};

/// Disjoint intervals of time, in ascending order.
struct Times(Vec<(Duration, Duration)>);

impl Times {
    fn of<'s>(spans: impl Iterator<Item = &'s Span>) -> Self {
        let mut all: Vec<_> = spans.map(|span| (span.start, span.end)).collect();
        all.sort();
        let mut merged: Vec<(Duration, Duration)> = Vec::new();
        for (start, end) in all {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Times(merged)
    }

    fn total(&self) -> Duration {
        self.0.iter().map(|(start, end)| *end - *start).sum()
    }

    /// The intersection of both.
    fn beside(&self, other: &Times) -> Times {
        let all = self.0.iter().flat_map(|ours| {
            let both = |theirs: &(Duration, Duration)| (ours.0.max(theirs.0), ours.1.min(theirs.1));
            other.0.iter().map(both).filter(|(start, end)| start < end)
        });
        Times(all.collect())
    }
}

/// The figures of the text and the JSON.
pub struct Summary {
    /// Those outside of graphs.
    copies: usize,
    bytes: usize,
    copying: Duration,
    launches: usize,
    launching: Duration,
    /// Those of the launches.
    launched: usize,
    launched_bytes: usize,
    /// Of all copies, those of launches too.
    uploaded: usize,
    downloaded: usize,
    within: usize,
    kernels: usize,
    working: Duration,
    /// How long kernels ran beside copies.
    beside: Duration,
    enqueuing: Duration,
    waiting: Duration,
    staging: Duration,
    page_locking: Duration,
}

impl Summary {
    pub fn of(trace: &Trace) -> Self {
        let device = || trace.spans().iter().filter(|span| span.kind == Kind::OnDevice);
        let copies = || device().filter(|span| is_copy(span));
        let kernels = || device().filter(|span| span.name == "Stream::busy");
        let launches = || device().filter(|span| span.launch.is_some());
        // The totals have each captured copy once, also where the list of operations is cut.
        let launched = launches().filter_map(|span| span.launch.as_ref());
        let launched: Vec<_> = launched
            .flat_map(|launch| &launch.totals)
            .filter(|total| !matches!(total.action, Action::Fill | Action::Foreign))
            .collect();
        let moved = |action| -> usize {
            let direct = copies().filter(|&span| direction(span) == Some(action));
            let launched = launched.iter().filter(|total| total.action == action);
            direct.map(|span| span.bytes).chain(launched.map(|total| total.bytes)).sum()
        };
        let (copying, working) = (Times::of(copies()), Times::of(kernels()));
        let host = |kind| {
            let spans = trace.spans().iter().filter(|span| span.kind == kind);
            spans.map(|span| span.end - span.start).sum()
        };
        Summary {
            copies: copies().count(),
            bytes: copies().map(|span| span.bytes).sum(),
            copying: copying.total(),
            launches: launches().count(),
            launching: Times::of(launches()).total(),
            launched: launched.iter().map(|total| total.count).sum(),
            launched_bytes: launched.iter().map(|total| total.bytes).sum(),
            uploaded: moved(Action::Upload),
            downloaded: moved(Action::Download),
            within: moved(Action::Copy),
            kernels: kernels().count(),
            working: working.total(),
            beside: copying.beside(&working).total(),
            enqueuing: host(Kind::Enqueue),
            waiting: host(Kind::Wait),
            staging: host(Kind::Stage),
            page_locking: host(Kind::PageLock),
        }
    }

    pub fn to_json(&self) -> Value {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        json!({
            "copies": self.copies,
            "bytes": self.bytes,
            "copying_ms": ms(self.copying),
            "launches": self.launches,
            "launches_ms": ms(self.launching),
            "launched_copies": self.launched,
            "launched_bytes": self.launched_bytes,
            "uploaded_bytes": self.uploaded,
            "downloaded_bytes": self.downloaded,
            "copied_bytes": self.within,
            "kernels": self.kernels,
            "kernels_ms": ms(self.working),
            "kernels_beside_copies_ms": ms(self.beside),
            "enqueue_ms": ms(self.enqueuing),
            "wait_ms": ms(self.waiting),
            "stage_ms": ms(self.staging),
            "page_lock_ms": ms(self.page_locking),
        })
    }
}

/// Uploads and downloads of all kinds, but no launches.
fn is_copy(span: &Span) -> bool {
    direction(span).is_some()
}

/// The direction of a copy. `None` for other work and for launches.
fn direction(span: &Span) -> Option<Action> {
    let verbs =
        [("upload", Action::Upload), ("download", Action::Download), ("copy", Action::Copy)];
    let found = verbs.into_iter().find(|(verb, _)| span.name.contains(verb));
    found.filter(|_| span.launch.is_none()).map(|(_, action)| action)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
        let mb = |bytes: usize| format!("{:.1} MB", bytes as f64 / 1e6);
        writeln!(f, "copies   {}, {}, in {}", self.copies, mb(self.bytes), ms(self.copying))?;
        if self.launches > 0 {
            let (took, bytes) = (ms(self.launching), mb(self.launched_bytes));
            let (launches, copies) = (self.launches, self.launched);
            writeln!(f, "graphs   {launches} launches, in {took}, of {copies} copies, {bytes}")?;
        }
        let [up, down, within] = [self.uploaded, self.downloaded, self.within].map(mb);
        writeln!(f, "bytes    {up} uploaded, {down} downloaded, {within} copied on the device")?;
        if self.kernels > 0 {
            let (kernels, beside) = (ms(self.working), ms(self.beside));
            writeln!(f, "kernels  {}, in {kernels}, {beside} of it beside copies", self.kernels)?;
        }
        let [enqueued, waited, staged, page_locked] =
            [self.enqueuing, self.waiting, self.staging, self.page_locking].map(ms);
        writeln!(
            f,
            "threads  enqueued for {enqueued}, waited for {waited}, copied to and from slots for \
             {staged}, page-locked for {page_locked}"
        )
    }
}

#[cfg(test)]
mod tests {
    use pinlane::trace::Track;

    use super::*;

    fn times(of: &[(u64, u64)]) -> Times {
        let spans: Vec<Span> = of
            .iter()
            .map(|&(start, end)| Span {
                track: Track::OfStream { device: 0, number: 0 },
                kind: Kind::OnDevice,
                name: "Stream::upload",
                bytes: 1,
                start: Duration::from_millis(start),
                end: Duration::from_millis(end),
                launch: None,
            })
            .collect();
        Times::of(spans.iter())
    }

    #[test]
    fn times_that_overlap_count_once() {
        let all = times(&[(5, 7), (0, 2), (1, 3), (3, 4), (6, 6)]);
        assert_eq!(all.total(), Duration::from_millis(6));
        let beside = all.beside(&times(&[(2, 6), (8, 9)]));
        assert_eq!(beside.total(), Duration::from_millis(3)); // 2 to 4, and 5 to 6
        assert_eq!(all.beside(&times(&[])).total(), Duration::ZERO);
    }
}
