//! The build's outcomes: a toolkit is found and usable; none is found, or wanted, and the driver
//! does; one is found and unusable.
//!
//! The search is a pure function, so the tests use invented machines. `broken` runs the build
//! script itself with toolkits that do not work.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::toolkit::{self, Decision, Probe, Site, Version, decide};
use crate::wish::Wish;

/// A machine that has exactly these variables, files and links.
#[derive(Default)]
struct Machine {
    variables: HashMap<&'static str, String>,
    files: BTreeMap<PathBuf, String>,
    links: HashMap<PathBuf, PathBuf>,
}

impl Machine {
    fn set(mut self, name: &'static str, value: &str) -> Self {
        self.variables.insert(name, value.to_owned());
        self
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }

    fn without(mut self, path: &str) -> Self {
        assert!(self.files.remove(Path::new(path)).is_some(), "{path} was never there");
        self
    }

    fn link(mut self, from: &str, to: &str) -> Self {
        self.links.insert(from.into(), to.into());
        self.file(from, "")
    }

    fn toolkit(self, root: &str, lib: &str, cudart_version: u32) -> Self {
        self.file(&format!("{root}/bin/nvcc"), "")
            .file(&format!("{root}/{lib}/libcudart_static.a"), "")
            .file(&format!("{root}/include/cuda_runtime_api.h"), &header(cudart_version))
    }

    fn decide(&self) -> Result<Decision, Failure> {
        decide(self, &site())
    }

    fn found(&self) -> toolkit::Toolkit {
        match self.decide() {
            Ok(Decision::Toolkit(toolkit)) => toolkit,
            other => panic!("expected a toolkit, got {other:?}"),
        }
    }

    fn failure(&self) -> String {
        self.decide().expect_err("the build must stop").to_string()
    }
}

impl Probe for Machine {
    fn variable(&self, name: &'static str) -> Option<String> {
        self.variables.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn is_file(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    fn read(&self, path: &Path) -> Option<String> {
        self.files.get(path).cloned()
    }

    fn entries(&self, folder: &Path) -> Vec<PathBuf> {
        let inside = self.files.keys().filter_map(|file| {
            let first = file.strip_prefix(folder).ok()?.components().next()?;
            Some(folder.join(first))
        });
        let mut entries: Vec<PathBuf> = inside.collect();
        entries.dedup();
        entries
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        self.links.get(path).cloned().unwrap_or_else(|| path.to_owned())
    }
}

fn site() -> Site<'static> {
    Site { project: Path::new("/project"), arch: "x86_64" }
}

pub fn header(cudart_version: u32) -> String {
    format!("#if 0\n#define CUDART_VERSIONS 1\n#endif\n#define CUDART_VERSION  {cudart_version}\n")
}

mod found {
    use super::*;

    #[test]
    fn a_toolkit_is_described_in_full() {
        let toolkit = Machine::default().toolkit("/usr/local/cuda", "lib64", 12_080).found();
        assert_eq!(toolkit.root, Path::new("/usr/local/cuda"));
        assert_eq!(toolkit.nvcc, Path::new("/usr/local/cuda/bin/nvcc"));
        assert_eq!(toolkit.include, Path::new("/usr/local/cuda/include"));
        assert_eq!(toolkit.lib, Path::new("/usr/local/cuda/lib64"));
        assert_eq!(toolkit.version, Version { major: 12, minor: 8 });
    }

    /// Each place is found if it is the only one, and has priority over all later ones.
    #[test]
    fn places_are_searched_in_the_documented_order() {
        let machine = || {
            Machine::default()
                .set("PATH", "/bin:/on-path/bin")
                .set("VIRTUAL_ENV", "/venv")
                .set("CUDA_HOME", "/home")
                .set("CUDA_PATH", "/path")
                .set("CUDA_ROOT", "/root")
                .set("CUDA_TOOLKIT_ROOT_DIR", "/root-dir")
        };
        let order = [
            "/home",
            "/path",
            "/root",
            "/root-dir",
            "/project/.toolkit/nvidia/cu13",
            "/usr/local/cuda",
            "/opt/cuda",
            "/usr/lib/cuda",
            "/usr",
            "/on-path",
            "/venv/lib/python3.12/site-packages/nvidia/cu13",
        ];
        for first in 0..order.len() {
            let with_the_rest = order[first..]
                .iter()
                .fold(machine(), |machine, root| machine.toolkit(root, "lib", 13_000));
            assert_eq!(with_the_rest.found().root, Path::new(order[first]));
        }
    }

    #[test]
    fn the_runtime_may_lie_in_any_of_the_usual_folders() {
        for lib in ["lib64", "lib", "lib/x86_64-linux-gnu", "targets/x86_64-linux/lib"] {
            let toolkit = Machine::default().toolkit("/usr", lib, 13_000).found();
            assert_eq!(toolkit.lib, Path::new("/usr").join(lib));
        }
    }

    #[test]
    fn a_server_arm_target_has_folders_of_its_own() {
        let machine = Machine::default()
            .toolkit("/usr/local/cuda", "targets/sbsa-linux/lib", 13_000)
            .set("PINLANE_CUDA", "on");
        assert!(machine.failure().contains("no libcudart_static.a"));
        let arm = Site { arch: "aarch64", ..site() };
        assert!(matches!(decide(&machine, &arm), Ok(Decision::Toolkit(_))));
    }

