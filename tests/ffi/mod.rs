//! The C and C++ interfaces from a user's view: the headers alone, and the programs of
//! `ffi-examples` and `tests/ffi`, linked with the static library as a user would link them.
//!
//! The programs run on the emulated device. Those that need a GPU are compiled if there is a
//! toolkit; without a GPU they must report that they need one.
//!
//! Here most programs in C++ are compiled with the oldest standard, which takes half the time of a
//! newer one. `tests/ffi/CMakeLists.txt` compiles and runs the same ones, in `.ci/run` with C++20.

mod abi;
mod compiler;
mod faults;
mod headers;
mod library;
mod modes;
mod owners;
mod sanitized;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use compiler::{Compiler, Language};

use crate::ladder;

const C_STANDARDS: [&str; 4] = ["c99", "c11", "c17", "c2x"];
const CPP_STANDARDS: [&str; 3] = ["c++17", "c++20", "c++2b"];
const PROGRAMS: u32 = 300;

fn project(path: &str) -> PathBuf {
    Path::new(env!("PINLANE_PROJECT")).join(path)
}

fn c_header() -> String {
    fs::read_to_string(project("include/pinlane/pinlane.h")).expect("the C header")
}

/// The functions that the C header declares.
fn declared_functions(header: &str) -> BTreeSet<&str> {
    // Outside of comments, a name that begins a parameter list is a function's.
    header
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_once('(')?.0.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("pinlane_"))
        .collect()
}

/// Compiles a program of `ffi-examples` or `tests/ffi`, runs it, and returns its output. With C99
/// it is linked with the static library, which takes ten times as long as with the shared one.
fn run(language: Language, standard: &str, source: &str, arguments: &[&str]) -> String {
    let library = if standard == "c99" { library::get() } else { library::shared() };
    let program = Compiler::of(language).link(standard, &project(source), library);
    let output = program.run(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source} ({standard}): {}\n{text}{errors}", output.status);
    text
}

/// A file for a program that writes and removes one.
fn scratch_file(name: &str) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    file.to_str().expect("UTF-8").to_owned()
}

/// A current C library contains most of them, so a program would not need them here.
#[test]
fn cmake_links_what_rustc_says_that_the_static_library_needs() {
    let cmake = fs::read_to_string(project("CMakeLists.txt")).expect("a file of the project");
    let lines = cmake.lines().filter(|line| line.trim_start().starts_with("set(needs "));
    // Without CUDA only the first line applies. With CUDA the second is added.
    let lines: Vec<&str> = lines.take(if cfg!(pinlane_toolkit) { 2 } else { 1 }).collect();
    let words = lines.iter().flat_map(|line| line.split([' ', '(', ')']));
    let linked: BTreeSet<&str> = words.filter(|word| word.starts_with("-l")).collect();

    let needed = library::get().link_arguments.iter().map(String::as_str);
    let needed = needed.filter(|word| word.starts_with("-l"));
    // Compilers link these two by themselves.
    let needed: BTreeSet<&str> = needed.filter(|name| !["-lc", "-lgcc_s"].contains(name)).collect();
    assert_eq!(linked, needed);
}

#[test]
fn the_examples_in_c_run() {
    let text = run(Language::C, "c99", "ffi-examples/c/shortest.c", &[]);
    assert_eq!(text, "the last byte is 7\n");
    for standard in ["c99", "c2x"] {
        let text = run(Language::C, standard, "ffi-examples/c/roundtrip.c", &[]);
        assert!(text.contains("bit for bit"), "{text}");
        let text = run(Language::C, standard, "ffi-examples/c/pool.c", &[]);
        assert!(text.contains("1000 allocations reused memory"), "{text}");
        let file = scratch_file(&format!("checkpoint-{standard}"));
        let text = run(Language::C, standard, "ffi-examples/c/checkpoint.c", &[&file]);
        assert!(text.contains("bit for bit"), "{text}");
    }
}

