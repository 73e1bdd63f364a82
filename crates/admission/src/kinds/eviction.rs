//! Evictions of pods that belong to a guest.
//!
//! Draining a node must not delete its guests: they are live-migrated first, or an external controller
//! handles them. The eviction is refused with "try again later" until the guest has left the node.

use cluster_config::ClusterConfig;
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::{
    VirtualMachineInstance, annotations, conditions, labels, vmi::EvictionStrategy,
    vmi_status::VirtualMachineInstanceConditionType,
};
use reasons::Reason;
use serde_json::{Value, json};

/// Component label of pods that hold hot-plugged volumes of a running guest.
const HOTPLUG: &str = "hotplug-disk";
/// Annotation of an eviction: its requester.
const REQUESTED_BY: &str = "requested-by";
const DESCHEDULER: &str = "sigs.k8s.io/descheduler";

/// The lookup that a decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// None: the pod does not belong to a guest.
    Nothing,
    /// The VMI of this name.
    Vmi(String),
    /// The launcher pod of this name, and then its VMI.
    Launcher(String),
}

/// The decision on an eviction.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Allow,
    /// Refused temporarily, with this message.
    RetryLater(String),
    /// Apply the merge patch to the VMI, then refuse temporarily.
    Evacuate {
        vmi: String,
        patch: Value,
        message: String,
    },
}

/// The lookup for a pod.
pub fn lookup(pod: &Pod) -> Lookup {
    if let Some(vmi) = guest_of(pod) {
        return Lookup::Vmi(vmi);
    }
    match pod.metadata.owner_references.as_deref() {
        Some([owner]) if is(pod, HOTPLUG) && owner.kind == "Pod" => {
            Lookup::Launcher(owner.name.clone())
        }
        _ => Lookup::Nothing,
    }
}

/// Name of the VMI whose guest may run in the pod.
pub fn guest_of(pod: &Pod) -> Option<String> {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if !is(pod, labels::COMPONENT_VIRT_LAUNCHER) || matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    pod.metadata
        .annotations
        .as_ref()?
        .get(annotations::DOMAIN)
        .filter(|name| !name.is_empty())
        .cloned()
}

/// The decision for a pod with hot-plugged volumes; `vmi` is `None` if it does not exist.
pub fn decide_for_volumes(vmi: Option<&VirtualMachineInstance>) -> Decision {
    match vmi.and_then(|vmi| vmi.metadata.name.as_deref()) {
        Some(name) => Decision::RetryLater(format!(
            "the pod holds volumes of the running VirtualMachineInstance {name:?}; unplug them, or \
             evict its launcher pod"
        )),
        None => Decision::Allow,
    }
}

/// The decision for the launcher pod of a guest; `vmi` is an error if it could not be read.
pub fn decide_for_launcher(
    pod: &Pod,
    vmi: Result<&VirtualMachineInstance, &str>,
    eviction: &Value,
    config: &ClusterConfig,
) -> Decision {
    use EvictionStrategy::{External, LiveMigrate, LiveMigrateIfPossible};

    let vmi = match vmi {
        Ok(vmi) => vmi,
        Err(error) => {
            return Decision::RetryLater(format!(
                "cannot determine whether the guest may be evicted ({error}); try again"
            ));
        }
    };
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let full_name = format!("{namespace}/{name}");
    let status = vmi.status.clone().unwrap_or_default();
    let kind = VirtualMachineInstanceConditionType::LiveMigratable;
    let condition = conditions::find(&status.conditions, &kind);
    let condition = condition.filter(|condition| condition.status == conditions::TRUE);
    let stays = condition.is_some_and(|condition| {
        condition.reason.as_deref() == Some(Reason::OnlyWithinNode.as_str())
    });
    let can_leave = condition.is_some() && !stays;
    let strategy = vmi.spec.eviction_strategy.as_ref();
    match (strategy.unwrap_or(&config.eviction_strategy), can_leave) {
        (LiveMigrate, false) => {
            let why = if stays {
                "cannot leave its node, which is the only one"
            } else {
                "is not migratable"
            };
            return Decision::RetryLater(format!(
                "VirtualMachineInstance {name:?} must be migrated but {why}; stop it, or set its \
                 evictionStrategy to None"
            ));
        }
        (LiveMigrate | LiveMigrateIfPossible, true) | (External, _) => {}
        _ => return Decision::Allow,
    }
    let node = status.node_name.unwrap_or_default();
    if status
        .evacuation_node_name
        .is_some_and(|marked| !marked.is_empty())
    {
        return Decision::RetryLater(format!(
            "Evacuation in progress: VMI {full_name:?} is leaving its node; try again later"
        ));
    }
    let pod_node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if pod_node != Some(node.as_str()) {
        return Decision::RetryLater(format!(
            "VirtualMachineInstance {name:?} is about to move into this pod; try again later"
        ));
    }
    Decision::Evacuate {
        vmi: name.to_owned(),
        patch: evacuation(&node, eviction),
        message: format!(
            "Eviction triggered evacuation of VMI {full_name:?} from node {node:?}; try again later"
        ),
    }
}

