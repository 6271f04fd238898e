//! Where a GPU sits: its link to the host, its NUMA node, and the IOMMU between them.

use super::finding::Finding;
use crate::system::System;

/// A link of PCI Express.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub generation: u32,
    pub width: u32,
}

impl Link {
    /// The link of the device in `folder` as it is (`current`) or could be (`max`).
    fn read(system: &System, folder: &str, which: &str) -> Option<Link> {
        let speed = system.read(&format!("{folder}/{which}_link_speed"))?;
        let generation = match speed.split_whitespace().next()? {
            "2.5" => 1,
            "5.0" | "5" => 2,
            "8.0" | "8" => 3,
            "16.0" | "16" => 4,
            "32.0" | "32" => 5,
            "64.0" | "64" => 6,
            _ => return None,
        };
        let width = system.number(&format!("{folder}/{which}_link_width"))?;
        (1..=32).contains(&width).then_some(Link { generation, width })
    }

    /// The bytes that it carries one way at most, in GB/s, packet headers included.
    pub fn gb_per_s(self) -> f64 {
        let lane = match self.generation {
            1 => 0.25,
            2 => 0.5,
            3 => 0.985,
            4 => 1.969,
            5 => 3.938,
            _ => 7.563,
        };
        lane * f64::from(self.width)
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Link { generation, width } = self;
        write!(f, "PCIe generation {generation} x{width}, {:.1} GB/s each way", self.gb_per_s())
    }
}

/// The folder of a device, by its address such as `0000:3b:00.0`.
fn folder(address: &str) -> String {
    format!("sys/bus/pci/devices/{address}")
}

/// The link as it is.
pub fn link(system: &System, address: &str) -> Option<Link> {
    Link::read(system, &folder(address), "current")
}

/// Whether the link is as fast and as wide as the device could have it.
pub fn link_finding(system: &System, name: String, address: &str) -> Finding {
    let Some(now) = link(system, address) else {
        return Finding::good(name, format!("{address}: the system does not tell its link"));
    };
    match Link::read(system, &folder(address), "max") {
        Some(best) if now.width < best.width || now.generation < best.generation => {
            Finding::notice(
                name,
                format!("{address}: {now}; the device could have {best}"),
                "look at the slot (its lanes may be shared, or electrically fewer), at risers, \
                 and at the firmware's settings; an idle link may be slow to save power, so look \
                 again under load",
            )
        }
        _ => Finding::good(name, format!("{address}: {now}")),
    }
}

/// Whether the process runs near the device.
pub fn numa_finding(system: &System, name: String, address: &str) -> Finding {
    let nodes = nodes(system);
    let node = system.number::<i64>(&format!("{}/numa_node", folder(address)));
    let Some(node) = node.and_then(|node| usize::try_from(node).ok()) else {
        return Finding::good(name, format!("the system does not tell the node; it has {nodes}"));
    };
    if nodes < 2 {
        return Finding::good(name, format!("node {node}, the only one"));
    }
    let file = format!("sys/devices/system/node/node{node}/cpulist");
    let near = cores(&system.read(&file).unwrap_or_default());
    let allowed = system.field("proc/self/status", "Cpus_allowed_list").unwrap_or_default();
    let count = cores(&allowed).iter().filter(|core| near.contains(core)).count();
    let found = format!("node {node} of {nodes}; this process may use {count} of its cores");
    if count > 0 {
        return Finding::good(name, format!("{found}; pools take memory of that node"));
    }
    Finding::notice(
        name,
        found,
        format!("run near the device: numactl --cpunodebind={node} --membind={node} PROGRAM"),
    )
}

/// Whether an IOMMU translates what the device reads and writes.
pub fn iommu_finding(system: &System, name: String, address: &str) -> Finding {
    match system.read(&format!("{}/iommu_group/type", folder(address))).as_deref() {
        None => Finding::good(name, "none, or hidden by a hypervisor"),
        Some("identity") => Finding::good(name, "passes addresses through"),
        Some(kind) => Finding::notice(
            name,
            format!("translates every address ({kind})"),
            "if all devices are trusted, boot with iommu=pt; look at the figures of `pinlane \
             bench` before and after",
        ),
    }
}

/// How many NUMA nodes there are.
fn nodes(system: &System) -> usize {
    let names = system.names("sys/devices/system/node");
    let is_node =
        |name: &&String| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    names.iter().filter(is_node).count().max(1)
}

