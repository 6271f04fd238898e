//! Strings of JSON.

use std::fmt::{Display, Result, Write};

/// A string of JSON that says what `value` displays.
pub fn text(value: impl Display) -> String {
    let mut quoted = Quoted(String::from('"'));
    write!(quoted, "{value}").expect("a string grows");
    quoted.0.push('"');
    quoted.0
}

/// The text between the quotes so far.
struct Quoted(String);

impl Write for Quoted {
    fn write_str(&mut self, text: &str) -> Result {
        for c in text.chars() {
            match c {
                '"' | '\\' => self.0.extend(['\\', c]),
                c if c.is_control() => write!(self.0, "\\u{:04x}", u32::from(c))?,
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn another_crate_reads_what_was_written() {
        let all: String = ('\0'..='\u{2100}').chain(['\u{1f600}']).collect();
        for said in ["", "plain", "\"", "\\", "a\nb\tc\u{7f}", all.as_str()] {
            let read: String = serde_json::from_str(&text(said)).expect("a string of JSON");
            assert_eq!(read, said);
            assert!(text(said).chars().all(|c| !c.is_control()));
        }
        assert_eq!(text(format_args!("{}, {:?}", 7, "x")), r#""7, \"x\"""#);
    }
}
