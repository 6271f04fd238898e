//! The ranges that a tool gets through NVTX: a separate process loads a tool, which prints what it
//! gets.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use pinlane::emulated::{Emulator, Execution};
use pinlane::{Device, PinnedPool};

use crate::common::process::full_name;

const IN_A_CHILD: &str = "PINLANE_TEST_NVTX";
const TEST: &str = "a_tool_gets_ranges_of_copies_waits_growth_and_foreign_work";
const TOGETHER: &str = "a_tool_gets_a_range_of_each_copy_that_threads_enqueue_together";

/// The tool, compiled as a library that a program can load.
static TOOL: LazyLock<PathBuf> = LazyLock::new(|| {
    let source = Path::new(env!("PINLANE_PROJECT")).join("tests/copies/nvtx_tool.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libnvtx_tool.so");
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    let status = compiler.arg(&library).arg(source).status().expect("a compiler of C");
    assert!(status.success(), "{compiler:?}");
    library
});

/// Runs a test in a child, with that tool.
fn child(test: &str, tool: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([&full_name(module_path!(), test), "--exact", "--nocapture"]);
    command.env(IN_A_CHILD, "1").env("NVTX_INJECTION64_PATH", tool);
    command.output().expect("it starts")
}

/// A copy, a wait, a copy of pageable memory, and work of another library.
fn work() {
    let machine = Emulator::builder().execution(Execution::Lazy).build();
    let device = Device::of_emulator(&machine, 0).unwrap();
    let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build().unwrap();
    let stream = device.stream().unwrap();
    let mut host = pool.alloc_zeroed::<u8>(5000).unwrap();
    let mut gpu = device.alloc::<u8>(5000).unwrap();
    stream.upload(&host, &mut gpu).unwrap();
    // SAFETY: nothing is launched.
    unsafe { stream.foreign(&[&gpu], &mut [], |_| ()).unwrap() };
    stream.download(&gpu, &mut host).unwrap().wait().unwrap();
    let mut large = device.alloc::<u8>(1 << 20).unwrap();
    stream.upload_slice(&vec![1; 1 << 20], &mut large).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_tool_gets_ranges_of_copies_waits_growth_and_foreign_work() {
    if std::env::var_os(IN_A_CHILD).is_some() {
        return work();
    }
    let output = child(TEST, &TOOL);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("nvtx: ")).collect();
    let (domain, rest) = lines.split_first().expect("the tool gets something");
    assert_eq!(*domain, "domain pinlane");
    let rest: Vec<&str> =
        rest.iter().map(|line| line.strip_prefix("pinlane ").expect("in the domain")).collect();

    // The categories are those of the documentation, in its order.
    let page = include_str!("../../src/trace/mod.rs");
    let (_, list) = page.split_once("Its category is").expect("the list");
    let rows = list.lines().filter_map(|row| row.strip_prefix("//! * `"));
    let documented: Vec<&str> = rows.filter_map(|row| Some(row.split_once("`: ")?.0)).collect();
    let named = rest.iter().filter_map(|line| line.strip_prefix("category ")?.split(' ').nth(1));
    let named: Vec<&str> = named.collect();
    assert_eq!(named[1..], documented, "after that of devices, which has no ranges");

    let pushed: Vec<&str> = rest.iter().filter_map(|line| line.strip_prefix("push ")).collect();
    let popped = rest.iter().filter(|line| line.starts_with("pop to ")).count();
    assert_eq!(pushed.len(), popped, "{text}");
    assert!(rest.iter().all(|line| !line.starts_with("pop to -")), "{text}");
    // A category, a call, bytes; and the version of NVTX with the sizes that go with it.
    for range in [
        "2 Stream::upload 5000, 3 48 1 1",
        "2 Stream::foreign 0, 3 48 1 1",
        "2 Stream::download 5000, 3 48 1 1",
        "3 Stream::synchronize 0, 3 48 1 1",
    ] {
        assert_eq!(pushed.iter().filter(|it| **it == range).count(), 1, "{range} in {text}");
    }
    assert!(pushed.contains(&"3 Ticket::wait 0, 3 48 1 1"), "{text}");
    assert!(pushed.iter().any(|it| it.starts_with("5 PinnedPool::alloc")), "growth: {text}");
    let staged = pushed.iter().filter_map(|it| it.strip_prefix("4 Stream::upload_slice "));
    let bytes = staged.filter_map(|it| it.split(',').next()?.parse::<usize>().ok());
    assert_eq!(bytes.sum::<usize>(), 1 << 20, "{text}");
}

/// Threads copy on one stream at the same moment.
fn work_together() {
    let machine = Emulator::builder().races(false).build();
    let device = Device::of_emulator(&machine, 0).unwrap();
    let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build().unwrap();
    let stream = device.stream().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let host = pool.alloc_zeroed::<u8>(64).unwrap();
                let mut gpu = device.alloc::<u8>(64).unwrap();
                for _ in 0..EACH {
                    stream.upload(&host, &mut gpu).unwrap();
                }
            });
        }
    });
}

const EACH: usize = 2000;

#[test]
fn a_tool_gets_a_range_of_each_copy_that_threads_enqueue_together() {
    if std::env::var_os(IN_A_CHILD).is_some() {
        return work_together();
    }
    let output = child(TOGETHER, &TOOL);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let is_upload = |line: &&str| line.contains("push 2 Stream::upload 64,");
    assert_eq!(text.lines().filter(is_upload).count(), 4 * EACH);
}

#[test]
fn without_a_tool_that_can_be_loaded_nothing_is_different() {
    let output = child(TEST, Path::new("/nowhere/libtool.so"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("nvtx: "), "{text}");
}
