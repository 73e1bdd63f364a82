//! Reading the objects of one guest.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{Api, Client, ResourceExt};
use kubevirt_api::{
    VirtualMachineInstance, conditions, vmi_status::VirtualMachineInstancePhase as Phase,
};
use model::MigrationEnd;
use reasons::Reason;
use reconcile::{Key, Store};

use crate::{metrics, pods_dir::PodUid};

/// What a pod of this node has to do with a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The guest belongs to this pod, whose state this node writes to the VMI's status.
    Runs,
    /// The guest migrates to this pod and belongs to another one, perhaps on the same node.
    Arrives,
}

/// Where pairs are found.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) client: &'a Client,
    pub(crate) node: &'a str,
    pub(crate) vmis: [&'a Store<VirtualMachineInstance>; 2],
    pub(crate) pods: &'a Store<Pod>,
}

/// The VMI of a key and its pod on this node.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) part: Part,
    pub(crate) vmi: Arc<VirtualMachineInstance>,
    pub(crate) pod: Arc<Pod>,
    pub(crate) pod_uid: PodUid,
}

/// Finds the pairs: none if this node has no guest of that key, and two while a guest moves from one pod of
/// this node to another. That to which the guest belongs comes first.
///
/// VMIs that were handed over to this node are in the store. Before the hand-over only the pod is
/// known, and the VMI is read from the API server.
pub(crate) async fn pairs(sources: &Sources<'_>, key: &Key) -> Result<Vec<Pair>, kube::Error> {
    let of_key = |pod: &Arc<Pod>| {
        Key::of_controller(pod.as_ref(), "VirtualMachineInstance").as_ref() == Some(key)
    };
    let candidates: Vec<_> = sources.pods.list().into_iter().filter(of_key).collect();
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let vmi = match sources.vmis.into_iter().find_map(|store| store.get(key)) {
        Some(vmi) => Some(vmi),
        None => Api::<VirtualMachineInstance>::namespaced(sources.client.clone(), &key.namespace)
            .get_opt(&key.name)
            .await?
            .map(Arc::new),
    };
    let Some(vmi) = vmi else {
        return Ok(Vec::new());
    };
    let pairs = candidates.into_iter().filter_map(|pod| {
        Some(Pair {
            part: part_of(&pod, &vmi, sources.node)?,
            vmi: Arc::clone(&vmi),
            pod_uid: PodUid::parse(&pod.uid()?).ok()?,
            pod,
        })
    });
    let mut pairs: Vec<Pair> = pairs.collect();
    pairs.sort_by_key(|pair| pair.part == Part::Arrives);
    Ok(pairs)
}

/// The pod on this node to which the guest is to move.
pub(crate) fn arriving_pod(
    pods: &Store<Pod>,
    vmi: &VirtualMachineInstance,
    node: &str,
) -> Option<PodUid> {
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    let name = state.target_pod.clone()?;
    if model::migration_end(vmi) == Some(MigrationEnd::Source) {
        let target = state.target_state.as_ref()?;
        let pod = pods.get(&Key::new(target.domain_namespace.clone()?, name))?;
        // The other VMI is not read: it may be written at any time, and virt-controller has named it.
        let owner = target.virtual_machine_instance_uid.as_deref()?;
        let is_it = pod
            .owner_references()
            .iter()
            .any(|one| one.controller == Some(true) && one.uid == owner);
        return PodUid::parse(&pod.uid()?).ok().filter(|_| is_it);
    }
    let namespace = vmi.metadata.namespace.clone().unwrap_or_default();
    let pod = pods.get(&Key::new(namespace, name))?;
    let arrives = part_of(&pod, vmi, node) == Some(Part::Arrives);
    PodUid::parse(&pod.uid()?).ok().filter(|_| arrives)
}

/// The part of a pod of this node in the life of the VMI, if virt-controller created it for that. Anyone who
/// may create pods in the namespace can set labels and owner references; names are unique, and
/// virt-controller derives them from the UID of the VMI or publishes them in its status.
fn part_of(pod: &Pod, vmi: &VirtualMachineInstance, node: &str) -> Option<Part> {
    let uid = vmi.metadata.uid.as_ref();
    let owned = pod
        .owner_references()
        .iter()
        .any(|owner| owner.controller == Some(true) && Some(&owner.uid) == uid);
    let status = vmi.status.as_ref();
    let known = status.map(|status| &status.active_pods);
    // Once virt-controller has published the active pods, no other pod is accepted.
    let active = known.is_none_or(|known| {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        known.is_empty() || known.contains_key(uid)
    });
    if !owned || !active {
        return None;
    }
    let name = pod.metadata.name.as_deref();
    let of_vmi = status.and_then(|status| status.node_name.as_deref());
    if of_vmi.is_none_or(|other| other == node)
        && !model::awaits_guest(vmi)
        && name == Some(launcher_pod::current_pod_name(vmi).as_str())
    {
        return Some(Part::Runs);
    }
    let state = status.and_then(|status| status.migration_state.as_ref())?;
    // After a success it stays the target until virt-controller has moved the VMI to this node.
    let is_target = state.target_node.as_deref() == Some(node)
        && state.target_pod.as_deref() == name
        && (state.completed != Some(true) || state.failed != Some(true));
    is_target.then_some(Part::Arrives)
}

