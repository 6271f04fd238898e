//! Finds CUDA. A pure search: it queries variables and files through a [`Probe`], changes nothing,
//! and remembers why each place was rejected.
//!
//! `PINLANE_CUDA` says what is wanted ([`Wish`]); [`decide`] turns the wish and the search into one
//! of four outcomes: build with the toolkit, build for the driver alone, build without CUDA, or
//! stop with a [`Failure`]. Only a place that holds no `nvcc` counts as absent. A toolkit that
//! exists but cannot be used stops the build, which does not silently go on without it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::wish::{ARCHITECTURES, Wish};

/// What the search may query on the machine.
pub trait Probe {
    /// A variable of the environment; an empty one counts as unset.
    fn variable(&self, name: &'static str) -> Option<String>;
    /// Whether `path` is a file, symbolic links followed.
    fn is_file(&self, path: &Path) -> bool;
    /// The text of a file.
    fn read(&self, path: &Path) -> Option<String>;
    /// The contents of a folder, in ascending order; empty if there is no such folder.
    fn entries(&self, folder: &Path) -> Vec<PathBuf>;
    /// `path` with its symbolic links resolved, or unchanged if that fails.
    fn resolve(&self, path: &Path) -> PathBuf;
}

/// The machine to search.
pub struct Site<'a> {
    /// The folder of this package; `scripts/install-toolkit` puts a toolkit below it.
    pub project: &'a Path,
    /// The target's architecture as Rust names it.
    pub arch: &'a str,
}

/// The oldest toolkit that the crate works with. Since 12.0, `cudaSetDevice` initialises the device
/// and returns the failure itself; before, the next call returned the failure, and would be blamed
/// for it.
pub const MINIMUM: Version = Version { major: 12, minor: 0 };

/// The version of a toolkit's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    /// Reads the value of `CUDART_VERSION`, which is `1000 * major + 10 * minor`.
    fn from_header(text: &str) -> Option<Version> {
        let number: u32 = text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let is_define =
                words.next() == Some("#define") && words.next() == Some("CUDART_VERSION");
            if is_define { words.next()?.parse().ok() } else { None }
        })?;
        Some(Version { major: number / 1000, minor: number % 1000 / 10 })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A toolkit that has everything the build needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    pub root: PathBuf,
    pub nvcc: PathBuf,
    /// The folder of `cuda_runtime_api.h`.
    pub include: PathBuf,
    /// The folder of `libcudart_static.a`.
    pub lib: PathBuf,
    pub version: Version,
}

/// Why a place was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    NotSet,
    NoNvcc,
    NoHeader,
    NoVersion,
    TooOld(Version),
    NoRuntime,
}

impl Reason {
    /// Whether there is no toolkit at all, rather than one that cannot be used.
    fn is_absence(&self) -> bool {
        matches!(self, Reason::NotSet | Reason::NoNvcc)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotSet => f.write_str("not set"),
            Reason::NoNvcc => f.write_str("no nvcc"),
            Reason::NoHeader => f.write_str("nvcc, but no cuda_runtime_api.h"),
            Reason::NoVersion => f.write_str("no CUDART_VERSION in cuda_runtime_api.h"),
            Reason::TooOld(version) => write!(f, "CUDA {version} is older than {MINIMUM}"),
            Reason::NoRuntime => f.write_str("nvcc, but no libcudart_static.a"),
        }
    }
}

/// A place that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The folder, and the variable that named it if one did.
    pub place: String,
    pub reason: Reason,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.place, self.reason)
    }
}

/// How the build continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// With the CUDA runtime and the compiler of this toolkit.
    Toolkit(Toolkit),
    /// With the driver's own functions, which are looked up at run time: so it was asked, or there
    /// is no toolkit.
    Driver,
    /// With the emulated device only, as asked.
    Off,
}

impl Failure {
    /// The remedy that every failure to use a toolkit shares.
    pub fn or_without_toolkit(self) -> Failure {
        self.help("or set PINLANE_CUDA=driver to build without a toolkit")
    }
}

/// Reads the wish, searches, and decides.
pub fn decide(probe: &dyn Probe, site: &Site<'_>) -> Result<Decision, Failure> {
    let wish = Wish::read(&|name| probe.variable(name))?;
    if wish == Wish::Never {
        return Ok(Decision::Off);
    }
    if !ARCHITECTURES.contains(&site.arch) {
        return wish.without_cuda(site.arch).map(|()| Decision::Off);
    }
    match &wish {
        Wish::Driver => return Ok(Decision::Driver),
        Wish::At(root) => {
            return inspect(probe, site, root).map(Decision::Toolkit).map_err(|reason| {
                Failure::new(format!("PINLANE_CUDA={}: {reason}", root.display()))
                    .help(needed())
                    .or_without_toolkit()
            });
        }
        _ => {}
    }

    let tried = match search(probe, site) {
        Ok(toolkit) => return Ok(Decision::Toolkit(toolkit)),
        Err(tried) => tried,
    };
    let unusable: Vec<&Tried> = tried.iter().filter(|t| !t.reason.is_absence()).collect();
    if !unusable.is_empty() {
        return Err(Failure::new(format!("CUDA is here but cannot be used: {}", list(unusable)))
            .help(needed())
            .help(GET_IT)
            .or_without_toolkit());
    }
    if wish == Wish::Toolkit {
        return Err(Failure::new(format!(
            "PINLANE_CUDA asks for a CUDA toolkit, and none is in {}",
            list(&tried)
        ))
        .help(GET_IT)
        .or_without_toolkit());
    }
    Ok(Decision::Driver)
}

const GET_IT: &str =
    "run scripts/install-toolkit, or set CUDA_HOME or PINLANE_CUDA to the folder of a toolkit";

