//! Where everything of a chart goes. Text is measured, so that no two labels overlap.

use super::axis::Scale;
use super::font;
use super::picture::{Anchor, CEILING, GRID, Picture, SERIES, Shape, TEXT};
use crate::figures::{Chart, number};

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 760;
/// Sizes of text; all can be read if the picture is shown at half its size.
const TITLE: f32 = 30.0;
const LABEL: f32 = 25.0;
const NOTE: f32 = 21.0;
/// Between the plot and the right edge, where the last label may reach out.
const RIGHT: f32 = 60.0;
const BOTTOM: f32 = 110.0;
/// The least space between two labels.
const APART: f32 = 24.0;

/// The chart as a picture. `device` says what it was measured on.
pub fn chart(chart: &Chart, device: &str) -> Picture {
    let mut shapes = Vec::new();
    let mut top = 44.0;
    text(&mut shapes, [24.0, top], &fitted(&chart.title, TITLE), TITLE, Anchor::Start);
    top += 36.0;
    text(&mut shapes, [24.0, top], &fitted(device, NOTE), NOTE, Anchor::Start);
    top = legend(&mut shapes, chart, top + 44.0) + 30.0;

    let values = || chart.series.iter().flat_map(|series| series.points.iter().map(|p| p.1));
    let ceiling = chart.ceiling.as_ref().map(|ceiling| ceiling.value);
    let most = values().chain(ceiling).fold(0.0, f64::max);
    let (y, ticks) = if chart.y.logarithmic {
        Scale::logarithmic(values().fold(f64::INFINITY, f64::min), most)
    } else {
        Scale::linear(most)
    };
    let widest = ticks.iter().map(|&tick| font::width(&plain(tick), LABEL)).fold(0.0, f32::max);
    let frame = Frame {
        left: 24.0 + LABEL + 18.0 + widest + 14.0,
        right: WIDTH as f32 - RIGHT,
        top,
        bottom: HEIGHT as f32 - BOTTOM,
        x: Scale::doubling(&chart.places()),
        y,
    };
    y_axis(&mut shapes, chart, &frame, &ticks);
    x_axis(&mut shapes, chart, &frame);
    if let Some(ceiling) = &chart.ceiling {
        let height = frame.y(ceiling.value);
        let points = vec![[frame.left, height], [frame.right, height]];
        shapes.push(Shape::Line { points, width: 3.5, colour: CEILING, dashed: true });
    }
    for (index, series) in chart.series.iter().enumerate() {
        let colour = SERIES[index % SERIES.len()];
        let points: Vec<[f32; 2]> =
            series.points.iter().map(|&(x, y)| [frame.x(x), frame.y(y)]).collect();
        let marks: Vec<Shape> =
            points.iter().map(|&at| Shape::Fill { points: mark(index, at), colour }).collect();
        shapes.push(Shape::Line { points, width: 4.5, colour, dashed: false });
        shapes.extend(marks);
    }
    Picture { width: WIDTH, height: HEIGHT, shapes }
}

/// The rectangle of the plot, and its scales.
struct Frame {
    left: f32,
    right: f32,
    top: f32,
    bottom: f32,
    x: Scale,
    y: Scale,
}

