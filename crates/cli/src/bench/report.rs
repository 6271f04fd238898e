//! The charts as a table and as CSV.

use super::compare::Earlier;
use crate::figures::{Chart, number};

/// For people. After a value stands its change since an earlier run, if there is one.
pub fn table(charts: &[Chart], earlier: Option<&Earlier>) -> String {
    let mut text = String::new();
    for chart in charts {
        text += &format!("\n{}, {}\n", chart.title, chart.y.unit);
        if let Some(ceiling) = &chart.ceiling {
            text += &format!("ceiling: {}, {}\n", number(ceiling.value), ceiling.name);
        }
        let head = std::iter::once(chart.x.label.to_owned());
        let mut rows: Vec<Vec<String>> =
            vec![head.chain(chart.series.iter().map(|series| series.name.to_owned())).collect()];
        for x in chart.places() {
            let mut row = vec![chart.x.unit.text(x)];
            for series in &chart.series {
                let cell = |value| {
                    let before = earlier.and_then(|run| run.value(chart.id, series.name, x));
                    match before {
                        Some(before) => {
                            format!("{} ({:+.0}%)", number(value), 100.0 * (value / before - 1.0))
                        }
                        None => number(value),
                    }
                };
                row.push(series.at(x).map_or_else(|| "-".into(), cell));
            }
            rows.push(row);
        }
        text += &aligned(&rows);
    }
    if let Some(earlier) = earlier {
        text += &format!("\nin brackets: the change since {}\n", earlier.name());
        text += &earlier.summary(charts);
    }
    text
}

/// Right-aligned columns.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        text += &format!("  {}\n", cells.collect::<Vec<_>>().join("   "));
    }
    text
}

/// One line a point. `device` is the device's name, and that it is emulated if it is.
pub fn csv(charts: &[Chart], device: &str) -> String {
    let mut text = String::from("device,chart,series,x,x_unit,value,unit\n");
    let quoted = |field: &str| format!("\"{}\"", field.replace('"', "\"\""));
    for chart in charts {
        let ceiling = chart.ceiling.iter().map(|ceiling| (ceiling.name, None, ceiling.value));
        let points = chart.series.iter().flat_map(|series| {
            series.points.iter().map(|&(x, value)| (series.name, Some(x), value))
        });
        for (series, x, value) in points.chain(ceiling) {
            let x = x.map_or(String::new(), |x| x.to_string());
            text += &format!(
                "{},{},{},{x},{},{value},{}\n",
                quoted(device),
                chart.id,
                quoted(series),
                chart.x.unit.name(),
                chart.y.unit
            );
        }
    }
    text
}