fn needed() -> String {
    format!(
        "a usable toolkit is CUDA {MINIMUM} or newer with bin/nvcc, include/cuda_runtime_api.h and \
         libcudart_static.a"
    )
}

/// The places in one line.
pub fn list<'a>(tried: impl IntoIterator<Item = &'a Tried>) -> String {
    tried.into_iter().map(Tried::to_string).collect::<Vec<_>>().join(", ")
}

/// The first sound toolkit, or all the places that were tried.
///
/// A broken place does not end the search: a stale `CUDA_HOME` must not hide a sound
/// `/usr/local/cuda`.
fn search(probe: &dyn Probe, site: &Site<'_>) -> Result<Toolkit, Vec<Tried>> {
    let mut tried = Vec::new();
    for source in SOURCES {
        let roots = source.roots(probe, site);
        if roots.is_empty() {
            tried.push(Tried { place: source.to_string(), reason: source.reason_if_empty() });
        }
        for root in roots {
            match inspect(probe, site, &root) {
                Ok(toolkit) => return Ok(toolkit),
                Err(reason) => tried.push(Tried { place: source.describe(&root), reason }),
            }
        }
    }
    Err(tried)
}

/// Where toolkits come from, most deliberate choice first. The order is documented in the README.
const SOURCES: [Source; 11] = [
    Source::Variable("CUDA_HOME"),
    Source::Variable("CUDA_PATH"),
    Source::Variable("CUDA_ROOT"),
    Source::Variable("CUDA_TOOLKIT_ROOT_DIR"),
    Source::Project,
    Source::Folder("/usr/local/cuda"),
    Source::Folder("/opt/cuda"),
    Source::Folder("/usr/lib/cuda"),
    Source::Folder("/usr"),
    Source::SearchPath,
    Source::VirtualEnv,
];

enum Source {
    Variable(&'static str),
    /// What `scripts/install-toolkit` installs.
    Project,
    Folder(&'static str),
    /// The parents of the `bin` folders on `PATH` that hold an `nvcc`.
    SearchPath,
    /// The toolkit's wheels in the active virtual environment of Python.
    VirtualEnv,
}

impl Source {
    fn roots(&self, probe: &dyn Probe, site: &Site<'_>) -> Vec<PathBuf> {
        match self {
            Source::Variable(name) => probe.variable(name).map(PathBuf::from).into_iter().collect(),
            Source::Project => vec![site.project.join(".toolkit/nvidia/cu13")],
            Source::Folder(path) => vec![PathBuf::from(path)],
            Source::SearchPath => {
                let path = probe.variable("PATH").unwrap_or_default();
                std::env::split_paths(&path)
                    .map(|folder| folder.join("nvcc"))
                    .filter(|nvcc| probe.is_file(nvcc))
                    // `/usr/bin/nvcc` is often a link into the folder of the toolkit.
                    .filter_map(|nvcc| Some(probe.resolve(&nvcc).parent()?.parent()?.to_owned()))
                    .collect()
            }
            Source::VirtualEnv => site_packages(probe)
                .into_iter()
                .map(|packages| packages.join("nvidia/cu13"))
                .collect(),
        }
    }

    fn reason_if_empty(&self) -> Reason {
        match self {
            Source::SearchPath => Reason::NoNvcc,
            _ => Reason::NotSet,
        }
    }

    fn describe(&self, root: &Path) -> String {
        match self {
            Source::Variable(_) | Source::VirtualEnv => format!("{self}={}", root.display()),
            Source::Project | Source::Folder(_) | Source::SearchPath => root.display().to_string(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Variable(name) | Source::Folder(name) => name,
            Source::Project => ".toolkit",
            Source::SearchPath => "PATH",
            Source::VirtualEnv => "VIRTUAL_ENV",
        })
    }
}

/// The `site-packages` folders of the active virtual environment of Python.
pub fn site_packages(probe: &dyn Probe) -> Vec<PathBuf> {
    let Some(environment) = probe.variable("VIRTUAL_ENV") else { return Vec::new() };
    probe
        .entries(&Path::new(&environment).join("lib"))
        .into_iter()
        .filter(|entry| {
            entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
        })
        .map(|python| python.join("site-packages"))
        .collect()
}

/// Whether `root` holds a sound toolkit.
fn inspect(probe: &dyn Probe, site: &Site<'_>, root: &Path) -> Result<Toolkit, Reason> {
    // The names that CUDA and Debian give to the target in the paths below the root.
    let (cuda_target, debian_target) = match site.arch {
        "aarch64" => ("sbsa-linux", "aarch64-linux-gnu"),
        _ => ("x86_64-linux", "x86_64-linux-gnu"),
    };
    let folder_with = |folders: &[String], file: &str| {
        folders.iter().map(|f| root.join(f)).find(|folder| probe.is_file(&folder.join(file)))
    };

    let nvcc = root.join("bin/nvcc");
    if !probe.is_file(&nvcc) {
        return Err(Reason::NoNvcc);
    }
    let includes = ["include".to_owned(), format!("targets/{cuda_target}/include")];
    let include = folder_with(&includes, "cuda_runtime_api.h").ok_or(Reason::NoHeader)?;
    let version = probe
        .read(&include.join("cuda_runtime_api.h"))
        .and_then(|text| Version::from_header(&text))
        .ok_or(Reason::NoVersion)?;
    if version < MINIMUM {
        return Err(Reason::TooOld(version));
    }
    let libs = [
        "lib64".to_owned(),
        "lib".to_owned(),
        format!("lib/{debian_target}"),
        format!("targets/{cuda_target}/lib"),
    ];
    let lib = folder_with(&libs, "libcudart_static.a").ok_or(Reason::NoRuntime)?;
    Ok(Toolkit { root: root.to_owned(), nvcc, include, lib, version })
}
