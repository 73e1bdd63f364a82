//! Requests and limits that a range gives to the containers of a pod. Pure.

use serde_json::{Map, Value, json};

/// Says which values were filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Fills in what the containers do not specify.
pub(super) fn apply(range: &Value, pod: &mut Value) {
    let limits = of_containers(range, "default");
    let requests = of_containers(range, "defaultRequest");
    let mut notes = Vec::new();
    for (list, kind) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (part, values, term) in [
                ("requests", &requests, "request"),
                ("limits", &limits, "limit"),
            ] {
                let added = add(container, part, values);
                if !added.is_empty() {
                    notes.push(format!("{} {term} for {kind} {name}", added.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        if !pod["metadata"]["annotations"].is_object() {
            pod["metadata"]["annotations"] = json!({});
        }
        pod["metadata"]["annotations"][ANNOTATION] = text.into();
    }
}

/// The values of all items about containers; those of a later item win.
fn of_containers(range: &Value, part: &str) -> Map<String, Value> {
    let items = range["spec"]["limits"].as_array().into_iter().flatten();
    let items = items.filter(|item| item["type"] == "Container");
    let values = items.filter_map(|item| item[part].as_object()).flatten();
    let owned = values.map(|(name, value)| (name.clone(), value.clone()));
    owned.collect()
}

/// Adds the values that are missing; returns their names, in order.
fn add(container: &mut Value, part: &str, values: &Map<String, Value>) -> Vec<String> {
    let mut added = Vec::new();
    if !container.is_object() {
        return added;
    }
    for (name, value) in values {
        if value.is_null() || !container["resources"][part][name].is_null() {
            continue;
        }
        let resources = &mut container["resources"];
        if !resources.is_object() {
            *resources = json!({});
        }
        if !resources[part].is_object() {
            resources[part] = json!({});
        }
        resources[part][name] = value.clone();
        added.push(name.clone());
    }
    added.sort();
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(limits: Value, spec: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p"}});
        pod["spec"] = spec;
        let mut range = json!({"spec": {}});
        range["spec"]["limits"] = limits;
        apply(&range, &mut pod);
        pod
    }

    #[test]
    fn missing_requests_and_limits_are_filled_in() {
        let range = json!([
            {"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "1", "memory": "1Gi"}},
            {"type": "Pod", "max": {"cpu": "9"}},
        ]);
        let spec = json!({
            "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "7"}, "requests": {"cpu": "7"}}}],
            "initContainers": [{"name": "c", "resources": {"requests": {"memory": "1Mi", "cpu": "3"}, "limits": {"memory": "2Mi"}}}],
        });
        let pod = applied(range, spec);
        let resources = |list: &str, index: usize| pod["spec"][list][index]["resources"].clone();
        assert_eq!(
            resources("containers", 0),
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}})
        );
        assert_eq!(
            resources("containers", 1),
            json!({"limits": {"cpu": "7", "memory": "1Gi"}, "requests": {"cpu": "7", "memory": "1Gi"}})
        );
        assert_eq!(
            resources("initContainers", 0),
            json!({"limits": {"cpu": "2", "memory": "2Mi"}, "requests": {"cpu": "3", "memory": "1Mi"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; memory \
             request for container b; memory limit for container b; cpu limit for init container c"
        );
    }

    #[test]
    fn pod_that_needs_nothing_is_unchanged() {
        let spec = json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}]});
        let before = json!({"metadata": {"name": "p"}, "spec": spec});
        for limits in [
            json!([]),
            json!([{"type": "Pod", "max": {"cpu": "1"}}]),
            json!([{"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "2"}}]),
        ] {
            assert_eq!(applied(limits.clone(), spec.clone()), before, "{limits}");
        }
    }
}