#[test]
fn the_c_interface_keeps_its_promises() {
    let programs = [
        "abi",
        "batches",
        "callbacks",
        "diagnostics",
        "dlpack",
        "dlpack_imports",
        "dlpack_strided",
        "emulator",
        "explore",
        "foreign",
        "graphs",
        "graphs_lent",
        "lifetimes",
        "messages",
        "pairs",
        "parts",
        "pool_memory",
        "pools",
        "prefetch",
        "recordings",
        "reports",
        "rows",
        "rules",
        "slices",
        "strided",
    ];
    for program in programs {
        let text = run(Language::C, "c2x", &format!("tests/ffi/c/{program}.c"), &[]);
        assert!(text.contains(", 0 failed"), "{text}");
    }
}

#[test]
fn the_examples_in_cpp_run() {
    let file = scratch_file("checkpoint-c++");
    let text = run(Language::Cpp, "c++17", "ffi-examples/cpp/checkpoint.cpp", &[&file]);
    assert!(text.contains("bit for bit"), "{text}");
    let text = run(Language::Cpp, "c++17", "ffi-examples/cpp/pipeline.cpp", &[]);
    assert!(text.contains("24 batches"), "{text}");
    let text = run(Language::Cpp, "c++17", "ffi-examples/cpp/pmr.cpp", &[]);
    assert!(text.starts_with("300000 samples"), "{text}");
}

#[test]
fn the_examples_in_cpp_print_what_those_in_rust_print() {
    let model = project("examples/data/digits.safetensors");
    for name in ladder::NAMES {
        let (source, model) = (format!("ffi-examples/cpp/{name}.cpp"), model.to_str());
        let standard = if name == "06_async_await" { "c++20" } else { "c++17" };
        let text = run(Language::Cpp, standard, &source, model.as_slice());
        ladder::check(name, &text);
    }
}

#[test]
fn the_cpp_types_keep_their_promises() {
    for program in [
        "types",
        "memory",
        "foreign",
        "graphs",
        "lives",
        "transfers",
        "rows",
        "strided",
        "pairs",
        "parts",
        "recordings",
        "emulator",
        "explore",
        "prefetch",
        "callbacks",
        "dlpack",
        "expected",
    ] {
        // These have parts for the views of C++20.
        let standard =
            if ["types", "transfers", "expected"].contains(&program) { "c++20" } else { "c++17" };
        let text = run(Language::Cpp, standard, &format!("tests/ffi/cpp/{program}.cpp"), &[]);
        assert!(text.contains(", 0 failed"), "{text}");
    }
}

#[test]
fn the_cpp_coroutines_keep_their_promises() {
    let text = run(Language::Cpp, "c++20", "tests/ffi/cpp/coroutines.cpp", &[]);
    assert!(text.contains(", 0 failed"), "{text}");
}

