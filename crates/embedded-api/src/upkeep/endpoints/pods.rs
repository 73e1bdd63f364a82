//! The pods behind a service. Pure.

use apimachinery::meta;
use serde_json::Value;

/// Name, number and protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) number: i64,
    pub(super) protocol: String,
    pub(super) app_protocol: Option<String>,
}

/// Whether a change of a pod may change endpoints: not every new status does.
pub(super) fn is_relevant(body: &[u8], previous: Option<&[u8]>) -> bool {
    let parse = |body: &[u8]| serde_json::from_slice::<Value>(body).ok();
    let (Some(now), Some(before)) = (parse(body), previous.and_then(parse)) else {
        return true;
    };
    let facts = |pod: &Value| {
        let spec = &pod["spec"];
        (
            pod["metadata"]["labels"].clone(),
            spec["nodeName"].clone(),
            pod["status"]["podIP"].clone(),
            (is_over(pod), is_ready(pod), meta::is_deleting(pod)),
        )
    };
    facts(&now) != facts(&before)
}

/// Whether the selector of a service selects the pod.
pub(super) fn is_selected(service: &Value, pod: &Value) -> bool {
    let Some(selector) = service["spec"]["selector"].as_object() else {
        return false;
    };
    let labels = &pod["metadata"]["labels"];
    !selector.is_empty() && selector.iter().all(|(key, value)| labels[key] == *value)
}

/// The pod's address, as long as its containers may run.
pub(super) fn address(pod: &Value) -> Option<&str> {
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    (!address.is_empty() && !is_over(pod)).then_some(address)
}

fn is_over(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The pod's host name, if it is resolved below the service.
pub(super) fn hostname<'a>(service: &Value, pod: &'a Value) -> Option<&'a str> {
    let is_below = pod["spec"]["subdomain"] == service["metadata"]["name"];
    pod["spec"]["hostname"]
        .as_str()
        .filter(|name| is_below && !name.is_empty())
}

/// The pod's ports behind those of the service. `None` if it has none of them.
pub(super) fn ports(service: &Value, pod: &Value) -> Option<Vec<Port>> {
    let all = service["spec"]["ports"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let found: Vec<Port> = all.iter().filter_map(|port| target(port, pod)).collect();
    (all.is_empty() || !found.is_empty()).then_some(found)
}

fn target(port: &Value, pod: &Value) -> Option<Port> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
    let number = match &port["targetPort"] {
        Value::String(name) => {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let mut ports =
                containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
            let fits = |one: &&Value| {
                one["name"] == *name && one["protocol"].as_str().unwrap_or("TCP") == protocol
            };
            ports.find(fits)?["containerPort"].as_i64()?
        }
        other => other
            .as_i64()
            .filter(|number| *number != 0)
            .or(port["port"].as_i64())?,
    };
    Some(Port {
        name: text(&port["name"]),
        number,
        protocol,
        app_protocol: port["appProtocol"].as_str().map(str::to_owned),
    })
}

/// A reference to the pod.
pub(super) fn reference(pod: &Value) -> Value {
    serde_json::json!({
        "kind": "Pod",
        "namespace": meta::namespace(pod),
        "name": meta::name(pod),
        "uid": meta::uid(pod),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn pod(name: &str, ip: &str, ready: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "a"}},
            "spec": {
                "nodeName": "here", "hostname": name, "subdomain": "s",
                "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}],
            },
            "status": {
                "phase": "Running", "podIP": ip,
                "conditions": [{"type": "Ready", "status": ready}],
            },
        })
    }

    #[test]
    fn only_some_changes_of_a_pod_matter() {
        let before = pod("a", "10.0.0.2", "True");
        let matters = |change: fn(&mut Value)| {
            let mut after = before.clone();
            change(&mut after);
            let bytes = |value: &Value| serde_json::to_vec(value).expect("JSON");
            is_relevant(&bytes(&after), Some(&bytes(&before)))
        };
        assert!(!matters(
            |pod| pod["metadata"]["annotations"] = json!({"x": "y"})
        ));
        assert!(!matters(
            |pod| pod["status"]["containerStatuses"] = json!([{"name": "c"}])
        ));
        assert!(matters(|pod| pod["metadata"]["labels"] = json!({})));
        assert!(matters(|pod| pod["status"]["podIP"] = json!("10.0.0.3")));
        assert!(matters(|pod| pod["status"]["phase"] = json!("Failed")));
        assert!(matters(|pod| pod["status"]["conditions"] = json!([])));
        assert!(is_relevant(b"{}", None));
    }
}
