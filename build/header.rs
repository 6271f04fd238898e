//! The C header, from the Rust of `src/capi`: `OUT_DIR/include/pinlane/pinlane.h`.
//!
//! Only `src/capi` is read, so no other code of the crate can reach the header. The copy in
//! `include/pinlane` is checked in for readers and for builds without Cargo; a test compares the
//! two, because a build script must not write into the source tree.
//!
//! cbindgen does not expand macros of the crate. So the output of `growing!` is written here, from
//! the same text: the `_INIT` macros, with the defaults of Rust, and the `_init` functions.
//! Conversely, `OUT_DIR/statuses.rs` has the names of the statuses and their comments, for
//! messages.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::rerun_if_changed;

const CAPI: &str = "src/capi";

/// Writes the header below `out_dir`, and passes its path to the crate's tests.
pub fn build(project: &Path, out_dir: &Path) -> Result<(), Failure> {
    rerun_if_changed(&project.join(CAPI));
    let failure = |cause: String| {
        Failure::new(format!("no C header: {cause}"))
            .help("see build/header.rs and src/capi; the feature `capi` asks for it")
    };
    let text = generate(project).map_err(failure)?;
    let header = out_dir.join("include/pinlane/pinlane.h");
    let written = fs::create_dir_all(header.parent().expect("a folder"))
        .and_then(|()| fs::write(&header, &text))
        .and_then(|()| fs::write(out_dir.join("statuses.rs"), statuses(&text)));
    written.map_err(|error| failure(error.to_string()))?;
    println!("cargo::metadata=header={}", header.display()); // for tests/ffi
    Ok(())
}

fn generate(project: &Path) -> Result<String, String> {
    let mut config = cbindgen::Config::from_file(project.join(CAPI).join("cbindgen.toml"))?;
    let after_includes = config.after_includes.take().unwrap_or_default();
    config.after_includes = Some(version_macros() + &after_includes);
    let trailer = config.trailer.take().unwrap_or_default();

    // cbindgen follows the module's own `mod` items.
    let source = project.join(CAPI).join("mod.rs");
    let builder = cbindgen::Builder::new().with_config(config).with_src(source);
    let bindings = builder.generate().map_err(|error| error.to_string())?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).map_err(|error| error.to_string())?;
    let structs = growing_structs(&project.join(CAPI))?;
    let initialisers = initialisers(&structs, &header)?;
    Ok(format!("{header}{initialisers}\n{trailer}\n"))
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

/// A struct that begins with its size, as a call of `growing!` names it.
struct GrowingStruct {
    name: String,
    init: String,
    /// The members whose default is not 0, with their defaults.
    defaults: Vec<(String, String)>,
}

/// The structs of all files below `folder`.
fn growing_structs(folder: &Path) -> Result<Vec<GrowingStruct>, String> {
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(growing_structs(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            for call in text.split("\ngrowing!(").skip(1) {
                let call = call.split(");").next().unwrap_or_default();
                let one = growing_struct(call);
                found.push(one.ok_or_else(|| format!("growing!({call}) in {}", path.display()))?);
            }
        }
    }
    Ok(found)
}

/// `INIT: NAME, sizes [...], default { MEMBER: VALUE, ... }`. A value is a number or a constant of
/// the header, so that it means the same in C.
fn growing_struct(call: &str) -> Option<GrowingStruct> {
    let (init, rest) = call.split_once(": ")?;
    let (name, rest) = rest.split_once(", sizes [")?;
    let defaults = rest.split_once("default {")?.1.trim().strip_suffix('}')?;
    let mut found = Vec::new();
    for one in defaults.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let (member, value) = one.split_once(": ")?;
        let value = if value.starts_with("PINLANE_") {
            value.to_owned()
        } else {
            value.replace('_', "").parse::<u64>().ok()?.to_string()
        };
        found.push((member.to_owned(), value));
    }
    Some(GrowingStruct { name: name.to_owned(), init: init.to_owned(), defaults: found })
}

/// A macro and a function for each struct. `header` declares the structs.
fn initialisers(structs: &[GrowingStruct], header: &str) -> Result<String, String> {
    let mut macros = "\n/* Initialisers of the structs that begin with their size. */\n".to_owned();
    let mut functions = INIT_FUNCTIONS.to_owned();
    for GrowingStruct { name, init, defaults } in structs {
        let members = members(name, header).ok_or_else(|| format!("{name} is no struct"))?;
        let known = |name: &String| members.iter().any(|(member, _)| member == name);
        if let Some((member, _)) = defaults.iter().find(|(member, _)| !known(member)) {
            return Err(format!("{name} has no member {member}"));
        }
        let mut line = format!("  {{ sizeof({name})");
        macros += &format!("#define {}_INIT \\\n", name.to_uppercase());
        for (member, is_pointer) in &members[1..] {
            let given = defaults.iter().find(|(of, _)| of == member);
            let value = given.map_or(if *is_pointer { "NULL" } else { "0" }, |(_, value)| value);
            if line.len() + value.len() > 90 {
                macros += &format!("{line}, \\\n");
                line = format!("    {value}");
            } else {
                line += &format!(", {value}");
            }
        }
        macros += &format!("{line} }}\n");
        functions += &format!("pinlane_status {init}({name} *pointer, size_t size);\n");
    }
    Ok(macros + &functions)
}

const INIT_FUNCTIONS: &str = "
/**
 * Each writes what the `_INIT` macro of its struct holds, for languages that have no macros. `size`
 * is the size of the struct in the caller's header: `sizeof *pointer`. No more bytes are written.
 *
 * Statuses: `INVALID_VALUE` if `pointer` is NULL or misaligned, or for a size that no header of
 * this library or an older one had.
 *
 * # Safety
 *
 * - `pointer` is NULL or points to `size` bytes.
 */
";

/// The names of the members of a struct, and whether they are pointers.
fn members(name: &str, header: &str) -> Option<Vec<(String, bool)>> {
    let start = header.split_once(&format!("typedef struct {name} {{"))?.1;
    let body = start.split_once(&format!("}} {name};"))?.0;
    let code: String =
        body.split("/*").map(|part| part.rsplit("*/").next().unwrap_or("")).collect();
    let declarations = code.split(';').map(str::trim).filter(|one| !one.is_empty());
    let member = |one: &str| {
        // `type name`, `type *name`, `type (*name)(parameters)`
        let name =
            one.split_once("(*").map_or(one, |(_, rest)| rest.split(')').next().unwrap_or(""));
        let name = name.rsplit(|mark: char| !mark.is_alphanumeric() && mark != '_').next();
        (name.unwrap_or_default().to_owned(), one.contains('*'))
    };
    Some(declarations.map(member).collect())
}

/// An array of Rust: each status, its name, and the name with the comment that the header has.
fn statuses(header: &str) -> String {
    let mut text = "[\n".to_owned();
    for declaration in header.split("/**\n").skip(1) {
        let Some((comment, code)) = declaration.split_once("*/\n#define ") else { continue };
        let name = code.split(' ').next().unwrap_or_default();
        if name.starts_with("PINLANE_STATUS_") {
            let words = comment.split_whitespace().filter(|&word| word != "*");
            let meaning = words.collect::<Vec<_>>().join(" ").replace('`', "");
            text += &format!("    ({name}, c{name:?}, c{:?}),\n", format!("{name}: {meaning}"));
        }
    }
    text + "]\n"
}