#[test]
fn cpp_programs_that_must_not_compile_do_not() {
    let function = |number: usize, line: &str| {
        format!(
            "void f{number}(const pinlane::device& device, const pinlane::stream& stream,\
             pinlane::pinned_buffer<float>& host, pinlane::device_buffer<float>& gpu,\
             const pinlane::device_buffer<float>& read_only,\
             pinlane::device_buffer<double>& doubles,\
             std::vector<float>& values, const std::vector<float>& constants) {{\
               stream.upload(host, gpu); stream.upload(constants, gpu); {line};\
               stream.upload_batch(std::vector<pinlane::upload_item>{{{{values, gpu}}}});\
               stream.upload_rows(constants, std::vector<unsigned>(), gpu);\
               stream.download_rows(read_only, pinlane::device_buffer<int>(), values);\
               stream.upload_blocks(std::vector<pinlane::upload_layer<float>>{{{{host, gpu}}}}, 1,\
                 std::vector<int>(), pinlane::all_rows);\
               std::vector<pinlane::upload_item> items;\
               items.emplace_back(pinlane::span(values.data(), 1), gpu.slice(0, 1));\
               items.emplace_back(host.slice(0, 1), gpu.address());\
               (void)pinlane::download_item(gpu.slice(0, 1), pinlane::span(values.data(), 1));\
               const std::vector<pinlane::pair_item> pair{{{{host, gpu}}}};\
               stream.upload_pairs(pinlane::pairs(pair));\
               stream.upload(pinlane::pinned_span(constants), gpu);\
               stream.download(gpu, pinlane::pinned_span(values));\
               stream.foreign(pinlane::reading(read_only), pinlane::writing(gpu), [](void*) {{}});\
               pinlane::capture capture(device); capture.upload(host, gpu.slice(0, 1));\
               capture.foreign(pinlane::reading(read_only), pinlane::writing(gpu), [](void*) {{}});\
               pinlane::graph graph = capture.finish(); graph.lend(read_only);\
               graph.rebind(gpu, read_only); graph.launch(stream);\
               pinlane::span<const float> all(constants); all = values;\
               (void)host.read(); (void)host.write(); (void)gpu.address();\
               (void)device; (void)read_only; (void)doubles; }}\n"
        )
    };
    let check = |functions: &str| {
        let source = format!("#include <pinlane/pinlane.hpp>\n{functions}int main() {{}}\n");
        Compiler::of(Language::Cpp).check("c++17", &source, &["-Wno-unused-variable"])
    };
    check(&function(0, "")).expect("what surrounds each line compiles");
    let wrong = [
        "pinlane::stream s(0)",
        "pinlane::stream s(nullptr)",
        "pinlane::stream_ref s(0)",
        "pinlane::stream_ref s = nullptr",
        "(void)pinlane::stream::from_native_handle(device, 2)",
        "(void)pinlane::stream::from_native_handle(device, nullptr)",
        "pinlane::device copy = device",
        "pinlane::pinned_buffer<float> copy = host",
        "pinlane::pinned_buffer<std::string> strings",
        "pinlane::device_buffer<const float> constants",
        "stream.upload(host, doubles)",
        "stream.upload(host, read_only)",
        "stream.upload(gpu, gpu)",
        "stream.upload(host, host)",
        "stream.upload(values, doubles)",
        "stream.upload(values, read_only)",
        "stream.upload(values, host)",
        "stream.upload(std::vector<std::string>(), gpu)",
        "stream.download(gpu, constants)",
        "stream.download(doubles, values)",
        "auto ticket = stream.download(gpu, values)",
        "stream.download_from(gpu.address(), constants)",
        "(void)pinlane::upload_item(values, doubles)",
        "(void)pinlane::upload_item(values, read_only)",
        "(void)pinlane::upload_item(host, host)",
        "(void)pinlane::download_item(gpu, constants)",
        "(void)pinlane::download_item(doubles, values)",
        "(void)pinlane::copy_item(gpu, doubles)",
        "(void)pinlane::copy_item(gpu, read_only)",
        "(void)pinlane::file_range(0, read_only)",
        "(void)pinlane::upload_item(std::vector<float>(values), gpu)",
        "(void)pinlane::upload_item(values, pinlane::device_buffer<float>())",
        "(void)pinlane::upload_item(pinlane::pinned_buffer<float>(), gpu)",
        "(void)pinlane::download_item(gpu, std::vector<float>(values))",
        "(void)pinlane::download_item(pinlane::device_buffer<float>(), values)",
        "(void)pinlane::copy_item(pinlane::device_buffer<float>(), gpu)",
        "(void)pinlane::copy_item(gpu, pinlane::device_buffer<float>())",
        "(void)pinlane::file_range(0, pinlane::device_buffer<float>())",
        "std::vector<pinlane::upload_item>().emplace_back(std::vector<float>(values), gpu)",
        "stream.upload_batch(std::vector<pinlane::download_item>())",
        "stream.upload_rows(values, pinlane::all_rows, doubles)",
        "stream.upload_rows(values, pinlane::all_rows, read_only)",
        "stream.upload_rows(gpu, pinlane::all_rows, gpu)",
        "stream.upload_rows(values, values, gpu)",
        "stream.upload_rows(host, gpu, gpu)",
        "stream.upload_rows(host, pinlane::pinned_buffer<int>(), gpu)",
        "stream.download_rows(gpu, pinlane::all_rows, constants)",
        "stream.download_rows(doubles, pinlane::all_rows, values)",
        "stream.download_rows(gpu, pinlane::all_rows, read_only)",
        "(void)pinlane::upload_layer<float>(std::vector<float>(values), gpu)",
        "(void)pinlane::upload_layer(values, read_only)",
        "(void)pinlane::download_layer<float>(gpu, std::vector<float>(values))",
        "(void)pinlane::download_layer(gpu, constants)",
        "stream.upload_blocks(std::vector<pinlane::download_layer<float>>(), 1, values, values)",
        "stream.download_blocks(std::vector<float>(), 1, pinlane::all_rows, pinlane::all_rows)",
        "stream.download_batch(values)",
        "(void)pinlane::pair_item(host, doubles)",
        "(void)pinlane::pair_item(host, read_only)",
        "(void)pinlane::pair_item(gpu, gpu)",
        "(void)pinlane::pair_item(host, host)",
        "(void)pinlane::pair_item(values, gpu)",
        "(void)pinlane::pair_item(host, pinlane::device_buffer<float>())",
        "(void)pinlane::pairs(values)",
        "(void)pinlane::pairs(0)",
        "pinlane::batch_slices().slice(\"0\", std::vector<float>(values))",
        "pinlane::batch_slices().reserve<std::string>(\"0\", 1)",
        "pinlane::prefetch copy = pinlane::prefetch(); pinlane::prefetch other = copy",
        "(void)pinlane::prefetch().release()",
        "stream.upload(pinlane::pinned_span(values), doubles)",
        "stream.upload(pinlane::pinned_span(values), read_only)",
        "stream.upload(pinlane::pinned_span(std::vector<float>(values)), gpu)",
        "stream.download(gpu, pinlane::pinned_span(constants))",
        "stream.download(doubles, pinlane::pinned_span(values))",
        "stream.download_from(gpu.address(), pinlane::pinned_span(constants))",
        "stream.foreign([](void*) {}, gpu)",
        "stream.foreign(gpu, [](void*) {})",
        "stream.foreign(pinlane::writing(read_only), [](void*) {})",
        "stream.foreign(pinlane::writing(gpu), [](int) {})",
        "stream.fill(read_only, 1.0f)",
        "pinlane::capture(device).upload(host, doubles)",
        "pinlane::capture(device).upload(host, read_only)",
        "pinlane::capture(device).upload(values, gpu)",
        "pinlane::capture(device).upload(gpu, gpu)",
        "pinlane::capture(device).fill(read_only, 1.0f)",
        "pinlane::capture(device).foreign(gpu, [](void*) {})",
        "pinlane::capture copy = pinlane::capture(); pinlane::capture other = copy",
        "pinlane::graph().lend(pinlane::pinned_buffer<float>())",
        "pinlane::graph().rebind(host, gpu)",
        "stream.checksum(gpu, doubles)",
        "const auto& shared = host; (void)shared.write()",
        "host.read()[0] = 1.0f",
        "pinlane::pinned_resource resource = device",
        "host.read()",
        "(void)pinlane::pinned_buffer<float>().read()",
        "(void)pinlane::pinned_buffer<float>().write()",
        "(void)pinlane::pinned_buffer<float>().try_read()",
        "(void)pinlane::pinned_buffer<float>().try_write()",
        "(void)std::move(host).write()",
        "(void)static_cast<const pinlane::pinned_buffer<float>&&>(host).read()",
        "pinlane::span<float> s; (void)pinlane::pinned_buffer<float>().write(std::nothrow, s)",
        "(void)pinlane::pinned_buffer<float>().address()",
        "(void)pinlane::device_buffer<float>().address()",
        "(void)pinlane::device_batch().address<float>()",
        "pinlane::span<float> s(std::vector<float>(3))",
        "pinlane::span<float> s(constants)",
        "pinlane::span<double> s(values)",
        "std::error_code code = PINLANE_STATUS_BUSY",
    ];
    // All at once, each in a function on a line of its own: the first is the source's second line.
    // A compiler may report an error of a template only once, so those that it did not report are
    // compiled again.
    let mut left = wrong.to_vec();
    while !left.is_empty() {
        let functions = left.iter().enumerate().map(|(number, line)| function(number, line));
        let errors = check(&functions.collect::<String>()).err().unwrap_or_default();
        let is_named = |number: usize| errors.contains(&format!("source.cpp:{}:", number + 2));
        let numbers = 0..left.len();
        let again: Vec<&str> = numbers.filter(|&n| !is_named(n)).map(|n| left[n]).collect();
        assert!(again.len() < left.len(), "each of these compiles: {again:?}");
        left = again;
    }
}

