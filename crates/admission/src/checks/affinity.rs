//! Affinity and topology spread: refuses in the VMI what Kubernetes would refuse in its pod.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use validation::Violation;

use super::{
    input::Input,
    names::{dns_label_problem, label_key_problem, label_value_problem},
};

const WEIGHTS: std::ops::RangeInclusive<i32> = 1..=100;

/// A problem of a field; all of them have the cause `Invalid`.
struct Problem {
    /// Path below the spec.
    field: String,
    detail: String,
}

fn problem(field: String, detail: impl Into<String>) -> Problem {
    Problem {
        field,
        detail: detail.into(),
    }
}

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
                let detail = "empty; give at least one term, or leave out requiredDuringSchedulingIgnoredDuringExecution";
                found.push(problem(path.clone(), detail));
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
    let affinity_terms = affinity.pod_affinity.as_ref().map(|near| {
        (
            "affinity.podAffinity",
            near.required_during_scheduling_ignored_during_execution
                .as_deref(),
            near.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
        )
    });
    let anti_affinity_terms = affinity.pod_anti_affinity.as_ref().map(|far| {
        (
            "affinity.podAntiAffinity",
            far.required_during_scheduling_ignored_during_execution
                .as_deref(),
            far.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
        )
    });
    for (path, required, preferred) in affinity_terms.into_iter().chain(anti_affinity_terms) {
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
    violations(input, found)
}

pub(super) fn topology_spread(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let constraints = &input.spec.topology_spread_constraints;
    for (i, constraint) in constraints.iter().enumerate() {
        let path = format!("topologySpreadConstraints[{i}]");
        if constraint.max_skew <= 0 {
            let detail = format!("{} is not a valid skew; use 1 or more", constraint.max_skew);
            found.push(problem(format!("{path}.maxSkew"), detail));
        }
        found.extend(topology_key(&path, &constraint.topology_key));
        let action = constraint.when_unsatisfiable.as_str();
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
            let detail = format!("{action:?} is unknown; use DoNotSchedule or ScheduleAnyway");
            found.push(problem(format!("{path}.whenUnsatisfiable"), detail));
        }
        if !known.insert((&constraint.topology_key, action)) {
            let detail = "another constraint has the same topologyKey and whenUnsatisfiable";
            found.push(problem(path.clone(), detail));
        }
        if let Some(domains) = constraint.min_domains
            && (domains <= 0 || action != "DoNotSchedule")
        {
            let detail = "use 1 or more, and whenUnsatisfiable: DoNotSchedule with it";
            found.push(problem(format!("{path}.minDomains"), detail));
        }
        if let Some(selector) = &constraint.label_selector {
            found.extend(label_selector(&format!("{path}.labelSelector"), selector));
        }
    }
    violations(input, found)
}

fn violations(input: &Input<'_>, problems: Vec<Problem>) -> Vec<Violation> {
    problems
        .into_iter()
        .map(|problem| input.invalid(&problem.field, problem.detail))
        .collect()
}

fn node_term(path: &str, term: &NodeSelectorTerm) -> Vec<Problem> {
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

fn node_requirement(path: &str, requirement: &NodeSelectorRequirement) -> Vec<Problem> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let key =
        label_key_problem(&requirement.key).map(|detail| problem(format!("{path}.key"), detail));
    let operator = &*requirement.operator;
    let values = match operator {
        "Gt" | "Lt" => {
            let is_number = matches!(values, [one] if one.parse::<i64>().is_ok());
            (!is_number).then(|| {
                let detail = format!("{operator} takes one whole number");
                problem(format!("{path}.values"), detail)
            })
        }
        _ => set_problem(
            path,
            operator,
            values,
            "In, NotIn, Exists, DoesNotExist, Gt or Lt",
        ),
    };
    key.into_iter().chain(values).collect()
}

fn set_problem(path: &str, operator: &str, values: &[String], choices: &str) -> Option<Problem> {
    let at = format!("{path}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            Some(problem(at, format!("{operator} needs values")))
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            Some(problem(at, format!("{operator} takes no values")))
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
        _ => Some(problem(
            format!("{path}.operator"),
            format!("{operator:?} is unknown; use {choices}"),
        )),
    }
}

fn pod_term(path: &str, term: &PodAffinityTerm) -> Vec<Problem> {
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
        if let Some(detail) = dns_label_problem(namespace) {
            found.push(problem(format!("{path}.namespaces[{i}]"), detail));
        }
    }
    found
}

fn topology_key(path: &str, key: &str) -> Vec<Problem> {
    let at = format!("{path}.topologyKey");
    if key.is_empty() {
        let detail = "empty; name a label of nodes, such as kubernetes.io/hostname";
        return vec![problem(at, detail)];
    }
    let detail = label_key_problem(key);
    detail
        .map(|detail| problem(at, detail))
        .into_iter()
        .collect()
}

fn label_selector(path: &str, selector: &LabelSelector) -> Vec<Problem> {
    let mut found = Vec::new();
    for (key, value) in selector.match_labels.iter().flatten() {
        let details = [label_key_problem(key), label_value_problem(value)];
        let at = format!("{path}.matchLabels");
        found.extend(
            details
                .into_iter()
                .flatten()
                .map(|detail| problem(at.clone(), detail)),
        );
    }
    let requirements = selector.match_expressions.as_deref().unwrap_or_default();
    for (i, requirement) in requirements.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{i}]");
        let values = requirement.values.as_deref().unwrap_or_default();
        let key = label_key_problem(&requirement.key);
        found.extend(key.map(|detail| problem(format!("{path}.key"), detail)));
        let choices = "In, NotIn, Exists or DoesNotExist";
        found.extend(set_problem(&path, &requirement.operator, values, choices));
    }
    found
}

fn weight(path: &str, weight: i32) -> Option<Problem> {
    (!WEIGHTS.contains(&weight)).then(|| {
        let detail = format!("{weight} is not a valid weight; use 1 to 100");
        problem(format!("{path}.weight"), detail)
    })
}
