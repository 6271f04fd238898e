//! The build script with toolkits that look usable and are not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::script;
use crate::search::header;

/// A toolkit whose nvcc is `nvcc`, a shell script, and a libclang that the build must not need.
struct Fake {
    folder: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Fake {
    fn new(test: &str, cudart_version: u32, nvcc: &str) -> Fake {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toolkit").join(test);
        let _ = fs::remove_dir_all(&folder);
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("cuda/include/cuda_runtime_api.h", &header(cudart_version));
        write("cuda/lib64/libcudart_static.a", "");
        write("cuda/bin/nvcc", &format!("#!/bin/sh\n{nvcc}\n"));
        write("clang/libclang.so", "not a library");
        write("out/.keep", "");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.join("cuda/bin/nvcc"), executable).unwrap();
        let variables = vec![
            ("PINLANE_CUDA", folder.join("cuda")),
            ("LIBCLANG_PATH", folder.join("clang")),
            ("OUT_DIR", folder.join("out")),
        ];
        Fake { folder, variables }
    }

    fn set(mut self, name: &'static str, value: impl Into<PathBuf>) -> Fake {
        self.variables.push((name, value.into()));
        self
    }

    fn run(&self) -> String {
        script::run(self.variables.iter().map(|(name, value)| (*name, value.as_os_str())))
    }

    /// The errors of a build that must stop, without passing anything of CUDA to Cargo.
    fn errors(&self) -> String {
        let stdout = self.run();
        assert!(!stdout.contains("pinlane_cuda"), "{stdout}");
        assert!(!stdout.contains("rustc-link-lib"), "{stdout}");
        let errors = script::errors(&stdout);
        assert!(errors.len() > 1, "no cause and remedy in: {stdout}");
        assert!(errors.last().unwrap().contains("PINLANE_CUDA=driver"), "{errors:?}");
        errors.join("\n")
    }
}

#[test]
fn too_old_stops() {
    let errors = Fake::new("too_old", 11_040, "exit 0").errors();
    assert!(errors.contains("CUDA 11.4 is older than 12.0"), "{errors}");
}

#[test]
fn no_libclang_stops() {
    let fake = Fake::new("no_libclang", 13_000, "exit 0");
    let empty = fake.folder.join("out");
    let errors = fake.set("LIBCLANG_PATH", empty).errors();
    assert!(errors.contains("is not libclang"), "{errors}");
}

#[test]
fn a_damaged_libclang_stops() {
    // An nvcc that writes an empty object file.
    let nvcc = r#"while [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done"#;
    let errors = Fake::new("damaged_libclang", 13_000, nvcc).errors();
    assert!(errors.contains("libclang cannot be loaded"), "{errors}");
}

#[test]
fn no_host_compiler_stops() {
    let fake = Fake::new("no_host_compiler", 13_000, "exit 0");
    let errors = fake.set("CXX", "/nonexistent/c++").errors();
    assert!(errors.contains("nvcc needs a C++ compiler"), "{errors}");
    assert!(errors.contains("/nonexistent/c++"), "{errors}");
    assert!(errors.contains("apt install g++"), "{errors}");
}

#[test]
fn a_failing_nvcc_stops_and_is_quoted() {
    let fake = Fake::new("failing_nvcc", 13_000, "echo 'nvcc fatal: no license' >&2; exit 1");
    let errors = fake.errors();
    assert!(errors.contains("could not compile the kernels"), "{errors}");
    assert!(errors.contains("help: if nvcc rejects the host compiler"), "{errors}");
    assert!(fake.run().contains("nvcc fatal: no license"));
}

#[test]
fn nvcc_is_asked_only_for_what_its_version_knows() {
    let command = |test, version| {
        let fake = Fake::new(test, version, r#"echo "$@" > "${0%/*}/arguments"; exit 1"#);
        fake.errors();
        fs::read_to_string(fake.folder.join("cuda/bin/arguments")).unwrap()
    };
    let (old, new) = (command("nvcc_12_6", 12_060), command("nvcc_12_8", 12_080));
    for arguments in [&old, &new] {
        assert!(arguments.contains("code=sm_90"), "{arguments}");
        assert!(arguments.contains("code=compute_75"), "no PTX: {arguments}");
        let words: Vec<_> = arguments.split_whitespace().collect();
        assert!(!words.contains(&"-G"), "device code without optimisation: {arguments}");
    }
    for flag in ["code=sm_120", "--compress-mode=size"] {
        assert!(new.contains(flag) && !old.contains(flag), "{flag}: {new} {old}");
    }
}

#[test]
fn off_builds_without_cuda_and_without_a_warning() {
    for (test, name, value) in [("off", "PINLANE_CUDA", "off"), ("docs_rs", "DOCS_RS", "1")] {
        let stdout = Fake::new(test, 13_000, "exit 1").set(name, value).run();
        for word in ["cargo::error", "cargo::warning", "pinlane_cuda", "rustc-link-lib"] {
            assert!(!stdout.contains(word), "{name}={value}: {stdout}");
        }
    }
}
