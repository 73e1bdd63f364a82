//! Webhook configurations and API services: defaults and validation of references to servers.

use std::collections::BTreeSet;

use apimachinery::{Violation, cel, names};
use serde_json::{Value, json};

use super::{
    StatusMetadata, Strategy,
    fields::{each, fill, fill_absent},
};

pub(crate) const WEBHOOKS: Strategy = Strategy {
    default: |configuration| each(configuration, "webhooks", default_webhook),
    validate: |live, configuration| validate(live, configuration),
    ..Strategy::PLAIN
};

pub(crate) const API_SERVICE: Strategy = Strategy {
    default: |service| default_port(service, "/spec/service"),
    status_metadata: StatusMetadata::Kept,
    ..Strategy::PLAIN
};

fn default_webhook(webhook: &mut Value) {
    fill_absent(webhook, "failurePolicy", "Fail");
    fill_absent(webhook, "matchPolicy", "Equivalent");
    fill(webhook, "namespaceSelector", json!({}));
    fill(webhook, "objectSelector", json!({}));
    fill_absent(webhook, "timeoutSeconds", 10);
    each(webhook, "rules", |rule| fill_absent(rule, "scope", "*"));
    default_port(webhook, "/clientConfig/service");
}

fn default_port(object: &mut Value, reference: &str) {
    if let Some(service) = object.pointer_mut(reference) {
        fill_absent(service, "port", 443);
    }
}

/// The variables of match conditions.
const VARIABLES: [&str; 4] = ["object", "oldObject", "request", "authorizer"];

fn validate(live: Option<&Value>, configuration: &Value) -> Vec<Violation> {
    // Expressions that are stored stay valid.
    let known: Vec<&Value> = live
        .and_then(|live| live["webhooks"].as_array())
        .into_iter()
        .flatten()
        .filter_map(|webhook| webhook["matchConditions"].as_array())
        .flatten()
        .map(|condition| &condition["expression"])
        .collect();
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks
        .enumerate()
        .flat_map(|(at, webhook)| check_webhook(webhook, &format!("webhooks[{at}]"), &known))
        .collect()
}

fn check_webhook(webhook: &Value, at: &str, known: &[&Value]) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if let Some(seconds) = webhook["timeoutSeconds"].as_i64()
        && !(1..=30).contains(&seconds)
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        wrong.push(Violation::invalid(
            format!("{at}.timeoutSeconds"),
            seconds,
            why,
        ));
    }
    let mut names = BTreeSet::new();
    let conditions = webhook["matchConditions"].as_array().into_iter().flatten();
    for (index, condition) in conditions.enumerate() {
        let at = format!("{at}.matchConditions[{index}]");
        let text = |field: &str| {
            condition[field]
                .as_str()
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let (name, expression) = (text("name"), text("expression"));
        if expression.is_empty() {
            wrong.push(Violation::required(format!("{at}.expression"), ""));
        } else if !known.contains(&&condition["expression"])
            && let Err(why) = cel::check(&expression, &VARIABLES)
        {
            let why = format!("compilation failed: {why}");
            wrong.push(Violation::invalid(
                format!("{at}.expression"),
                expression,
                why,
            ));
        }
        let at = format!("{at}.name");
        if name.is_empty() {
            wrong.push(Violation::required(at, ""));
            continue;
        }
        for why in names::qualified(&name) {
            wrong.push(Violation::invalid(at.clone(), name.clone(), why));
        }
        if !names.insert(name.clone()) {
            wrong.push(Violation::duplicate(at, name));
        }
    }
    wrong
}
