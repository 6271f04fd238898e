//! The font: how wide text is, and its outlines.

use std::sync::LazyLock;

use ttf_parser::{Face, OutlineBuilder};
use zeno::{Command, PathBuilder};

static FACE: LazyLock<Face<'static>> =
    LazyLock::new(|| Face::parse(dejavu::sans::regular(), 0).expect("the font of the crate"));

/// The families to look for in a file of SVG; the first one is that of the crate.
pub const FAMILIES: &str = "DejaVu Sans, Verdana, Arial, sans-serif";

/// The width of a line of text.
pub fn width(text: &str, size: f32) -> f32 {
    let scale = size / f32::from(FACE.units_per_em());
    text.chars().map(|c| advance(c) * scale).sum()
}

/// In units of the font.
fn advance(c: char) -> f32 {
    FACE.glyph_index(c).and_then(|glyph| FACE.glyph_hor_advance(glyph)).map_or(0.0, f32::from)
}

/// The outlines of a line of text that begins at 0, 0, the end of its baseline to the right.
pub fn outlines(text: &str, size: f32) -> Vec<Command> {
    let scale = size / f32::from(FACE.units_per_em());
    let mut pen = Pen { path: Vec::new(), x: 0.0, scale };
    for c in text.chars() {
        if let Some(glyph) = FACE.glyph_index(c) {
            FACE.outline_glyph(glyph, &mut pen);
        }
        pen.x += advance(c) * scale;
    }
    pen.path
}

struct Pen {
    path: Vec<Command>,
    x: f32,
    scale: f32,
}

impl Pen {
    /// Fonts count upwards, pictures downwards.
    fn place(&self, x: f32, y: f32) -> [f32; 2] {
        [self.x + x * self.scale, -y * self.scale]
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let to = self.place(x, y);
        self.path.move_to(to);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let to = self.place(x, y);
        self.path.line_to(to);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let (control, to) = (self.place(x1, y1), self.place(x, y));
        self.path.quad_to(control, to);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let (first, second, to) = (self.place(x1, y1), self.place(x2, y2), self.place(x, y));
        self.path.curve_to(first, second, to);
    }

    fn close(&mut self) {
        self.path.close();
    }
}
