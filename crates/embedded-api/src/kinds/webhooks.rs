//! Webhook configurations and API services: defaults of references to servers.

use serde_json::{Value, json};

use super::{
    Strategy,
    fields::{each, fill},
};

pub(crate) const WEBHOOKS: Strategy = Strategy {
    default: |configuration| each(configuration, "webhooks", default_webhook),
    ..Strategy::PLAIN
};

pub(crate) const API_SERVICE: Strategy = Strategy {
    default: |service| default_port(service, "/spec/service"),
    ..Strategy::PLAIN
};

fn default_webhook(webhook: &mut Value) {
    fill(webhook, "failurePolicy", "Fail");
    fill(webhook, "matchPolicy", "Equivalent");
    fill(webhook, "namespaceSelector", json!({}));
    fill(webhook, "objectSelector", json!({}));
    fill(webhook, "timeoutSeconds", 10);
    each(webhook, "rules", |rule| fill(rule, "scope", "*"));
    default_port(webhook, "/clientConfig/service");
}

fn default_port(object: &mut Value, reference: &str) {
    if let Some(service) = object.pointer_mut(reference) {
        fill(service, "port", 443);
    }
}
