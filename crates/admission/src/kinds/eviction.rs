//! What becomes of a request to evict a pod that belongs to a guest.
//!
//! A guest is not deleted because its node is drained: it moves first, or somebody else sees to it.
//! The eviction is refused with "try again later" until the guest is gone from the node.

use cluster_config::ClusterConfig;
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::{
    VirtualMachineInstance, annotations, conditions, labels, vmi::EvictionStrategy,
    vmi_status::VirtualMachineInstanceConditionType,
};
use serde_json::{Value, json};

/// Marks pods that hold volumes for a running guest.
const HOTPLUG: &str = "hotplug-disk";
/// On evictions: who request.
const REQUESTED_BY: &str = "requested-by";
const DESCHEDULER: &str = "sigs.k8s.io/descheduler";

/// What must be looked up before the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: the pod is none of ours.
    Nothing,
    /// The instance of that name.
    Instance(String),
    /// The launcher pod of that name, and then its instance.
    Launcher(String),
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Allow,
    /// Refused for now, with the reason.
    Later(String),
    /// The instance gets this merge patch, then the eviction is refused for now.
    Evacuate {
        instance: String,
        patch: Value,
        message: String,
    },
}

/// What to look up for a pod.
pub fn wanted(pod: &Pod) -> Wanted {
    if let Some(instance) = live_guest(pod) {
        return Wanted::Instance(instance);
    }
    match pod.metadata.owner_references.as_deref() {
        Some([owner]) if is(pod, HOTPLUG) && owner.kind == "Pod" => {
            Wanted::Launcher(owner.name.clone())
        }
        _ => Wanted::Nothing,
    }
}

