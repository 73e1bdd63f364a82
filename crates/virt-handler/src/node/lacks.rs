//! What guests lack on this node, and what to do about it. Judging is pure; `Host` is what is looked at.

use std::{fmt::Write as _, fs::File, path::Path};

use reasons::Reason;

use crate::{HostDevice, capabilities::NodeFacts};

const CGROUP_V2: &str = "/sys/fs/cgroup/cgroup.controllers";

/// One thing that is missing: a word for programs, and a sentence with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lack {
    pub(super) reason: Reason,
    pub(super) note: String,
}

/// What was seen of the host, beside the probe's findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// Why the device that a guest's network needs cannot be used.
    pub(super) tun: Option<String>,
    /// The same of the one that makes a network fast.
    pub(super) vhost_net: Option<String>,
    pub(super) cgroup: Cgroup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cgroup {
    V1,
    V2,
}

impl Host {
    pub(super) fn look() -> Self {
        let opened = |device: HostDevice| File::open(device.path()).err();
        Self {
            tun: opened(HostDevice::Tun).map(|err| err.to_string()),
            vhost_net: opened(HostDevice::VhostNet).map(|err| err.to_string()),
            cgroup: if Path::new(CGROUP_V2).exists() {
                Cgroup::V2
            } else {
                Cgroup::V1
            },
        }
    }
}

/// All that is missing.
pub(super) fn lacks(facts: &NodeFacts, host: &Host, node: &str) -> Vec<Lack> {
    let again = format!(
        "then restart the agent: kubectl -n kubevirt delete pod -l kubevirt.io=virt-handler \
         --field-selector spec.nodeName={node}"
    );
    let mut all = Vec::new();
    if !facts.kvm {
        let why = &facts.kvm_reason;
        all.push(Lack {
            reason: Reason::KvmMissing,
            note: format!(
                "no guest runs by KVM here ({why}): guests go to nodes that have it, and where none has it they \
                 are emulated, which is slow. Load kvm_intel or kvm_amd, switch virtualization on in the \
                 firmware or, if the node is itself a virtual machine, in its host; {again}"
            ),
        });
    }
    if let Some(why) = &host.tun {
        all.push(Lack {
            reason: Reason::TunMissing,
            note: format!(
                "/dev/net/tun cannot be used ({why}), so no guest with a network comes here: modprobe tun, {again}"
            ),
        });
    }
    // Guests that are emulated do not ask for it.
    if let (true, Some(why)) = (facts.kvm, &host.vhost_net) {
        all.push(Lack {
            reason: Reason::VhostNetMissing,
            note: format!(
                "/dev/vhost-net cannot be used ({why}), so no guest with a network comes here: modprobe vhost_net, \
                 {again}"
            ),
        });
    }
    if host.cgroup == Cgroup::V1 {
        all.push(Lack {
            reason: Reason::CgroupV1,
            note: "the node has control groups of version 1: guests run, but kubelets from 1.35 on do not start \
                   there unless failCgroupV1 is false in their configuration; boot it with \
                   systemd.unified_cgroup_hierarchy=1"
                .to_owned(),
        });
    }
    all
}

/// For the node's annotation: a line each.
pub(super) fn written(lacks: &[Lack]) -> Option<String> {
    let mut text = String::new();
    for Lack { reason, note } in lacks {
        let separator = if text.is_empty() { "" } else { "\n" };
        // A text takes whatever is written to it.
        let _written = write!(text, "{separator}{reason}: {note}");
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_its_remedy() {
        let well = Host {
            tun: None,
            vhost_net: None,
            cgroup: Cgroup::V2,
        };
        let no_tun = Host {
            tun: Some("No such file or directory".to_owned()),
            ..well.clone()
        };
        let no_vhost = Host {
            vhost_net: Some("No such device".to_owned()),
            ..well.clone()
        };
        let old = Host {
            cgroup: Cgroup::V1,
            ..well.clone()
        };
        for (kvm, host, expected) in [
            (true, &well, &[][..]),
            (
                false,
                &well,
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
            let found = lacks(&facts, host, "one");
            let reasons: Vec<&str> = found.iter().map(|lack| lack.reason.as_str()).collect();
            let wanted: Vec<&str> = expected.iter().map(|(reason, ..)| *reason).collect();
            assert_eq!(reasons, wanted);
            for (lack, (_, why, remedy)) in found.iter().zip(expected) {
                assert!(lack.note.contains(why), "{}", lack.note);
                assert!(lack.note.contains(remedy), "{}", lack.note);
            }
        }
    }

    #[test]
    fn the_annotation_has_a_line_for_each() {
        let lack = |reason, note: &str| Lack {
            reason,
            note: note.to_owned(),
        };
        assert_eq!(written(&[]), None);
        let both = written(&[
            lack(Reason::KvmMissing, "one"),
            lack(Reason::TunMissing, "two"),
        ]);
        assert_eq!(both.as_deref(), Some("KvmMissing: one\nTunMissing: two"));
    }
}