fn evacuation(node: &str, eviction: &Value) -> Value {
    let mut patch = json!({ "status": { "evacuationNodeName": node } });
    if eviction["metadata"]["annotations"][REQUESTED_BY] == DESCHEDULER {
        patch["metadata"] =
            json!({ "annotations": { annotations::EVICTION_SOURCE: "descheduler" } });
    }
    patch
}

fn is(pod: &Pod, component: &str) -> bool {
    let found = pod.metadata.labels.as_ref();
    found
        .and_then(|labels| labels.get(labels::COMPONENT))
        .is_some_and(|value| value == component)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("readable")
    }

    fn launcher() -> Value {
        json!({
            "metadata": {
                "name": "virt-launcher-a", "labels": { "kubevirt.io": "virt-launcher" },
                "annotations": { "kubevirt.io/domain": "a" },
            },
            "spec": { "containers": [], "nodeName": "one" },
            "status": { "phase": "Running" },
        })
    }

    /// `LiveMigratable` of guests that do not leave their node.
    const ONLY_WITHIN_NODE: &str = "True, OnlyWithinNode";

    fn instance(strategy: &str, migratable: &str) -> VirtualMachineInstance {
        let (migratable, reason) = migratable.split_once(", ").unwrap_or((migratable, ""));
        read(json!({
            "metadata": { "name": "a" },
            "spec": { "evictionStrategy": strategy },
            "status": {
                "nodeName": "one",
                "conditions": [{ "type": "LiveMigratable", "status": migratable, "reason": reason }],
            },
        }))
    }

    #[test]
    fn pod_without_a_guest_needs_no_lookup() {
        let pod: Pod = read(launcher());
        assert_eq!(lookup(&pod), Lookup::Vmi("a".to_owned()));
        for (pointer, value) in [
            ("/metadata/labels", json!({ "app": "x" })),
            ("/metadata/annotations", json!({})),
            ("/status/phase", json!("Succeeded")),
            ("/status/phase", json!("Failed")),
        ] {
            let mut pod = launcher();
            *pod.pointer_mut(pointer).expect(pointer) = value;
            assert_eq!(lookup(&read(pod)), Lookup::Nothing, "{pointer}");
        }
    }

    #[test]
    fn pod_with_volumes_is_kept_while_its_vmi_exists() {
        let owner =
            json!({ "apiVersion": "v1", "kind": "Pod", "name": "virt-launcher-a", "uid": "u" });
        let pod = json!({ "metadata": {
            "labels": { "kubevirt.io": "hotplug-disk" }, "ownerReferences": [owner],
        }});
        assert_eq!(
            lookup(&read(pod)),
            Lookup::Launcher("virt-launcher-a".to_owned())
        );
        let orphan = json!({ "metadata": { "labels": { "kubevirt.io": "hotplug-disk" } } });
        assert_eq!(lookup(&read(orphan)), Lookup::Nothing);
        assert!(matches!(
            decide_for_volumes(Some(&instance("None", "True"))),
            Decision::RetryLater(_)
        ));
        assert_eq!(decide_for_volumes(None), Decision::Allow);
    }

    #[test]
    fn strategy_and_migratability_decide() {
        let config = ClusterConfig::default();
        let pod: Pod = read(launcher());
        for (strategy, migratable, outcome) in [
            ("None", "True", "allow"),
            ("LiveMigrateIfPossible", "False", "allow"),
            ("LiveMigrateIfPossible", "True", "evacuate"),
            ("LiveMigrate", "False", "later"),
            ("LiveMigrate", "True", "evacuate"),
            ("LiveMigrateIfPossible", ONLY_WITHIN_NODE, "allow"),
            ("LiveMigrate", ONLY_WITHIN_NODE, "later"),
            ("External", "False", "evacuate"),
            ("External", "True", "evacuate"),
        ] {
            let instance = instance(strategy, migratable);
            let found = match decide_for_launcher(&pod, Ok(&instance), &json!({}), &config) {
                Decision::Allow => "allow",
                Decision::RetryLater(_) => "later",
                Decision::Evacuate { .. } => "evacuate",
            };
            assert_eq!(found, outcome, "{strategy}, migratable {migratable}");
        }
        let mut without = instance("", "True");
        without.spec.eviction_strategy = None;
        let decision = decide_for_launcher(&pod, Ok(&without), &json!({}), &config);
        assert_eq!(decision, Decision::Allow, "the cluster's strategy is None");
    }

    /// Tools that drain nodes look for these texts.
    #[test]
    fn messages_are_those_that_tools_expect() {
        let config = ClusterConfig::default();
        let pod: Pod = read(launcher());
        let mut vmi = instance("LiveMigrate", "True");
        vmi.metadata.namespace = Some("ns".to_owned());
        let message = |vmi: &VirtualMachineInstance| match decide_for_launcher(
            &pod,
            Ok(vmi),
            &json!({}),
            &config,
        ) {
            Decision::Evacuate { message, .. } | Decision::RetryLater(message) => message,
            Decision::Allow => String::new(),
        };
        let first = message(&vmi);
        let expected = "Eviction triggered evacuation of VMI \"ns/a\"";
        assert!(first.starts_with(expected), "{first}");
        let status = vmi.status.as_mut().expect("a status");
        status.evacuation_node_name = Some("one".to_owned());
        assert!(message(&vmi).starts_with("Evacuation in progress"));
    }

    /// A mark is not cleared when its guest stops being migratable.
    #[test]
    fn marked_guest_that_cannot_migrate_is_answered_like_an_unmarked_one() {
        let config = ClusterConfig::default();
        let pod: Pod = read(launcher());
        for strategy in ["LiveMigrate", "LiveMigrateIfPossible"] {
            let plain = instance(strategy, "False");
            let mut marked = plain.clone();
            let status = marked.status.as_mut().expect("a status");
            status.evacuation_node_name = Some("one".to_owned());
            let decide = |vmi| decide_for_launcher(&pod, Ok(vmi), &json!({}), &config);
            assert_eq!(decide(&marked), decide(&plain), "{strategy}");
        }
    }

    #[test]
    fn migrating_guest_is_not_evacuated_again() {
        let config = ClusterConfig::default();
        let pod: Pod = read(launcher());
        let mut marked = instance("LiveMigrate", "True");
        let status = marked.status.as_mut().expect("a status");
        status.evacuation_node_name = Some("one".to_owned());
        let later = |decision: Decision| matches!(decision, Decision::RetryLater(_));
        assert!(later(decide_for_launcher(
            &pod,
            Ok(&marked),
            &json!({}),
            &config
        )));

        let mut target = launcher();
        target["spec"]["nodeName"] = json!("two");
        let instance = instance("LiveMigrate", "True");
        assert!(later(decide_for_launcher(
            &read(target),
            Ok(&instance),
            &json!({}),
            &config
        )));
        assert!(later(decide_for_launcher(
            &pod,
            Err("no answer"),
            &json!({}),
            &config
        )));
    }

    #[test]
    fn patch_records_the_descheduler() {
        let config = ClusterConfig::default();
        let pod: Pod = read(launcher());
        let instance = instance("LiveMigrate", "True");
        let patch_for =
            |eviction: Value| match decide_for_launcher(&pod, Ok(&instance), &eviction, &config) {
                Decision::Evacuate { patch, .. } => patch,
                other => panic!("{other:?}"),
            };
        let mark = json!({ "evacuationNodeName": "one" });
        assert_eq!(patch_for(json!({})), json!({ "status": mark }));
        let eviction =
            json!({ "metadata": { "annotations": { "requested-by": "sigs.k8s.io/descheduler" } } });
        assert_eq!(
            patch_for(eviction),
            json!({
                "status": mark,
                "metadata": { "annotations": { "kubevirt.io/eviction-source": "descheduler" } },
            })
        );
    }
}
