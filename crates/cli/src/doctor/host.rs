//! The machine: its kernel, cores, memory and the limits on it.

use std::path::{Component, Path};

use super::finding::Finding;
use crate::machine::COPY_THREADS;
use crate::output::in_units;
use crate::system::System;

/// The first Linux with `membarrier` for one process, which makes the pool's fence free for threads
/// that allocate.
const MEMBARRIER: (u32, u32) = (4, 14);

pub fn findings(system: &System) -> Vec<Finding> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    vec![
        kernel(system),
        processor(system, cores),
        memory(system),
        control_group(system),
        memlock(system),
        huge_pages(system),
    ]
}

fn kernel(system: &System) -> Finding {
    let release = system.read("proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < MEMBARRIER => Finding::notice(
            "kernel",
            format!("{release}: without membarrier for one process"),
            "use Linux 4.14 or later: allocations from the pool then need no fence",
        ),
        _ => Finding::good("kernel", release),
    }
}

/// `cores` is how many this process may use.
fn processor(system: &System, cores: usize) -> Finding {
    let model = system.field("proc/cpuinfo", "model name").unwrap_or_else(|| "processor".into());
    let found = format!("{cores} cores, {model}");
    if cores >= COPY_THREADS {
        return Finding::good("processor", found);
    }
    Finding::notice(
        "processor",
        format!("{found}; up to {COPY_THREADS} threads copy one slice of pageable memory"),
        "give the process more cores (taskset, the container's CPU limit), or keep the data in \
         page-locked memory, which needs none",
    )
}

fn memory(system: &System) -> Finding {
    let bytes = |name| {
        let value = system.field("proc/meminfo", name)?;
        value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    match (bytes("MemTotal"), bytes("MemAvailable")) {
        (Some(total), Some(free)) => {
            let text = format!("{}, of which {} are available", in_units(total), in_units(free));
            Finding::good("memory", text)
        }
        _ => Finding::good("memory", "the system does not say how much"),
    }
}

/// The lowest memory limit of the process's control groups.
fn control_group(system: &System) -> Finding {
    const NAME: &str = "control group";
    let groups = system.read("proc/self/cgroup").unwrap_or_default();
    let limit = groups.lines().filter_map(|line| limit_of(system, line)).min();
    match limit {
        None => Finding::good(NAME, "no limit on memory"),
        Some(limit) => Finding::good(
            NAME,
            format!(
                "{} of memory; a pool page-locks half of it at most, unless max_bytes says \
                 otherwise",
                in_units(limit)
            ),
        ),
    }
}

/// The lowest limit on the path of a line of `/proc/self/cgroup`.
fn limit_of(system: &System, line: &str) -> Option<u64> {
    const UNLIMITED: u64 = 1 << 62; // version 1 writes a huge number
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (mounts, file): (&[&str], _) = if controllers.is_empty() {
        (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], "memory.max")
    } else if controllers.split(',').any(|controller| controller == "memory") {
        (&["sys/fs/cgroup/memory"], "memory.limit_in_bytes")
    } else {
        return None;
    };
    let mut lowest = None;
    for mount in mounts {
        let mut group = (*mount).to_owned();
        let names = Path::new(path).components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        });
        for name in std::iter::once(String::new()).chain(names) {
            group = format!("{group}/{name}");
            let limit = system.number::<u64>(&format!("{group}/{file}"));
            let limit = limit.filter(|limit| (1..UNLIMITED).contains(limit));
            lowest = lowest.into_iter().chain(limit).min();
        }
    }
    lowest
}

fn memlock(system: &System) -> Finding {
    const NAME: &str = "memlock";
    let limits = system.field("proc/self/limits", "Max locked memory").unwrap_or_default();
    match limits.split_whitespace().next().map(str::parse::<u64>) {
        Some(Ok(limit)) => Finding::notice(
            NAME,
            format!("{} may be locked; NVIDIA's driver does not obey this limit", in_units(limit)),
            "nothing for pinlane; for mlock, io_uring or RDMA beside it raise it (ulimit -l \
             unlimited, or --ulimit memlock=-1 for a container)",
        ),
        Some(Err(_)) => Finding::good(NAME, "no limit"),
        None => Finding::good(NAME, "the system does not say"),
    }
}

