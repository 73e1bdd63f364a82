//! Resource quotas: names of resources, and scopes.

use apimachinery::{Violation, names};
use quantity::Amount;
use serde_json::{Value, json};

use super::{InitialStatus, Strategy, fields::fill};

pub(crate) const QUOTA: Strategy = Strategy {
    default: |quota| fill(quota, "status", json!({})),
    validate,
    initial_status: InitialStatus::Dropped,
    ..Strategy::PLAIN
};

/// Resources without a domain that a quota may limit.
const RESOURCES: [&str; 19] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Those that a scope about pods may limit.
const OF_PODS: [&str; 7] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.memory",
];
const SCOPES: [&str; 6] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
];
const CONFLICTS: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];

fn validate(live: Option<&Value>, quota: &Value) -> Vec<Violation> {
    let spec = &quota["spec"];
    let mut wrong = check_hard(spec);
    check_scopes(spec, &mut wrong);
    check_selector(spec, &mut wrong);
    if let Some(live) = live
        && sorted(&live["spec"]["scopes"]) != sorted(&spec["scopes"])
    {
        let found = spec["scopes"].clone();
        wrong.push(Violation::invalid(
            "spec.scopes",
            found,
            "field is immutable",
        ));
    }
    wrong
}

fn check_hard(spec: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (name, amount) in spec["hard"].as_object().into_iter().flatten() {
        let field = format!("spec.hard[{name}]");
        if !name.contains('/') && !is_standard(name) {
            let why = "must be a standard resource for quota";
            wrong.push(Violation::invalid(field.clone(), name.as_str(), why));
        }
        let invalid = names::qualified(name).into_iter();
        wrong.extend(invalid.map(|why| Violation::invalid(field.clone(), name.as_str(), why)));
        let amount = match amount {
            Value::String(text) => Amount::parse_text(text).ok(),
            number => Amount::parse_text(&number.to_string()).ok(),
        };
        if amount.is_some_and(Amount::is_negative) {
            let found = spec["hard"][name].clone();
            let why = "must be greater than or equal to 0";
            wrong.push(Violation::invalid(field, found, why));
        }
    }
    wrong
}

fn is_standard(name: &str) -> bool {
    RESOURCES.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

fn check_scopes(spec: &Value, wrong: &mut Vec<Violation>) {
    let scopes = texts(&spec["scopes"]);
    let found = || spec["scopes"].clone();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            wrong.push(Violation::invalid(
                "spec.scopes",
                found(),
                "unsupported scope",
            ));
        }
        for _ in unfit(spec, scope) {
            let why = "unsupported scope applied to resource";
            wrong.push(Violation::invalid("spec.scopes", found(), why));
        }
    }
    if conflict(&scopes) {
        wrong.push(Violation::invalid(
            "spec.scopes",
            found(),
            "conflicting scopes",
        ));
    }
}

fn check_selector(spec: &Value, wrong: &mut Vec<Violation>) {
    let selector = &spec["scopeSelector"];
    let at = "spec.scopeSelector.matchExpressions";
    let terms = selector["matchExpressions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut scopes = Vec::new();
    for term in &terms {
        let scope = term["scopeName"].as_str().unwrap_or_default();
        let operator = term["operator"].as_str().unwrap_or_default();
        if !SCOPES.contains(&scope) {
            let field = format!("{at}.scopeName");
            wrong.push(Violation::invalid(field, scope, "unsupported scope"));
        }
        for _ in unfit(spec, scope) {
            let why = "unsupported scope applied to resource";
            wrong.push(Violation::invalid(at, selector.clone(), why));
        }
        if scope != "PriorityClass" && SCOPES.contains(&scope) && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            wrong.push(Violation::invalid(format!("{at}.operator"), operator, why));
        }
        wrong.extend(check_operator(at, operator, &term["values"]));
        scopes.push(scope);
    }
    if conflict(&scopes) {
        let found = spec["scopes"].clone();
        wrong.push(Violation::invalid(
            "spec.scopes",
            found,
            "conflicting scopes",
        ));
    }
}

fn check_operator(at: &str, operator: &str, values: &Value) -> Option<Violation> {
    let is_empty = texts(values).is_empty();
    match operator {
        "In" | "NotIn" if is_empty => {
            let why =
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            Some(Violation::required(format!("{at}.values"), why))
        }
        "Exists" | "DoesNotExist" if !is_empty => {
            let why =
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            Some(Violation::invalid(
                format!("{at}.values"),
                values.clone(),
                why,
            ))
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
        other => {
            let why = "not a valid selector operator";
            Some(Violation::invalid(format!("{at}.operator"), other, why))
        }
    }
}

/// The limited resources to which the scope cannot apply.
fn unfit<'a>(spec: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a str> {
    let hard = spec["hard"].as_object().into_iter().flatten();
    let names = hard.map(|(name, _)| name.as_str());
    names.filter(move |name| {
        let fits = match scope {
            "BestEffort" => *name == "pods",
            known if SCOPES.contains(&known) => OF_PODS.contains(name),
            _ => true,
        };
        is_standard(name) && !fits
    })
}

fn conflict(scopes: &[&str]) -> bool {
    CONFLICTS
        .iter()
        .any(|pair| pair.iter().all(|scope| scopes.contains(scope)))
}

fn texts(list: &Value) -> Vec<&str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

fn sorted(list: &Value) -> Vec<&str> {
    let mut all = texts(list);
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_quotas_are_refused_with_the_field() {
        let term = |scope: &str, operator: &str, values: Value| {
            json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [
                {"scopeName": scope, "operator": operator, "values": values}]}})
        };
        for (spec, expected) in [
            (
                json!({"hard": {"pods": "1", "count/widgets.example.com": "2", "requests.x/y": 1}}),
                None,
            ),
            (
                json!({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotTerminating"]}),
                None,
            ),
            (term("PriorityClass", "In", json!(["high"])), None),
            (
                json!({"hard": {"podz": "1"}}),
                Some(
                    "spec.hard[podz]: Invalid value: \"podz\": must be a standard resource for quota",
                ),
            ),
            (
                json!({"hard": {"pods": "-1"}}),
                Some("spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0"),
            ),
            (
                json!({"hard": {"pods": "1"}, "scopes": ["Mine"]}),
                Some("spec.scopes: Invalid value: [\"Mine\"]: unsupported scope"),
            ),
            (
                json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}),
                Some(
                    "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
                ),
            ),
            (
                json!({"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]}),
                Some(
                    "spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes",
                ),
            ),
            (
                term("PriorityClass", "In", json!([])),
                Some(
                    "spec.scopeSelector.matchExpressions.values: Required value: must be at least one \
                      value when `operator` is 'In' or 'NotIn' for scope selector",
                ),
            ),
        ] {
            let found = validate(None, &json!({"spec": spec}));
            let found = found.first().map(ToString::to_string);
            assert_eq!(found.as_deref(), expected, "{spec}");
        }
        let live = json!({"spec": {"hard": {"pods": "1"}}});
        let changed = json!({"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}});
        assert_eq!(
            validate(Some(&live), &changed)[0].to_string(),
            "spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable"
        );
    }
}
