//! Where the pod may go: what Kubernetes would refuse in it is refused in the guest already.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{
    Input,
    names::{dns_label_fault, label_key_fault, label_value_fault},
};
use crate::violation::Violation;

const WEIGHTS: std::ops::RangeInclusive<i32> = 1..=100;

/// Path below the spec, and detail. The API knows one kind for all of them.
type Fault = (String, String);

pub(super) fn affinity(input: &Input<'_>) -> Vec<Violation> {
    let Some(affinity) = &input.spec.affinity else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Some(node) = &affinity.node_affinity {
        let path = "affinity.nodeAffinity";
        if let Some(required) = &node.required_during_scheduling_ignored_during_execution {
            let path = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution");
            let path = format!("{path}.nodeSelectorTerms");
            if required.node_selector_terms.is_empty() {
                let detail = "empty; give at least one term, or leave out what is required";
                found.push((path.clone(), detail.to_owned()));
            }
            for (i, term) in required.node_selector_terms.iter().enumerate() {
                found.extend(node_term(&format!("{path}[{i}]"), term));
            }
        }
        let preferred = node
            .preferred_during_scheduling_ignored_during_execution
            .as_deref();
        for (i, term) in preferred.unwrap_or_default().iter().enumerate() {
            let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}]");
            found.extend(weight(&path, term.weight));
            found.extend(node_term(&format!("{path}.preference"), &term.preference));
        }
    }
    let near = affinity.pod_affinity.as_ref().map(|near| {
        (
            "affinity.podAffinity",
            near.required_during_scheduling_ignored_during_execution
                .as_deref(),
            near.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
        )
    });
    let far = affinity.pod_anti_affinity.as_ref().map(|far| {
        (
            "affinity.podAntiAffinity",
            far.required_during_scheduling_ignored_during_execution
                .as_deref(),
            far.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
        )
    });
    for (path, required, preferred) in near.into_iter().chain(far) {
        for (i, term) in required.unwrap_or_default().iter().enumerate() {
            let path = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution[{i}]");
            found.extend(pod_term(&path, term));
        }
        for (i, term) in preferred.unwrap_or_default().iter().enumerate() {
            let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}]");
            found.extend(weight(&path, term.weight));
            found.extend(pod_term(
                &format!("{path}.podAffinityTerm"),
                &term.pod_affinity_term,
            ));
        }
    }
    told(input, found)
}

pub(super) fn topology_spread(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let constraints = &input.spec.topology_spread_constraints;
    for (i, constraint) in constraints.iter().enumerate() {
        let path = format!("topologySpreadConstraints[{i}]");
        if constraint.max_skew <= 0 {
            let detail = format!("{} is no difference; use 1 or more", constraint.max_skew);
            found.push((format!("{path}.maxSkew"), detail));
        }
        found.extend(topology_key(&path, &constraint.topology_key));
        let action = constraint.when_unsatisfiable.as_str();
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
            let detail = format!("{action:?} is unknown; use DoNotSchedule or ScheduleAnyway");
            found.push((format!("{path}.whenUnsatisfiable"), detail));
        }
        if !seen.insert((&constraint.topology_key, action)) {
            let detail = "another constraint has the same topologyKey and whenUnsatisfiable";
            found.push((path.clone(), detail.to_owned()));
        }
        if let Some(domains) = constraint.min_domains
            && (domains <= 0 || action != "DoNotSchedule")
        {
            let detail = "use 1 or more, and whenUnsatisfiable: DoNotSchedule with it";
            found.push((format!("{path}.minDomains"), detail.to_owned()));
        }
        if let Some(selector) = &constraint.label_selector {
            found.extend(label_selector(&format!("{path}.labelSelector"), selector));
        }
    }
    told(input, found)
}

fn told(input: &Input<'_>, faults: Vec<Fault>) -> Vec<Violation> {
    faults
        .into_iter()
        .map(|(path, detail)| input.invalid(&path, detail))
        .collect()
}

