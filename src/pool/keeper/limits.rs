//! How much memory may be page-locked here, according to the system.
//!
//! Page-locked memory cannot be swapped out or reclaimed. If a pool takes too much of the machine,
//! or of the control group that the process runs in, the kernel kills the process. So the default
//! budget of a pool is half of the lowest limit.
//!
//! No function here fails: a limit that the system does not report counts as no limit.

use std::fmt;
use std::fs;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pool::books::stats::in_units;

/// The default budget if the system reports no limit.
const FALLBACK: usize = 1 << 30;
/// Before a growth of this size or more, the pool asks whether the system has enough memory.
const LARGE: usize = 64 << 20;
/// A number from here on means "no limit": control groups of version 1 write a large number for it.
const UNLIMITED: usize = 1 << 62;

/// Half of the lowest limit; 1 GiB if none is known. Reads a few small files.
pub(crate) fn default_budget() -> usize {
    Limits::current().budget()
}

/// Checks whether the system has `bytes` more; if not, returns how many it has. A system that
/// promises more than it has kills the process when the memory is touched.
///
/// The check reads a few small files. So each large growth checks, and small growths check once
/// they add up to a large one. When memory runs short, each growth checks.
pub(crate) fn ask_for(bytes: usize) -> Result<(), usize> {
    static UNASKED: AtomicUsize = AtomicUsize::new(LARGE);
    let part = bytes.min(LARGE);
    if UNASKED.fetch_add(part, Ordering::Relaxed).saturating_add(part) < LARGE {
        return Ok(());
    }
    let available = available(Path::new("/"));
    let much = available.saturating_sub(bytes) >= 2 * LARGE;
    UNASKED.store(if much { 0 } else { LARGE }, Ordering::Relaxed);
    if bytes <= available { Ok(()) } else { Err(available) }
}

/// Free memory and reclaimable caches, of the machine or of the control groups, whichever is less.
fn available(root: &Path) -> usize {
    let free = meminfo(root, "MemAvailable:");
    [free, cgroup(root, Files::room)].into_iter().flatten().min().unwrap_or(usize::MAX)
}

/// The limits, in bytes, that hold for this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Memory of the machine, if known.
    physical: Option<usize>,
    /// The lowest limit of the control groups that the process is in, if there is one.
    cgroup: Option<usize>,
    /// `RLIMIT_MEMLOCK`, if there is one. The CUDA driver ignores it (docs/measured), as does the
    /// budget. Messages show it in case another driver does not.
    memlock: Option<usize>,
}

impl Limits {
    pub(crate) fn current() -> Self {
        Limits { memlock: memlock(), ..Self::below(Path::new("/")) }
    }

    fn below(root: &Path) -> Self {
        Limits {
            physical: meminfo(root, "MemTotal:"),
            cgroup: cgroup(root, Files::limit),
            memlock: None,
        }
    }

    fn budget(&self) -> usize {
        [self.physical, self.cgroup].into_iter().flatten().min().map_or(FALLBACK, |least| least / 2)
    }
}

/// A line of `/proc/meminfo`.
fn meminfo(root: &Path, name: &str) -> Option<usize> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let amount = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib = amount.trim().strip_suffix("kB")?;
    kib.trim().parse::<usize>().ok()?.checked_mul(1024).filter(|&bytes| bytes > 0)
}

/// The files of a control group, and the lines in `memory.stat` for memory that the kernel reclaims
/// before it kills. All include the groups below.
struct Files {
    limit: &'static str,
    usage: &'static str,
    caches: [&'static str; 3],
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    caches: ["total_inactive_file", "total_active_file", "total_slab_reclaimable"],
};

const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    caches: ["inactive_file", "active_file", "slab_reclaimable"],
};

impl Files {
    /// The limit of the group; `None` for "max", and for other values that mean no limit.
    fn limit(&self, group: &Path) -> Option<usize> {
        number_in(&group.join(self.limit)).filter(|limit| (1..UNLIMITED).contains(limit))
    }

    /// What is left of the limit.
    fn room(&self, group: &Path) -> Option<usize> {
        let limit = self.limit(group)?;
        let used = number_in(&group.join(self.usage)).unwrap_or(0);
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let caches = stat.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            self.caches.contains(&name).then(|| bytes.parse::<usize>().ok())?
        });
        let kept = used.saturating_sub(caches.fold(0, usize::saturating_add));
        Some(limit.saturating_sub(kept))
    }
}

