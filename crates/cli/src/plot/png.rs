//! A picture as PNG, with a transparent background.

use zeno::{Cap, Command, Fill, Join, Mask, PathBuilder, Stroke, Style, Transform};

use super::font;
use super::picture::{Anchor, Colour, Picture, Shape};

pub fn write(picture: &Picture) -> Vec<u8> {
    let mut canvas = Canvas::new(picture.width, picture.height);
    for shape in &picture.shapes {
        canvas.draw(shape);
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, picture.width, picture.height);
    encoder.set_color(png::ColorType::Rgba);
    let mut writer = encoder.write_header().expect("memory takes all bytes");
    writer.write_image_data(&canvas.pixels).expect("memory takes all bytes");
    writer.finish().expect("memory takes all bytes");
    bytes
}

/// Pixels: red, green, blue and how much of it covers the background.
struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: u32, height: u32) -> Canvas {
        Canvas { width, height, pixels: vec![0; (4 * width * height) as usize] }
    }

    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { points, width, colour, dashed } => {
                let mut stroke = Stroke::new(*width);
                stroke.join(Join::Round).cap(Cap::Butt);
                if *dashed {
                    stroke.dash(&[14.0, 10.0], 0.0);
                }
                self.paint(&path(points, false), stroke.into(), None, *colour);
            }
            Shape::Fill { points, colour } => {
                self.paint(&path(points, true), Fill::NonZero.into(), None, *colour);
            }
            Shape::Text { at: [x, y], text, size, anchor, turned, colour } => {
                let width = font::width(text, *size);
                let back = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => width / 2.0,
                    Anchor::End => width,
                };
                let place = if *turned {
                    Transform::new(0.0, -1.0, 1.0, 0.0, *x, *y + back)
                } else {
                    Transform::translation(*x - back, *y)
                };
                let outlines = font::outlines(text, *size);
                self.paint(&outlines, Fill::NonZero.into(), Some(place), *colour);
            }
        }
    }

    fn paint(
        &mut self,
        path: &Vec<Command>,
        style: Style<'_>,
        place: Option<Transform>,
        colour: Colour,
    ) {
        let (coverage, placed) = Mask::new(path).style(style).transform(place).render();
        let width = placed.width as usize;
        for (row, line) in coverage.chunks_exact(width.max(1)).enumerate() {
            for (column, &new) in line.iter().enumerate() {
                let (x, y) = (placed.left + column as i32, placed.top + row as i32);
                let inside =
                    (0..self.width as i32).contains(&x) && (0..self.height as i32).contains(&y);
                if new > 0 && inside {
                    let at = 4 * (y as usize * self.width as usize + x as usize);
                    over(&mut self.pixels[at..at + 4], colour, new);
                }
            }
        }
    }
}

/// Puts a colour over a pixel.
fn over(pixel: &mut [u8], Colour(red, green, blue, alpha): Colour, coverage: u8) {
    let new = f32::from(coverage) / 255.0 * alpha;
    let old = f32::from(pixel[3]) / 255.0 * (1.0 - new);
    let both = new + old;
    for (part, colour) in pixel.iter_mut().zip([red, green, blue]) {
        *part = ((f32::from(colour) * new + f32::from(*part) * old) / both).round() as u8;
    }
    pixel[3] = (both * 255.0).round() as u8;
}

fn path(points: &[[f32; 2]], closed: bool) -> Vec<Command> {
    let mut path = Vec::with_capacity(points.len() + 1);
    for (at, point) in points.iter().enumerate() {
        if at == 0 {
            path.move_to(*point)
        } else {
            path.line_to(*point)
        };
    }
    if closed {
        path.close();
    }
    path
}
