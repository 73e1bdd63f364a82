//! Services and endpoint slices: defaults and validation.

use apimachinery::{Violation, names};
use serde_json::{Value, json};

use super::{
    DeletionResponse, InitialStatus, Strategy,
    fields::{each, fill, fill_in},
};

pub(crate) const SERVICE: Strategy = Strategy {
    check_name: names::dns_1035,
    default: default_service,
    populate: |service, _| populate_service(service),
    initial_status: InitialStatus::Dropped,
    deletion: DeletionResponse::Object,
    ..Strategy::PLAIN
};

pub(crate) const ENDPOINT_SLICE: Strategy = Strategy {
    default: default_slice,
    validate: validate_slice,
    null_fields: &["endpoints", "ports"],
    ..Strategy::PLAIN
};

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

fn populate_service(service: &mut Value) {
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

fn default_slice(slice: &mut Value) {
    each(slice, "endpoints", |endpoint| {
        fill(endpoint, "conditions", json!({}));
    });
    each(slice, "ports", |port| {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    });
}

fn validate_slice(live: Option<&Value>, slice: &Value) -> Vec<Violation> {
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
