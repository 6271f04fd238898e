//! What `PINLANE_CUDA` asks for.

use std::path::PathBuf;

use crate::failure::Failure;

/// The architectures that this crate uses CUDA on. On others there is the emulated device.
pub const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// What `PINLANE_CUDA` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The toolkit if there is one, else the driver: `auto`, or unset.
    Auto,
    /// The driver, without a toolkit: `driver`.
    Driver,
    /// Stop if there is no toolkit: `on` or `1`.
    Toolkit,
    /// No CUDA: `off` or `0`, and on docs.rs.
    Never,
    /// The toolkit in this folder and no other: a value with a `/`.
    At(PathBuf),
}

impl Wish {
    /// Reads `PINLANE_CUDA` and `DOCS_RS`.
    pub fn read(variable: &dyn Fn(&'static str) -> Option<String>) -> Result<Wish, Failure> {
        if variable("DOCS_RS").is_some() {
            return Ok(Wish::Never);
        }
        let Some(value) = variable("PINLANE_CUDA") else { return Ok(Wish::Auto) };
        match value.as_str() {
            "auto" => Ok(Wish::Auto),
            "driver" => Ok(Wish::Driver),
            "on" | "1" => Ok(Wish::Toolkit),
            "off" | "0" => Ok(Wish::Never),
            path if path.contains('/') => Ok(Wish::At(path.into())),
            _ => Err(Failure::new(format!("PINLANE_CUDA={value} is not understood"))
                .help("use auto, driver, on (or 1), off (or 0), or the path of a CUDA toolkit")),
        }
    }

    /// For an architecture that CUDA does not exist for: who insists on it gets an error.
    pub fn without_cuda(&self, arch: &str) -> Result<(), Failure> {
        match self {
            Wish::Auto | Wish::Never => Ok(()),
            Wish::Driver | Wish::Toolkit | Wish::At(_) => Err(Failure::new(format!(
                "PINLANE_CUDA asks for CUDA, which exists for {}, not for {arch}",
                ARCHITECTURES.join(" and ")
            ))
            .help("set PINLANE_CUDA=off to build with the emulated device only")),
        }
    }

    /// For a build without one of the crate's features: the promise that `PINLANE_CUDA` makes holds
    /// without it, too. `given` says what the other features can do.
    pub fn without_feature(&self, feature: &str, given: &[Wish]) -> Result<(), Failure> {
        if given.contains(self) {
            return Ok(());
        }
        let wish = match self {
            Wish::At(path) => path.display().to_string(),
            Wish::Driver => "driver".to_owned(),
            _ => "on".to_owned(),
        };
        let asked = if feature == "cuda" { "CUDA" } else { "a CUDA toolkit" };
        Err(Failure::new(format!(
            "PINLANE_CUDA={wish} asks for {asked}, but the feature `{feature}` is off"
        ))
        .help("turn the feature on, or unset PINLANE_CUDA"))
    }
}
