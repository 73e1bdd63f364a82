//! What an object takes of a quota. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::amount::Amount;

/// Amounts by the names that quotas have for them.
pub(super) type Usage = BTreeMap<String, Amount>;

/// Kinds of the core group that are counted by their plain names, too.
const PLAIN: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "resourcequotas",
    "secrets",
    "services",
];

/// Which kind of object: group and plural.
pub(super) type Kind<'a> = (&'a str, &'a str);

/// Of one object.
pub(super) fn of((group, plural): Kind<'_>, object: &Value) -> Usage {
    let mut all = Usage::new();
    let count = if group.is_empty() {
        format!("count/{plural}")
    } else {
        format!("count/{plural}.{group}")
    };
    all.insert(count, Amount::ONE);
    match (group, plural) {
        // It is counted above, and takes nothing any more.
        ("", "pods") if is_over(object) => {}
        ("", "pods") => {
            all.insert("pods".to_owned(), Amount::ONE);
            add_pod(&mut all, object);
        }
        ("", "persistentvolumeclaims") => {
            all.insert(plural.to_owned(), Amount::ONE);
            add_claim(&mut all, object);
        }
        ("", plural) if PLAIN.contains(&plural) => {
            all.insert(plural.to_owned(), Amount::ONE);
        }
        _ => {}
    }
    all
}

pub(super) fn add(sum: &mut Usage, more: &Usage) {
    for (name, amount) in more {
        let before = sum.get(name).copied().unwrap_or(Amount::ZERO);
        sum.insert(name.clone(), before.plus(*amount));
    }
}

fn is_over(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

fn add_claim(all: &mut Usage, claim: &Value) {
    let asked = claim["spec"]["resources"]["requests"]["storage"].as_str();
    let Some(asked) = asked.and_then(Amount::parse) else {
        return;
    };
    all.insert("requests.storage".to_owned(), asked);
    let class = claim["spec"]["storageClassName"].as_str();
    if let Some(class) = class.filter(|class| !class.is_empty()) {
        let of_class = format!("{class}.storageclass.storage.k8s.io");
        all.insert(format!("{of_class}/requests.storage"), asked);
        all.insert(format!("{of_class}/persistentvolumeclaims"), Amount::ONE);
    }
}

fn add_pod(all: &mut Usage, pod: &Value) {
    for part in ["requests", "limits"] {
        for (name, amount) in pod_amounts(pod, part) {
            all.insert(format!("{part}.{name}"), amount);
            // Requests have their plain names besides.
            if part == "requests" && is_basic(&name) {
                all.insert(name, amount);
            }
        }
    }
}

fn is_basic(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
}

/// All that run at once, or the most that one of those before them takes with what runs by then.
fn pod_amounts(pod: &Value, part: &str) -> Usage {
    let stays = |container: &&Value| container["restartPolicy"] == "Always";
    let own = |container: &Value| amounts(&container["resources"][part]);
    let mut sum = Usage::new();
    let beside = containers(pod, "initContainers").filter(stays);
    for container in containers(pod, "containers").chain(beside) {
        add(&mut sum, &own(container));
    }
    let mut running = Usage::new();
    for container in containers(pod, "initContainers") {
        if stays(&container) {
            add(&mut running, &own(container));
            continue;
        }
        let mut needed = running.clone();
        add(&mut needed, &own(container));
        for (name, amount) in needed {
            let most = sum.get(&name).copied().unwrap_or(Amount::ZERO).max(amount);
            sum.insert(name, most);
        }
    }
    add(&mut sum, &amounts(&pod["spec"]["overhead"]));
    sum
}

fn amounts(list: &Value) -> Usage {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), Amount::parse(amount.as_str()?)?)))
        .collect()
}

fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    pod["spec"][list].as_array().into_iter().flatten()
}

