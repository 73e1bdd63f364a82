//! Defaults and rules of built-in kinds, narrow: what clients and our node rely on.

use apimachinery::{Violation, meta, names};
use serde_json::{Map, Value, json};

use crate::registry::Served;

/// What a real API server would fill in.
pub(crate) fn default_built_in(kind: &Served, object: &mut Value) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => {
            default_pod(object);
            show_status(object);
        }
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
        if volume["downwardAPI"].is_object() {
            each(&mut volume["downwardAPI"], "items", |item| {
                if item["fieldRef"].is_object() {
                    fill(&mut item["fieldRef"], "apiVersion", "v1");
                }
            });
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
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[probe].is_object() {
            default_probe(&mut container[probe]);
        }
    }
    each(container, "env", |variable| {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field, "apiVersion", "v1");
        }
    });
    for part in ["limits", "requests"] {
        amounts_as_text(container["resources"].get_mut(part));
    }
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

/// Amounts may be written as numbers and are read back as texts.
fn amounts_as_text(amounts: Option<&mut Value>) {
    let amounts = amounts.and_then(Value::as_object_mut);
    for amount in amounts.into_iter().flat_map(Map::values_mut) {
        if amount.is_number() {
            *amount = amount.to_string().into();
        }
    }
}

fn default_probe(probe: &mut Value) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        fill(probe, field, value);
    }
    if probe["httpGet"].is_object() {
        fill(&mut probe["httpGet"], "path", "/");
        fill(&mut probe["httpGet"], "scheme", "HTTP");
    }
    if probe["grpc"].is_object() {
        fill(&mut probe["grpc"], "service", "");
    }
}

/// What is always shown of a pod's status, set or not.
fn show_status(pod: &mut Value) {
    each(&mut pod["status"], "conditions", |condition| {
        for field in ["lastProbeTime", "lastTransitionTime"] {
            fill(condition, field, Value::Null);
        }
    });
    // The first address is told twice.
    if let Some(first) = pod.pointer("/status/podIPs/0/ip").cloned() {
        fill(&mut pod["status"], "podIP", first);
    }
}

/// An event shows who tells it and when, even if nobody said so.
fn default_event(event: &mut Value) {
    fill(event, "source", json!({}));
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        fill(event, field, Value::Null);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        fill(event, field, "");
    }
}

/// What the server adds to a new object after its owners are known.
pub(crate) fn furnish_built_in(kind: &Served, object: &mut Value) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") if object["spec"].is_object() => {
            fill(
                &mut object["spec"],
                "preemptionPolicy",
                "PreemptLowerPriority",
            );
            fill(&mut object["spec"], "priority", 0);
        }
        ("", "namespaces") => {
            if !object["spec"].is_object() {
                object["spec"] = json!({});
            }
            fill(&mut object["spec"], "finalizers", json!(["kubernetes"]));
        }
        ("", "services") => furnish_service(object),
        ("", "events") => default_event(object),
        _ => {}
    }
}

fn furnish_service(service: &mut Value) {
    if !service["spec"].is_object() || service["spec"]["type"] == "ExternalName" {
        return;
    }
    let spec = &mut service["spec"];
    if spec["clusterIP"].is_string() {
        let address = spec["clusterIP"].clone();
        fill(spec, "clusterIPs", json!([address]));
    }
    fill(spec, "ipFamilies", json!(["IPv4"]));
    fill(spec, "ipFamilyPolicy", "SingleStack");
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
    fill(namespace, "spec", json!({}));
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
    if service["spec"]["type"] != "ExternalName" {
        fill_in(service, "spec", "internalTrafficPolicy", "Cluster");
    }
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
        ("", "persistentvolumeclaims") => check_claim(object),
        _ => Vec::new(),
    }
}

fn check_pod(live: Option<&Value>, pod: &Value) -> Vec<Violation> {
    let mut wrong = check_containers(pod);
    check_word(
        &pod["spec"],
        "spec",
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        &mut wrong,
    );
    check_word(
        &pod["spec"],
        "spec",
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        &mut wrong,
    );
    if let Some(live) = live
        && frozen(&live["spec"]) != frozen(&pod["spec"])
    {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        wrong.push(Violation::forbidden("spec", why));
    }
    wrong
}

fn check_containers(pod: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let containers = items(&pod["spec"]["containers"]);
    if containers.is_empty() {
        wrong.push(Violation::required("spec.containers", ""));
    }
    let volumes: Vec<Value> = items(&pod["spec"]["volumes"])
        .iter()
        .map(|volume| volume["name"].clone())
        .collect();
    let mut names = std::collections::BTreeSet::new();
    for (at, container) in containers.iter().enumerate() {
        let path = format!("spec.containers[{at}]");
        let name = container["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            wrong.push(Violation::required(format!("{path}.name"), ""));
        } else {
            let found = names::dns_label(name).into_iter();
            wrong.extend(found.map(|why| Violation::invalid(format!("{path}.name"), name, why)));
            if !names.insert(name) {
                wrong.push(Violation::duplicate(format!("{path}.name"), name));
            }
        }
        if container["image"].as_str().unwrap_or_default().is_empty() {
            wrong.push(Violation::required(format!("{path}.image"), ""));
        }
        check_word(
            container,
            &path,
            "imagePullPolicy",
            &["Always", "IfNotPresent", "Never"],
            &mut wrong,
        );
        for (index, mount) in items(&container["volumeMounts"]).iter().enumerate() {
            let path = format!("{path}.volumeMounts[{index}]");
            let name = &mount["name"];
            if name.as_str().unwrap_or_default().is_empty() {
                wrong.push(Violation::required(format!("{path}.name"), ""));
            } else if !volumes.contains(name) {
                wrong.push(Violation::not_found(format!("{path}.name"), name.clone()));
            }
            if mount["mountPath"].as_str().unwrap_or_default().is_empty() {
                wrong.push(Violation::required(format!("{path}.mountPath"), ""));
            }
        }
    }
    wrong
}

/// A word that is one of few.
fn check_word(at: &Value, path: &str, field: &str, known: &[&str], wrong: &mut Vec<Violation>) {
    if let Some(found) = at[field].as_str().filter(|found| !known.contains(found)) {
        let known = known.iter().copied();
        wrong.push(Violation::not_supported(
            format!("{path}.{field}"),
            found,
            known,
        ));
    }
}

fn check_claim(claim: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if claim["spec"]["accessModes"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        let why = "at least 1 access mode is required";
        wrong.push(Violation::required("spec.accessModes", why));
    }
    if claim["spec"]["resources"]["requests"]["storage"].is_null() {
        wrong.push(Violation::required("spec.resources[storage]", ""));
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
    let mut wrong = Vec::new();
    for part in ["data", "binaryData"] {
        for key in object[part].as_object().into_iter().flat_map(Map::keys) {
            let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if !key.chars().all(is_good) {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                wrong.push(Violation::invalid(
                    format!("{part}[{key}]"),
                    key.as_str(),
                    why,
                ));
            }
        }
    }
    let Some(live) = live else {
        return wrong;
    };
    if meta::kind(object) == "Secret" && live["type"] != object["type"] {
        wrong.push(Violation::invalid(
            "type",
            object["type"].clone(),
            "field is immutable",
        ));
    }
    if live["immutable"] == json!(true) {
        let changed = ["immutable", "data", "binaryData"]
            .into_iter()
            .filter(|field| live[*field] != object[*field]);
        let why = "field is immutable when `immutable` is set";
        wrong.extend(changed.map(|field| Violation::forbidden(field, why)));
    }
    wrong
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
