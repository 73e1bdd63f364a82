//! How the administrator and the namespace configure the pod of a VMI.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster_config::ClusterConfig;
use kubevirt_api::labels;
use launcher_pod::{Acceleration, ContainerDisks, Feature, Ratio, Settings};

use super::namespace::{Namespace, Quota};
use crate::container_disks::{self, ImageVolumes};
use crate::view::Host;

/// Feature gates that pods depend on, with the feature of each.
const GATES: [(&str, Feature); 5] = [
    ("HypervStrictCheck", Feature::HypervStrictCheck),
    (
        "CrossArchitectureVirtualization",
        Feature::CrossArchitecture,
    ),
    ("IOMMUFD", Feature::Iommufd),
    ("DeclarativeHotplugVolumes", Feature::HotplugDisks),
    ("HotplugVolumes", Feature::HotplugDisks),
];

/// The current settings of pods: those of the installation, overridden by the administrator's, as
/// far as the nodes support them.
pub(super) fn settings(
    own: &Settings,
    acceleration: Acceleration,
    config: &ClusterConfig,
    hosts: &[Arc<Host>],
) -> Settings {
    let mut all = own.clone().configured(&config.written);
    all.acceleration = acceleration;
    if all.container_disks == ContainerDisks::ImageVolumes {
        all.container_disks = container_disks::choose(config, nodes_for_guests(hosts));
    }
    let on = GATES.iter().filter(|(gate, _)| config.has_gate(gate));
    let on: BTreeSet<Feature> = on.map(|(_, feature)| *feature).collect();
    all.features.extend(on);
    all
}

/// Whether volumes can be attached to running guests.
pub(crate) fn has_hotplug(config: &ClusterConfig) -> bool {
    let mut gates = GATES.iter();
    gates.any(|(gate, feature)| *feature == Feature::HotplugDisks && config.has_gate(gate))
}

/// The nodes that can run guests; all nodes before there is one.
fn nodes_for_guests(hosts: &[Arc<Host>]) -> impl Iterator<Item = ImageVolumes> {
    let any_takes = hosts.iter().any(|host| host.takes_guests());
    let hosts = hosts.iter();
    hosts
        .filter(move |host| !any_takes || host.takes_guests())
        .map(|host| host.image_volumes)
}

/// The limits that pods of the namespace must have though the VMI sets none.
pub(super) fn of_namespace(
    config: &ClusterConfig,
    namespace: Option<&Namespace>,
    quotas: &[Arc<Quota>],
) -> launcher_pod::Namespace {
    let marks = namespace.map(Namespace::labels).unwrap_or_default();
    // The selector of the administrator replaces the rule about quotas.
    let needs_cpu_limit = match config.limits_cpu_in(&marks) {
        Some(is_chosen) => is_chosen,
        None => quotas.iter().any(|quota| quota.counts_cpu_limits),
    };
    let counts_memory = quotas.iter().any(|quota| quota.counts_memory_limits);
    let ratio = || {
        let gate_setting = marks.get(labels::AUTO_MEMORY_LIMITS_RATIO);
        // A limit cannot be less than the request.
        let gate_setting = gate_setting.and_then(|text| Ratio::parse(text).ok());
        gate_setting
            .filter(|gate_setting| gate_setting.at_least(Ratio::ONE) == *gate_setting)
            .unwrap_or(Ratio::TWO)
    };
    launcher_pod::Namespace {
        needs_cpu_limit,
        memory_limit_ratio: counts_memory.then(ratio),
    }
}

#[cfg(test)]
mod tests {
    use kubevirt_api::annotations;
    use serde_json::{Value, json};

    use super::*;

    fn config(written: Value) -> ClusterConfig {
        ClusterConfig::from_kubevirt(&serde_json::from_value(written).unwrap())
    }

    fn namespace(labels: &Value) -> Namespace {
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap()
    }