/// The lowest number that `of` returns for the groups, of both versions, in `/proc/self/cgroup`.
fn cgroup(root: &Path, of: fn(&Files, &Path) -> Option<usize>) -> Option<usize> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let found = text.lines().filter_map(|line| {
        // hierarchy:controllers:path. Version 2 is hierarchy 0 and names no controllers.
        let mut fields = line.splitn(3, ':');
        let (hierarchy, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mounts = root.join("sys/fs/cgroup");
        if hierarchy == "0" && controllers.is_empty() {
            // If version 1 is mounted too, version 2 is one level below.
            let lowest = |mount: &Path| lowest_on_path(mount, path, |group| of(&VERSION_2, group));
            lowest(&mounts).or_else(|| lowest(&mounts.join("unified")))
        } else if controllers.split(',').any(|controller| controller == "memory") {
            lowest_on_path(&mounts.join("memory"), path, |group| of(&VERSION_1, group))
        } else {
            None
        }
    });
    found.min()
}

/// The lowest number from the group at `path` up to the root of the hierarchy: a limit holds for
/// all groups below it.
///
/// A container may see its host's path while only its own group is mounted, as the root. Then the
/// path does not exist, and the root has the limit.
fn lowest_on_path(mount: &Path, path: &str, of: impl Fn(&Path) -> Option<usize>) -> Option<usize> {
    let mut group = mount.to_owned();
    let mut found = Vec::from([of(&group)]);
    for name in Path::new(path).components() {
        if let Component::Normal(name) = name {
            group.push(name);
            found.push(of(&group));
        }
    }
    found.into_iter().flatten().min()
}

fn number_in(file: &Path) -> Option<usize> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn memlock() -> Option<usize> {
    None
}

