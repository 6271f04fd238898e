//! Finds libclang. bindgen loads it at run time and panics if it is missing, so the build searches
//! for it first, in the same way as [`toolkit`](crate::toolkit) for CUDA.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::toolkit::{Probe, Site, Toolkit, site_packages};

/// The library's file. `LIBCLANG_PATH`, a file or a folder, excludes every other place.
pub fn find(probe: &dyn Probe, site: &Site<'_>, toolkit: &Toolkit) -> Result<PathBuf, Failure> {
    if let Some(value) = probe.variable("LIBCLANG_PATH") {
        let path = PathBuf::from(&value);
        if probe.is_file(&path) {
            return Ok(path);
        }
        return library_in(probe, &path).ok_or_else(|| {
            Failure::new(format!("LIBCLANG_PATH={value} is not libclang and does not hold it"))
                .help("name the folder of libclang.so, or unset LIBCLANG_PATH to search for it")
                .or_without_toolkit()
        });
    }

    let folders = folders(probe, site, toolkit);
    folders.iter().find_map(|folder| library_in(probe, folder)).ok_or_else(|| {
        let places: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Failure::new(format!(
            "CUDA {} is in {}, but libclang, which reads its headers, is in none of {}",
            toolkit.version,
            toolkit.root.display(),
            places.join(", ")
        ))
        .help("install it: `apt install libclang-dev`, or `dnf install clang-devel`")
        .help("or `pip install libclang` and set LIBCLANG_PATH to its clang/native folder")
        .or_without_toolkit()
    })
}

/// Wheels come before the system, because they were installed for this purpose.
fn folders(probe: &dyn Probe, site: &Site<'_>, toolkit: &Toolkit) -> Vec<PathBuf> {
    let wheel = |packages: &Path| packages.join("clang/native");
    // A toolkit from wheels lies in `site-packages/nvidia/cu13`.
    let nvidia = toolkit.root.parent().filter(|folder| folder.ends_with("nvidia"));
    let beside = nvidia.and_then(Path::parent);
    let mut folders: Vec<PathBuf> = beside
        .map(wheel)
        .into_iter()
        .chain([wheel(&site.project.join(".toolkit"))])
        .chain(site_packages(probe).iter().map(|packages| wheel(packages)))
        .collect();
    folders.dedup();

    let mut llvm: Vec<PathBuf> = probe
        .entries(Path::new("/usr/lib"))
        .into_iter()
        .filter(|entry| llvm_version(entry).is_some())
        .collect();
    llvm.sort_by_key(|entry| std::cmp::Reverse(llvm_version(entry)));
    folders.extend(llvm.into_iter().map(|entry| entry.join("lib")));

    let debian = format!("/usr/lib/{}-linux-gnu", site.arch);
    folders.extend(["/usr/lib64", "/usr/lib", &debian, "/usr/local/lib"].map(PathBuf::from));
    folders
}

/// The number of a folder such as `llvm-18`.
fn llvm_version(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.strip_prefix("llvm-")?.parse().ok()
}

fn library_in(probe: &dyn Probe, folder: &Path) -> Option<PathBuf> {
    probe.entries(folder).into_iter().find(|path| is_library(path) && probe.is_file(path))
}

/// `libclang.so`, `libclang-18.so`, `libclang.so.1`, `libclang-18.so.18`; not `libclang-cpp.so`.
fn is_library(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let Some((stem, suffix)) = name.split_once(".so") else { return false };
    let version = stem.strip_prefix("libclang").map(|rest| rest.trim_start_matches('-'));
    version.is_some_and(|v| v.chars().all(|c| c.is_ascii_digit() || c == '.'))
        && (suffix.is_empty() || suffix.starts_with('.'))
}
