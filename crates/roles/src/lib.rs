//! Roles, bindings and accounts of users and components, as tables.
//!
//! `users.txt` has the roles of users, `components.txt` those of the components in every environment,
//! `host.txt` those of parts that only a single host has, `cluster.txt` additional rights of components
//! on a cluster. The format is that of [`apimachinery::rbac::table`], with the placeholders `{namespace}`
//! and `{node}`.
//!
//! Invariant: every right of a component has a comment with its purpose; no component has a right that
//! is not in these tables. Must not know: how the components run.

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
pub enum Environment<'a> {
    /// A cluster, whose nodes are not known in advance.
    Cluster { namespace: &'a str },
    /// A single host.
    Host { namespace: &'a str, node: &'a str },
}

/// A table that cannot be parsed. Tests parse all tables of this crate.
#[derive(Debug, thiserror::Error)]
#[error("read the roles in {file}")]
pub struct RolesError {
    file: &'static str,
    #[source]
    source: TableError,
}

/// All objects: accounts first, then roles, then bindings.
pub fn objects(environment: Environment<'_>) -> Result<Vec<Value>, RolesError> {
    let entries = entries(environment)?;
    let mut out = accounts(&entries);
    let (bindings, roles): (Vec<Value>, Vec<Value>) = entries
        .into_iter()
        .map(|entry| entry.object)
        .partition(|object| object["roleRef"].is_object());
    out.extend(roles);
    out.extend(bindings);
    Ok(out)
}

fn entries(environment: Environment<'_>) -> Result<Vec<Entry>, RolesError> {
    let mut files = vec![("users.txt", USERS), ("components.txt", COMPONENTS)];
    files.push(match environment {
        Environment::Host { .. } => ("host.txt", HOST),
        Environment::Cluster { .. } => ("cluster.txt", CLUSTER),
    });
    let mut out = Vec::new();
    for (file, text) in files {
        let read = table::parse(&fill(text, environment));
        out.extend(read.map_err(|source| RolesError { file, source })?);
    }
    Ok(out)
}

/// Replaces the placeholders. On a cluster an admission policy restricts a component to its node, not its
/// role, so a column with the own node is removed.
fn fill(text: &str, environment: Environment<'_>) -> String {
    match environment {
        Environment::Cluster { namespace } => text
            .replace("| {node}", "")
            .replace("{namespace}", namespace),
        Environment::Host { namespace, node } => text
            .replace("{node}", node)
            .replace("{namespace}", namespace),
    }
}

/// The service accounts that bindings name.
fn accounts(entries: &[Entry]) -> Vec<Value> {
    let subjects = entries
        .iter()
        .filter_map(|entry| entry.object["subjects"].as_array())
        .flatten()
        .filter(|subject| subject["kind"] == "ServiceAccount");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: BTreeSet<(String, String)> = subjects
        .map(|subject| (text(&subject["namespace"]), text(&subject["name"])))
        .collect();
    let account = |(namespace, name)| {
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": name, "namespace": namespace}})
    };
    names.into_iter().map(account).collect()
}

/// `ClusterRole name`, for messages.
pub fn shown(object: &Value) -> String {
    format!("{} {}", meta::kind(object), meta::name(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVIRONMENTS: [Environment<'static>; 2] = [
        Environment::Cluster {
            namespace: "kubevirt",
        },
        Environment::Host {
            namespace: "kubevirt",
            node: "one",
        },
    ];

    #[test]
    fn every_right_of_a_component_has_a_comment() {
        for entry in ENVIRONMENTS
            .map(|environment| entries(environment).expect("good tables"))
            .concat()
        {
            let name = meta::name(&entry.object);
            let is_of_users = name.contains(".io:");
            for (rule, reason) in entry.reasons.iter().enumerate() {
                assert!(is_of_users || !reason.is_empty(), "{name}, rule {rule}");
            }
        }
    }

    #[test]
    fn every_binding_names_an_existing_role() {
        let built_in = [
            "system:auth-delegator",
            "extension-apiserver-authentication-reader",
        ];
        for environment in ENVIRONMENTS {
            let objects = objects(environment).expect("good tables");
            let exists = |kind: &Value, name: &Value| {
                objects
                    .iter()
                    .any(|one| one["kind"] == *kind && one["metadata"]["name"] == *name)
            };
            for binding in objects.iter().filter(|one| one["roleRef"].is_object()) {
                let role = &binding["roleRef"];
                let name = role["name"].as_str().unwrap_or_default();
                let known = built_in.contains(&name) || exists(&role["kind"], &role["name"]);
                assert!(known, "{} binds {name}", shown(binding));
            }
        }
    }

    /// The class of CVE-2020-1701: a node's component that reads all secrets. The node of a single host has the
    /// rights of a kubelet and is not among them.
    #[test]
    fn no_component_reads_secrets_of_other_namespaces() {
        for environment in ENVIRONMENTS {
            for object in objects(environment).expect("good tables") {
                let name = meta::name(&object);
                if object["kind"] != "ClusterRole" || !name.starts_with("kubevirt-") {
                    continue;
                }
                for rule in object["rules"].as_array().expect("rules") {
                    let groups = rule["apiGroups"].to_string();
                    let resources = rule["resources"].to_string();
                    let is_core = groups.contains("\"\"") || groups.contains("\"*\"");
                    let reaches = resources.contains("\"secrets\"") || resources.contains("\"*\"");
                    // Exports have Secrets, which virt-controller creates and never reads.
                    let only_creates =
                        name == "kubevirt-controller" && rule["verbs"] == json!(["create"]);
                    assert!(!(is_core && reaches) || only_creates, "{name}: {rule}");
                }
            }
        }
    }

    #[test]
    fn handler_role_names_its_node_on_a_single_host() {
        for (environment, expected) in ENVIRONMENTS.into_iter().zip([Value::Null, json!(["one"])]) {
            let objects = objects(environment).expect("good tables");
            let role = objects
                .iter()
                .find(|one| shown(one) == "ClusterRole kubevirt-handler")
                .expect("the role exists");
            let rules = role["rules"].as_array().expect("rules");
            let of_nodes = |rule: &&Value| {
                rule["resources"] == json!(["nodes"]) && rule["verbs"] == json!(["patch"])
            };
            let found = rules.iter().find(of_nodes).expect("a rule about nodes");
            assert_eq!(found["resourceNames"], expected);
        }
    }
}