/// Containers that do not say what a quota counts, by the quota's name for it.
pub(super) fn silent(pod: &Value, counted: &Value) -> Vec<String> {
    let counted = counted.as_object().into_iter().flatten();
    let mut all = Vec::new();
    for (name, _) in counted {
        let (part, resource) = match name.split_once('.') {
            Some((part @ ("requests" | "limits"), resource)) => (part, resource),
            _ => ("requests", name.as_str()),
        };
        // What is not basic is asked for by few.
        if !matches!(resource, "cpu" | "memory") {
            continue;
        }
        let names = containers(pod, "initContainers").chain(containers(pod, "containers"));
        let names = names.filter(|container| container["resources"][part][resource].is_null());
        let names: Vec<&str> = names
            .map(|one| one["name"].as_str().unwrap_or_default())
            .collect();
        if !names.is_empty() {
            all.push(format!("{name} for: {}", names.join(",")));
        }
    }
    all
}

/// The kinds that a quota counts objects of.
pub(super) fn kinds(hard: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, _) in hard.as_object().into_iter().flatten() {
        let kind = match name.strip_prefix("count/") {
            Some(counted) => {
                let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
                (group.to_owned(), plural.to_owned())
            }
            None if PLAIN.contains(&name.as_str()) => (String::new(), name.clone()),
            None if name == "requests.storage" || name.contains(".storageclass.") => {
                (String::new(), "persistentvolumeclaims".to_owned())
            }
            None => (String::new(), "pods".to_owned()),
        };
        if !all.contains(&kind) {
            all.push(kind);
        }
    }
    all
}

/// The object in words, for messages.
pub(super) fn shown(usage: &Usage, names: &[&String]) -> String {
    let mut names = names.to_vec();
    names.sort();
    let one = |name: &&String| {
        let amount = usage.get(*name).copied().unwrap_or(Amount::ZERO);
        format!("{name}={amount}")
    };
    names.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(usage: &Usage) -> Value {
        let texts = usage
            .iter()
            .map(|(name, amount)| (name.clone(), json!(amount.to_string())));
        Value::Object(texts.collect())
    }

    #[test]
    fn pods_take_what_their_containers_ask_for() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [
                {"name": "i", "resources": {"requests": {"cpu": "2", "memory": "32Mi"}}},
                {"name": "s", "restartPolicy": "Always",
                 "resources": {"requests": {"cpu": "100m"}}},
            ],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "64Mi"},
                                            "limits": {"memory": "128Mi", "example.com/x": "1"}}},
                {"name": "b", "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}},
            ],
        }});
        // The first of those that run before takes more than all that run at once.
        let expected = json!({
            "count/pods": "1", "pods": "1", "cpu": "2", "requests.cpu": "2",
            "memory": "128Mi", "requests.memory": "128Mi",
            "limits.memory": "128Mi", "limits.example.com/x": "1",
        });
        assert_eq!(texts(&of(("", "pods"), &pod)), expected);
        let mut over = pod.clone();
        over["status"]["phase"] = json!("Succeeded");
        assert_eq!(texts(&of(("", "pods"), &over)), json!({"count/pods": "1"}));
    }

    #[test]
    fn claims_take_storage_of_their_class() {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}}}});
        let expected = json!({
            "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1",
            "requests.storage": "1Gi", "local.storageclass.storage.k8s.io/requests.storage": "1Gi",
            "local.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        });
        assert_eq!(texts(&of(("", "persistentvolumeclaims"), &claim)), expected);
        let vm = of(("kubevirt.io", "virtualmachines"), &json!({}));
        assert_eq!(
            texts(&vm),
            json!({"count/virtualmachines.kubevirt.io": "1"})
        );
    }

    #[test]
    fn containers_that_say_nothing_of_what_is_counted_are_named() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}}},
            {"name": "b", "resources": {}},
        ]}});
        let hard = json!({"limits.cpu": "4", "memory": "4Gi", "pods": "3", "limits.x/y": "1"});
        assert_eq!(silent(&pod, &hard), ["limits.cpu for: b", "memory for: b"]);
        assert!(silent(&pod, &json!({"pods": "1"})).is_empty());
    }
}
