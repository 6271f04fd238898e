//! The C header, from the Rust of `src/capi`: `OUT_DIR/include/pinlane/pinlane.h`.
//!
//! Only `src/capi` is read, so nothing else of the crate can reach the header. The copy in
//! `include/pinlane` is checked in for readers and for builds without Cargo; a test compares the
//! two, because a build script must not write into the source tree.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::rerun_if_changed;

const CAPI: &str = "src/capi/mod.rs";

/// Writes the header below `out_dir`, and tells the crate's tests where it is.
pub fn build(project: &Path, out_dir: &Path) -> Result<(), Failure> {
    rerun_if_changed(&project.join("src/capi"));
    rerun_if_changed(&project.join("cbindgen.toml"));
    let header = generate(project, out_dir)?;
    println!("cargo::rustc-env=PINLANE_GENERATED_HEADER={}", header.display());
    Ok(())
}

fn generate(project: &Path, out_dir: &Path) -> Result<PathBuf, Failure> {
    let failure = |cause: String| {
        Failure::new(format!("no C header: {cause}"))
            .help("see cbindgen.toml, build/header.rs and src/capi; the feature `capi` asks for it")
    };
    let mut config = cbindgen::Config::from_file(project.join("cbindgen.toml")).map_err(failure)?;
    let initialisers = config.after_includes.take().unwrap_or_default();
    config.after_includes = Some(version_macros() + &initialisers);

    // cbindgen follows the module's own `mod` items.
    let builder = cbindgen::Builder::new().with_config(config).with_src(project.join(CAPI));
    let bindings = builder.generate().map_err(|error| failure(error.to_string()))?;

    let header = out_dir.join("include/pinlane/pinlane.h");
    bindings.write_to_file(&header);
    Ok(header)
}

/// Cargo.toml is the version's single source; `pinlane_version()` lets a program compare the header
/// that it was compiled with to the library that it runs with.
fn version_macros() -> String {
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    let minor = env!("CARGO_PKG_VERSION_MINOR");
    let patch = env!("CARGO_PKG_VERSION_PATCH");
    format!(
        "\n/** The version of this header, as Cargo counts it. */\n\
         #define PINLANE_VERSION_MAJOR {major}\n\
         #define PINLANE_VERSION_MINOR {minor}\n\
         #define PINLANE_VERSION_PATCH {patch}\n\
         #define PINLANE_VERSION_STRING \"{major}.{minor}.{patch}\"\n\
         #define PINLANE_VERSION \\\n  \
         (1000000 * PINLANE_VERSION_MAJOR + 1000 * PINLANE_VERSION_MINOR + PINLANE_VERSION_PATCH)\n"
    )
}
