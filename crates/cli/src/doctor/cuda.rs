//! CUDA: the toolkit of this build, the driver of the machine, and the GPUs that they show.

use pinlane::Device;
use pinlane::driver::{Attribute, Driver, Ordinal};

use super::bus;
use super::finding::Finding;
use super::speed::Speed;
use crate::output::in_units;
use crate::system::System;

/// By which way this binary uses CUDA.
pub fn way() -> Finding {
    way_of(cfg!(pinlane_cuda), option_env!("PINLANE_TOOLKIT"))
}

fn way_of(cuda: bool, toolkit: Option<&str>) -> Finding {
    const NAME: &str = "build";
    match (cuda, toolkit) {
        (_, Some(toolkit)) => Finding::good(NAME, format!("by the runtime of {toolkit}")),
        (true, None) => {
            Finding::good(NAME, "without a toolkit: by the driver's library, whichever is here")
        }
        (false, None) => Finding::notice(
            NAME,
            "this was built without CUDA (PINLANE_CUDA=off, or without the feature `cuda`)",
            "build again without PINLANE_CUDA=off and with the feature `cuda`",
        ),
    }
}

/// The library of the driver that this process has opened: for a stub of a toolkit, or one of
/// another driver.
pub fn library(system: &System) -> Option<Finding> {
    let maps = system.read("proc/self/maps")?;
    let path = maps.lines().find_map(|line| {
        let path = line.get(line.find('/')?..)?;
        path.rsplit('/').next()?.starts_with("libcuda.so").then_some(path)
    })?;
    Some(Finding::good("library", path))
}

/// NVIDIA's driver. `versions` are the driver's and the runtime's, if this build has CUDA.
pub fn driver(system: &System, versions: Option<(i32, i32)>) -> Finding {
    const NAME: &str = "driver";
    let Some(module) = kernel_module(system) else {
        return match bus::nvidia_devices(system).as_slice() {
            [] => Finding::good(NAME, "none, and no NVIDIA GPU on the PCI bus"),
            [first, ..] => Finding::notice(
                NAME,
                format!("none, but there is an NVIDIA GPU on the PCI bus ({first})"),
                "install NVIDIA's driver; give a container the GPUs (--gpus all)",
            ),
        };
    };
    let version = |number: i32| format!("{}.{}", number / 1000, number % 1000 / 10);
    match versions {
        None => Finding::good(NAME, module),
        Some((0, runtime)) => Finding::notice(
            NAME,
            format!(
                "{module}, but its library libcuda.so.1 is not found (this build is for CUDA {})",
                version(runtime)
            ),
            "install the driver's libraries; give a container the GPUs (--gpus all)",
        ),
        Some((driver, runtime)) if driver / 1000 < runtime / 1000 => Finding::wrong(
            NAME,
            format!(
                "{module} for CUDA {}; this build is for {}",
                version(driver),
                version(runtime)
            ),
            "update the driver, or build with an older toolkit or without one",
        ),
        Some((driver, runtime)) => Finding::good(
            NAME,
            format!(
                "{module} for CUDA {}; this build is for {}",
                version(driver),
                version(runtime)
            ),
        ),
    }
}

/// The version of NVIDIA's kernel module, such as 580.159.04.
fn kernel_module(system: &System) -> Option<String> {
    let text = system.read("proc/driver/nvidia/version")?;
    let is_number =
        |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
    text.split_whitespace().find(is_number).map(str::to_owned)
}

/// Everything about one GPU. `speed` is what was measured on it.
pub fn gpu(system: &System, driver: &dyn Driver, device: &Device, speed: &Speed) -> Vec<Finding> {
    let ordinal = device.ordinal();
    let name = |what: &str| format!("gpu {ordinal} {what}").trim_end().to_owned();
    let memory = device.memory_info().map_or(String::new(), |memory| {
        format!(", {} of {} free", in_units(memory.free as u64), in_units(memory.total as u64))
    });
    let mut findings = vec![Finding::good(name(""), format!("{}{memory}", device.name()))];
    findings.extend(copy_engines(name("engines"), driver, ordinal));
    let address = pci_address(driver, ordinal);
    if let Some(address) = &address {
        findings.push(bus::link_finding(system, name("link"), address));
        findings.push(bus::numa_finding(system, name("numa"), address));
        findings.push(bus::iommu_finding(system, name("iommu"), address));
    }
    let link = address.and_then(|address| bus::link(system, &address));
    findings.push(speed.finding(name("copies"), link));
    findings
}

