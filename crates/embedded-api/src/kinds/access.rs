//! Roles and bindings: defaults and validation. Authorization itself is in `access`.

use apimachinery::{Violation, meta, names};
use serde_json::Value;

use super::{
    Strategy,
    fields::{each, fill},
};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const ROLE: Strategy = Strategy {
    check_name: names::path_segment,
    validate: |_, role| validate_role(role),
    null_fields: &["rules"],
    ..Strategy::PLAIN
};

pub(crate) const BINDING: Strategy = Strategy {
    check_name: names::path_segment,
    default: default_binding,
    validate: validate_binding,
    ..Strategy::PLAIN
};

/// The scope of a role or binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Cluster,
    Namespace,
}

impl Scope {
    fn of(object: &Value) -> Self {
        match meta::kind(object) {
            "Role" | "RoleBinding" => Self::Namespace,
            _ => Self::Cluster,
        }
    }
}

fn default_binding(binding: &mut Value) {
    if binding["roleRef"].is_object() {
        fill(&mut binding["roleRef"], "apiGroup", GROUP);
    }
    each(binding, "subjects", |subject| {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            fill(subject, "apiGroup", GROUP);
        }
    });
}

fn validate_role(role: &Value) -> Vec<Violation> {
    let scope = Scope::of(role);
    let rules = role["rules"].as_array().into_iter().flatten().enumerate();
    let mut wrong: Vec<Violation> = rules
        .flat_map(|(at, rule)| check_rule(rule, &format!("rules[{at}]"), scope))
        .collect();
    let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
    if role["aggregationRule"].is_object() && selectors.as_array().is_none_or(Vec::is_empty) {
        let at = "aggregationRule.clusterRoleSelectors";
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        wrong.push(Violation::required(at, why));
    }
    wrong
}

fn check_rule(rule: &Value, at: &str, scope: Scope) -> Vec<Violation> {
    let is_empty = |field: &str| rule[field].as_array().is_none_or(Vec::is_empty);
    let required =
        |field: &str, why: &str| Violation::required(format!("{at}.{field}"), why.to_owned());
    let mut wrong = Vec::new();
    if is_empty("verbs") {
        wrong.push(required("verbs", "verbs must contain at least one value"));
    }
    if !is_empty("nonResourceURLs") {
        let urls = rule["nonResourceURLs"].clone();
        let field = format!("{at}.nonResourceURLs");
        if scope == Scope::Namespace {
            let why = "namespaced rules cannot apply to non-resource URLs";
            wrong.push(Violation::invalid(field.clone(), urls.clone(), why));
        }
        if !is_empty("apiGroups") || !is_empty("resources") || !is_empty("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            wrong.push(Violation::invalid(field, urls, why));
        }
        return wrong;
    }
    if is_empty("apiGroups") {
        let why = "resource rules must supply at least one api group";
        wrong.push(required("apiGroups", why));
    }
    if is_empty("resources") {
        let why = "resource rules must supply at least one resource";
        wrong.push(required("resources", why));
    }
    wrong
}

fn validate_binding(live: Option<&Value>, binding: &Value) -> Vec<Violation> {
    let scope = Scope::of(binding);
    let role = &binding["roleRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut wrong = Vec::new();
    if text(&role["apiGroup"]) != GROUP {
        let found = text(&role["apiGroup"]);
        wrong.push(Violation::not_supported("roleRef.apiGroup", found, [GROUP]));
    }
    let kinds: &[&str] = if scope == Scope::Namespace {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = text(&role["kind"]);
    if !kinds.contains(&kind.as_str()) {
        let known = kinds.iter().copied();
        wrong.push(Violation::not_supported("roleRef.kind", kind, known));
    }
    if text(&role["name"]).is_empty() {
        wrong.push(Violation::required("roleRef.name", ""));
    }
    for (at, subject) in binding["subjects"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        wrong.extend(check_subject(subject, &format!("subjects[{at}]"), scope));
    }
    if live.is_some_and(|live| live["roleRef"] != *role) {
        let why = "cannot change roleRef";
        wrong.push(Violation::invalid("roleRef", role.clone(), why));
    }
    wrong
}

fn check_subject(subject: &Value, at: &str, scope: Scope) -> Vec<Violation> {
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    let mut wrong = Vec::new();
    if text("name").is_empty() {
        wrong.push(Violation::required(format!("{at}.name"), ""));
    }
    let expected = match text("kind") {
        "ServiceAccount" => {
            if text("namespace").is_empty() && scope == Scope::Cluster {
                wrong.push(Violation::required(format!("{at}.namespace"), ""));
            }
            ""
        }
        "User" | "Group" => GROUP,
        other => {
            let known = ["ServiceAccount", "User", "Group"];
            wrong.push(Violation::not_supported(format!("{at}.kind"), other, known));
            return wrong;
        }
    };
    if text("apiGroup") != expected {
        let (at, found) = (format!("{at}.apiGroup"), text("apiGroup"));
        wrong.push(Violation::not_supported(at, found, [expected]));
    }
    wrong
}
