//! The node of a guest, and why no node can take it.

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kubevirt_api::{annotations, labels, vmi_status::VirtualMachineInstanceConditionType as Type};
use reasons::Reason;

use crate::{Finding, Observed, observed::name_of};

/// Reasons of a pod that no node can take.
pub(crate) const SCHEDULING: &[Reason] = &[Reason::Unschedulable];
/// virt-handler reports once a minute; after this many seconds it counts as unavailable.
const HEARTBEAT: i64 = 300;

/// The state of the node in the path.
pub(crate) fn state(observed: &Observed, name: &str) -> String {
    match (&observed.nodes, node(observed, name)) {
        (None, _) => "not read".to_owned(),
        (Some(_), None) => "does not exist".to_owned(),
        (Some(_), Some(node)) => match readiness(node) {
            Some(("True", _, _)) => "Ready".to_owned(),
            Some((_, reason, _)) => format!("not ready: {reason}"),
            None => "no condition Ready".to_owned(),
        },
    }
}

pub(crate) fn none(observed: &Observed) -> Vec<Finding> {
    let is_empty = observed.nodes.as_ref().is_some_and(Vec::is_empty);
    if !is_empty || !observed.is_early() {
        return Vec::new();
    }
    vec![
        Finding::new("There is no node that can run the guest.")
            .evidence("nodes", "", "none")
            .next("kubectl get nodes  # on a single host: ferrovirt status"),
    ]
}

pub(crate) fn gone(observed: &Observed) -> Vec<Finding> {
    let Some(name) = observed.node_name().filter(|_| !observed.is_final()) else {
        return Vec::new();
    };
    if !observed.is_deleted_node(name) {
        return Vec::new();
    }
    vec![
        Finding::new(format!("The guest's node {name} does not exist any more."))
            .evidence(observed.vmi_object(), "status.nodeName", name)
            .evidence(format!("node/{name}"), "", "not found")
            .next("kubectl get nodes"),
    ]
}

pub(crate) fn not_ready(observed: &Observed) -> Vec<Finding> {
    let Some(name) = observed.node_name().filter(|_| !observed.is_final()) else {
        return Vec::new();
    };
    match node(observed, name).and_then(readiness) {
        Some((status, reason, message)) if status != "True" => vec![
            Finding::new(format!(
                "Node {name} is not ready, so the state of the guest is unknown."
            ))
            .evidence(
                format!("node/{name}"),
                "status.conditions[Ready]",
                format!("{status}, {reason}: {message}"),
            )
            .next(format!("kubectl describe node {name}")),
        ],
        _ => Vec::new(),
    }
}

pub(crate) fn cordoned(observed: &Observed) -> Vec<Finding> {
    let nodes = observed.nodes.as_deref().unwrap_or_default();
    let is_closed = |node: &Node| {
        node.spec
            .as_ref()
            .is_some_and(|spec| spec.unschedulable == Some(true))
    };
    if nodes.is_empty() || !nodes.iter().all(is_closed) || obstacle(observed).is_none() {
        return Vec::new();
    }
    let finding = nodes.iter().fold(
        Finding::new("All nodes are cordoned: they take no new pods.")
            .because(Reason::Unschedulable),
        |finding, node| {
            finding.evidence(
                format!("node/{}", name_of(&node.metadata)),
                "spec.unschedulable",
                "true",
            )
        },
    );
    let first = nodes
        .first()
        .map(|node| name_of(&node.metadata))
        .unwrap_or_default();
    vec![finding.next(format!("kubectl uncordon {first}"))]
}

/// virt-handler of the guest's node does not report, although its kubelet may.
pub(crate) fn handler_silent(observed: &Observed) -> Vec<Finding> {
    let Some(name) = observed.node_name().filter(|_| !observed.is_final()) else {
        return Vec::new();
    };
    let Some(node) = node(observed, name) else {
        return Vec::new();
    };
    let object = format!("node/{name}");
    let find = |map: &Option<std::collections::BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key).cloned())
    };
    let beat = find(&node.metadata.annotations, annotations::HEARTBEAT);
    let time = beat
        .as_deref()
        .and_then(|text| text.trim_matches('"').parse::<Timestamp>().ok())
        .map(Time);
    let schedulable = find(&node.metadata.labels, labels::SCHEDULABLE);
    let finding = Finding::new(format!(
        "virt-handler on node {name} does not report, so guests there are not managed."
    ));
    let finding = if observed.is_older(time.as_ref(), HEARTBEAT) {
        let field = format!("metadata.annotations[{}]", annotations::HEARTBEAT);
        finding.evidence(object, field, beat.unwrap_or_default())
    } else if schedulable.as_deref() == Some("false") {
        let field = format!("metadata.labels[{}]", labels::SCHEDULABLE);
        finding.evidence(object, field, "false")
    } else {
        return Vec::new();
    };
    let next = "get pods -l kubevirt.io=virt-handler -o wide";
    vec![finding.next(observed.in_installation(next))]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Device,
    Memory,
    Cpu,
    Taint,
    NoMatch,
    Other,
}

/// The scheduler names every obstacle; those that do not resolve with time come first.
fn class(message: &str) -> Class {
    let has = |part: &str| message.contains(part);
    if missing_device(message).is_some() || has("claim") && has("device") {
        Class::Device
    } else if has("node affinity")
        || has("node selector")
        || has("nodeSelector")
        || has("affinity rules")
        || has("topology spread")
    {
        Class::NoMatch
    } else if has("taint") {
        Class::Taint
    } else if has("Insufficient memory") || has("Insufficient hugepages") {
        Class::Memory
    } else if has("Insufficient cpu") {
        Class::Cpu
    } else {
        Class::Other
    }
}

