//! The pod that a migration moves a guest to: that of the VMI, with another name, on another node or on
//! the same one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodAntiAffinity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubevirt_api::quantity::Amount;
use kubevirt_api::{VirtualMachineInstance, annotations, labels};
use model::{GuestSize, MigrationEnd, Topology};

use crate::{
    PodError, Settings, Surroundings, incoming, metadata, pod::pod, scheduling::HOST_NAME,
};

/// The migration that a target pod is for.
#[derive(Debug, Clone, Copy)]
pub struct Migration<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    /// Labels that the node must have besides those of the VMI.
    pub added_node_selector: &'a BTreeMap<String, String>,
    /// Labels of nodes that can continue the guest's CPU.
    pub cpu_labels: &'a [String],
    pub destination: Destination<'a>,
}

/// Where the guest moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination<'a> {
    OtherNode,
    /// To another pod on this node, where the guest is.
    SameNode(&'a str),
}

/// Renders the pod that gets the guest.
pub fn target_pod(
    vmi: &VirtualMachineInstance,
    settings: &Settings,
    surroundings: &Surroundings,
    migration: &Migration<'_>,
) -> Result<Pod, PodError> {
    let mut vmi = as_it_is(vmi);
    let moves = model::volume_moves(&vmi);
    model::put_on_new_claims(&mut vmi.spec.volumes, &moves);
    let vmi = &vmi;
    let mut pod = pod(vmi, settings, surroundings)?;
    pod.metadata.name = Some(target_pod_name(vmi, migration.uid));
    pod.metadata.labels.get_or_insert_default().insert(
        labels::MIGRATION_JOB_UID.to_owned(),
        migration.uid.to_owned(),
    );
    let annotated = pod.metadata.annotations.get_or_insert_default();
    annotated.insert(
        annotations::MIGRATION_JOB_NAME.to_owned(),
        migration.name.to_owned(),
    );
    annotated.insert(
        annotations::GUEST_SIZE.to_owned(),
        GuestSize::wanted(vmi).to_string(),
    );
    annotated.insert(
        annotations::MIGRATED_VOLUMES.to_owned(),
        model::pod_annotation(&moves),
    );
    if let Some(spec) = &mut pod.spec {
        let own = spec.node_selector.take().unwrap_or_default();
        let mut selector = migration.added_node_selector.clone();
        selector.extend(own);
        let cpu = migration.cpu_labels.iter();
        selector.extend(cpu.map(|label| (label.clone(), "true".to_owned())));
        incoming::await_guest(spec, &moves);
        match migration.destination {
            Destination::SameNode(node) => {
                // A wish for another node is not overridden: no node takes the pod then.
                let own = selector.entry(HOST_NAME.to_owned());
                own.or_insert_with(|| node.to_owned());
            }
            Destination::OtherNode => {
                let uid = vmi.metadata.uid.clone().unwrap_or_default();
                spec.affinity
                    .get_or_insert_default()
                    .pod_anti_affinity
                    .get_or_insert_with(PodAntiAffinity::default)
                    .required_during_scheduling_ignored_during_execution
                    .get_or_insert_default()
                    .push(away_from_pods_of(uid));
            }
        }
        spec.node_selector = Some(selector);
    }
    Ok(pod)
}

/// The VMI with what its guest has, where its spec has less by now: a guest gives back its memory when it wants
/// to, and never its processors.
fn as_it_is(vmi: &VirtualMachineInstance) -> VirtualMachineInstance {
    let mut vmi = vmi.clone();
    let status = vmi.status.clone().unwrap_or_default();
    let sockets = status.current_cpu_topology.and_then(|now| now.sockets);
    let topology = Topology::of(vmi.spec.domain.cpu.as_ref());
    let grows = topology.max_sockets.is_some();
    if let (Some(cpu), Some(now)) = (&mut vmi.spec.domain.cpu, sockets.filter(|_| grows)) {
        cpu.sockets = Some(now.max(topology.sockets));
    }
    let now = status.memory.and_then(|memory| memory.guest_current);
    let now = now.and_then(|now| Amount::parse(&now).ok());
    let own = vmi.spec.domain.memory.as_mut();
    let own = own.filter(|own| own.max_guest.is_some());
    let written = own.as_ref().and_then(|own| own.guest.clone());
    let written = written.and_then(|written| Amount::parse(&written).ok());
    let (Some(own), Some(written), Some(now)) = (own, written, now) else {
        return vmi;
    };
    if now <= written {
        return vmi;
    }
    own.guest = Some(now.to_binary());
    if let Some(resources) = &mut vmi.spec.domain.resources {
        for list in [&mut resources.requests, &mut resources.limits] {
            if let Some(amount) = list.get_mut("memory")
                && let Ok(before) = Amount::parse(amount)
            {
                *amount = before.plus(now).minus(written).to_binary();
            }
        }
    }
    vmi
}

