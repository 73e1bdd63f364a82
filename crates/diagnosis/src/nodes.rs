//! Where a guest is to run, and whether it can.

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kubevirt_api::{annotations, labels, vmi_status::VirtualMachineInstanceConditionType as Type};

use crate::{Finding, Observed, observed::name_of};

/// The agent reports once a minute; after so many seconds it is taken for gone.
const HEARTBEAT: i64 = 300;

/// A word on the node.
pub(crate) fn state(seen: &Observed, name: &str) -> String {
    match (&seen.nodes, node(seen, name)) {
        (None, _) => "not looked at".to_owned(),
        (Some(_), None) => "not there".to_owned(),
        (Some(_), Some(node)) => match readiness(node) {
            Some(("True", _, _)) => "Ready".to_owned(),
            Some((_, reason, _)) => format!("not ready: {reason}"),
            None => "no condition Ready".to_owned(),
        },
    }
}

pub(crate) fn none(seen: &Observed) -> Vec<Finding> {
    let is_empty = seen.nodes.as_ref().is_some_and(Vec::is_empty);
    if !is_empty || !seen.is_early() {
        return Vec::new();
    }
    vec![
        Finding::new("There is no node that could run the guest.")
            .seen("nodes", "", "none")
            .next("kubectl get nodes  # on a single host: ferrovirt status"),
    ]
}

pub(crate) fn gone(seen: &Observed) -> Vec<Finding> {
    let Some(name) = seen.node_name().filter(|_| !seen.is_final()) else {
        return Vec::new();
    };
    if seen.nodes.is_none() || node(seen, name).is_some() {
        return Vec::new();
    }
    vec![
        Finding::new(format!("The guest's node {name} is not there any more."))
            .seen(seen.vmi_object(), "status.nodeName", name)
            .seen(format!("node/{name}"), "", "not found")
            .next("kubectl get nodes"),
    ]
}

pub(crate) fn not_ready(seen: &Observed) -> Vec<Finding> {
    let Some(name) = seen.node_name().filter(|_| !seen.is_final()) else {
        return Vec::new();
    };
    match node(seen, name).and_then(readiness) {
        Some((status, reason, message)) if status != "True" => vec![
            Finding::new(format!(
                "The node {name} is not ready, so nothing is known of the guest."
            ))
            .seen(
                format!("node/{name}"),
                "status.conditions[Ready]",
                format!("{status}, {reason}: {message}"),
            )
            .next(format!("kubectl describe node {name}")),
        ],
        _ => Vec::new(),
    }
}

