//! Requirements of guests that this node does not meet, with their remedies. [`missing`] is pure;
//! [`Host`] holds the observations.

use std::{fmt::Write as _, fs::File, path::Path};

use reasons::Reason;

use crate::{HostDevice, capabilities::NodeFacts, migration};

const CGROUP_V2: &str = "/sys/fs/cgroup/cgroup.controllers";

/// A missing requirement; the message includes the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct MissingRequirement {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// The observed host, besides the probe's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// Why /dev/net/tun, which guest networks require, cannot be opened.
    pub(super) tun: Option<String>,
    /// Why /dev/vhost-net, which accelerates guest networks, cannot be opened.
    pub(super) vhost_net: Option<String>,
    pub(super) cgroup: Cgroup,
    /// The network for migrations that the node is not on.
    pub(super) migration_network: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cgroup {
    V1,
    V2,
}

impl Host {
    /// `named` is the network for migrations, if the administrator names one.
    pub(super) fn observe(named: Option<&str>) -> Self {
        let open_error = |device: HostDevice| File::open(device.path()).err();
        Self {
            tun: open_error(HostDevice::Tun).map(|error| error.to_string()),
            vhost_net: open_error(HostDevice::VhostNet).map(|error| error.to_string()),
            cgroup: if Path::new(CGROUP_V2).exists() {
                Cgroup::V2
            } else {
                Cgroup::V1
            },
            migration_network: named
                .filter(|_| !migration::has_joined_network())
                .map(str::to_owned),
        }
    }
}

/// All missing requirements.
pub(super) fn missing(facts: &NodeFacts, host: &Host, node: &str) -> Vec<MissingRequirement> {
    let restart = format!(
        "then restart virt-handler: kubectl -n kubevirt delete pod -l kubevirt.io=virt-handler \
         --field-selector spec.nodeName={node}"
    );
    let mut all = Vec::new();
    if !facts.kvm {
        let cause = &facts.kvm_reason;
        all.push(MissingRequirement {
            reason: Reason::KvmMissing,
            message: format!(
                "KVM is not available on this node ({cause}): guests are scheduled to nodes that have it; if none \
                 has it, they are emulated, which is slow. Load kvm_intel or kvm_amd, enable virtualization \
                 in the firmware or, if the node is itself a virtual machine, in its host; {restart}"
            ),
        });
    }
    if let Some(cause) = &host.tun {
        all.push(MissingRequirement {
            reason: Reason::TunMissing,
            message: format!(
                "/dev/net/tun cannot be opened ({cause}), so no guest with a network is scheduled here: modprobe tun, \
                 {restart}"
            ),
        });
    }
    // Emulated guests do not request it.
    if let (true, Some(cause)) = (facts.kvm, &host.vhost_net) {
        all.push(MissingRequirement {
            reason: Reason::VhostNetMissing,
            message: format!(
                "/dev/vhost-net cannot be opened ({cause}), so no guest with a network is scheduled here: modprobe \
                 vhost_net, {restart}"
            ),
        });
    }
    if host.cgroup == Cgroup::V1 {
        all.push(MissingRequirement {
            reason: Reason::CgroupV1,
            message: "the node uses cgroup version 1: guests run, but kubelets from 1.35 on do not start on it unless \
                   failCgroupV1 is false in their configuration; boot it with \
                   systemd.unified_cgroup_hierarchy=1"
                .to_owned(),
        });
    }
    if let Some(named) = &host.migration_network {
        all.push(MissingRequirement {
            reason: Reason::MigrationNetworkMissing,
            message: format!(
                "virt-handler's pod on this node has no interface migration0 on the network {named} \
                 (migrations.network), so guests do not migrate from it or to it: kubectl -n kubevirt get \
                 network-attachment-definitions, and kubectl -n kubevirt rollout status daemonset/virt-handler"
            ),
        });
    }
    all
}

/// The node's annotation, one line per requirement; `None` if nothing is missing.
pub(super) fn annotation(missing: &[MissingRequirement]) -> Option<String> {
    let mut text = String::new();
    for MissingRequirement { reason, message } in missing {
        let separator = if text.is_empty() { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _written = write!(text, "{separator}{reason}: {message}");
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_requirement_has_a_remedy() {
        let complete = Host {
            tun: None,
            vhost_net: None,
            cgroup: Cgroup::V2,
            migration_network: None,
        };
        let apart = Host {
            migration_network: Some("net/fast".to_owned()),
            ..complete.clone()
        };
        let no_tun = Host {
            tun: Some("No such file or directory".to_owned()),
            ..complete.clone()
        };
        let no_vhost = Host {
            vhost_net: Some("No such device".to_owned()),
            ..complete.clone()
        };
        let old = Host {
            cgroup: Cgroup::V1,
            ..complete.clone()
        };
        for (kvm, host, expected) in [
            (true, &complete, &[][..]),
            (
                false,
                &complete,
                &[("KvmMissing", "/dev/kvm cannot be opened", "Load kvm_intel")],
            ),
            (
                true,
                &no_tun,
                &[("TunMissing", "No such file", "modprobe tun")],
            ),
            (
                true,
                &no_vhost,
                &[("VhostNetMissing", "No such device", "modprobe vhost_net")],
            ),
            (
                true,
                &apart,
                &[(
                    "MigrationNetworkMissing",
                    "network net/fast",
                    "rollout status",
                )],
            ),
            (
                true,
                &old,
                &[(
                    "CgroupV1",
                    "guests run",
                    "systemd.unified_cgroup_hierarchy=1",
                )],
            ),
        ] {
            let facts = NodeFacts {
                kvm,
                kvm_reason: "/dev/kvm cannot be opened: none".to_owned(),
                ..NodeFacts::default()
            };
            let found = missing(&facts, host, "one");
            let reasons: Vec<&str> = found.iter().map(|one| one.reason.as_str()).collect();
            let wanted: Vec<&str> = expected.iter().map(|(reason, ..)| *reason).collect();
            assert_eq!(reasons, wanted);
            for (one, (_, cause, remedy)) in found.iter().zip(expected) {
                assert!(one.message.contains(cause), "{}", one.message);
                assert!(one.message.contains(remedy), "{}", one.message);
            }
        }
    }

    #[test]
    fn annotation_has_one_line_per_requirement() {
        let requirement = |reason, message: &str| MissingRequirement {
            reason,
            message: message.to_owned(),
        };
        assert_eq!(annotation(&[]), None);
        let both = annotation(&[
            requirement(Reason::KvmMissing, "one"),
            requirement(Reason::TunMissing, "two"),
        ]);
        assert_eq!(both.as_deref(), Some("KvmMissing: one\nTunMissing: two"));
    }
}