fn huge_pages(system: &System) -> Finding {
    const NAME: &str = "huge pages";
    let modes = system.read("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = modes.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match mode {
        Some(mode @ ("always" | "madvise")) => {
            Finding::good(NAME, format!("{mode}: the pool asks for them"))
        }
        Some("never") => Finding::notice(
            NAME,
            "never: page-locking takes longer with pages of 4 KiB",
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        _ => Finding::notice(
            NAME,
            "this kernel has no transparent huge pages",
            "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE: page-locking is faster with them",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;
    use crate::system::fake::Tree;

    #[test]
    fn an_old_kernel_is_noticed() {
        let state =
            |release| kernel(Tree::new(&[("proc/sys/kernel/osrelease", release)]).system()).state;
        assert_eq!(state("4.13.9-generic\n"), State::Notice);
        assert_eq!(state("4.14-rc1\n"), State::Good);
        assert_eq!(state("6.18.44-fc\n"), State::Good);
        assert_eq!(state("strange\n"), State::Good);
    }

    #[test]
    fn few_cores_are_noticed() {
        let tree = Tree::new(&[("proc/cpuinfo", "processor\t: 0\nmodel name\t: Made up 9000\n")]);
        assert_eq!(
            processor(tree.system(), 8),
            Finding::good("processor", "8 cores, Made up 9000")
        );
        assert_eq!(processor(tree.system(), 2).state, State::Notice);
    }

    #[test]
    fn the_lowest_limit_of_the_control_groups_counts() {
        let found = |files: &[(&str, &str)]| control_group(Tree::new(files).system()).found;
        let version_2 = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ];
        assert!(found(&version_2).starts_with("4 GiB"), "{}", found(&version_2));
        let version_1 = [
            ("proc/self/cgroup", "4:cpu,memory:/a\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n"),
        ];
        assert!(found(&version_1).starts_with("2 GiB"), "{}", found(&version_1));
        // A container that sees its host's path.
        let container =
            [("proc/self/cgroup", "0::/docker/1\n"), ("sys/fs/cgroup/memory.max", "1073741824\n")];
        assert!(found(&container).starts_with("1 GiB"), "{}", found(&container));
        assert_eq!(found(&[]), "no limit on memory");
    }

    #[test]
    fn the_limit_on_locked_memory_is_read() {
        let finding = |line: &str| {
            let text = format!("Limit  Soft Limit  Hard Limit  Units\n{line}\n");
            memlock(Tree::new(&[("proc/self/limits", &text)]).system())
        };
        let limited = finding("Max locked memory         8388608              8388608      bytes");
        assert_eq!(limited.state, State::Notice);
        assert!(limited.found.starts_with("8 MiB"), "{limited:?}");
        let unlimited =
            finding("Max locked memory         unlimited            unlimited    bytes");
        assert_eq!(unlimited, Finding::good("memlock", "no limit"));
    }

    #[test]
    fn the_mode_of_huge_pages_is_the_one_in_brackets() {
        const FILE: &str = "sys/kernel/mm/transparent_hugepage/enabled";
        let finding = |text| huge_pages(Tree::new(&[(FILE, text)]).system());
        assert_eq!(finding("always [madvise] never\n").state, State::Good);
        assert_eq!(finding("[always] madvise never\n").state, State::Good);
        assert_eq!(finding("always madvise [never]\n").state, State::Notice);
        assert_eq!(huge_pages(Tree::new(&[]).system()).state, State::Notice);
    }

    #[test]
    fn every_finding_that_is_not_good_has_a_remedy() {
        for finding in findings(Tree::new(&[]).system()) {
            assert_eq!(finding.state == State::Good, finding.remedy.is_none(), "{finding:?}");
        }
    }
}