pub(crate) fn cordoned(seen: &Observed) -> Vec<Finding> {
    let nodes = seen.nodes.as_deref().unwrap_or_default();
    let is_closed = |node: &Node| {
        node.spec
            .as_ref()
            .is_some_and(|spec| spec.unschedulable == Some(true))
    };
    if nodes.is_empty() || !nodes.iter().all(is_closed) || obstacle(seen).is_none() {
        return Vec::new();
    }
    let finding = nodes.iter().fold(
        Finding::new("Every node is cordoned: closed to new pods."),
        |finding, node| {
            finding.seen(
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

/// The agent of the guest's node, not the kubelet.
pub(crate) fn agent_silent(seen: &Observed) -> Vec<Finding> {
    let Some(name) = seen.node_name().filter(|_| !seen.is_final()) else {
        return Vec::new();
    };
    let Some(node) = node(seen, name) else {
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
        "The agent of node {name} does not report, so nothing happens to guests there."
    ));
    let finding = if seen.is_older(time.as_ref(), HEARTBEAT) {
        let field = format!("metadata.annotations[{}]", annotations::HEARTBEAT);
        finding.seen(object, field, beat.unwrap_or_default())
    } else if schedulable.as_deref() == Some("false") {
        let field = format!("metadata.labels[{}]", labels::SCHEDULABLE);
        finding.seen(object, field, "false")
    } else {
        return Vec::new();
    };
    let next = "kubectl -n kubevirt get pods -l kubevirt.io=virt-handler -o wide";
    vec![finding.next(next)]
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

/// Schedulers name every obstacle; what cannot be mended by waiting counts more.
fn class(message: &str) -> Class {
    let has = |part: &str| message.contains(part);
    if has("Insufficient devices.") || has("has no devices.") || has("claim") && has("device") {
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

/// What keeps the pod from a node: the object that says so, where, and its words.
fn obstacle(seen: &Observed) -> Option<(String, String, &str)> {
    let of_pod = seen
        .pod_condition("PodScheduled")
        .filter(|(_, condition)| condition.status == "False")
        .map(|(pod, condition)| {
            let object = format!("pod/{}", name_of(&pod.metadata));
            (object, condition.message.as_deref().unwrap_or_default())
        });
    let of_vmi = || {
        let (reason, message) = seen.complaint(&Type::from("PodScheduled"))?;
        // Without a pod it is the controller's word about what cannot run at all.
        let is_of_scheduler = reason == "Unschedulable" && seen.pod().is_some();
        is_of_scheduler.then(|| (seen.vmi_object(), message))
    };
    let (object, message) = of_pod.or_else(of_vmi)?;
    Some((
        object,
        "status.conditions[PodScheduled]".to_owned(),
        message,
    ))
}

fn found(seen: &Observed, wanted: Class, sentence: &str, next: String) -> Vec<Finding> {
    obstacle(seen)
        .filter(|(.., message)| class(message) == wanted)
        .map(|(object, field, message)| {
            Finding::new(sentence)
                .seen(object, field, message)
                .next(next)
        })
        .into_iter()
        .collect()
}

pub(crate) fn device_missing(seen: &Observed) -> Vec<Finding> {
    let sentence = "No node offers a device that the guest needs, such as /dev/kvm: the node has \
                    none, or its agent does not run.";
    let next = "kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.name} \
                {.status.allocatable}{\"\\n\"}{end}'";
    let mut found = found(seen, Class::Device, sentence, next.to_owned());
    for finding in &mut found {
        // The agents know why.
        for node in seen.nodes.iter().flatten() {
            let notes = node.metadata.annotations.as_ref();
            if let Some(lacks) = notes.and_then(|all| all.get(annotations::LACKS)) {
                *finding = finding.clone().seen(
                    format!("node/{}", name_of(&node.metadata)),
                    format!("metadata.annotations[{}]", annotations::LACKS),
                    lacks,
                );
            }
        }
    }
    found
}

pub(crate) fn memory_short(seen: &Observed) -> Vec<Finding> {
    let sentence = "No node has the memory that the guest asks for free.";
    found(
        seen,
        Class::Memory,
        sentence,
        "kubectl describe nodes".to_owned(),
    )
}

pub(crate) fn cpu_short(seen: &Observed) -> Vec<Finding> {
    let sentence = "No node has the CPUs that the guest asks for free.";
    found(
        seen,
        Class::Cpu,
        sentence,
        "kubectl describe nodes".to_owned(),
    )
}

pub(crate) fn taint(seen: &Observed) -> Vec<Finding> {
    let sentence = "Every node that has room bears a taint that the guest does not tolerate.";
    let next = "kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints";
    found(seen, Class::Taint, sentence, next.to_owned())
}

pub(crate) fn no_match(seen: &Observed) -> Vec<Finding> {
    let sentence = "No node has the labels that the guest demands: its own node selector or \
                    affinity, or what its CPU model and features need.";
    found(
        seen,
        Class::NoMatch,
        sentence,
        "kubectl get nodes --show-labels".to_owned(),
    )
}

pub(crate) fn unschedulable(seen: &Observed) -> Vec<Finding> {
    // Closed nodes have a word of their own.
    if !cordoned(seen).is_empty() {
        return Vec::new();
    }
    let next = seen
        .pod()
        .map(|pod| name_of(&pod.metadata))
        .unwrap_or_default();
    let next = seen.kubectl(&format!("describe pod {next}"));
    found(seen, Class::Other, "No node takes the guest.", next)
}

fn node<'a>(seen: &'a Observed, name: &str) -> Option<&'a Node> {
    let nodes = seen.nodes.as_deref().unwrap_or_default();
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
