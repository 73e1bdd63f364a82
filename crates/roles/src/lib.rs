//! What users and components may do: roles, bindings and accounts, as data with their reasons.
//!
//! `users.txt` are the roles of people, `components.txt` those of the components on every home,
//! `host.txt` those of parts that only a single host has, `cluster.txt` what components need on a
//! cluster beside theirs. All are in the form of
//! [`apimachinery::rbac::table`], with `{namespace}` and `{node}` in places.
//!
//! Invariant: every right of a component says what it is needed for; no part has one that is not
//! written here. Must not know: who runs the components.

use std::collections::BTreeSet;

use apimachinery::{
    meta,
    rbac::table::{self, Entry, TableError},
};
use serde_json::{Value, json};

const USERS: &str = include_str!("users.txt");
const COMPONENTS: &str = include_str!("components.txt");
const HOST: &str = include_str!("host.txt");
const CLUSTER: &str = include_str!("cluster.txt");

/// Where the components run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home<'a> {
    /// On many nodes, whose names are not known beforehand.
    Cluster { namespace: &'a str },
    /// On this one.
    Host { namespace: &'a str, node: &'a str },
}

/// A table that is not as it should be. Tests see to it that ours are.
#[derive(Debug, thiserror::Error)]
#[error("read the roles in {file}")]
pub struct RolesError {
    file: &'static str,
    #[source]
    source: TableError,
}

/// Everything that has to be there: accounts first, then roles, then bindings.
pub fn objects(home: Home<'_>) -> Result<Vec<Value>, RolesError> {
    let entries = entries(home)?;
    let mut out = accounts(&entries);
    let (bindings, roles): (Vec<Value>, Vec<Value>) = entries
        .into_iter()
        .map(|entry| entry.object)
        .partition(|object| object["roleRef"].is_object());
    out.extend(roles);
    out.extend(bindings);
    Ok(out)
}

fn entries(home: Home<'_>) -> Result<Vec<Entry>, RolesError> {
    let mut files = vec![("users.txt", USERS), ("components.txt", COMPONENTS)];
    files.push(match home {
        Home::Host { .. } => ("host.txt", HOST),
        Home::Cluster { .. } => ("cluster.txt", CLUSTER),
    });
    let mut out = Vec::new();
    for (file, text) in files {
        let read = table::parse(&filled(text, home));
        out.extend(read.map_err(|source| RolesError { file, source })?);
    }
    Ok(out)
}

/// The text with names in place of what stands for them. On a cluster no role holds anybody to one
/// node (an admission policy does): there, a column that names the own node goes.
fn filled(text: &str, home: Home<'_>) -> String {
    match home {
        Home::Cluster { namespace } => text
            .replace("| {node}", "")
            .replace("{namespace}", namespace),
        Home::Host { namespace, node } => text
            .replace("{node}", node)
            .replace("{namespace}", namespace),
    }
}

/// The accounts that bindings are about.
fn accounts(entries: &[Entry]) -> Vec<Value> {
    let subjects = entries
        .iter()
        .filter_map(|entry| entry.object["subjects"].as_array())
        .flatten()
        .filter(|subject| subject["kind"] == "ServiceAccount");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let places: BTreeSet<(String, String)> = subjects
        .map(|subject| (text(&subject["namespace"]), text(&subject["name"])))
        .collect();
    let account = |(namespace, name)| {
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": name, "namespace": namespace}})
    };
    places.into_iter().map(account).collect()
}

/// `ClusterRole name`, for messages.
pub fn shown(object: &Value) -> String {
    format!("{} {}", meta::kind(object), meta::name(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOMES: [Home<'static>; 2] = [
        Home::Cluster {
            namespace: "kubevirt",
        },
        Home::Host {
            namespace: "kubevirt",
            node: "one",
        },
    ];

    #[test]
    fn every_right_of_a_component_has_its_reason() {
        for entry in HOMES
            .map(|home| entries(home).expect("good tables"))
            .concat()
        {
            let name = meta::name(&entry.object);
            let of_people = name.contains(".io:");
            for (rule, reason) in entry.reasons.iter().enumerate() {
                assert!(of_people || !reason.is_empty(), "{name}, rule {rule}");
            }
        }
    }

    #[test]
    fn every_binding_names_a_role_that_is_there() {
        let built_in = [
            "system:auth-delegator",
            "extension-apiserver-authentication-reader",
        ];
        for home in HOMES {
            let objects = objects(home).expect("good tables");
            let is_there = |kind: &Value, name: &Value| {
                objects
                    .iter()
                    .any(|one| one["kind"] == *kind && one["metadata"]["name"] == *name)
            };
            for binding in objects.iter().filter(|one| one["roleRef"].is_object()) {
                let role = &binding["roleRef"];
                let name = role["name"].as_str().unwrap_or_default();
                let known = built_in.contains(&name) || is_there(&role["kind"], &role["name"]);
                assert!(known, "{} binds {name}", shown(binding));
            }
        }
    }

    #[test]
    fn handler_changes_its_own_node_only_where_that_is_known() {
        for (home, expected) in HOMES.into_iter().zip([Value::Null, json!(["one"])]) {
            let objects = objects(home).expect("good tables");
            let role = objects
                .iter()
                .find(|one| shown(one) == "ClusterRole kubevirt-handler")
                .expect("is there");
            let rules = role["rules"].as_array().expect("rules");
            let of_nodes = |rule: &&Value| {
                rule["resources"] == json!(["nodes"]) && rule["verbs"] == json!(["patch"])
            };
            let found = rules.iter().find(of_nodes).expect("a rule about nodes");
            assert_eq!(found["resourceNames"], expected);
        }
    }
}