/// Where there are other nodes, two pods of one guest are never on the same one.
fn away_from_pods_of(vmi_uid: String) -> PodAffinityTerm {
    PodAffinityTerm {
        topology_key: HOST_NAME.to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some([(labels::CREATED_BY.to_owned(), vmi_uid)].into()),
            match_expressions: None,
        }),
        ..PodAffinityTerm::default()
    }
}

/// The name of the pod that a migration of this VMI creates.
pub fn target_pod_name(vmi: &VirtualMachineInstance, migration_uid: &str) -> String {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    metadata::name_with(vmi, &format!("{uid}/{migration_uid}"))
}

/// The name of the pod that runs the guest: the first one until a migration has moved the guest.
pub fn current_pod_name(vmi: &VirtualMachineInstance) -> String {
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    let pod = state.and_then(|state| match model::migration_end(vmi) {
        Some(MigrationEnd::Target) => state.target_pod.clone(),
        None if model::has_moved(vmi) => state.target_pod.clone(),
        Some(MigrationEnd::Source) | None => state.source_pod.clone(),
    });
    pod.unwrap_or_else(|| metadata::pod_name(vmi))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Acceleration;

    static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

    static TO_ANOTHER_NODE: Migration<'static> = Migration {
        name: "m",
        uid: "77aa",
        added_node_selector: &NO_LABELS,
        cpu_labels: &[],
        destination: Destination::OtherNode,
    };

    fn vmi(status: &serde_json::Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "1b5c"},
            "spec": {"nodeSelector": {"zone": "here"}, "domain": {"devices": {}, "memory": {"guest": "64Mi"}}},
            "status": status,
        }))
        .expect("is a VMI")
    }

    #[test]
    fn target_pod_has_its_own_name_and_avoids_the_node_of_the_guest() {
        let vmi = vmi(&json!({}));
        let settings = Settings::defaults("launcher:1", Acceleration::Emulation);
        let added = BTreeMap::from([
            ("zone".to_owned(), "there".to_owned()),
            ("disk".to_owned(), "fast".to_owned()),
        ]);
        let migration = Migration {
            name: "m",
            uid: "77aa",
            added_node_selector: &added,
            cpu_labels: &["cpu/model".to_owned()],
            destination: Destination::OtherNode,
        };
        let around = Surroundings::default();
        let pod = target_pod(&vmi, &settings, &around, &migration).expect("renders");
        let first = super::pod(&vmi, &settings, &around).expect("renders");
        assert_ne!(pod.metadata.name, first.metadata.name);
        assert_eq!(
            pod.metadata.owner_references,
            first.metadata.owner_references
        );
        let labels = pod.metadata.labels.expect("has labels");
        assert_eq!(labels["kubevirt.io/migrationJobUID"], "77aa");
        let annotated = pod.metadata.annotations.expect("has annotations");
        assert_eq!(annotated["kubevirt.io/migrationJobName"], "m");
        let spec = json!(pod.spec);
        let terms = &spec["affinity"]["podAntiAffinity"];
        let term = &terms["requiredDuringSchedulingIgnoredDuringExecution"][0];
        assert_eq!(term["topologyKey"], "kubernetes.io/hostname");
        let matched = &term["labelSelector"]["matchLabels"];
        assert_eq!(matched["kubevirt.io/created-by"], "1b5c");
        // The selector of the VMI wins: the migration can only narrow the choice.
        assert_eq!(spec["nodeSelector"]["zone"], "here");
        assert_eq!(spec["nodeSelector"]["disk"], "fast");
        assert_eq!(spec["nodeSelector"]["cpu/model"], "true");
    }

    #[test]
    fn target_pod_has_room_for_what_the_guest_has() {
        let settings = Settings::defaults("launcher:1", Acceleration::Emulation);
        let size = |sockets: u32, memory: &str, status: &serde_json::Value| {
            let vmi = serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "n", "uid": "1b5c"},
                "spec": {"domain": {
                    "cpu": {"sockets": sockets, "maxSockets": 4}, "devices": {},
                    "memory": {"guest": memory, "maxGuest": "4Gi"},
                    "resources": {"requests": {"memory": memory}},
                }},
                "status": status,
            }))
            .expect("is a VMI");
            let around = Surroundings::default();
            let pod = target_pod(&vmi, &settings, &around, &TO_ANOTHER_NODE).expect("renders");
            let size = pod.metadata.annotations.expect("has annotations");
            let resources = pod
                .spec
                .expect("has a spec")
                .containers
                .swap_remove(0)
                .resources;
            let requests = resources.and_then(|all| all.requests).expect("requests");
            let requested = Amount::parse(&requests["memory"]).expect("is a quantity");
            (
                size["ferrovirt.io/guest-size"].clone(),
                requested.units() >> 30,
            )
        };
        let has = json!({"currentCPUTopology": {"sockets": 3},
            "memory": {"guestAtBoot": "1Gi", "guestRequested": "1Gi", "guestCurrent": "2Gi"}});
        for (sockets, memory, status, expected, at_least) in [
            (2, "1Gi", &json!({}), "vcpus=2,memory=1073741824", 1),
            (2, "1Gi", &has, "vcpus=3,memory=2147483648", 2),
            (4, "3Gi", &has, "vcpus=4,memory=3221225472", 3),
        ] {
            let (size, requested) = size(sockets, memory, status);
            assert_eq!(size, expected, "{sockets} {memory}");
            assert!(requested >= at_least, "{sockets} {memory}: {requested} GiB");
        }
    }

    #[test]
    fn target_pod_has_the_claims_that_volumes_move_to() {
        let settings = Settings::defaults("launcher:1", Acceleration::Emulation);
        let claim = |name: &str| {
            let claim = serde_json::from_value(json!({"metadata": {"name": name, "uid": name}}));
            (
                name.to_owned(),
                crate::Claim::of(&claim.expect("is a claim")),
            )
        };
        let around = Surroundings {
            claims: [claim("old"), claim("new")].into(),
            ..Surroundings::default()
        };
        for (wanted, expected, made_for) in [
            ("True", "new", r#"{"root":["old","new"]}"#),
            ("False", "old", "{}"),
        ] {
            let vmi = serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "n", "uid": "1b5c"},
                "spec": {
                    "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                        "memory": {"guest": "64Mi"}},
                    "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "old"}}],
                },
                "status": {
                    "phase": "Running", "conditions": [{"type": "VolumesChange", "status": wanted}],
                    "migratedVolumes": [{"volumeName": "root", "sourcePVCInfo": {"claimName": "old"},
                        "destinationPVCInfo": {"claimName": "new"}}],
                },
            }))
            .expect("is a VMI");
            let pod = target_pod(&vmi, &settings, &around, &TO_ANOTHER_NODE).expect("renders");
            let annotated = pod.metadata.annotations.expect("has annotations");
            assert_eq!(annotated["ferrovirt.io/migrated-volumes"], made_for);
            let text = json!(pod.spec).to_string();
            assert!(
                text.contains(&format!(r#""claimName":"{expected}""#)),
                "{text}"
            );
            let is_told = text.contains("VIRT_LAUNCHER_MOVED_VOLUMES");
            assert_eq!(is_told, expected == "new", "{text}");
        }
    }

    #[test]
    fn target_pod_of_a_move_within_the_node_stays_there() {
        let settings = Settings::defaults("launcher:1", Acceleration::Emulation);
        let migration = Migration {
            name: "m",
            uid: "77aa",
            added_node_selector: &[("disk".to_owned(), "fast".to_owned())].into(),
            cpu_labels: &[],
            destination: Destination::SameNode("n1"),
        };
        let around = Surroundings::default();
        let pod = target_pod(&vmi(&json!({})), &settings, &around, &migration).expect("renders");
        let spec = json!(pod.spec);
        assert_eq!(spec["nodeSelector"]["kubernetes.io/hostname"], "n1");
        assert_eq!(spec["nodeSelector"]["disk"], "fast");
        assert_eq!(spec["affinity"]["podAntiAffinity"], serde_json::Value::Null);
    }

    #[test]
    fn current_pod_follows_the_node_of_the_vmi() {
        let state = json!({"sourceNode": "n1", "sourcePod": "p1", "targetNode": "n2",
            "targetPod": "p2"});
        let check = |status: serde_json::Value, expected: &str| {
            assert_eq!(current_pod_name(&vmi(&status)), expected, "{status}");
        };
        check(
            json!({"nodeName": "n1"}),
            &metadata::pod_name(&vmi(&json!({}))),
        );
        check(json!({"nodeName": "n1", "migrationState": state}), "p1");
        check(json!({"nodeName": "n2", "migrationState": state}), "p2");
    }

    #[test]
    fn current_pod_within_a_node_follows_the_arrival_of_the_guest() {
        let check = |change: serde_json::Value, expected: &str| {
            let mut state = json!({"sourceNode": "n1", "sourcePod": "p1", "targetNode": "n1",
                "targetPod": "p2"});
            for (name, value) in change.as_object().expect("is an object") {
                state[name] = value.clone();
            }
            let status = json!({"nodeName": "n1", "migrationState": state});
            assert_eq!(current_pod_name(&vmi(&status)), expected, "{status}");
        };
        check(json!({}), "p1");
        check(json!({"startTimestamp": "2026-11-21T12:00:00Z"}), "p1");
        check(json!({"completed": true, "failed": true}), "p1");
        check(json!({"completed": true}), "p2");
        let ready = json!({"targetNodeDomainReadyTimestamp": "2026-11-21T12:00:00Z"});
        check(ready, "p2");
    }

    #[test]
    fn each_vmi_keeps_its_pod_when_the_guest_goes_from_one_to_the_other() {
        let state = json!({"sourcePod": "ps", "targetPod": "pt", "completed": true,
            "sourceState": {"virtualMachineInstanceUID": "s"},
            "targetState": {"virtualMachineInstanceUID": "t"}});
        for (uid, expected) in [("s", "ps"), ("t", "pt")] {
            let mut vmi = vmi(&json!({"migrationState": state}));
            vmi.metadata.uid = Some(uid.to_owned());
            assert_eq!(current_pod_name(&vmi), expected);
        }
    }
}
