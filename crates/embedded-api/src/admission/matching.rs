//! Selection of the webhooks for a write: rules, selectors, match conditions.

use apimachinery::{cel, selector::LabelSelector};
use serde_json::Value;

use super::{Operation, Review};
use crate::{
    api::Api,
    error::ApiError,
    store::{Collection, Scope},
    verbs::Call,
};

const GROUP: &str = "admissionregistration.k8s.io";

/// The webhooks of all configurations that apply to the write.
pub(super) async fn matching(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    plural: &str,
) -> Result<Vec<Value>, ApiError> {
    if call.kind.group == GROUP {
        return Ok(Vec::new());
    }
    let page = api
        .store
        .list(&Scope::all(Collection::new(GROUP, plural)), None, None)
        .await?;
    let mut out = Vec::new();
    for stored in page.items {
        let mut configuration = stored.parse()?;
        let Value::Array(webhooks) = configuration["webhooks"].take() else {
            continue;
        };
        for webhook in webhooks {
            let rules = webhook["rules"].as_array().map_or(&[][..], Vec::as_slice);
            if rules
                .iter()
                .any(|rule| rule_matches(rule, call, review.operation))
                && selected(api, call, review, object, &webhook).await?
            {
                out.push(webhook);
            }
        }
    }
    Ok(out)
}

fn rule_matches(rule: &Value, call: &Call, operation: Operation) -> bool {
    let has = |list: &str, wanted: &str| {
        let list = rule[list].as_array().map_or(&[][..], Vec::as_slice);
        list.iter()
            .filter_map(Value::as_str)
            .any(|entry| entry == "*" || entry == wanted)
    };
    let resources = rule["resources"].as_array().map_or(&[][..], Vec::as_slice);
    let resource = resources
        .iter()
        .filter_map(Value::as_str)
        .any(|entry| resource_matches(entry, &call.kind.plural, call.subresource.as_deref()));
    let scope = match rule["scope"].as_str() {
        Some("Namespaced") => call.kind.namespaced,
        Some("Cluster") => !call.kind.namespaced,
        _ => true,
    };
    // All versions of a kind are equivalent here: a rule for one of them matches each.
    has("operations", operation.as_str()) && has("apiGroups", &call.kind.group) && resource && scope
}

fn resource_matches(entry: &str, plural: &str, subresource: Option<&str>) -> bool {
    let (resource, sub) = match entry.split_once('/') {
        Some((resource, sub)) => (resource, Some(sub)),
        None => (entry, None),
    };
    (resource == "*" || resource == plural)
        && match (sub, subresource) {
            (None, None) | (Some("*"), _) => true,
            (Some(wanted), Some(found)) => wanted == found,
            _ => false,
        }
}

async fn selected(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    webhook: &Value,
) -> Result<bool, ApiError> {
    let wanted = |field: &str| LabelSelector::from_object(&webhook[field]);
    let labels = wanted("objectSelector")?.unwrap_or_default();
    let takes = labels.is_everything()
        || labels.matches(object)
        || review.old.is_some_and(|old| labels.matches(old));
    if !takes {
        return Ok(false);
    }
    let namespaces = wanted("namespaceSelector")?.unwrap_or_default();
    let own = call.kind.is("", "namespaces");
    if namespaces.is_everything() || (!call.kind.namespaced && !own) {
        return Ok(true);
    }
    if own {
        return Ok(namespaces.matches(object));
    }
    let key = Collection::new("", "namespaces").key("", &call.namespace);
    Ok(match api.store.get(&key).await? {
        Some(stored) => namespaces.matches(&stored.parse()?),
        None => false,
    })
}

/// Whether all match conditions of the webhook hold. A condition that evaluates to false takes
/// precedence over errors of others.
pub(super) fn matches_conditions(webhook: &Value, request: &Value) -> Result<bool, String> {
    let conditions = webhook["matchConditions"].as_array();
    let mut broken = None;
    for condition in conditions.into_iter().flatten() {
        let expression = condition["expression"].as_str().unwrap_or_default();
        let (object, old) = (&request["object"], &request["oldObject"]);
        let variables = [("request", request), ("object", object), ("oldObject", old)];
        match cel::holds(expression, &variables) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => {
                let name = &condition["name"];
                broken = Some(format!("match condition {name}: {why}"));
            }
        }
    }
    broken.map_or(Ok(true), Err)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn false_condition_takes_precedence_over_an_error() {
        let check = |conditions: &[&str], expected: Option<bool>| {
            let listed: Vec<Value> = conditions
                .iter()
                .map(|expression| json!({"name": "c", "expression": expression}))
                .collect();
            let request = json!({"name": "a", "object": null, "oldObject": {"x": 1}});
            let got = matches_conditions(&json!({"matchConditions": listed}), &request);
            assert_eq!(got.ok(), expected, "{conditions:?}");
        };
        check(&[], Some(true));
        check(&["request.name == 'a'", "oldObject.x == 1"], Some(true));
        check(&["request.name == 'a'", "object != null"], Some(false));
        check(&["lost.x", "request.name == 'b'"], Some(false));
        check(&["lost.x", "request.name == 'a'"], None);
    }

    #[test]
    fn resources_of_rules_match() {
        for (entry, subresource, expected) in [
            ("pods", None, true),
            ("*", None, true),
            ("pods", Some("status"), false),
            ("pods/status", Some("status"), true),
            ("pods/*", Some("status"), true),
            ("*/*", Some("status"), true),
            ("*/*", None, true),
            ("pods/status", None, false),
            ("nodes", None, false),
        ] {
            assert_eq!(
                resource_matches(entry, "pods", subresource),
                expected,
                "{entry}"
            );
        }
    }
}