impl Frame {
    fn x(&self, value: f64) -> f32 {
        self.left + self.x.place(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f32 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }
}

fn y_axis(shapes: &mut Vec<Shape>, chart: &Chart, frame: &Frame, ticks: &[f64]) {
    for &tick in ticks {
        let height = frame.y(tick);
        let points = vec![[frame.left, height], [frame.right, height]];
        shapes.push(Shape::Line { points, width: 1.0, colour: GRID, dashed: false });
        let at = [frame.left - 14.0, height + LABEL * 0.36];
        text(shapes, at, &plain(tick), LABEL, Anchor::End);
    }
    let label = format!("{}, {}", chart.y.label, chart.y.unit);
    shapes.push(Shape::Text {
        at: [24.0 + LABEL * 0.75, (frame.top + frame.bottom) / 2.0],
        text: label,
        size: LABEL,
        anchor: Anchor::Middle,
        turned: true,
        colour: TEXT,
    });
}

fn x_axis(shapes: &mut Vec<Shape>, chart: &Chart, frame: &Frame) {
    let places = chart.places();
    let label = |x: f64| chart.x.unit.text(x);
    // Every second, third, ... label, so that each has room.
    let step = (1..=places.len().max(1)).find(|&step| {
        let shown: Vec<f64> = places.iter().step_by(step).copied().collect();
        shown.windows(2).all(|pair| {
            let widths = font::width(&label(pair[0]), LABEL) + font::width(&label(pair[1]), LABEL);
            frame.x(pair[1]) - frame.x(pair[0]) >= widths / 2.0 + APART
        })
    });
    for (index, &x) in places.iter().enumerate() {
        let across = frame.x(x);
        let points = vec![[across, frame.bottom], [across, frame.bottom + 8.0]];
        shapes.push(Shape::Line { points, width: 2.0, colour: TEXT, dashed: false });
        if index % step.unwrap_or(1) == 0 {
            let at = [across, frame.bottom + 14.0 + LABEL];
            text(shapes, at, &label(x), LABEL, Anchor::Middle);
        }
    }
    let at = [(frame.left + frame.right) / 2.0, frame.bottom + 34.0 + 2.0 * LABEL];
    text(shapes, at, chart.x.label, LABEL, Anchor::Middle);
}

/// The names of the lines, in as many rows as they need. Returns where the last row is.
fn legend(shapes: &mut Vec<Shape>, chart: &Chart, top: f32) -> f32 {
    const LINE: f32 = 56.0;
    let mut entries: Vec<(String, Option<usize>)> = chart
        .series
        .iter()
        .enumerate()
        .map(|(index, series)| (series.name.to_owned(), Some(index)))
        .collect();
    if let Some(ceiling) = &chart.ceiling {
        let value = number(ceiling.value);
        entries.push((format!("{} ({value} {})", ceiling.name, chart.y.unit), None));
    }
    let [mut x, mut y] = [24.0, top];
    for (name, series) in entries {
        let width = LINE + 12.0 + font::width(&name, LABEL) + 36.0;
        if x > 24.0 && x + width > WIDTH as f32 {
            [x, y] = [24.0, y + 38.0];
        }
        let middle = y - LABEL * 0.36;
        let colour = series.map_or(CEILING, |index| SERIES[index % SERIES.len()]);
        let points = vec![[x, middle], [x + LINE, middle]];
        shapes.push(Shape::Line { points, width: 4.5, colour, dashed: series.is_none() });
        if let Some(index) = series {
            shapes.push(Shape::Fill { points: mark(index, [x + LINE / 2.0, middle]), colour });
        }
        text(shapes, [x + LINE + 12.0, y], &name, LABEL, Anchor::Start);
        x += width;
    }
    y
}

/// A circle, square, triangle or diamond around a point.
fn mark(index: usize, [x, y]: [f32; 2]) -> Vec<[f32; 2]> {
    let (corners, radius, turn) =
        [(20, 9.0, 0.0), (4, 11.0, 0.125), (3, 12.0, 0.75), (4, 12.0, 0.0)][index % 4];
    let corner = |number: usize| {
        let angle = (turn + number as f32 / corners as f32) * std::f32::consts::TAU;
        [x + radius * angle.cos(), y + radius * angle.sin()]
    };
    (0..corners).map(corner).collect()
}

fn text(shapes: &mut Vec<Shape>, at: [f32; 2], text: &str, size: f32, anchor: Anchor) {
    let (text, colour) = (text.into(), TEXT);
    shapes.push(Shape::Text { at, text, size, anchor, turned: false, colour });
}

/// A tick without needless digits.
fn plain(tick: f64) -> String {
    let text = format!("{tick:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text that is as wide as the picture at most.
fn fitted(text: &str, size: f32) -> String {
    let mut text = text.to_owned();
    while font::width(&text, size) > WIDTH as f32 - 48.0 {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::picture::Colour;
    use super::*;
    use crate::figures::{Ceiling, Series, Unit, XAxis, YAxis};

    /// A full chart: many sizes, four lines with long names, and a ceiling.
    fn full(logarithmic: bool) -> Chart {
        let points = |factor: f64| {
            (0..11)
                .map(move |step| ((1u64 << (10 + 2 * step)) as f64, factor * f64::from(step + 1)))
        };
        let names = ["page-locked", "pageable, staged", "pageable, by the driver", "another line"];
        let series = |(at, name)| Series { name, points: points(1.0 + at as f64).collect() };
        Chart {
            id: "full",
            title: "A title that is about as long as titles are: one copy and the wait".into(),
            x: XAxis { label: "size of a copy", unit: Unit::Bytes },
            y: YAxis { label: "bandwidth", unit: "GB/s", higher_is_better: true, logarithmic },
            ceiling: Some(Ceiling { name: "bare copies in rows, both ways", value: 55.3 }),
            series: names.into_iter().enumerate().map(series).collect(),
        }
    }

    /// Left, top, right and bottom of a text.
    fn area(shape: &Shape) -> Option<([f32; 4], &str)> {
        let Shape::Text { at: [x, y], text, size, anchor, turned, .. } = shape else { return None };
        let width = font::width(text, *size);
        let back = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let (above, below) = (0.8 * size, 0.25 * size);
        Some(if *turned {
            ([x - above, y + back - width, x + below, y + back], text)
        } else {
            ([x - back, y - above, x - back + width, y + below], text)
        })
    }

    #[test]
    fn no_two_labels_overlap_and_all_are_inside() {
        for logarithmic in [false, true] {
            let picture = chart(&full(logarithmic), "NVIDIA H100 80GB HBM3");
            let areas: Vec<_> = picture.shapes.iter().filter_map(area).collect();
            assert!(areas.len() > 15);
            for (index, (a, text)) in areas.iter().enumerate() {
                let inside = a[0] >= 0.0 && a[1] >= 0.0 && a[2] <= 1200.0 && a[3] <= 760.0;
                assert!(inside, "{text:?} at {a:?}");
                for (b, other) in &areas[index + 1..] {
                    let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
                    assert!(apart, "{text:?} at {a:?} is over {other:?} at {b:?}");
                }
            }
        }
    }

    #[test]
    fn a_chart_of_one_point_and_one_of_none_are_pictures_too() {
        let mut one = full(false);
        one.series.truncate(1);
        one.series[0].points.truncate(1);
        let mut none = full(true);
        none.series.clear();
        none.ceiling = None;
        for picture in [chart(&one, ""), chart(&none, "")] {
            assert!(picture.svg().ends_with("</svg>\n"));
            assert!(!picture.svg().contains("NaN"));
        }
    }

    #[test]
    fn a_png_has_a_clear_background_and_the_colours_of_the_lines() {
        let bytes = chart(&full(false), "a device").png();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (WIDTH, HEIGHT));
        let clear = pixels.chunks_exact(4).filter(|pixel| pixel[3] == 0).count();
        assert!(clear > pixels.len() / 4 / 2, "{clear} clear pixels");
        for Colour(red, green, blue, _) in SERIES.into_iter().chain([CEILING, TEXT]) {
            let same = |pixel: &&[u8]| **pixel == [red, green, blue, 255];
            let count = pixels.chunks_exact(4).filter(same).count();
            assert!(count > 100, "{count} pixels of {red} {green} {blue}");
        }
    }
}