/// The device of which no node has enough: extended resources have a domain in their name.
fn missing_device(message: &str) -> Option<&str> {
    ["Insufficient ", "has no "].into_iter().find_map(|before| {
        let mut names = message.match_indices(before).filter_map(|(at, _)| {
            let rest = message.get(at + before.len()..)?;
            let name = rest.split([' ', ',']).next()?;
            Some(name.trim_end_matches('.'))
        });
        names.find(|name| name.contains('/'))
    })
}

/// Why no node takes the pod, as the scheduler reports it.
struct Obstacle<'a> {
    object: String,
    message: &'a str,
}

fn obstacle(observed: &Observed) -> Option<Obstacle<'_>> {
    let of_pod = observed
        .pod_condition("PodScheduled")
        .filter(|(_, condition)| condition.status == "False")
        .map(|(pod, condition)| {
            let object = format!("pod/{}", name_of(&pod.metadata));
            let message = condition.message.as_deref().unwrap_or_default();
            Obstacle { object, message }
        });
    let of_vmi = || {
        let (reason, message) = observed.problem(&Type::from("PodScheduled"))?;
        // Without a pod, virt-controller reports a feature that cannot run on any node.
        let is_of_scheduler = reason == Reason::Unschedulable && observed.pod().is_some();
        is_of_scheduler.then(|| Obstacle {
            object: observed.vmi_object(),
            message,
        })
    };
    of_pod.or_else(of_vmi)
}

fn found(observed: &Observed, wanted: Class, sentence: &str, next: String) -> Vec<Finding> {
    obstacle(observed)
        .filter(|obstacle| class(obstacle.message) == wanted)
        .map(|obstacle| {
            Finding::new(sentence)
                .because(Reason::Unschedulable)
                .evidence(
                    obstacle.object,
                    "status.conditions[PodScheduled]",
                    obstacle.message,
                )
                .next(next)
        })
        .into_iter()
        .collect()
}

pub(crate) fn device_missing(observed: &Observed) -> Vec<Finding> {
    let device = obstacle(observed).and_then(|obstacle| missing_device(obstacle.message));
    let device = device.map_or_else(String::new, |name| format!("{name}, "));
    let sentence = format!(
        "No node offers {device}a device that the guest needs: the node does not have it, all are in use, \
         or its device plugin (for devices.kubevirt.io: virt-handler) does not run there."
    );
    let next = "kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.name} \
                {.status.allocatable}{\"\\n\"}{end}'";
    let mut found = found(observed, Class::Device, &sentence, next.to_owned());
    for finding in &mut found {
        // virt-handler reports why.
        for node in observed.nodes.iter().flatten() {
            let notes = node.metadata.annotations.as_ref();
            if let Some(missing) = notes.and_then(|all| all.get(annotations::MISSING_REQUIREMENTS))
            {
                *finding = finding.clone().evidence(
                    format!("node/{}", name_of(&node.metadata)),
                    format!(
                        "metadata.annotations[{}]",
                        annotations::MISSING_REQUIREMENTS
                    ),
                    missing,
                );
            }
        }
    }
    found
}

pub(crate) fn memory_short(observed: &Observed) -> Vec<Finding> {
    let sentence = "No node has enough free memory for the guest.";
    found(
        observed,
        Class::Memory,
        sentence,
        "kubectl describe nodes".to_owned(),
    )
}

pub(crate) fn cpu_short(observed: &Observed) -> Vec<Finding> {
    let sentence = "No node has enough free CPUs for the guest.";
    found(
        observed,
        Class::Cpu,
        sentence,
        "kubectl describe nodes".to_owned(),
    )
}

pub(crate) fn taint(observed: &Observed) -> Vec<Finding> {
    let sentence = "Every node with enough capacity has a taint that the guest does not tolerate.";
    let next = "kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints";
    found(observed, Class::Taint, sentence, next.to_owned())
}

pub(crate) fn no_match(observed: &Observed) -> Vec<Finding> {
    let sentence = "No node has the labels that the guest requires by its node selector, its affinity, or \
                    its CPU model and features.";
    found(
        observed,
        Class::NoMatch,
        sentence,
        "kubectl get nodes --show-labels".to_owned(),
    )
}

pub(crate) fn unschedulable(observed: &Observed) -> Vec<Finding> {
    // Cordoned nodes are a cause of their own.
    if !cordoned(observed).is_empty() {
        return Vec::new();
    }
    let next = observed
        .pod()
        .map(|pod| name_of(&pod.metadata))
        .unwrap_or_default();
    let next = observed.kubectl(&format!("describe pod {next}"));
    found(observed, Class::Other, "No node can take the guest.", next)
}

fn node<'a>(observed: &'a Observed, name: &str) -> Option<&'a Node> {
    let nodes = observed.nodes.as_deref().unwrap_or_default();
    nodes.iter().find(|node| name_of(&node.metadata) == name)
}

fn readiness(node: &Node) -> Option<(&str, &str, &str)> {
    let all = node.status.as_ref()?.conditions.as_ref()?;
    let ready = all.iter().find(|condition| condition.type_ == "Ready")?;
    Some((
        ready.status.as_str(),
        ready.reason.as_deref().unwrap_or_default(),
        ready.message.as_deref().unwrap_or_default(),
    ))
}
