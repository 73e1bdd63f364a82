//! Events, namespaces, services, and what carries data: defaults and rules.

use apimachinery::{Violation, meta};
use serde_json::{Map, Value, json};

use super::fields::{each, fill, fill_in};

/// An event shows who tells it and when, even if nobody said so.
pub(super) fn default_event(event: &mut Value) {
    fill(event, "source", json!({}));
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        fill(event, field, Value::Null);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        fill(event, field, "");
    }
}

pub(super) fn default_namespace(namespace: &mut Value) {
    fill(namespace, "spec", json!({}));
    fill(namespace, "status", json!({"phase": "Active"}));
    let name = meta::name(namespace).to_owned();
    if !namespace["metadata"]["labels"].is_object() {
        meta::set(namespace, "labels", Value::Object(Map::new()));
    }
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
}

/// `stringData` is for writing only: it becomes `data`.
pub(super) fn default_secret(secret: &mut Value) {
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

pub(super) fn default_service(service: &mut Value) {
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

pub(super) fn furnish_service(service: &mut Value) {
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

pub(super) fn check_data(live: Option<&Value>, object: &Value) -> Vec<Violation> {
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

pub(super) fn furnish_namespace(namespace: &mut Value) {
    if !namespace["spec"].is_object() {
        namespace["spec"] = json!({});
    }
    fill(&mut namespace["spec"], "finalizers", json!(["kubernetes"]));
}

pub(super) fn default_slice(slice: &mut Value) {
    each(slice, "endpoints", |endpoint| {
        fill(endpoint, "conditions", json!({}));
    });
    each(slice, "ports", |port| {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    });
}

pub(super) fn check_slice(live: Option<&Value>, slice: &Value) -> Vec<Violation> {
    const KINDS: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
    let mut wrong = Vec::new();
    let kind = slice["addressType"].as_str().unwrap_or_default();
    if kind.is_empty() {
        wrong.push(Violation::required("addressType", ""));
    } else if !KINDS.contains(&kind) {
        wrong.push(Violation::not_supported("addressType", kind, KINDS));
    }
    if live.is_some_and(|live| live["addressType"] != slice["addressType"]) {
        let why = "field is immutable";
        wrong.push(Violation::invalid("addressType", kind, why));
    }
    for (at, endpoint) in slice["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if endpoint["addresses"].as_array().is_none_or(Vec::is_empty) {
            let why = "must contain at least 1 address";
            wrong.push(Violation::required(
                format!("endpoints[{at}].addresses"),
                why,
            ));
        }
    }
    wrong
}

/// Quotas here count everything, or nothing.
pub(super) fn check_quota(quota: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for field in ["scopes", "scopeSelector"] {
        let found = &quota["spec"][field];
        let is_empty = found.is_null() || found.as_array().is_some_and(Vec::is_empty);
        if !is_empty {
            let why = "this server counts all objects of a namespace: leave it out";
            wrong.push(Violation::forbidden(format!("spec.{field}"), why));
        }
    }
    wrong
}
