//! What is said of a `libcuda.so.1` that is of no use to a build without a toolkit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use pinlane::Device;

/// Set for the process that opens a device.
const CHILD: &str = "PINLANE_TEST_LIBCUDA";

/// A folder with a `libcuda.so.1` of this C code.
fn library(name: &str, code: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcuda").join(name);
    fs::create_dir_all(&folder).unwrap();
    let source = folder.join("libcuda.cpp");
    fs::write(&source, format!("extern \"C\" {{ {code} }}")).unwrap();
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(&source)
        .status()
        .expect("a C++ compiler");
    assert!(status.success(), "{name}");
    folder
}

/// What `Device::open` says in a process that finds this library first.
fn said_with(folder: &Path) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "libcuda::the_child_opens_a_device", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", folder)
        .output()
        .expect("this program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let said = text.lines().find_map(|line| line.strip_prefix("said: "));
    said.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn the_child_opens_a_device() {
    if env::var_os(CHILD).is_some() {
        println!("\nsaid: {}", Device::open(0).expect_err("it is of no use"));
        assert!(Device::available().is_empty());
        #[cfg(feature = "emulated")]
        assert!(Device::open_or_emulated().expect("there is one").emulator().is_some());
    }
}

#[test]
fn a_stub_of_a_toolkit_is_named() {
    let code = "int cuGetProcAddress_v2(const char*, void**, int, unsigned long, int*) \
                { return 34; } \
                int cuInit(unsigned) { return 34; } int cuDriverGetVersion(int*) { return 34; }";
    let said = said_with(&library("stub", code));
    assert!(said.contains("cudaErrorStubLibrary (34)"), "{said}");
    assert!(said.contains("take its folder out of LD_LIBRARY_PATH"), "{said}");
}

#[test]
fn a_driver_that_is_too_old_says_what_it_is_for() {
    let code = "int cuDriverGetVersion(int* version) { *version = 11040; return 0; }";
    let said = said_with(&library("old", code));
    assert!(said.contains("is for CUDA 11.4, and this build needs 12.0"), "{said}");
    assert!(said.contains("cudaErrorInsufficientDriver (35)"), "{said}");
}

/// It has the search, and finds nothing.
#[test]
fn a_driver_that_lacks_functions_is_too_old() {
    let code = "int cuGetProcAddress_v2(const char*, void** found, int, unsigned long, int*) \
                { *found = 0; return 500; } \
                int cuDriverGetVersion(int* version) { *version = 12000; return 0; }";
    let said = said_with(&library("lacks", code));
    assert!(said.contains("is for CUDA 12.0") && said.contains("(35)"), "{said}");
}

/// As in a container without the host's devices.
#[test]
fn a_driver_without_devices_says_so() {
    let code = "static int init(...) { return 100; } \
                int cuGetProcAddress_v2(const char*, void** found, int, unsigned long, int*) \
                { *found = reinterpret_cast<void*>(init); return 0; } \
                int cuDriverGetVersion(int* version) { *version = 13000; return 0; }";
    let said = said_with(&library("no_device", code));
    assert!(said.contains("the driver sees no device: cudaErrorNoDevice (100)"), "{said}");
}

#[test]
fn what_is_no_library_is_no_driver() {
    let folder = library("damaged", "");
    fs::write(folder.join("libcuda.so.1"), "not a library").unwrap();
    let said = said_with(&folder);
    assert!(said.contains("no NVIDIA driver is installed"), "{said}");
    assert!(said.contains("--gpus all"), "{said}");
}