    #[test]
    fn nvcc_on_the_path_is_followed_through_links() {
        let machine = Machine::default()
            .set("PATH", "/somewhere/bin")
            .link("/somewhere/bin/nvcc", "/cuda-13.0/bin/nvcc")
            .toolkit("/cuda-13.0", "lib64", 13_000);
        assert_eq!(machine.found().root, Path::new("/cuda-13.0"));
    }

    #[test]
    fn a_stale_or_broken_place_does_not_hide_a_sound_one() {
        let machine = Machine::default()
            .set("CUDA_HOME", "/gone")
            .set("CUDA_PATH", "/old")
            .toolkit("/old", "lib64", 11_080)
            .toolkit("/opt/cuda", "lib64", 13_000);
        assert_eq!(machine.found().root, Path::new("/opt/cuda"));
    }

    #[test]
    fn the_oldest_version_is_accepted() {
        let machine = Machine::default().toolkit("/opt/cuda", "lib64", 12_000);
        assert_eq!(machine.found().version, toolkit::MINIMUM);
    }

    #[test]
    fn a_path_in_the_variable_beats_every_place() {
        let machine = Machine::default()
            .set("PINLANE_CUDA", "/chosen")
            .set("CUDA_HOME", "/home")
            .toolkit("/home", "lib64", 13_000)
            .toolkit("/chosen", "lib64", 12_040);
        assert_eq!(machine.found().root, Path::new("/chosen"));
    }
}

mod not_found {
    use super::*;

    #[test]
    fn the_build_goes_on_or_names_every_place() {
        let machine = || {
            let machine = Machine::default().set("CUDA_HOME", "/stale").set("CUDA_PATH", "");
            machine.set("PATH", "/bin:/usr/bin")
        };
        assert_eq!(machine().decide(), Ok(Decision::Driver));
        let message = machine().set("PINLANE_CUDA", "on").failure();
        let places = [
            "CUDA_HOME=/stale (no nvcc)",
            "CUDA_PATH (not set)",
            "CUDA_ROOT (not set)",
            "CUDA_TOOLKIT_ROOT_DIR (not set)",
            "/project/.toolkit/nvidia/cu13 (no nvcc)",
            "/usr/local/cuda (no nvcc)",
            "/opt/cuda (no nvcc)",
            "/usr/lib/cuda (no nvcc)",
            "/usr (no nvcc)",
            "PATH (no nvcc)",
            "VIRTUAL_ENV (not set)",
        ];
        assert!(message.contains(&places.join(", ")), "{message}");
    }

    /// Whatever toolkit there is.
    #[test]
    fn who_wants_the_driver_gets_it() {
        let machine = Machine::default().set("PINLANE_CUDA", "driver").toolkit(
            "/usr/local/cuda",
            "lib64",
            13_000,
        );
        assert_eq!(machine.decide(), Ok(Decision::Driver));
    }

    /// As in an image with the runtime but without the compiler.
    #[test]
    fn a_runtime_without_nvcc_is_no_toolkit() {
        let machine = Machine::default()
            .toolkit("/usr/local/cuda", "lib64", 13_000)
            .without("/usr/local/cuda/bin/nvcc");
        assert_eq!(machine.decide(), Ok(Decision::Driver));
    }

    #[test]
    fn a_required_toolkit_is_an_error() {
        for value in ["on", "1"] {
            let message = Machine::default().set("PINLANE_CUDA", value).failure();
            assert!(message.contains("/usr/local/cuda (no nvcc)"), "{message}");
            assert!(message.contains("help: run scripts/install-toolkit"), "{message}");
        }
    }

    #[test]
    fn off_never_looks() {
        for (name, value) in [("PINLANE_CUDA", "off"), ("PINLANE_CUDA", "0"), ("DOCS_RS", "1")] {
            let machine = Machine::default()
                .set("PINLANE_CUDA", "on")
                .toolkit("/usr/local/cuda", "lib64", 13_000)
                .set(name, value);
            assert_eq!(machine.decide(), Ok(Decision::Off), "{name}={value}");
        }
    }
}

mod unusable {
    use super::*;

    /// The cause of a failed build, for a toolkit in a usual place and for one that the variable
    /// names.
    fn causes(machine: impl Fn() -> Machine) -> [String; 2] {
        let searched = machine().failure();
        let named = machine().set("PINLANE_CUDA", "/opt/cuda").failure();
        for message in [&searched, &named] {
            assert!(message.contains("CUDA 12.0 or newer"), "no remedy in: {message}");
            assert!(message.contains("PINLANE_CUDA=driver"), "no way out in: {message}");
        }
        [searched, named]
    }

    fn sound() -> Machine {
        Machine::default().toolkit("/opt/cuda", "lib64", 13_000)
    }

    #[test]
    fn too_old() {
        for message in causes(|| Machine::default().toolkit("/opt/cuda", "lib64", 11_080)) {
            assert!(message.contains("CUDA 11.8 is older than 12.0"), "{message}");
        }
    }

