//! The roles of users have exactly the rights to verbs that the list of verbs names.
#![expect(clippy::unwrap_used, reason = "a test fails so")]

use std::collections::BTreeSet;

use roles::Environment;
use serde_json::Value;
use virt_api::{AGGREGATED, Level, Object, VERBS};

use crate::facts;

const LEVELS: [(&str, Level); 3] = [
    ("kubevirt.io:view", Level::View),
    ("kubevirt.io:edit", Level::Edit),
    ("kubevirt.io:admin", Level::Admin),
];

/// The rights of a role to subresources, as resource and verb.
fn rights(role: &str) -> BTreeSet<(String, String)> {
    let environment = Environment::Cluster {
        namespace: "kubevirt",
    };
    let objects = roles::objects(environment).unwrap();
    let is_role = |one: &&Value| one["kind"] == "ClusterRole" && one["metadata"]["name"] == role;
    let role = objects.iter().find(is_role).unwrap();
    let names = |rule: &Value, field: &str| -> Vec<String> {
        let list = rule[field].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    };
    let mut found = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        let is_aggregated = |group: &String| AGGREGATED.iter().any(|api| api.group == *group);
        if !names(rule, "apiGroups").iter().any(is_aggregated) {
            continue;
        }
        for resource in names(rule, "resources") {
            let verbs = names(rule, "verbs");
            found.extend(verbs.into_iter().map(|verb| (resource.clone(), verb)));
        }
    }
    found
}

#[test]
fn roles_of_users_have_the_rights_of_the_verbs() {
    for (role, level) in LEVELS {
        let rights = rights(role);
        for verb in VERBS.iter().filter(|verb| verb.level != Level::Everyone) {
            let right = (verb.resource(), verb.verb.name().to_owned());
            assert_eq!(
                rights.contains(&right),
                verb.level <= level,
                "{role}: {right:?}"
            );
        }
    }
}

/// Each verb with each role: allowed and denied as in `KubeVirt`.
#[test]
fn roles_of_users_have_the_rights_of_kubevirts_roles() {
    let roles = ["view", "edit", "admin", "migrate", "default"];
    for role in roles {
        let rights = rights(&format!("kubevirt.io:{role}"));
        for fact in facts::all() {
            let verb = match fact.right {
                "-" => "get",
                verb => verb,
            };
            let right = (fact.resource(), verb.to_owned());
            let allowed = fact.roles.contains(&role);
            assert_eq!(rights.contains(&right), allowed, "{role}: {right:?}");
        }
    }
}

#[test]
fn levels_of_verbs_are_those_of_kubevirts_roles() {
    let facts = facts::all();
    for verb in VERBS {
        let fact = facts.iter().find(|fact| fact.resource() == verb.resource());
        let Some(fact) = fact else {
            let ours = ["usage", "suspend", "resume"];
            let is_ours = verb.object == Object::Template || ours.contains(&verb.name);
            assert!(is_ours, "KubeVirt has no such verb");
            continue;
        };
        let level = match fact.roles.as_slice() {
            ["admin", "edit", "view"] => Level::View,
            ["admin", "edit"] => Level::Edit,
            ["admin"] => Level::Admin,
            ["migrate"] => Level::Migrate,
            ["(none)"] => Level::Component,
            ["default" | "-"] => Level::Everyone,
            other => panic!("{other:?}"),
        };
        assert_eq!(verb.level, level, "{}", verb.resource());
    }
}
