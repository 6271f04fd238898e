//! Charts as pictures, without fonts or other files of the system.
//!
//! | module | what |
//! |---|---|
//! | [`layout`] | where everything of a chart goes |
//! | [`axis`] | where the ticks of an axis are |
//! | [`font`] | how wide text is, and its outlines |
//! | [`picture`] | lines, polygons and texts |
//! | [`svg`], [`png`] | a picture as a file |
//!
//! The background is transparent, and the colours are neither light nor dark: a picture can be read
//! on both.

mod axis;
mod font;
mod layout;
mod picture;
mod png;
mod svg;

pub use layout::chart;
pub use picture::Picture;

impl Picture {
    pub fn svg(&self) -> String {
        svg::write(self)
    }

    pub fn png(&self) -> Vec<u8> {
        png::write(self)
    }
}
