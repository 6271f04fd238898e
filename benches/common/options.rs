//! The command line.

use std::collections::BTreeMap;
use std::error::Error;

/// The options of the command line.
#[derive(Default)]
pub struct Options {
    values: BTreeMap<String, String>,
    /// A short run that shows that everything works. Its figures mean little.
    pub quick: bool,
}

/// The options that every benchmark takes.
const COMMON: [&str; 4] = ["json", "commit", "date", "only"];

impl Options {
    /// Reads the arguments: `--quick`, and `--NAME VALUE` for the names that every benchmark takes
    /// and for `own`.
    pub fn from_args(own: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut options = Options::default();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.strip_prefix("--") {
                Some("bench") => {} // cargo bench adds it
                Some("quick") => options.quick = true,
                Some(name) if COMMON.contains(&name) || own.contains(&name) => {
                    let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
                    options.values.insert(name.into(), value);
                }
                _ => return Err(format!("unknown option {arg}").into()),
            }
        }
        Ok(options)
    }

    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }
}
