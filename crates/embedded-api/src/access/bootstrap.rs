//! The default roles and bindings of every cluster.
//!
//! Invariant: additions by an administrator stay; missing rules are restored at the next start,
//! unless the object disables automatic updates.

use apimachinery::{
    Status, meta,
    rbac::{self, Rule, table},
};
use serde_json::{Value, json};

use crate::{
    api::Api,
    error::ApiError,
    verbs::{
        Call, Live,
        write::{self, Ownership},
    },
};

const TABLE: &str = include_str!("bootstrap.txt");
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Creates or completes the default objects.
pub(crate) async fn make(api: &Api) -> Result<(), ApiError> {
    for mut object in objects()? {
        meta::set(&mut object, "annotations", json!({AUTOUPDATE: "true"}));
        let labels = &mut object["metadata"]["labels"];
        if labels.is_null() {
            *labels = json!({});
        }
        labels["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
        Box::pin(ensure(api, object)).await?;
    }
    Ok(())
}

fn objects() -> Result<Vec<Value>, ApiError> {
    let entries = table::parse(TABLE).map_err(|error| Status::internal(error.to_string()))?;
    let objects = entries.into_iter().map(|entry| {
        let mut object = entry.object;
        // The aggregation fills in the rules of these.
        if object["aggregationRule"].is_object() {
            object["rules"] = Value::Null;
        }
        object
    });
    Ok(objects.collect())
}

async fn ensure(api: &Api, object: Value) -> Result<(), ApiError> {
    let Some(kind) = api.registry.find_kind(super::GROUP, meta::kind(&object)) else {
        return Ok(());
    };
    let (namespace, name) = (meta::namespace(&object), meta::name(&object));
    let call = Call::internal(kind, namespace, Some(name));
    let Some(stored) = api.store.get(&call.key(name)).await? else {
        write::create(api, &call, object, Ownership::Compute).await?;
        return Ok(());
    };
    let live = Live::of(&stored, &call.kind)?;
    if meta::annotation(&live.object, AUTOUPDATE) == Some("false") {
        return Ok(());
    }
    let completed = complete(&live.object, &object);
    if completed != live.object {
        write::update(api, &call, &live, completed, Ownership::Compute).await?;
    }
    Ok(())
}

/// The object with its missing default rules and subjects.
fn complete(live: &Value, wanted: &Value) -> Value {
    let mut out = live.clone();
    let add = |out: &mut Value, field: &str, item: Value| match &mut out[field] {
        Value::Array(items) => items.push(item),
        slot => *slot = json!([item]),
    };
    let owned = Rule::all_of(live);
    for rule in Rule::all_of(wanted) {
        if !rbac::missing(&owned, std::slice::from_ref(&rule)).is_empty() {
            add(&mut out, "rules", rule.to_value());
        }
    }
    for subject in wanted["subjects"].as_array().into_iter().flatten() {
        let is_there = live["subjects"]
            .as_array()
            .is_some_and(|found| found.contains(subject));
        if !is_there {
            add(&mut out, "subjects", subject.clone());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rules_are_restored_and_additions_stay() {
        let role = |rules: Value, subjects: Value| json!({"rules": rules, "subjects": subjects});
        let get = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let list = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
        let wanted = role(json!([get]), json!([{"kind": "User", "name": "a"}]));
        let live = role(json!([list]), json!([{"kind": "User", "name": "b"}]));
        let expected = role(
            json!([list, get]),
            json!([{"kind": "User", "name": "b"}, {"kind": "User", "name": "a"}]),
        );
        assert_eq!(complete(&live, &wanted), expected);
        assert_eq!(complete(&expected, &wanted), expected);
    }

    #[test]
    fn table_is_valid() {
        assert!(objects().expect("a valid table").len() > 20);
    }
}