/// A list of cores such as `0-3,8`.
fn cores(list: &str) -> Vec<u32> {
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse()) {
            cores.extend(first..=last);
        }
    }
    cores
}

/// The addresses of NVIDIA's display and 3D controllers, whether a driver has them or not.
pub fn nvidia_devices(system: &System) -> Vec<String> {
    let is_gpu = |address: &String| {
        let read = |file: &str| system.read(&format!("{}/{file}", folder(address)));
        read("vendor").is_some_and(|vendor| vendor == "0x10de")
            && read("class").is_some_and(|class| class.starts_with("0x03"))
    };
    system.names("sys/bus/pci/devices").into_iter().filter(is_gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;
    use crate::system::fake::Tree;

    const AT: &str = "0000:3b:00.0";
    const FOLDER: &str = "sys/bus/pci/devices/0000:3b:00.0";

    /// A tree with these files of one device, and others.
    fn tree(files: &[(&str, &str)], others: &[(&str, &str)]) -> Tree {
        let files: Vec<_> =
            files.iter().map(|(name, text)| (format!("{FOLDER}/{name}"), *text)).collect();
        let mut all: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        all.extend(others);
        Tree::new(&all)
    }

    #[test]
    fn a_full_link_is_good_and_a_narrow_one_is_noticed() {
        let link = |speed, width| {
            let files = [
                ("current_link_speed", speed),
                ("current_link_width", width),
                ("max_link_speed", "32.0 GT/s PCIe\n"),
                ("max_link_width", "16\n"),
            ];
            link_finding(tree(&files, &[]).system(), "link".into(), AT)
        };
        let full = link("32.0 GT/s PCIe\n", "16\n");
        assert_eq!(full.state, State::Good);
        assert!(full.found.ends_with("PCIe generation 5 x16, 63.0 GB/s each way"), "{full:?}");
        assert_eq!(link("32.0 GT/s PCIe\n", "8\n").state, State::Notice);
        assert_eq!(link("2.5 GT/s PCIe\n", "16\n").state, State::Notice);
        // What a virtual machine may say.
        assert!(link("Unknown\n", "255\n").found.contains("does not tell"));
        assert!(link("16.0 GT/s PCIe\n", "0\n").found.contains("does not tell"));
    }

    #[test]
    fn a_process_on_the_other_node_is_noticed() {
        let finding = |allowed: &str| {
            let status = format!("Name:\tpinlane\nCpus_allowed_list:\t{allowed}\n");
            let others = [
                ("sys/devices/system/node/node0/cpulist", "0-7,16-23\n"),
                ("sys/devices/system/node/node1/cpulist", "8-15,24-31\n"),
                ("sys/devices/system/node/possible", "0-1\n"),
                ("proc/self/status", &*status),
            ];
            numa_finding(tree(&[("numa_node", "1\n")], &others).system(), "numa".into(), AT)
        };
        let far = finding("0-7");
        assert_eq!(far.state, State::Notice);
        assert!(far.remedy.unwrap().contains("--cpunodebind=1"));
        let near = finding("0,14-17,31");
        assert_eq!(near.state, State::Good);
        assert!(near.found.starts_with("node 1 of 2; this process may use 3 of"), "{near:?}");
        let unknown = numa_finding(tree(&[("numa_node", "-1")], &[]).system(), "numa".into(), AT);
        assert_eq!(unknown.state, State::Good);
    }

    #[test]
    fn an_iommu_that_translates_is_noticed() {
        let state = |kind| {
            let tree = tree(&[("iommu_group/type", kind)], &[]);
            iommu_finding(tree.system(), "iommu".into(), AT).state
        };
        assert_eq!(state("DMA-FQ\n"), State::Notice);
        assert_eq!(state("identity\n"), State::Good);
        assert_eq!(iommu_finding(tree(&[], &[]).system(), "iommu".into(), AT).state, State::Good);
    }

    #[test]
    fn only_display_controllers_of_nvidia_are_gpus() {
        let device = |address: &str, vendor, class| {
            let file = |name| format!("sys/bus/pci/devices/{address}/{name}");
            [(file("vendor"), vendor), (file("class"), class)]
        };
        let files: Vec<(String, &str)> = [
            device("0000:01:00.0", "0x10de\n", "0x030200\n"),
            device("0000:02:00.0", "0x10de\n", "0x068000\n"), // a switch
            device("0000:03:00.0", "0x8086\n", "0x030000\n"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        assert_eq!(nvidia_devices(Tree::new(&files).system()), ["0000:01:00.0"]);
    }
}
