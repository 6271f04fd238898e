//! The C header, from the Rust of `src/capi`: `OUT_DIR/include/pinlane/pinlane.h`.
//!
//! Only `src/capi` is read, so nothing else of the crate can reach the header. The copy in
//! `include/pinlane` is checked in for readers and for builds without Cargo; a test compares the two,
//! because a build script must not write into the source tree.

use std::path::{Path, PathBuf};

use crate::toolkit::Failure;

/// The version of the package, as Cargo has it.
pub struct PackageVersion {
    pub major: String,
    pub minor: String,
    pub patch: String,
}

/// Writes the header below `out_dir` and returns its path.
pub fn generate(
    project: &Path,
    version: &PackageVersion,
    out_dir: &Path,
) -> Result<PathBuf, Failure> {
    let failure = |cause: String| {
        Failure::new(format!("no C header: {cause}"))
            .help("see cbindgen.toml, build/header.rs and src/capi; the feature `capi` asks for it")
    };
    let mut config = cbindgen::Config::from_file(project.join("cbindgen.toml")).map_err(failure)?;
    config.after_includes = Some(version_macros(version));

    let mut builder = cbindgen::Builder::new().with_config(config);
    let folder = project.join("src/capi");
    let sources = rust_files(&folder)
        .map_err(|error| failure(format!("{} cannot be read: {error}", folder.display())))?;
    for source in sources {
        builder = builder.with_src(source);
    }
    let bindings = builder.generate().map_err(|error| failure(error.to_string()))?;

    let header = out_dir.join("include/pinlane/pinlane.h");
    bindings.write_to_file(&header);
    Ok(header)
}

/// Cargo.toml is the version's single source; `pinlane_version()` lets a program compare the header
/// that it was compiled with to the library that it runs with.
fn version_macros(version: &PackageVersion) -> String {
    let PackageVersion { major, minor, patch } = version;
    format!(
        "\n/** The version of this header, as Cargo counts it. */\n\
         #define PINLANE_VERSION_MAJOR {major}\n\
         #define PINLANE_VERSION_MINOR {minor}\n\
         #define PINLANE_VERSION_PATCH {patch}\n\
         #define PINLANE_VERSION_STRING \"{major}.{minor}.{patch}\""
    )
}

/// The Rust files of a folder in a fixed order, since their order is the header's.
fn rust_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    Ok(files)
}