    #[test]
    fn without_the_static_runtime() {
        for message in causes(|| sound().without("/opt/cuda/lib64/libcudart_static.a")) {
            assert!(message.contains("no libcudart_static.a"), "{message}");
        }
    }

    #[test]
    fn without_headers() {
        for message in causes(|| sound().without("/opt/cuda/include/cuda_runtime_api.h")) {
            assert!(message.contains("no cuda_runtime_api.h"), "{message}");
        }
    }

    #[test]
    fn without_a_version() {
        for text in ["", "#define CUDART_VERSION", "#define CUDART_VERSION new"] {
            for message in causes(|| sound().file("/opt/cuda/include/cuda_runtime_api.h", text)) {
                assert!(message.contains("no CUDART_VERSION"), "{message}");
            }
        }
    }

    /// There `auto` builds with the emulated device, and does not look for CUDA.
    #[test]
    fn another_architecture_has_no_cuda() {
        let on = |wish| {
            let machine = sound().set("PINLANE_CUDA", wish);
            decide(&machine, &Site { project: Path::new("/project"), arch: "riscv64" })
        };
        assert_eq!(on("auto"), Ok(Decision::Off));
        for wish in ["on", "driver", "/opt/cuda"] {
            let message = on(wish).expect_err("the build must stop").to_string();
            assert!(
                message.contains("exists for x86_64 and aarch64, not for riscv64"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_path_without_a_toolkit_does_not_fall_back_to_another() {
        let message = sound().set("PINLANE_CUDA", "/elsewhere").failure();
        assert!(message.starts_with("PINLANE_CUDA=/elsewhere: no nvcc"), "{message}");
    }

    #[test]
    fn an_unknown_word_is_not_guessed_at() {
        for value in ["yes", "ON", "cuda", "2"] {
            let message = sound().set("PINLANE_CUDA", value).failure();
            assert!(message.starts_with(&format!("PINLANE_CUDA={value} is not understood")));
            assert!(message.contains("help: use auto, driver, on (or 1), off (or 0), or the path"));
        }
        let auto = Wish::read(&|name| (name == "PINLANE_CUDA").then(|| "auto".to_owned()));
        assert_eq!(auto, Ok(Wish::Auto));
    }
}

mod clang {
    use super::*;
    use crate::libclang;

    fn find(machine: &Machine) -> Result<PathBuf, Failure> {
        let root = "/venv/lib/python3.12/site-packages/nvidia/cu13";
        let toolkit = Machine::default().set("PINLANE_CUDA", root).toolkit(root, "lib", 13_000);
        libclang::find(machine, &site(), &toolkit.found())
    }

    #[test]
    fn it_is_found_beside_the_toolkit_and_in_the_system() {
        for file in [
            "/venv/lib/python3.12/site-packages/clang/native/libclang.so",
            "/project/.toolkit/clang/native/libclang.so",
            "/usr/lib/llvm-18/lib/libclang-18.so.18",
            "/usr/lib64/libclang.so.20.1",
            "/usr/lib/x86_64-linux-gnu/libclang-14.so.1",
        ] {
            let machine = Machine::default().file(file, "");
            assert_eq!(find(&machine), Ok(PathBuf::from(file)));
        }
    }

    #[test]
    fn the_newest_llvm_wins() {
        let machine = Machine::default()
            .file("/usr/lib/llvm-9/lib/libclang.so", "")
            .file("/usr/lib/llvm-18/lib/libclang.so", "");
        assert_eq!(find(&machine), Ok(PathBuf::from("/usr/lib/llvm-18/lib/libclang.so")));
    }

    #[test]
    fn the_variable_names_a_file_or_a_folder_and_excludes_the_rest() {
        let machine = || {
            Machine::default()
                .file("/usr/lib64/libclang.so", "")
                .file("/mine/libclang-17.so", "")
                .file("/mine/odd-name", "")
        };
        let with = |value| find(&machine().set("LIBCLANG_PATH", value));
        assert_eq!(with("/mine"), Ok(PathBuf::from("/mine/libclang-17.so")));
        assert_eq!(with("/mine/odd-name"), Ok(PathBuf::from("/mine/odd-name")));
        let message = with("/empty").expect_err("nothing is there").to_string();
        assert!(message.contains("LIBCLANG_PATH=/empty"), "{message}");
    }

    #[test]
    fn where_it_is_missing_the_message_says_how_to_get_it() {
        let machine = Machine::default()
            .file("/usr/lib/x86_64-linux-gnu/libclang-cpp.so.14", "")
            .file("/usr/lib/x86_64-linux-gnu/libclang_rt.so", "")
            .file("/usr/lib/x86_64-linux-gnu/libclang.a", "");
        let message = find(&machine).expect_err("no libclang").to_string();
        for part in [
            "libclang, which reads its headers, is in none of",
            "/usr/lib/x86_64-linux-gnu",
            "apt install libclang-dev",
            "pip install libclang",
            "PINLANE_CUDA=driver",
        ] {
            assert!(message.contains(part), "no {part} in: {message}");
        }
    }
}
