//! What a command prints and writes: text for people, JSON for programs, files.

use std::io::{ErrorKind, IsTerminal, Write, stdout};
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};

/// The columns of text.
const COLUMNS: usize = 100;

/// What a command has to say.
pub struct Report {
    pub text: String,
    pub json: Value,
    /// Whether all is well; otherwise the exit code is 1.
    pub good: bool,
}

impl Report {
    /// Prints one of the two, and says whether all is well.
    pub fn print(&self, json: bool) -> Result<bool> {
        if json {
            print(&format!("{:#}\n", self.json))?
        } else {
            print(&self.text)?
        }
        Ok(self.good)
    }
}

/// Writes to the standard output. A closed pipe, as by `head`, is no error.
fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error(format!("standard output: cannot write: {error}; redirect it elsewhere")))
        }
        _ => Ok(()),
    }
}

/// Writes a file that an option names.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|error| {
        Error(format!("{}: cannot write: {error}; choose another path", path.display()))
    })
}

/// Colours of a terminal.
#[derive(Clone, Copy)]
pub enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

/// The text in a colour, if the standard output is a terminal and `NO_COLOR` is not set.
pub fn coloured(text: &str, colour: Colour) -> String {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if no_colour || !stdout().is_terminal() {
        return text.to_owned();
    }
    format!("\x1b[{}m{text}\x1b[0m", colour as u8)
}

/// The text in lines of at most 100 columns, all but the first indented.
pub fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut column = indent;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > indent && column + 1 + width > COLUMNS {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines
}

/// Bytes in the largest unit that leaves at least 1.
pub fn in_units(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|&(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) if bytes.trailing_zeros() >= shift => {
            format!("{} {unit}", bytes >> shift)
        }
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words() {
        let text = format!("{} end", "word ".repeat(30));
        let lines = wrapped(&text, 20);
        assert!(lines.lines().all(|line| line.chars().count() <= COLUMNS), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with(&" ".repeat(20))), "{lines}");
        assert!(lines.split_whitespace().eq(text.split_whitespace()));
        assert_eq!(wrapped("", 4), "");
        assert_eq!(wrapped(&"x".repeat(200), 4), "x".repeat(200));
    }

    #[test]
    fn bytes_are_printed_in_units() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 41, "2 TiB")] {
            assert_eq!(in_units(bytes), text);
        }
    }
}
