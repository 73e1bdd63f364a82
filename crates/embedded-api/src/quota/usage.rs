//! The usage of one object. Pure.

use std::collections::BTreeMap;

use apimachinery::GroupResource;
use quantity::Amount;
use serde_json::Value;

use crate::{kinds::amounts::written, store::Collection};

/// Amounts by resource name as in quotas.
pub(crate) type Usage = BTreeMap<String, Amount>;

/// Kinds of the core group that are also counted by their plain names.
const PLAIN: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "resourcequotas",
    "secrets",
    "services",
];

const NODE_PORTS: &str = "services.nodeports";
const LOAD_BALANCERS: &str = "services.loadbalancers";

pub(super) const PODS: GroupResource<'static> = GroupResource {
    group: "",
    resource: "pods",
};

/// The usage of one object.
pub(super) fn of(kind: GroupResource<'_>, object: &Value) -> Usage {
    let (group, plural) = (kind.group, kind.resource);
    let mut all = Usage::new();
    let count = if group.is_empty() {
        format!("count/{plural}")
    } else {
        format!("count/{plural}.{group}")
    };
    all.insert(count, Amount::ONE);
    match (group, plural) {
        // It counts as an object above, but uses no compute resources.
        ("", "pods") if has_ended(object) => {}
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
            if plural == "services" {
                add_service(&mut all, object);
            }
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

/// By how much a changed object uses more than before.
pub(super) fn growth(now: &Usage, before: &Usage) -> Usage {
    let more = now.iter().map(|(name, amount)| {
        let before = before.get(name).copied().unwrap_or(Amount::ZERO);
        (name.clone(), amount.minus(before))
    });
    more.filter(|(_, amount)| *amount > Amount::ZERO).collect()
}

fn has_ended(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

fn add_service(all: &mut Usage, service: &Value) {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let is_balancer = spec["type"] == "LoadBalancer";
    let node_ports = match spec["type"].as_str() {
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            let numbered = ports
                .iter()
                .filter(|port| port["nodePort"].as_i64() > Some(0));
            numbered.count()
        }
        Some("NodePort" | "LoadBalancer") => ports.len(),
        _ => 0,
    };
    let amount = |count: usize| Amount::of(u64::try_from(count).unwrap_or(u64::MAX));
    all.insert(NODE_PORTS.to_owned(), amount(node_ports));
    all.insert(LOAD_BALANCERS.to_owned(), amount(usize::from(is_balancer)));
}

fn add_claim(all: &mut Usage, claim: &Value) {
    let requested = claim["spec"]["resources"]["requests"]["storage"].as_str();
    let Some(requested) = requested.and_then(|text| Amount::parse_text(text).ok()) else {
        return;
    };
    all.insert("requests.storage".to_owned(), requested);
    let class = claim["spec"]["storageClassName"].as_str();
    if let Some(class) = class.filter(|class| !class.is_empty()) {
        let of_class = format!("{class}.storageclass.storage.k8s.io");
        all.insert(format!("{of_class}/requests.storage"), requested);
        all.insert(format!("{of_class}/persistentvolumeclaims"), Amount::ONE);
    }
}

fn add_pod(all: &mut Usage, pod: &Value) {
    for part in ["requests", "limits"] {
        for (name, amount) in pod_amounts(pod, part) {
            all.insert(format!("{part}.{name}"), amount);
            // Requests also count under their plain names.
            if part == "requests" && is_basic(&name) {
                all.insert(name, amount);
            }
        }
    }
}

fn is_basic(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
}

/// The sum of all containers, or the largest sum of an init container and the sidecars before it.
pub(crate) fn pod_amounts(pod: &Value, part: &str) -> Usage {
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
    list.filter_map(|(name, value)| Some((name.clone(), written(value)?.amount)))
        .collect()
}

pub(crate) fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    pod["spec"][list].as_array().into_iter().flatten()
}

/// Counted resources that containers do not specify, by their names in quotas.
pub(super) fn unspecified(pod: &Value, counted: &Value) -> Vec<String> {
    let counted = counted.as_object().into_iter().flatten();
    let mut all = Vec::new();
    for (name, _) in counted {
        let (part, resource) = match name.split_once('.') {
            Some((part @ ("requests" | "limits"), resource)) => (part, resource),
            _ => ("requests", name.as_str()),
        };
        // Only basic resources must be specified.
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

/// The collections whose objects a quota counts.
pub(super) fn collections(hard: &Value) -> Vec<Collection> {
    let mut all = Vec::new();
    for (name, _) in hard.as_object().into_iter().flatten() {
        let collection = match name.strip_prefix("count/") {
            Some(counted) => {
                let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
                Collection::new(group, plural)
            }
            None if PLAIN.contains(&name.as_str()) => Collection::new("", name),
            None if [NODE_PORTS, LOAD_BALANCERS].contains(&name.as_str()) => {
                Collection::new("", "services")
            }
            None if name == "requests.storage" || name.contains(".storageclass.") => {
                Collection::new("", "persistentvolumeclaims")
            }
            None => Collection::new("", "pods"),
        };
        if !all.contains(&collection) {
            all.push(collection);
        }
    }
    all
}

/// Formats the usage for messages.
pub(super) fn format(usage: &Usage, names: &[&String]) -> String {
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
    fn pod_usage_is_the_sum_of_its_containers() {
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
        // The first init container requests more than all containers together.
        let expected = json!({
            "count/pods": "1", "pods": "1", "cpu": "2", "requests.cpu": "2",
            "memory": "128Mi", "requests.memory": "128Mi",
            "limits.memory": "128Mi", "limits.example.com/x": "1",
        });
        assert_eq!(texts(&of(PODS, &pod)), expected);
        let mut over = pod.clone();
        over["status"]["phase"] = json!("Succeeded");
        assert_eq!(texts(&of(PODS, &over)), json!({"count/pods": "1"}));
    }

    #[test]
    fn claims_use_storage_of_their_class() {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}}}});
        let expected = json!({
            "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1",
            "requests.storage": "1Gi", "local.storageclass.storage.k8s.io/requests.storage": "1Gi",
            "local.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        });
        let claims = GroupResource {
            resource: "persistentvolumeclaims",
            ..PODS
        };
        assert_eq!(texts(&of(claims, &claim)), expected);
        let vms = GroupResource {
            group: "kubevirt.io",
            resource: "virtualmachines",
        };
        let vm = of(vms, &json!({}));
        assert_eq!(
            texts(&vm),
            json!({"count/virtualmachines.kubevirt.io": "1"})
        );
    }

    #[test]
    fn services_use_node_ports_and_load_balancers() {
        let kind = GroupResource {
            resource: "services",
            ..PODS
        };
        for (spec, ports, balancers) in [
            (json!({"type": "ClusterIP", "ports": [{}]}), "0", "0"),
            (json!({"type": "NodePort", "ports": [{}, {}]}), "2", "0"),
            (json!({"type": "LoadBalancer", "ports": [{}]}), "1", "1"),
            (
                json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                       "ports": [{"nodePort": 30000}, {}]}),
                "1",
                "1",
            ),
        ] {
            let expected = json!({"count/services": "1", "services": "1",
                NODE_PORTS: ports, LOAD_BALANCERS: balancers});
            assert_eq!(texts(&of(kind, &json!({"spec": spec}))), expected);
        }
        let counted = collections(&json!({NODE_PORTS: "1", LOAD_BALANCERS: "1"}));
        assert_eq!(counted, [Collection::new("", "services")]);
    }

    #[test]
    fn containers_without_counted_resources_are_named() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}}},
            {"name": "b", "resources": {}},
        ]}});
        let hard = json!({"limits.cpu": "4", "memory": "4Gi", "pods": "3", "limits.x/y": "1"});
        assert_eq!(
            unspecified(&pod, &hard),
            ["limits.cpu for: b", "memory for: b"]
        );
        assert!(unspecified(&pod, &json!({"pods": "1"})).is_empty());
    }
}