/// Reason and message of a pod's `Ready` condition that is false.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unready<'a> {
    pub(crate) reason: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
}

/// Why a running pod is not ready, if it is not: it is being deleted, a probe of the guest fails, or
/// its node stopped reporting. `None` until the pod runs, as the condition may date from before; a pod
/// with a readiness probe is not ready before its first success, so there the condition always counts.
pub(crate) fn unready(pod: &Pod) -> Option<Unready<'_>> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let runs = |one: &ContainerStatus| one.state.as_ref().is_some_and(|now| now.running.is_some());
    let mut specs = pod.spec.iter().flat_map(|spec| &spec.containers);
    let is_probed = specs.any(|container| container.readiness_probe.is_some());
    if !is_probed && (containers.is_empty() || !containers.iter().all(runs)) {
        return None;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Unready {
            reason: Some(Reason::PodTerminating.as_str()),
            message: Some(conditions::POD_TERMINATING),
        });
    }
    let mut all = status.conditions.iter().flatten();
    let ready = all.find(|one| one.type_ == "Ready" && one.status == conditions::FALSE)?;
    Some(Unready {
        reason: ready.reason.as_deref(),
        message: ready.message.as_deref(),
    })
}

/// Publishes the number of VMIs in each phase.
pub(crate) fn count_phases(vmis: &Store<VirtualMachineInstance>) {
    let all = vmis.list();
    for phase in Phase::KNOWN.iter().filter(|phase| !phase.is_empty()) {
        let is_in = |vmi: &&Arc<VirtualMachineInstance>| {
            let status = vmi.status.as_ref();
            let current = status.and_then(|status| status.phase.as_ref());
            current.is_some_and(|current| current.as_str() == *phase)
        };
        metrics::GUESTS.set([phase], all.iter().filter(is_in).count());
    }
}

