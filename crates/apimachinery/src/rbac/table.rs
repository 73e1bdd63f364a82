//! Roles and bindings as a text table, with the reason of each rule.
//!
//! ```text
//! clusterrole NAME [into=LEVEL,..] [from=LEVEL]   # into: becomes a part of admin, edit or view
//!   GROUPS | RESOURCES | VERBS [| NAMES]          # why
//!   url PATHS | VERBS                             # why
//! role NAMESPACE/NAME
//! clusterrolebinding NAME clusterrole:ROLE SUBJECT..
//! rolebinding NAMESPACE/NAME role:ROLE SUBJECT..
//! ```
//!
//! The core group is called `core`. The verb `read` stands for get, list and watch, `write` for
//! create, delete, deletecollection, patch and update. A subject is `group:G`, `user:U` or
//! `account:NAMESPACE/NAME`.

use serde_json::{Map, Value, json};

use super::Rule;

const GROUP: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// A role or binding, and the reasons of its rules, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub object: Value,
    pub reasons: Vec<String>,
}

/// An error in a table and its line number.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TableError {
    pub line: usize,
    pub why: &'static str,
}

/// Reads a whole table.
pub fn parse(text: &str) -> Result<Vec<Entry>, TableError> {
    let mut out: Vec<Entry> = Vec::new();
    for (at, raw) in text.lines().enumerate() {
        let wrong = |why| TableError { line: at + 1, why };
        let (line, reason) = raw.split_once('#').unwrap_or((raw, ""));
        if line.trim().is_empty() {
            continue;
        }
        if !line.starts_with(' ') {
            let object = object(line.trim()).map_err(wrong)?;
            out.push(Entry {
                object,
                reasons: Vec::new(),
            });
            continue;
        }
        let role = out.last_mut().ok_or(wrong("a rule without a role"))?;
        let rules = role.object["rules"].as_array_mut();
        let rules = rules.ok_or(wrong("a binding has no rules"))?;
        rules.push(rule(line.trim()).map_err(wrong)?.to_value());
        role.reasons.push(reason.trim().to_owned());
    }
    Ok(out)
}

fn object(line: &str) -> Result<Value, &'static str> {
    let mut fields = line.split_whitespace();
    let kind = fields.next().unwrap_or_default();
    let place = fields.next().ok_or("the name is missing")?;
    let is_namespaced = matches!(kind, "role" | "rolebinding");
    let metadata = match place.split_once('/') {
        Some((namespace, name)) if is_namespaced => json!({"name": name, "namespace": namespace}),
        None if !is_namespaced => json!({"name": place}),
        _ => return Err("only role and rolebinding are NAMESPACE/NAME"),
    };
    let shown = match kind {
        "clusterrole" => "ClusterRole",
        "role" => "Role",
        "clusterrolebinding" => "ClusterRoleBinding",
        "rolebinding" => "RoleBinding",
        _ => return Err("unknown kind of object"),
    };
    let mut out = json!({"apiVersion": format!("{GROUP}/v1"), "kind": shown, "metadata": metadata});
    if kind.ends_with("role") {
        levels(&mut out, fields)?;
        out["rules"] = json!([]);
        return Ok(out);
    }
    out["roleRef"] = role_ref(fields.next().unwrap_or_default())?;
    let subjects = fields.map(subject).collect::<Result<Vec<_>, _>>()?;
    if !subjects.is_empty() {
        out["subjects"] = subjects.into();
    }
    Ok(out)
}

/// The label of roles that are aggregated into another.
fn level_label(level: &str) -> String {
    format!("{GROUP}/aggregate-to-{level}")
}

fn levels<'a>(
    role: &mut Value,
    options: impl Iterator<Item = &'a str>,
) -> Result<(), &'static str> {
    for option in options {
        match option.split_once('=') {
            Some(("into", levels)) => {
                let labels: Map<String, Value> = levels
                    .split(',')
                    .map(|level| (level_label(level), "true".into()))
                    .collect();
                role["metadata"]["labels"] = labels.into();
            }
            Some(("from", level)) => {
                let label = level_label(level);
                role["aggregationRule"] =
                    json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
            }
            _ => return Err("only into= and from= may follow the name of a role"),
        }
    }
    Ok(())
}