#[test]
fn random_programs_agree_with_plain_vectors() {
    let source = project("tests/ffi/cpp/random_programs.cpp");
    let program = Compiler::of(Language::Cpp).link("c++17", &source, library::shared());
    for mode in ["eager", "lazy"] {
        let output = program.run(&[&PROGRAMS.to_string(), "1", mode]);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let is_right = text.starts_with(&format!("{PROGRAMS} programs"));
        assert!(output.status.success() && is_right, "{mode}: {text}{errors}");
    }
}

#[test]
fn adversarial_programs_find_nothing_wrong() {
    let source = project("tests/ffi/fuzz/fuzz.cpp");
    let program = Compiler::of(Language::Cpp).link("c++17", &source, library::shared());
    let corpus = project("tests/ffi/fuzz/corpus");
    let corpus = corpus.to_str().expect("UTF-8");
    for arguments in
        [&[corpus][..], &["--random", "20000"], &["--calm", "--random", "20000", "1000"]]
    {
        let output = program.run(arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}\n{text}{errors}", output.status);
        assert!(text.ends_with("calls: nothing wrong\n"), "{text}");
    }
}

/// Each function has an entry in the table of calls.
#[test]
fn adversarial_programs_know_every_call_of_the_header() {
    let table = project("tests/ffi/fuzz/table.hpp");
    let table = fs::read_to_string(table).expect("a file of the project");
    let made = table.split("{\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
    let made = made.filter(|name| name.starts_with("pinlane_")); // others are sequences of calls
    // The entry of pinlane_set_last_error calls these, which have no status.
    let texts = ["last_error", "last_cuda_error", "status_name", "version"];
    let texts = texts.map(|name| format!("pinlane_{name}"));
    let known: BTreeSet<&str> = made.chain(texts.iter().map(String::as_str)).collect();
    assert_eq!(known, declared_functions(&c_header()));
}

/// In any Python that has NumPy. `PYTHON` names another Python.
#[test]
fn arrays_of_numpy_and_buffers_share_their_memory() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_numpy = "import numpy; assert numpy.lib.NumpyVersion(numpy.__version__) >= '2.1.0'";
    let mut probe = Command::new(&python);
    if !probe.args(["-c", has_numpy]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no NumPy 2.1, which the example of DLPack needs");
        return;
    }
    let mut example = Command::new(&python);
    example.arg(project("ffi-examples/python/dlpack.py")).arg(&library::shared().archive);
    let output = example.output().expect("Python has just started");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}{errors}", output.status);
    assert!(text.starts_with("buffers and arrays share their memory"), "{text}");
}

