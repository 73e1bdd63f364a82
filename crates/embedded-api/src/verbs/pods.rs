//! Defaults and rules of built-in kinds, narrow: what clients and our node rely on.

use apimachinery::{Violation, meta};
use serde_json::{Map, Value, json};

use crate::registry::Served;

/// What a real API server would fill in.
pub(crate) fn default_built_in(kind: &Served, object: &mut Value) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => default_pod(object),
        ("", "namespaces") => default_namespace(object),
        ("", "secrets") => default_secret(object),
        ("", "services") => default_service(object),
        ("", "persistentvolumeclaims") => {
            fill(object, "status", json!({"phase": "Pending"}));
            fill_in(object, "spec", "volumeMode", "Filesystem");
        }
        ("apiregistration.k8s.io", "apiservices") => {
            if let Some(service) = object.pointer_mut("/spec/service") {
                fill(service, "port", 443);
            }
        }
        ("admissionregistration.k8s.io", _) => {
            each(object, "webhooks", |webhook| {
                fill(webhook, "failurePolicy", "Fail");
                fill(webhook, "matchPolicy", "Equivalent");
                fill(webhook, "namespaceSelector", json!({}));
                fill(webhook, "objectSelector", json!({}));
                fill(webhook, "timeoutSeconds", 10);
                each(webhook, "rules", |rule| fill(rule, "scope", "*"));
                if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
                    fill(service, "port", 443);
                }
            });
        }
        _ => {}
    }
}

fn default_pod(pod: &mut Value) {
    if !pod["spec"].is_object() {
        return;
    }
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
    ] {
        fill(&mut pod["spec"], field, value);
    }
    for list in ["containers", "initContainers"] {
        each(&mut pod["spec"], list, default_container);
    }
    each(&mut pod["spec"], "volumes", |volume| {
        for (source, mode) in [("configMap", 420), ("secret", 420), ("downwardAPI", 420)] {
            if volume[source].is_object() {
                fill(&mut volume[source], "defaultMode", mode);
            }
        }
        if volume["hostPath"].is_object() {
            fill(&mut volume["hostPath"], "type", "");
        }
        if volume["image"].is_object() {
            let policy = pull_policy(volume["image"]["reference"].as_str().unwrap_or_default());
            fill(&mut volume["image"], "pullPolicy", policy);
        }
    });
    let class = qos_class(pod);
    fill(
        pod,
        "status",
        json!({"phase": "Pending", "qosClass": class}),
    );
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    fill(container, "imagePullPolicy", policy);
    fill(container, "resources", json!({}));
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    each(container, "ports", |port| fill(port, "protocol", "TCP"));
    each(container, "env", |variable| {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field, "apiVersion", "v1");
        }
    });
    // What is limited is requested, unless the pod says otherwise.
    let limits = container["resources"]["limits"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for (name, amount) in limits {
        if container["resources"]["requests"][&name].is_null() {
            container["resources"]["requests"][&name] = amount;
        }
    }
}

fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    if name.contains('@') {
        return "IfNotPresent";
    }
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

/// The class that decides which pods go first when memory is short.
fn qos_class(pod: &Value) -> &'static str {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten();
    let (mut any, mut all) = (false, true);
    for container in containers {
        let resources = &container["resources"];
        for name in ["cpu", "memory"] {
            let (limit, request) = (&resources["limits"][name], &resources["requests"][name]);
            any |= !limit.is_null() || !request.is_null();
            all &= !limit.is_null() && limit == request;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn default_namespace(namespace: &mut Value) {
    fill(namespace, "spec", json!({"finalizers": ["kubernetes"]}));
    fill(namespace, "status", json!({"phase": "Active"}));
    let name = meta::name(namespace).to_owned();
    if !namespace["metadata"]["labels"].is_object() {
        meta::set(namespace, "labels", Value::Object(Map::new()));
    }
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
}

/// `stringData` is for writing only: it becomes `data`.
fn default_secret(secret: &mut Value) {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    fill(secret, "type", "Opaque");
    let texts = secret
        .as_object_mut()
        .and_then(|fields| fields.shift_remove("stringData"));
    for (key, value) in texts
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        secret["data"][key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}

fn default_service(service: &mut Value) {
    if !service["spec"].is_object() {
        return;
    }
    fill_in(service, "spec", "type", "ClusterIP");
    fill_in(service, "spec", "sessionAffinity", "None");
    each(&mut service["spec"], "ports", |port| {
        fill(port, "protocol", "TCP");
        let number = port["port"].clone();
        fill(port, "targetPort", number);
    });
    fill(service, "status", json!({"loadBalancer": {}}));
}

/// Rules that schemas do not tell.
pub(crate) fn check_built_in(
    kind: &Served,
    live: Option<&Value>,
    object: &Value,
) -> Vec<Violation> {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => check_pod(live, object),
        ("", "configmaps" | "secrets") => check_data(live, object),
        _ => Vec::new(),
    }
}

fn check_pod(live: Option<&Value>, pod: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let containers = pod["spec"]["containers"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        wrong.push(Violation::required("spec.containers", ""));
    }
    for (at, container) in containers.iter().enumerate() {
        for field in ["name", "image"] {
            if container[field].as_str().unwrap_or_default().is_empty() {
                wrong.push(Violation::required(
                    format!("spec.containers[{at}].{field}"),
                    "",
                ));
            }
        }
    }
    if let Some(live) = live
        && frozen(&live["spec"]) != frozen(&pod["spec"])
    {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        wrong.push(Violation::forbidden("spec", why));
    }
    wrong
}

/// The part of a pod's spec that stays as it was made.
fn frozen(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Value::Object(fields) = &mut spec {
        for free in ["activeDeadlineSeconds", "tolerations"] {
            fields.shift_remove(free);
        }
    }
    for list in ["containers", "initContainers"] {
        each(&mut spec, list, |container| {
            if let Value::Object(fields) = container {
                fields.shift_remove("image");
            }
        });
    }
    spec
}

fn check_data(live: Option<&Value>, object: &Value) -> Vec<Violation> {
    let Some(live) = live.filter(|live| live["immutable"] == json!(true)) else {
        return Vec::new();
    };
    ["immutable", "data", "binaryData"]
        .into_iter()
        .filter(|field| live[*field] != object[*field])
        .map(|field| Violation::forbidden(field, "field is immutable when `immutable` is set"))
        .collect()
}

fn fill(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = object {
        let slot = fields.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value.into();
        }
    }
}

fn fill_in(object: &mut Value, part: &str, field: &str, value: impl Into<Value>) {
    if let Some(part) = object.get_mut(part) {
        fill(part, field, value);
    }
}

fn each(object: &mut Value, list: &str, change: impl FnMut(&mut Value)) {
    if let Some(Value::Array(items)) = object.get_mut(list) {
        items.iter_mut().for_each(change);
    }
}
