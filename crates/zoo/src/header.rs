//! The comment at the top of a program: a title, a paragraph on what happened, then fields.
//!
//! - `Report:` the address of the report;
//! - `Wrong:` the bug in one sentence;
//! - `Finds:` what one eager run finds: a kind and, for two operations that nothing orders, both;
//!   there may be several;
//! - `Devices:` how many devices the program needs; 1 unless said;
//! - `Needs: host accesses` the finding is about what the host itself reads or writes, which
//!   programs in C and C++ do not tell.

/// A finding that a program is to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its kind, such as `Race`.
    pub kind: String,
    /// Both operations, such as `CopyD2H on stream A after Fill(0x01) on stream B`.
    pub pair: Option<String>,
}

/// What the comment says.
#[derive(Clone, Debug)]
pub struct Header {
    /// The bug in a few words.
    pub title: String,
    /// The address of the report.
    pub report: String,
    /// What is wrong, in one sentence.
    pub wrong: String,
    /// What one eager run finds.
    pub finds: Vec<Expected>,
    /// How many devices the program needs.
    pub devices: usize,
    /// The findings need to know what the host itself reads and writes.
    pub needs_host_accesses: bool,
}

impl Header {
    /// Reads the comment.
    ///
    /// # Panics
    ///
    /// If a field is missing.
    #[must_use]
    pub fn of(name: &str, source: &str) -> Self {
        let comment = source.lines().map_while(|line| line.strip_prefix("//"));
        let lines: Vec<&str> = comment.map(|line| line.trim_start_matches('!').trim()).collect();
        let values = |field: &str| values(&lines, field);
        let one = |field: &str| match &values(field)[..] {
            [value] => value.clone(),
            other => panic!("{name}: `{field}:` is there {} times", other.len()),
        };
        let finds: Vec<_> = values("Finds").iter().map(|text| expected(text)).collect();
        assert!(!finds.is_empty(), "{name}: `Finds:` is missing");
        Header {
            title: lines.first().expect("a comment").to_string(),
            report: one("Report"),
            wrong: one("Wrong"),
            finds,
            devices: values("Devices").first().map_or(1, |devices| devices.parse().expect(name)),
            needs_host_accesses: values("Needs").contains(&"host accesses".to_owned()),
        }
    }
}

const FIELDS: [&str; 5] = ["Report", "Wrong", "Finds", "Devices", "Needs"];

/// The values of the fields of that name. A value ends at the next field or at an empty line.
fn values(lines: &[&str], field: &str) -> Vec<String> {
    let begins = |line: &str| {
        FIELDS.iter().any(|f| line.strip_prefix(f).is_some_and(|rest| rest.starts_with(':')))
    };
    let mut values = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(value) = line.strip_prefix(field).and_then(|rest| rest.strip_prefix(':')) else {
            continue;
        };
        let rest = lines[at + 1..].iter().take_while(|line| !line.is_empty() && !begins(line));
        let parts: Vec<&str> = std::iter::once(&value.trim()).chain(rest).copied().collect();
        values.push(parts.join(" "));
    }
    values
}

fn expected(text: &str) -> Expected {
    match text.split_once(": ") {
        Some((kind, pair)) => Expected { kind: kind.into(), pair: Some(pair.into()) },
        None => Expected { kind: text.into(), pair: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_go_on_and_come_again() {
        let source = "//! A title.\n//!\n//! What happened: much.\n//! Report: somewhere\n\
            //! Wrong: this and\n//! that.\n//! Finds: Race: a on b after c on d\n\
            //! Finds: BadFree\nlet x;\n// Finds: not this\n";
        let header = Header::of("test", source);
        assert_eq!((&*header.title, &*header.wrong), ("A title.", "this and that."));
        assert_eq!((&*header.report, header.devices), ("somewhere", 1));
        let kinds: Vec<_> = header.finds.iter().map(|found| &*found.kind).collect();
        assert_eq!(kinds, ["Race", "BadFree"]);
        assert_eq!(header.finds[0].pair.as_deref(), Some("a on b after c on d"));
        assert!(!header.needs_host_accesses);
    }
}