/// nvcc compiles the program, with libcu++, for the emulated device.
#[test]
#[cfg(pinlane_toolkit)]
fn cudas_own_types_keep_their_promises() {
    for standard in ["c++17", "c++20"] {
        let source = project("tests/ffi/cpp/cuda_resource.cu");
        let program = Compiler::nvcc(library::get()).link(standard, &source, library::get());
        let output = program.run(&[]);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains(", 0 failed"), "{text}{errors}");
    }
}

#[test]
#[cfg(pinlane_toolkit)]
fn programs_in_cuda_run_or_say_that_they_need_a_gpu() {
    for source in
        ["ffi-examples/cpp/kernel.cu", "ffi-examples/cpp/migrate.cu", "tests/ffi/cpp/cuda_rules.cu"]
    {
        runs_or_needs_a_gpu(source, library::get());
    }
}

#[test]
#[cfg(pinlane_toolkit)]
fn streams_cross_between_cuda_runtimes() {
    let two = library::shared();
    let other = library::with_shared_runtime(two);
    for library in [library::get(), two, &other] {
        runs_or_needs_a_gpu("tests/ffi/cpp/streams.cu", library);
    }
}

#[cfg(pinlane_toolkit)]
fn runs_or_needs_a_gpu(source: &str, library: &library::Library) {
    let program = Compiler::nvcc(library::get()).link("c++17", &project(source), library);
    let output = program.run(&[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    if pinlane::Device::available().is_empty() {
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(errors.contains("needs a GPU"), "{errors}");
    } else {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{source}: {}\n{text}{errors}", output.status);
    }
}