    fn quota(hard: &Value) -> Arc<Quota> {
        let quota = json!({"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": hard}});
        Arc::new(serde_json::from_value(quota).unwrap())
    }

    #[test]
    fn limits_follow_from_quotas_and_the_namespace_selector() {
        let selector = json!({"autoCPULimitNamespaceLabelSelector": {"matchLabels": {"a": "b"}}});
        let nothing = launcher_pod::Namespace::default();
        let cpu = launcher_pod::Namespace {
            needs_cpu_limit: true,
            ..nothing
        };
        let memory = |ratio: &str| launcher_pod::Namespace {
            memory_limit_ratio: Some(Ratio::parse(ratio).unwrap()),
            ..nothing
        };
        let key = labels::AUTO_MEMORY_LIMITS_RATIO;
        let cases = [
            (json!({}), json!({}), json!({}), nothing),
            (
                json!({}),
                json!({}),
                json!({"requests.memory": "1Gi"}),
                nothing,
            ),
            (json!({}), json!({}), json!({"limits.cpu": "4"}), cpu),
            // The selector of the administrator decides alone.
            (
                selector.clone(),
                json!({}),
                json!({"limits.cpu": "4"}),
                nothing,
            ),
            (selector, json!({"a": "b"}), json!({}), cpu),
            (
                json!({}),
                json!({}),
                json!({"limits.memory": "1Gi"}),
                memory("2"),
            ),
            (
                json!({}),
                json!({key: "1.25"}),
                json!({"limits.memory": "1Gi"}),
                memory("1.25"),
            ),
            (
                json!({}),
                json!({key: "0.5"}),
                json!({"limits.memory": "1Gi"}),
                memory("2"),
            ),
            (
                json!({}),
                json!({key: "x"}),
                json!({"limits.memory": "1Gi"}),
                memory("2"),
            ),
            // Without required limits the ratio does not matter.
            (json!({}), json!({key: "1.25"}), json!({}), nothing),
        ];
        for (written, marks, hard, expected) in cases {
            let case = format!("{written} {marks} {hard}");
            let found = of_namespace(
                &config(written),
                Some(&namespace(&marks)),
                &[quota(&json!({})), quota(&hard)],
            );
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn gates_switch_features_on() {
        let mut own = Settings::defaults("launcher:1", Acceleration::Kvm);
        // Its gate is on by default.
        let default = Feature::HotplugDisks;
        for (gate, feature) in GATES {
            let written = json!({"developerConfiguration": {"featureGates": [gate]}});
            let all = settings(&own, Acceleration::Emulation, &config(written), &[]);
            assert_eq!(all.features, BTreeSet::from([default, feature]), "{gate}");
            assert_eq!(all.acceleration, Acceleration::Emulation);
        }
        let all = settings(&own, Acceleration::Kvm, &config(json!({})), &[]);
        own.features = BTreeSet::from([default]);
        assert_eq!(all, own);
    }

    fn host(labels: &Value, annotations: &Value, runtime: &str) -> Arc<Host> {
        let node = json!({
            "metadata": {"name": "n", "labels": labels, "annotations": annotations},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.0",
                                    "containerRuntimeVersion": runtime}},
        });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn disks_are_copied_if_a_node_for_guests_mounts_no_images() {
        let takes = json!({labels::SCHEDULABLE: "true"});
        // virt-handler sends no heartbeats for now.
        let was = json!({labels::SCHEDULABLE: "false"});
        let heard = json!({annotations::HEARTBEAT: "2026-11-21T12:00:00Z"});
        let (new, old) = ("containerd://2.1.0", "containerd://1.7.0");
        let none = json!({});
        let cases = [
            (
                vec![host(&takes, &heard, new)],
                ContainerDisks::ImageVolumes,
            ),
            (
                vec![host(&takes, &none, new), host(&takes, &none, old)],
                ContainerDisks::Copied,
            ),
            // virt-handler does not run there.
            (
                vec![host(&takes, &none, new), host(&none, &none, old)],
                ContainerDisks::ImageVolumes,
            ),
            (
                vec![host(&takes, &none, new), host(&was, &heard, old)],
                ContainerDisks::Copied,
            ),
            // virt-handler does not run anywhere yet.
            (
                vec![host(&none, &none, new), host(&none, &none, old)],
                ContainerDisks::Copied,
            ),
            (vec![host(&none, &none, new)], ContainerDisks::ImageVolumes),
        ];
        let own = Settings::defaults("launcher:1", Acceleration::Kvm);
        for (hosts, expected) in cases {
            let all = settings(&own, Acceleration::Kvm, &config(json!({})), &hosts);
            assert_eq!(all.container_disks, expected, "{hosts:?}");
        }
    }

    #[test]
    fn setting_to_copy_wins() {
        let mut own = Settings::defaults("launcher:1", Acceleration::Kvm);
        own.container_disks = ContainerDisks::Copied;
        own.features = BTreeSet::from([Feature::HotplugDisks]);
        assert_eq!(
            settings(&own, Acceleration::Kvm, &config(json!({})), &[]),
            own
        );
    }
}
