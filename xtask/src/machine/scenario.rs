//! What can be run in the machine. The scripts are in `deploy/machine/scenarios`.

use anyhow::{Context as _, Result};

/// One boot of the machine with a script.
#[derive(Debug)]
pub(super) struct Scenario {
    /// Also the name of its script.
    pub(super) name: &'static str,
    summary: &'static str,
    pub(super) parts: &'static [Part],
    pub(super) expectation: Expectation,
    pub(super) memory_mib: u32,
    /// From the start of QEMU; with emulation, and other work on the host.
    pub(super) limit_seconds: u64,
    pub(super) in_ci: bool,
}

/// Programs that a scenario needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// `programs/deps/pods`, the tests of the pod supervisor, and `programs/pod-supervisor`.
    PodTests,
    /// `programs/deps/network`, the tests of the pod network.
    NetworkTests,
    /// `programs/xtask`, this program.
    Ourselves,
    /// `programs` and `images` of a single host, with kubectl.
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expectation {
    /// The script succeeds.
    Success,
    /// The script succeeds, and at least one test ran in it.
    Tests,
    /// The machine is killed, and what it wrote is checked by a second one.
    PowerCut,
}

pub(super) static ALL: [Scenario; 7] = [
    Scenario {
        name: "devices",
        summary: "which devices containers can use with control groups of version 2 only",
        parts: &[Part::PodTests],
        expectation: Expectation::Tests,
        memory_mib: 1024,
        limit_seconds: 300,
        in_ci: true,
    },
    Scenario {
        name: "pods",
        summary: "all tests of the pod supervisor with control groups of version 2 only",
        parts: &[Part::PodTests],
        expectation: Expectation::Tests,
        memory_mib: 2048,
        limit_seconds: 1800,
        in_ci: false,
    },
    Scenario {
        name: "apparmor",
        summary: "containers under a kernel that enforces AppArmor profiles",
        parts: &[Part::PodTests],
        expectation: Expectation::Tests,
        memory_mib: 1024,
        limit_seconds: 900,
        in_ci: false,
    },
    Scenario {
        name: "networks",
        summary: "pod networks on a kernel whose bridges separate VLANs",
        parts: &[Part::NetworkTests],
        expectation: Expectation::Tests,
        memory_mib: 1024,
        limit_seconds: 900,
        in_ci: false,
    },
    Scenario {
        name: "power-cut",
        summary: "acknowledged writes to the API's database after power cuts at random points",
        parts: &[Part::Ourselves],
        expectation: Expectation::PowerCut,
        memory_mib: 1024,
        limit_seconds: 900,
        in_ci: false,
    },
    Scenario {
        name: "reboot",
        summary: "guests of the service of systemd before and after a reboot of the host",
        parts: &[Part::Host],
        expectation: Expectation::Success,
        memory_mib: 3072,
        limit_seconds: 3600,
        in_ci: false,
    },
    Scenario {
        name: "user-namespaces",
        summary: "pods with users of their own, on Debian's kernel",
        parts: &[Part::PodTests],
        expectation: Expectation::Tests,
        memory_mib: 1024,
        limit_seconds: 600,
        in_ci: false,
    },
];

pub(super) fn named(name: &str) -> Result<&'static Scenario> {
    let found = ALL.iter().find(|scenario| scenario.name == name);
    found.with_context(|| format!("no scenario {name:?}; `cargo xtask machine list` shows them"))
}

/// A line for each scenario.
pub(super) fn table() -> String {
    let lines = ALL.iter().map(|scenario| {
        let ci = if scenario.in_ci { " (in CI)" } else { "" };
        format!("{:16} {}{ci}", scenario.name, scenario.summary)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace::root;

    #[test]
    fn every_scenario_has_its_script() {
        let mut scripts: Vec<String> = fs::read_dir(root().join("deploy/machine/scenarios"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        scripts.sort();
        let mut names: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        assert_eq!(scripts, names);
    }

    #[test]
    fn unknown_scenario_is_an_error_that_names_the_list() {
        let error = named("tea").unwrap_err().to_string();
        assert!(
            error.contains("\"tea\"") && error.contains("machine list"),
            "{error}"
        );
        assert!(table().contains("devices") && table().contains("(in CI)"));
    }
}
