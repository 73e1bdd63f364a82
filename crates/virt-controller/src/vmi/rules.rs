//! What the administrator and the namespace say about the pod of a VMI.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster_config::ClusterConfig;
use kubevirt_api::labels;
use launcher_pod::{Acceleration, ContainerDisks, Feature, Ratio, Settings};

use crate::container_disks::{self, ImageVolumes};
use crate::view::{Host, Namespace, Quota};

/// Gates that pods depend on, with what each makes of them.
const GATES: [(&str, Feature); 3] = [
    ("HypervStrictCheck", Feature::HypervStrictCheck),
    (
        "CrossArchitectureVirtualization",
        Feature::CrossArchitecture,
    ),
    ("IOMMUFD", Feature::Iommufd),
];

/// How pods are made now: the installation's own settings, with the administrator's over them, as
/// far as the nodes can follow.
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

/// Those that take guests; before any does, those that may come to.
fn nodes_for_guests(hosts: &[Arc<Host>]) -> impl Iterator<Item = ImageVolumes> {
    let any_takes = hosts.iter().any(|host| host.takes_guests());
    let hosts = hosts.iter();
    hosts
        .filter(move |host| !any_takes || host.takes_guests())
        .map(|host| host.image_volumes)
}

/// What pods of the namespace must have that a guest does not ask for.
pub(super) fn of_namespace(
    config: &ClusterConfig,
    namespace: Option<&Namespace>,
    quotas: &[Arc<Quota>],
) -> launcher_pod::Namespace {
    let marks = namespace.map(Namespace::labels).unwrap_or_default();
    // Where the administrator chose namespaces, quotas choose none.
    let needs_cpu_limit = match config.limits_cpu_in(&marks) {
        Some(is_chosen) => is_chosen,
        None => quotas.iter().any(|quota| quota.counts_cpu_limits),
    };
    let counts_memory = quotas.iter().any(|quota| quota.counts_memory_limits);
    let ratio = || {
        let wish = marks.get(labels::AUTO_MEMORY_LIMITS_RATIO);
        // Less than all that is asked for cannot be the limit.
        let wish = wish.and_then(|text| Ratio::parse(text).ok());
        wish.filter(|wish| wish.at_least(Ratio::ONE) == *wish)
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
    fn limits_follow_from_quotas_and_from_namespaces_that_the_administrator_chose() {
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
            // Chosen by the administrator alone.
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
            // Nothing asks for limits, so the ratio does not matter.
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
        let own = Settings::usual("launcher:1", Acceleration::Kvm);
        for (gate, feature) in GATES {
            let written = json!({"developerConfiguration": {"featureGates": [gate]}});
            let all = settings(&own, Acceleration::Emulation, &config(written), &[]);
            assert_eq!(all.features, BTreeSet::from([feature]), "{gate}");
            assert_eq!(all.acceleration, Acceleration::Emulation);
        }
        let all = settings(&own, Acceleration::Kvm, &config(json!({})), &[]);
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
    fn disks_are_copied_where_a_node_that_takes_guests_mounts_no_images() {
        let takes = json!({labels::SCHEDULABLE: "true"});
        // Its agent is silent for now.
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
            // No agent of ours runs there.
            (
                vec![host(&takes, &none, new), host(&none, &none, old)],
                ContainerDisks::ImageVolumes,
            ),
            (
                vec![host(&takes, &none, new), host(&was, &heard, old)],
                ContainerDisks::Copied,
            ),
            // Agents are about to come.
            (
                vec![host(&none, &none, new), host(&none, &none, old)],
                ContainerDisks::Copied,
            ),
            (vec![host(&none, &none, new)], ContainerDisks::ImageVolumes),
        ];
        let own = Settings::usual("launcher:1", Acceleration::Kvm);
        for (hosts, expected) in cases {
            let all = settings(&own, Acceleration::Kvm, &config(json!({})), &hosts);
            assert_eq!(all.container_disks, expected, "{hosts:?}");
        }
    }

    #[test]
    fn an_installation_that_copies_goes_on_to() {
        let mut own = Settings::usual("launcher:1", Acceleration::Kvm);
        own.container_disks = ContainerDisks::Copied;
        assert_eq!(
            settings(&own, Acceleration::Kvm, &config(json!({})), &[]),
            own
        );
    }
}