fn node_term(path: &str, term: &NodeSelectorTerm) -> Vec<Fault> {
    let lists = [
        ("matchExpressions", term.match_expressions.as_deref()),
        ("matchFields", term.match_fields.as_deref()),
    ];
    let mut found = Vec::new();
    for (name, list) in lists {
        for (i, requirement) in list.unwrap_or_default().iter().enumerate() {
            found.extend(node_requirement(
                &format!("{path}.{name}[{i}]"),
                requirement,
            ));
        }
    }
    found
}

fn node_requirement(path: &str, requirement: &NodeSelectorRequirement) -> Vec<Fault> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let key = label_key_fault(&requirement.key).map(|fault| (format!("{path}.key"), fault));
    let operator = &*requirement.operator;
    let fault = match operator {
        "Gt" | "Lt" => {
            let is_number = matches!(values, [one] if one.parse::<i64>().is_ok());
            (!is_number).then(|| {
                let detail = format!("{operator} takes one whole number");
                (format!("{path}.values"), detail)
            })
        }
        _ => set_fault(
            path,
            operator,
            values,
            "In, NotIn, Exists, DoesNotExist, Gt or Lt",
        ),
    };
    key.into_iter().chain(fault).collect()
}

fn set_fault(path: &str, operator: &str, values: &[String], choices: &str) -> Option<Fault> {
    let at = format!("{path}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => Some((at, format!("{operator} needs values"))),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            Some((at, format!("{operator} takes no values")))
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
        _ => Some((
            format!("{path}.operator"),
            format!("{operator:?} is unknown; use {choices}"),
        )),
    }
}

fn pod_term(path: &str, term: &PodAffinityTerm) -> Vec<Fault> {
    let mut found = topology_key(path, &term.topology_key);
    let selectors = [
        ("labelSelector", &term.label_selector),
        ("namespaceSelector", &term.namespace_selector),
    ];
    for (name, selector) in selectors {
        if let Some(selector) = selector {
            found.extend(label_selector(&format!("{path}.{name}"), selector));
        }
    }
    let namespaces = term.namespaces.as_deref().unwrap_or_default();
    for (i, namespace) in namespaces.iter().enumerate() {
        if let Some(fault) = dns_label_fault(namespace) {
            found.push((format!("{path}.namespaces[{i}]"), fault));
        }
    }
    found
}

fn topology_key(path: &str, key: &str) -> Vec<Fault> {
    let at = format!("{path}.topologyKey");
    if key.is_empty() {
        let detail = "empty; name a label of nodes, such as kubernetes.io/hostname";
        return vec![(at, detail.to_owned())];
    }
    let fault = label_key_fault(key);
    fault.map(|fault| (at, fault)).into_iter().collect()
}

fn label_selector(path: &str, selector: &LabelSelector) -> Vec<Fault> {
    let mut found = Vec::new();
    for (key, value) in selector.match_labels.iter().flatten() {
        let faults = [label_key_fault(key), label_value_fault(value)];
        let at = format!("{path}.matchLabels");
        found.extend(
            faults
                .into_iter()
                .flatten()
                .map(|fault| (at.clone(), fault)),
        );
    }
    let requirements = selector.match_expressions.as_deref().unwrap_or_default();
    for (i, requirement) in requirements.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{i}]");
        let values = requirement.values.as_deref().unwrap_or_default();
        let key = label_key_fault(&requirement.key);
        found.extend(key.map(|fault| (format!("{path}.key"), fault)));
        let choices = "In, NotIn, Exists or DoesNotExist";
        found.extend(set_fault(&path, &requirement.operator, values, choices));
    }
    found
}

fn weight(path: &str, weight: i32) -> Option<Fault> {
    (!WEIGHTS.contains(&weight)).then(|| {
        let detail = format!("{weight} is no weight; use 1 to 100");
        (format!("{path}.weight"), detail)
    })
}