fn copy_engines(name: String, driver: &dyn Driver, ordinal: Ordinal) -> Option<Finding> {
    let engines = driver.attribute(ordinal, Attribute::AsyncEngineCount).ok()?;
    Some(match engines {
        0 | 1 => Finding::notice(
            name,
            format!("{engines} engine copies beside kernels, so not both ways at once"),
            "nothing; plan for copies in turns",
        ),
        _ => Finding::good(name, format!("{engines} engines copy beside kernels")),
    })
}

/// Where the device is on the PCI bus, as sysfs writes it.
fn pci_address(driver: &dyn Driver, ordinal: Ordinal) -> Option<String> {
    let part = |attribute| driver.attribute(ordinal, attribute).ok();
    let (domain, bus) = (part(Attribute::PciDomainId)?, part(Attribute::PciBusId)?);
    let device = part(Attribute::PciDeviceId)?;
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;
    use crate::system::fake::Tree;
    use pinlane::emulated::Emulator;

    const MODULE: (&str, &str) = (
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n\
         GCC version:  gcc version 13.3.0\n",
    );

    #[test]
    fn the_build_says_by_which_way_it_uses_cuda() {
        let runtime = way_of(true, Some("CUDA 13.0 in /cuda"));
        assert_eq!(runtime, Finding::good("build", "by the runtime of CUDA 13.0 in /cuda"));
        let driver = way_of(true, None);
        assert!(driver.state == State::Good && driver.found.contains("driver"), "{driver:?}");
        assert_eq!(way_of(false, None).state, State::Notice);
    }

    #[test]
    fn the_drivers_library_is_that_of_the_process() {
        let maps = "00400000-0040b000 r-xp 00000000 fe:00 123  /bin/pinlane\n\
                    7f00-7f01 r-xp 00000000 fe:00 5  /usr/lib/x86_64-linux-gnu/libcuda.so.580.1\n";
        let tree = Tree::new(&[("proc/self/maps", maps)]);
        let found = library(tree.system()).unwrap();
        assert_eq!(found.found, "/usr/lib/x86_64-linux-gnu/libcuda.so.580.1");
        let none = Tree::new(&[("proc/self/maps", "00400000-0040b000 r-xp 0 fe:00 1 /bin/cat\n")]);
        assert_eq!(library(none.system()), None);
    }

    #[test]
    fn no_driver_is_normal_where_there_is_no_gpu() {
        assert_eq!(driver(Tree::new(&[]).system(), None).state, State::Good);
        let gpu = [
            ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"),
        ];
        let finding = driver(Tree::new(&gpu).system(), None);
        assert_eq!(finding.state, State::Notice);
        assert!(finding.found.contains("0000:01:00.0"), "{finding:?}");
    }

    #[test]
    fn the_versions_of_driver_and_runtime_must_fit() {
        let tree = Tree::new(&[MODULE]);
        let of = |versions| driver(tree.system(), versions);
        let good = of(Some((13_000, 13_000)));
        assert_eq!(
            good,
            Finding::good("driver", "580.159.04 for CUDA 13.0; this build is for 13.0")
        );
        assert_eq!(of(Some((12_080, 12_060))).state, State::Good);
        assert_eq!(of(Some((12_080, 13_000))).state, State::Wrong);
        assert_eq!(of(Some((0, 13_000))).state, State::Notice);
        assert_eq!(of(None), Finding::good("driver", "580.159.04"));
    }

    #[test]
    fn a_gpu_is_described_by_its_driver_and_sysfs() {
        let machine = Emulator::new();
        let device = Device::of_emulator(&machine, 0).unwrap();
        let folder = "sys/bus/pci/devices/0000:01:00.0";
        let files = [
            (format!("{folder}/current_link_speed"), "16.0 GT/s PCIe\n"),
            (format!("{folder}/current_link_width"), "16\n"),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = Tree::new(&files);
        let speed = Speed { up: 28.0, down: 10.0 };
        let findings = gpu(tree.system(), &*machine.driver(), &device, &speed);
        let by_name = |name: &str| {
            let found = findings.iter().find(|finding| finding.name == name);
            found.unwrap_or_else(|| panic!("no {name}: {findings:?}"))
        };
        assert!(by_name("gpu 0").found.starts_with("Emulated device 0, "));
        assert_eq!(by_name("gpu 0 engines").found, "3 engines copy beside kernels");
        assert!(by_name("gpu 0 link").found.contains("generation 4 x16"));
        // 10 of 31.5 GB/s is too little.
        assert_eq!(by_name("gpu 0 copies").state, State::Notice);
    }
}
