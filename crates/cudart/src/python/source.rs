//! The text of a line, as the file has it now.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The most bytes of a file that are read.
const MOST: u64 = 16 << 20;
/// The most characters of a line that are shown.
const WIDEST: usize = 160;

/// The line without the space around it. `None` if it cannot be read, or is empty.
pub fn line(file: &str, line: u32) -> Option<String> {
    let path = Path::new(file);
    // Others may block.
    if !path.is_absolute() || !path.metadata().is_ok_and(|about| about.is_file()) {
        return None;
    }
    let mut reader = BufReader::new(File::open(path).ok()?.take(MOST));
    let mut bytes = Vec::new();
    for _ in 0..line {
        bytes.clear();
        reader.read_until(b'\n', &mut bytes).ok()?;
    }
    let text = String::from_utf8_lossy(&bytes);
    let text: String = text.trim().chars().take(WIDEST).filter(|c| !c.is_control()).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_if_it_is_there() {
        assert_eq!(
            line(&format!("{}/src/python/source.rs", env!("CARGO_MANIFEST_DIR")), 1).as_deref(),
            Some("//! The text of a line, as the file has it now.")
        );
        let file = std::env::temp_dir().join(format!("pinlane-source-{}", std::process::id()));
        std::fs::write(&file, b"a\n\n   d = \xff\tt.to(\x07x) \r\n").expect("can be written");
        let name = file.to_str().expect("UTF-8");
        let read = |number| line(name, number);
        assert_eq!(read(1).as_deref(), Some("a"));
        assert_eq!(read(2), None);
        assert_eq!(read(3).as_deref(), Some("d = \u{fffd}t.to(x)"));
        assert_eq!((read(4), read(0)), (None, None));
        std::fs::write(&file, "x".repeat(1000)).expect("can be written");
        assert_eq!(read(1).map(|text| text.len()), Some(WIDEST));
        std::fs::remove_file(&file).expect("is there");
        assert_eq!((read(1), line("/dev", 1), line("source.rs", 1)), (None, None, None));
    }
}