#[cfg(target_os = "linux")]
fn memlock() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is live for the call to write.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    let limited = answer == 0 && limit.rlim_cur != libc::RLIM_INFINITY;
    limited.then(|| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |limit: Option<usize>, otherwise: &str| {
            limit.map_or_else(|| otherwise.to_owned(), in_units)
        };
        write!(
            f,
            "physical memory {}, cgroup limit {}, RLIMIT_MEMLOCK {}",
            or(self.physical, "unknown"),
            or(self.cgroup, "none"),
            or(self.memlock, "none"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const GIB: usize = 1 << 30;
    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n");

    struct FakeRoot(PathBuf);

    impl FakeRoot {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("pinlane-limits-{}-{name}", std::process::id());
            let root = std::env::temp_dir().join(name);
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            FakeRoot(root)
        }

        fn limits(&self) -> Limits {
            Limits::below(&self.0)
        }
    }

    impl Drop for FakeRoot {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn without_files_the_budget_is_the_fallback() {
        let limits = FakeRoot::new("nothing", &[]).limits();
        assert_eq!(limits, Limits::default());
        assert_eq!(limits.budget(), GIB);
    }

    #[test]
    fn without_groups_the_budget_is_half_of_the_machine() {
        let limits = FakeRoot::new("plain", &[MEMINFO]).limits();
        assert_eq!((limits.physical, limits.cgroup), (Some(16 * GIB), None));
        assert_eq!(limits.budget(), 8 * GIB);
    }

    #[test]
    fn version_2_counts_every_level() {
        for (name, at) in [("leaf", "a/b/memory.max"), ("middle", "a/memory.max")] {
            let root = FakeRoot::new(
                name,
                &[
                    MEMINFO,
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                    ("sys/fs/cgroup/a/memory.max", "8589934592\n"),
                    (&format!("sys/fs/cgroup/{at}"), "4294967296\n"),
                    ("sys/fs/cgroup/a/b/c/memory.max", "4096\n"),
                ],
            );
            assert_eq!(root.limits().cgroup, Some(4 * GIB), "{name}");
            assert_eq!(root.limits().budget(), 2 * GIB, "{name}");
        }
    }

    #[test]
    fn version_2_without_a_limit_says_max() {
        let files =
            [MEMINFO, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")];
        let limits = FakeRoot::new("max", &files).limits();
        assert_eq!((limits.cgroup, limits.budget()), (None, 8 * GIB));
    }

    #[test]
    fn version_1_is_the_hierarchy_that_has_the_memory() {
        let groups = "5:cpu,cpuacct:/slow\n4:hugetlb,memory:/a\n3:pids:/\n0::/\n";
        let root = FakeRoot::new(
            "v1",
            &[
                MEMINFO,
                ("proc/self/cgroup", groups),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n"),
                ("sys/fs/cgroup/memory/slow/memory.limit_in_bytes", "4096\n"),
            ],
        );
        assert_eq!(root.limits().cgroup, Some(2 * GIB));
        assert_eq!(root.limits().budget(), GIB);
    }

    #[test]
    fn version_1_without_a_limit_has_a_huge_number() {
        let root = FakeRoot::new(
            "v1-max",
            &[
                ("proc/self/cgroup", "4:memory:/\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ],
        );
        assert_eq!(root.limits().cgroup, None);
    }

    #[test]
    fn version_2_beside_version_1_is_mounted_below() {
        let root = FakeRoot::new(
            "hybrid",
            &[
                ("proc/self/cgroup", "4:memory:/\n0::/a\n"),
                ("sys/fs/cgroup/unified/a/memory.max", "1073741824\n"),
            ],
        );
        assert_eq!(root.limits().cgroup, Some(GIB));
    }

    #[test]
    fn a_container_finds_its_limit_at_the_root() {
        for (name, path) in [("outside", "/docker/0123"), ("above", "/../../x")] {
            let files = [
                ("proc/self/cgroup", &*format!("0::{path}\n")),
                ("sys/fs/cgroup/memory.max", "1073741824\n"),
            ];
            assert_eq!(FakeRoot::new(name, &files).limits().cgroup, Some(GIB), "{path}");
        }
    }

    #[test]
    fn what_a_group_uses_is_not_available_but_its_caches_are() {
        let stat =
            "anon 536870912\ninactive_file 100\nactive_file 20\nslab_reclaimable 3\nfile 500\n";
        let version_2 = [
            ("proc/meminfo", "MemAvailable:    8388608 kB\n"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/a/memory.current", "805306368\n"),
            ("sys/fs/cgroup/a/memory.stat", stat),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "805306368\n"),
        ];
        let root = FakeRoot::new("room-2", &version_2);
        assert_eq!(available(&root.0), GIB / 4 + 123);
        let version_1 = [
            ("proc/self/cgroup", "4:memory:/a\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4000\n"),
            (
                "sys/fs/cgroup/memory/a/memory.stat",
                "active_file 7\ntotal_active_file 10\ntotal_inactive_file x\n",
            ),
        ];
        let root = FakeRoot::new("room-1", &version_1);
        assert_eq!(available(&root.0), 106);
        // More than the limit may be in use for a moment. Without usage data a group has its limit.
        fs::write(root.0.join("sys/fs/cgroup/memory/a/memory.usage_in_bytes"), "9000").unwrap();
        assert_eq!(available(&root.0), 0);
        fs::remove_file(root.0.join("sys/fs/cgroup/memory/a/memory.usage_in_bytes")).unwrap();
        assert_eq!(available(&root.0), 4096);
        assert_eq!(available(Path::new("/nowhere")), usize::MAX);
    }

    #[test]
    fn what_no_machine_has_is_refused_however_it_is_asked_for() {
        for _ in 0..3 {
            let available = ask_for(1 << 60).unwrap_err();
            assert!(available < 1 << 60);
            assert!(ask_for(4096).is_ok());
        }
    }

    #[test]
    fn garbage_is_no_limit() {
        for (name, garbage) in [("words", "many\n"), ("empty", ""), ("zero", "0"), ("minus", "-1")]
        {
            let meminfo = format!("MemTotal: {garbage} kB\n");
            let files = [
                ("proc/meminfo", &*meminfo),
                ("proc/self/cgroup", "nonsense\n0::/a\n::\n"),
                ("sys/fs/cgroup/a/memory.max", garbage),
            ];
            assert_eq!(FakeRoot::new(name, &files).limits(), Limits::default(), "{garbage:?}");
        }
    }

    #[test]
    fn this_machine_has_memory() {
        let physical = Limits::current().physical.expect("Linux says");
        assert!(default_budget() > 0 && default_budget() <= physical / 2);
    }

    #[test]
    fn limits_are_printed_for_people() {
        let known =
            Limits { physical: Some(128 * GIB), cgroup: Some(3 * GIB / 2), memlock: Some(65536) };
        assert_eq!(
            known.to_string(),
            "physical memory 128 GiB, cgroup limit 1.5 GiB, RLIMIT_MEMLOCK 64 KiB"
        );
        assert_eq!(
            Limits::default().to_string(),
            "physical memory unknown, cgroup limit none, RLIMIT_MEMLOCK none"
        );
        assert_eq!(in_units(0), "0 bytes");
        assert_eq!(in_units(1536 << 10), "1.5 MiB");
    }
}
