//! A picture: shapes in the colours of a chart.

/// Red, green and blue, and how much of it covers what is below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Colour(pub u8, pub u8, pub u8, pub f32);

pub const TEXT: Colour = Colour(0x80, 0x84, 0x8a, 1.0);
pub const GRID: Colour = Colour(0x80, 0x84, 0x8a, 0.4);
pub const CEILING: Colour = Colour(0xd0, 0x4a, 0x4a, 1.0);
/// One for each series; they differ in lightness too.
pub const SERIES: [Colour; 4] = [
    Colour(0x2f, 0x7f, 0xd6, 1.0),
    Colour(0xe0, 0x86, 0x1f, 1.0),
    Colour(0x2e, 0x9e, 0x6b, 1.0),
    Colour(0xa3, 0x5f, 0xc8, 1.0),
];

/// Which point of a text its place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

pub enum Shape {
    /// A line through points.
    Line { points: Vec<[f32; 2]>, width: f32, colour: Colour, dashed: bool },
    /// A filled polygon.
    Fill { points: Vec<[f32; 2]>, colour: Colour },
    /// A line of text; `turned` runs upwards.
    Text { at: [f32; 2], text: String, size: f32, anchor: Anchor, turned: bool, colour: Colour },
}

pub struct Picture {
    pub width: u32,
    pub height: u32,
    pub shapes: Vec<Shape>,
}