fn role_ref(field: &str) -> Result<Value, &'static str> {
    let (kind, name) = field.split_once(':').ok_or("the bound role is missing")?;
    let kind = match kind {
        "role" => "Role",
        "clusterrole" => "ClusterRole",
        _ => return Err("a binding refers to role: or clusterrole:"),
    };
    Ok(json!({"apiGroup": GROUP, "kind": kind, "name": name}))
}

fn subject(field: &str) -> Result<Value, &'static str> {
    match field.split_once(':') {
        Some(("group", name)) => Ok(json!({"apiGroup": GROUP, "kind": "Group", "name": name})),
        Some(("user", name)) => Ok(json!({"apiGroup": GROUP, "kind": "User", "name": name})),
        Some(("account", place)) => {
            let (namespace, name) = place.split_once('/').ok_or("account:NAMESPACE/NAME")?;
            Ok(json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}))
        }
        _ => Err("a subject is group:, user: or account:"),
    }
}

fn rule(line: &str) -> Result<Rule, &'static str> {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let list = |text: &str| -> Vec<String> { items(text).map(str::to_owned).collect() };
    match columns.as_slice() {
        [paths, verbs] => {
            let paths = paths
                .strip_prefix("url ")
                .ok_or("a rule for paths starts with url")?;
            Ok(Rule {
                verbs: self::verbs(verbs),
                non_resource_urls: list(paths),
                ..Rule::default()
            })
        }
        [groups, resources, verbs, names @ ..] if names.len() <= 1 => Ok(Rule {
            verbs: self::verbs(verbs),
            api_groups: list(groups)
                .into_iter()
                .map(|group| {
                    if group == "core" {
                        String::new()
                    } else {
                        group
                    }
                })
                .collect(),
            resources: list(resources),
            resource_names: names.first().map(|names| list(names)).unwrap_or_default(),
            ..Rule::default()
        }),
        _ => Err("a rule is groups | resources | verbs | names"),
    }
}

/// The items of a list, separated by commas or spaces.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ']).filter(|item| !item.is_empty())
}

fn verbs(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for verb in items(text) {
        match verb {
            "read" => out.extend(READ.map(str::to_owned)),
            "write" => out.extend(WRITE.map(str::to_owned)),
            other => out.push(other.to_owned()),
        }
    }
    out.sort();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_parsed_into_objects() {
        let text = "\
# A comment.
clusterrole a into=edit,admin from=view
  core,g | pods pods/log | read create   # read access
  url /x /y/* | get
role n/b
  core | secrets | get | one two  # these two only
rolebinding n/c role:b account:n/s group:g
";
        let found = parse(text).expect("a valid table");
        let objects: Vec<&Value> = found.iter().map(|entry| &entry.object).collect();
        assert_eq!(
            *objects[0],
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "a", "labels": {
                    "rbac.authorization.k8s.io/aggregate-to-edit": "true",
                    "rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {
                    "rbac.authorization.k8s.io/aggregate-to-view": "true"}}]},
                "rules": [
                    {"verbs": ["create", "get", "list", "watch"], "apiGroups": ["", "g"],
                     "resources": ["pods", "pods/log"]},
                    {"verbs": ["get"], "nonResourceURLs": ["/x", "/y/*"]},
                ],
            })
        );
        assert_eq!(found[0].reasons, ["read access", ""]);
        assert_eq!(
            objects[1]["rules"][0]["resourceNames"],
            json!(["one", "two"])
        );
        assert_eq!(
            objects[2]["subjects"],
            json!([
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "g"},
            ])
        );
    }

    #[test]
    fn errors_carry_line_numbers() {
        for (text, line) in [
            ("  core | pods | get", 1),
            ("\nrobot x", 2),
            ("role x", 1),
            ("clusterrole n/x", 1),
            ("clusterrole x\n  core | pods", 2),
            ("clusterrolebinding x clusterrole:y robot:z", 1),
        ] {
            assert_eq!(parse(text).expect_err(text).line, line, "{text}");
        }
    }
}
