//! Namespaces: phase, name label and finalizer.

use apimachinery::{meta, names};
use serde_json::{Map, Value, json};

use super::{InitialStatus, Strategy, fields::fill};

pub(crate) const NAMESPACE: Strategy = Strategy {
    check_name: names::dns_label,
    default,
    populate: |namespace, _| add_finalizer(namespace),
    initial_status: InitialStatus::Dropped,
    ..Strategy::PLAIN
};

fn default(namespace: &mut Value) {
    fill(namespace, "spec", json!({}));
    fill(namespace, "status", json!({"phase": "Active"}));
    let name = meta::name(namespace).to_owned();
    if !namespace["metadata"]["labels"].is_object() {
        meta::set(namespace, "labels", Value::Object(Map::new()));
    }
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
}

fn add_finalizer(namespace: &mut Value) {
    if !namespace["spec"].is_object() {
        namespace["spec"] = json!({});
    }
    fill(&mut namespace["spec"], "finalizers", json!(["kubernetes"]));
}
