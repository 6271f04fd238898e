//! A picture as SVG.

use std::fmt::Write;

use super::font;
use super::picture::{Anchor, Colour, Picture, Shape};

pub fn write(picture: &Picture) -> String {
    let (width, height) = (picture.width, picture.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"{}\">\n",
        font::FAMILIES
    );
    for shape in &picture.shapes {
        one(&mut text, shape).expect("a string takes all text");
    }
    text + "</svg>\n"
}

fn one(out: &mut String, shape: &Shape) -> std::fmt::Result {
    match shape {
        Shape::Line { points, width, colour, dashed } => {
            let dashes = if *dashed { " stroke-dasharray=\"14 10\"" } else { "" };
            writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" {} stroke-width=\"{width}\" \
                 stroke-linejoin=\"round\"{dashes}/>",
                list(points),
                paint("stroke", *colour)
            )
        }
        Shape::Fill { points, colour } => {
            writeln!(out, "<polygon points=\"{}\" {}/>", list(points), paint("fill", *colour))
        }
        Shape::Text { at: [x, y], text, size, anchor, turned, colour } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let turn =
                if *turned { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
            writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
                 {}{turn}>{}</text>",
                paint("fill", *colour),
                escaped(text)
            )
        }
    }
}

fn list(points: &[[f32; 2]]) -> String {
    let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

/// The attributes of a colour for `stroke` or `fill`.
fn paint(attribute: &str, Colour(red, green, blue, alpha): Colour) -> String {
    let opacity =
        if alpha < 1.0 { format!(" {attribute}-opacity=\"{alpha}\"") } else { String::new() };
    format!("{attribute}=\"#{red:02x}{green:02x}{blue:02x}\"{opacity}")
}

/// Text as XML has it. A device's name may contain anything.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_xml_in_a_name_are_escaped() {
        assert_eq!(escaped("a <b> & c"), "a &lt;b&gt; &amp; c");
    }
}