/// Whether all processes of the pod have ended.
pub(crate) fn ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn running_pod_reports_why_it_is_not_ready() {
        let check = |state: Value, condition: Value, expected: Option<Unready<'_>>| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "status": {
                "containerStatuses": [{
                    "name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": state,
                }],
                "conditions": [condition],
            }}))
            .unwrap();
            assert_eq!(unready(&pod), expected);
            let mut deleting = pod.clone();
            deleting.metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2026-11-21T12:00:00Z")).unwrap());
            let runs = pod.status.unwrap().container_statuses.unwrap()[0]
                .state
                .clone()
                .unwrap()
                .running
                .is_some();
            let reason = unready(&deleting).map(|unready| unready.reason.unwrap());
            assert_eq!(reason, runs.then_some("PodTerminating"));
        };
        let condition = |status: &str, reason: Option<&str>| json!({"type": "Ready", "status": status, "reason": reason});
        let unready_because = |reason| Unready {
            reason,
            message: None,
        };
        let runs = || json!({"running": {}});
        let probe = "ContainersNotReady";
        check(runs(), condition("True", None), None);
        check(
            runs(),
            condition("False", None),
            Some(unready_because(None)),
        );
        check(
            runs(),
            condition("False", Some(probe)),
            Some(unready_because(Some(probe))),
        );
        // From before it ran.
        check(
            json!({"waiting": {}}),
            condition("False", Some(probe)),
            None,
        );
        assert_eq!(unready(&Pod::default()), None);
    }

    /// The guest may run before the kubelet has reported that its container does.
    #[test]
    fn pod_with_readiness_probe_is_not_ready_before_the_first_success() {
        let pod = |container: Value, statuses: Value, ready: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {},
                "spec": {"containers": [container]},
                "status": {
                    "containerStatuses": statuses,
                    "conditions": [
                        {"type": "Ready", "status": ready, "reason": "ContainersNotReady"},
                    ],
                },
            }))
            .unwrap()
        };
        let probed = json!({"name": "compute", "readinessProbe": {"tcpSocket": {"port": 1500}}});
        let plain = json!({"name": "compute"});
        let status = |state: Value| {
            json!([{
                "name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            }])
        };
        let cases = [
            (&probed, json!([]), "False", true),
            (&probed, status(json!({"waiting": {}})), "False", true),
            (&probed, status(json!({"running": {}})), "False", true),
            (&probed, status(json!({"running": {}})), "True", false),
            (&plain, json!([]), "False", false),
            (&plain, status(json!({"waiting": {}})), "False", false),
            (&plain, status(json!({"running": {}})), "False", true),
        ];
        for (container, statuses, ready, expected) in cases {
            let pod = pod(container.clone(), statuses.clone(), ready);
            let found = unready(&pod).is_some();
            assert_eq!(found, expected, "{container} {statuses} {ready}");
        }
    }

    /// The class of CVE-2025-64435.
    #[test]
    fn pod_with_copied_identity_is_ignored() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "11111111-aaaa"},
            "status": {"activePods": {"pod-uid": "here"}},
        }))
        .unwrap();
        let name = launcher_pod::pod_name(&vmi);
        let owner = |uid: &str, controller: bool| {
            json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "name": "a", "uid": uid, "controller": controller}])
        };
        let check = |name: &str, uid: &str, owners: Value, expected: bool| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {
                "name": name, "namespace": "n", "uid": uid, "ownerReferences": owners,
                "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "11111111-aaaa"},
            }}))
            .unwrap();
            let part = part_of(&pod, &vmi, "n1");
            assert_eq!(part.is_some(), expected, "{name} {uid}");
        };
        check(&name, "pod-uid", owner("11111111-aaaa", true), true);
        // Everything but the name can be forged.
        check(
            "virt-launcher-a-evil",
            "pod-uid",
            owner("11111111-aaaa", true),
            false,
        );
        // Another pod with the name of a deleted one.
        check(&name, "other-uid", owner("11111111-aaaa", true), false);
        check(&name, "pod-uid", owner("22222222-bbbb", true), false);
        check(&name, "pod-uid", owner("11111111-aaaa", false), false);
        check(&name, "pod-uid", json!([]), false);
    }

    #[test]
    fn target_pod_is_known_until_the_migration_has_failed() {
        let check = |state: Value, node_name: &str, node: &str, expected: Option<Part>| {
            let vmi: VirtualMachineInstance = serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "n", "uid": "11111111-aaaa"},
                "status": {"nodeName": node_name, "migrationState": state,
                           "activePods": {"old": "n1", "new": "n2"}},
            }))
            .unwrap();
            let pod: Pod = serde_json::from_value(json!({"metadata": {
                "name": "target", "namespace": "n", "uid": "new", "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                    "name": "a", "uid": "11111111-aaaa", "controller": true}],
            }}))
            .unwrap();
            assert_eq!(
                part_of(&pod, &vmi, node),
                expected,
                "{state} {node_name} {node}"
            );
        };
        let state = || {
            json!({"sourceNode": "n1", "sourcePod": "source", "targetNode": "n2",
                   "targetPod": "target"})
        };
        check(state(), "n1", "n2", Some(Part::Arrives));
        check(state(), "n2", "n2", Some(Part::Runs));
        check(state(), "n1", "n1", None);
        check(state(), "n1", "n3", None);
        let mut completed = state();
        completed["completed"] = json!(true);
        // virt-controller has not moved the VMI yet.
        check(completed.clone(), "n1", "n2", Some(Part::Arrives));
        check(completed.clone(), "n2", "n2", Some(Part::Runs));
        check(completed.clone(), "n2", "n1", None);
        let mut failed = completed;
        failed["failed"] = json!(true);
        check(failed, "n1", "n2", None);
        let mut other = state();
        other["targetPod"] = json!("another");
        check(other, "n1", "n2", None);
        // A move within the node.
        let within = |change: Value| {
            let mut state = state();
            state["sourceNode"] = json!("n2");
            for (name, value) in change.as_object().unwrap() {
                state[name] = value.clone();
            }
            state
        };
        check(within(json!({})), "n2", "n2", Some(Part::Arrives));
        let moved = within(json!({"completed": true}));
        check(moved, "n2", "n2", Some(Part::Runs));
        let failed = within(json!({"completed": true, "failed": true}));
        check(failed, "n2", "n2", None);
    }

    #[test]
    fn pod_that_waits_for_a_guest_of_another_vmi_runs_none_before_it_has_come() {
        let check = |phase: &str, state: Value, expected: Option<Part>| {
            let mut whole = json!({
                "targetNode": "n2", "targetPod": "target",
                "sourceState": {"virtualMachineInstanceUID": "other", "migrationUID": "ms"},
                "targetState": {"virtualMachineInstanceUID": "11111111-aaaa", "migrationUID": "mt"},
            });
            for (name, value) in state.as_object().into_iter().flatten() {
                whole[name] = value.clone();
            }
            let whole = if state.is_null() { Value::Null } else { whole };
            let vmi: VirtualMachineInstance = serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "n", "uid": "11111111-aaaa",
                             "annotations": {"kubevirt.io/create-migration-target": "true"}},
                "status": {"nodeName": "n2", "phase": phase, "migrationState": whole,
                           "activePods": {"new": "n2"}},
            }))
            .unwrap();
            let pod: Pod = serde_json::from_value(json!({"metadata": {
                "name": "target", "namespace": "n", "uid": "new", "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                    "name": "a", "uid": "11111111-aaaa", "controller": true}],
            }}))
            .unwrap();
            assert_eq!(part_of(&pod, &vmi, "n2"), expected, "{phase} {state}");
        };
        check("Scheduled", Value::Null, None);
        check("Scheduled", json!({"targetNode": null}), None);
        check("Scheduled", json!({}), Some(Part::Arrives));
        check("Scheduled", json!({"completed": true}), Some(Part::Runs));
        check(
            "Scheduled",
            json!({"completed": true, "failed": true}),
            None,
        );
        check("Running", json!({"completed": true}), Some(Part::Runs));
    }
}