/// Name of the instance whose guest may live in the pod.
pub fn live_guest(pod: &Pod) -> Option<String> {
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

/// The answer for a pod with volumes of a guest, whose instance was looked for.
pub fn of_volumes(instance: Option<&VirtualMachineInstance>) -> Answer {
    match instance.and_then(|instance| instance.metadata.name.as_deref()) {
        Some(name) => Answer::Later(format!(
            "the pod holds volumes of the running VirtualMachineInstance {name:?}; unplug them, or \
             evict its launcher pod"
        )),
        None => Answer::Allow,
    }
}

/// The answer for the pod of a guest; `instance` is an error when it could not be read.
pub fn of_launcher(
    pod: &Pod,
    instance: Result<&VirtualMachineInstance, &str>,
    eviction: &Value,
    config: &ClusterConfig,
) -> Answer {
    use EvictionStrategy::{External, LiveMigrate, LiveMigrateIfPossible};

    let instance = match instance {
        Ok(instance) => instance,
        Err(why) => {
            return Answer::Later(format!(
                "whether the guest may be evicted is not known ({why}); try again"
            ));
        }
    };
    let name = instance.metadata.name.as_deref().unwrap_or_default();
    let status = instance.status.clone().unwrap_or_default();
    let is_migratable = conditions::is_true(
        &status.conditions,
        &VirtualMachineInstanceConditionType::LiveMigratable,
    );
    let strategy = instance.spec.eviction_strategy.as_ref();
    match (strategy.unwrap_or(&config.eviction_strategy), is_migratable) {
        (LiveMigrate, false) => {
            return Answer::Later(format!(
                "VirtualMachineInstance {name:?} must be migrated and cannot be; stop it, or set \
                 its evictionStrategy to None"
            ));
        }
        (LiveMigrate | LiveMigrateIfPossible, true) | (External, _) => {}
        _ => return Answer::Allow,
    }
    let node = status.node_name.unwrap_or_default();
    if status
        .evacuation_node_name
        .is_some_and(|marked| !marked.is_empty())
    {
        return Answer::Later(format!(
            "VirtualMachineInstance {name:?} is leaving its node already; try again later"
        ));
    }
    let place = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if place != Some(node.as_str()) {
        return Answer::Later(format!(
            "VirtualMachineInstance {name:?} is about to move into this pod; try again later"
        ));
    }
    Answer::Evacuate {
        instance: name.to_owned(),
        patch: evacuation(&node, eviction),
        message: format!(
            "VirtualMachineInstance {name:?} was request to leave node {node:?} first; try again later"
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

    fn instance(strategy: &str, migratable: &str) -> VirtualMachineInstance {
        read(json!({
            "metadata": { "name": "a" },
            "spec": { "evictionStrategy": strategy },
            "status": {
                "nodeName": "one",
                "conditions": [{ "type": "LiveMigratable", "status": migratable }],
            },
        }))
    }

    #[test]
    fn pods_without_a_guest_need_no_look() {
        let pod: Pod = read(launcher());
        assert_eq!(wanted(&pod), Wanted::Instance("a".to_owned()));
        for (pointer, value) in [
            ("/metadata/labels", json!({ "app": "x" })),
            ("/metadata/annotations", json!({})),
            ("/status/phase", json!("Succeeded")),
            ("/status/phase", json!("Failed")),
        ] {
            let mut pod = launcher();
            *pod.pointer_mut(pointer).expect(pointer) = value;
            assert_eq!(wanted(&read(pod)), Wanted::Nothing, "{pointer}");
        }
    }

    #[test]
    fn pods_with_volumes_stay_while_their_guest_does() {
        let owner =
            json!({ "apiVersion": "v1", "kind": "Pod", "name": "virt-launcher-a", "uid": "u" });
        let pod = json!({ "metadata": {
            "labels": { "kubevirt.io": "hotplug-disk" }, "ownerReferences": [owner],
        }});
        assert_eq!(
            wanted(&read(pod)),
            Wanted::Launcher("virt-launcher-a".to_owned())
        );
        let orphan = json!({ "metadata": { "labels": { "kubevirt.io": "hotplug-disk" } } });
        assert_eq!(wanted(&read(orphan)), Wanted::Nothing);
        assert!(matches!(
            of_volumes(Some(&instance("None", "True"))),
            Answer::Later(_)
        ));
        assert_eq!(of_volumes(None), Answer::Allow);
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
            ("External", "False", "evacuate"),
            ("External", "True", "evacuate"),
        ] {
            let instance = instance(strategy, migratable);
            let found = match of_launcher(&pod, Ok(&instance), &json!({}), &config) {
                Answer::Allow => "allow",
                Answer::Later(_) => "later",
                Answer::Evacuate { .. } => "evacuate",
            };
            assert_eq!(found, outcome, "{strategy}, migratable {migratable}");
        }
        let mut without = instance("", "True");
        without.spec.eviction_strategy = None;
        let answer = of_launcher(&pod, Ok(&without), &json!({}), &config);
        assert_eq!(answer, Answer::Allow, "the cluster's strategy is None");
    }

    #[test]
    fn guests_on_their_way_are_left_alone() {
        let config = ClusterConfig::default();
        let pod: Pod = read(launcher());
        let mut marked = instance("LiveMigrate", "True");
        let status = marked.status.as_mut().expect("a status");
        status.evacuation_node_name = Some("one".to_owned());
        let later = |answer: Answer| matches!(answer, Answer::Later(_));
        assert!(later(of_launcher(&pod, Ok(&marked), &json!({}), &config)));

        let mut target = launcher();
        target["spec"]["nodeName"] = json!("two");
        let instance = instance("LiveMigrate", "True");
        assert!(later(of_launcher(
            &read(target),
            Ok(&instance),
            &json!({}),
            &config
        )));
        assert!(later(of_launcher(
            &pod,
            Err("no answer"),
            &json!({}),
            &config
        )));
    }

    #[test]
    fn the_mark_says_who_asked() {
        let config = ClusterConfig::default();
        let pod: Pod = read(launcher());
        let instance = instance("LiveMigrate", "True");
        let patch_for = |eviction: Value| match of_launcher(&pod, Ok(&instance), &eviction, &config)
        {
            Answer::Evacuate { patch, .. } => patch,
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
