//! Defaults and rules of built-in kinds, narrow: what clients and our node rely on.
//!
//! Invariant: pure functions of the objects at hand. What needs a look at other objects is done by
//! the plugins of `admission`.

mod access;
mod budgets;
mod fields;
mod plain;
mod pods;
mod storage;

use apimachinery::Violation;
use serde_json::{Value, json};

use crate::registry::Served;
use fields::{each, fill};

/// What a real API server would fill in.
pub(crate) fn default(kind: &Served, object: &mut Value) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => {
            pods::default(object);
            pods::show_status(object);
        }
        ("", "namespaces") => plain::default_namespace(object),
        ("", "secrets") => plain::default_secret(object),
        ("", "services") => plain::default_service(object),
        ("", "persistentvolumeclaims") => storage::default_claim(object),
        ("", "persistentvolumes") => storage::default_volume(object),
        ("storage.k8s.io", "storageclasses") => storage::default_class(object),
        ("policy", "poddisruptionbudgets") => budgets::default(object),
        ("", "resourcequotas") => fill(object, "status", json!({})),
        ("discovery.k8s.io", "endpointslices") => plain::default_slice(object),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            access::default_binding(object);
        }
        ("apiregistration.k8s.io", "apiservices") => {
            if let Some(service) = object.pointer_mut("/spec/service") {
                fill(service, "port", 443);
            }
        }
        ("admissionregistration.k8s.io", _) => each(object, "webhooks", default_webhook),
        _ => {}
    }
}

fn default_webhook(webhook: &mut Value) {
    fill(webhook, "failurePolicy", "Fail");
    fill(webhook, "matchPolicy", "Equivalent");
    fill(webhook, "namespaceSelector", json!({}));
    fill(webhook, "objectSelector", json!({}));
    fill(webhook, "timeoutSeconds", 10);
    each(webhook, "rules", |rule| fill(rule, "scope", "*"));
    if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
        fill(service, "port", 443);
    }
}

/// What the server adds to a new object after its owners are known. `now` is in the form of
/// objects.
pub(crate) fn furnish(kind: &Served, object: &mut Value, now: &str) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => pods::furnish(object),
        ("", "namespaces") => plain::furnish_namespace(object),
        ("", "services") => plain::furnish_service(object),
        ("", "events") => plain::default_event(object),
        ("", "persistentvolumes") => storage::furnish_volume(object, now),
        _ => {}
    }
}

/// What is shown though nothing is set, and owned by nobody.
pub(crate) fn show(kind: &Served, object: &mut Value) {
    let fields: &[&str] = match (kind.group.as_str(), kind.plural.as_str()) {
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => &["rules"],
        ("discovery.k8s.io", "endpointslices") => &["endpoints", "ports"],
        _ => &[],
    };
    for field in fields {
        fill(object, field, Value::Null);
    }
}

/// Rules that schemas do not tell.
pub(crate) fn check(kind: &Served, live: Option<&Value>, object: &Value) -> Vec<Violation> {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => pods::check(live, object),
        ("", "configmaps" | "secrets") => plain::check_data(live, object),
        ("", "persistentvolumeclaims") => storage::check_claim(live, object),
        ("", "persistentvolumes") => storage::check_volume(live, object),
        ("storage.k8s.io", "storageclasses") => storage::check_class(live, object),
        ("policy", "poddisruptionbudgets") => budgets::check(object),
        ("", "resourcequotas") => plain::check_quota(object),
        ("discovery.k8s.io", "endpointslices") => plain::check_slice(live, object),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => access::check_role(object),
        ("rbac.authorization.k8s.io", _) => access::check_binding(live, object),
        _ => Vec::new(),
    }
}
