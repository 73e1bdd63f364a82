//! Prevents privilege escalation.
//!
//! Writing a role requires all permissions in it, or the verb `escalate` on it; writing a binding
//! requires all permissions of the role, or the verb `bind` on it. Writes of labels count: they can make
//! a role part of others.

use apimachinery::{
    Status, meta,
    rbac::{self, Rule, quoted_list},
};
use serde_json::Value;

use super::{
    Attributes, GROUP, MASTERS, ResourceTarget, Target, decide, rules_of, snapshot::RoleRef,
};
use crate::{api::Api, error::ApiError, verbs::Call};

/// 403 if `object` would grant permissions that its writer does not have.
pub(crate) async fn check(
    api: &Api,
    call: &Call,
    live: Option<&Value>,
    object: &Value,
) -> Result<(), ApiError> {
    if call.kind.group != GROUP || call.identity.groups.iter().any(|group| group == MASTERS) {
        return Ok(());
    }
    match call.kind.plural.as_str() {
        "roles" | "clusterroles" => role(api, call, live, object).await,
        "rolebindings" | "clusterrolebindings" => binding(api, call, live, object).await,
        _ => Ok(()),
    }
}

async fn role(
    api: &Api,
    call: &Call,
    live: Option<&Value>,
    object: &Value,
) -> Result<(), ApiError> {
    if live.is_some_and(|live| is_released_only(live, object)) {
        return Ok(());
    }
    let kind = &call.kind.plural;
    if is_allowed(
        api,
        call,
        "escalate",
        kind,
        &call.namespace,
        meta::name(object),
    )
    .await?
    {
        return Ok(());
    }
    let aggregates = !object["aggregationRule"].is_null()
        || live.is_some_and(|live| !live["aggregationRule"].is_null());
    if aggregates
        && !missing(api, call, &[all_resources(), all_paths()])
            .await?
            .is_empty()
    {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(Status::forbidden(call.kind.resource(), meta::name(object), why).into());
    }
    require_all(api, call, object, &Rule::all_of(object)).await
}

async fn binding(
    api: &Api,
    call: &Call,
    live: Option<&Value>,
    object: &Value,
) -> Result<(), ApiError> {
    if live.is_some_and(|live| is_released_only(live, object)) {
        return Ok(());
    }
    let role = RoleRef::of(object);
    let plural = if role.namespace.is_empty() {
        "clusterroles"
    } else {
        "roles"
    };
    if is_allowed(api, call, "bind", plural, &call.namespace, &role.name).await? {
        return Ok(());
    }
    let snapshot = api.access.get(api).await?;
    let Some(rules) = snapshot.role(&role) else {
        // The message names the resource of the request with the name of the role: clients match it.
        return Err(Status::not_found(call.kind.resource(), &role.name).into());
    };
    require_all(api, call, object, rules).await
}

/// Whether a change concerns only what garbage collection needs in order to delete the object. A label is not
/// among that: it can make a role part of others.
fn is_released_only(live: &Value, object: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        for field in [
            "finalizers",
            "ownerReferences",
            "managedFields",
            "resourceVersion",
            "generation",
        ] {
            meta::set(&mut rest, field, Value::Null);
        }
        // Some unset fields are stored as null.
        if let Value::Object(fields) = &mut rest {
            fields.retain(|_, value| !value.is_null());
        }
        rest
    };
    rest(live) == rest(object)
}

async fn is_allowed(
    api: &Api,
    call: &Call,
    verb: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<bool, ApiError> {
    let wanted = Attributes {
        verb: verb.to_owned(),
        target: Target::Resource(Box::new(ResourceTarget {
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ResourceTarget::default()
        })),
    };
    Ok(decide(api, &call.identity, &wanted).await?.allowed)
}

async fn missing(api: &Api, call: &Call, wanted: &[Rule]) -> Result<Vec<String>, ApiError> {
    let owned = rules_of(api, &call.identity, &call.namespace).await?;
    Ok(rbac::missing(&owned, wanted))
}

async fn require_all(
    api: &Api,
    call: &Call,
    object: &Value,
    wanted: &[Rule],
) -> Result<(), ApiError> {
    let missing = missing(api, call, wanted).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        call.identity.user,
        quoted_list(&call.identity.groups),
        missing.join("\n"),
    );
    let snapshot = api.access.get(api).await?;
    let unresolved: Vec<String> = snapshot
        .missing_roles(&call.identity, &call.namespace)
        .map(|role| Status::not_found(call.kind.resource(), &role.name))
        .map(|status| status.message().to_owned())
        .collect();
    if !unresolved.is_empty() {
        why = format!("{why}; resolution errors: [{}]", unresolved.join(", "));
    }
    Err(Status::forbidden(call.kind.resource(), meta::name(object), &why).into())
}

fn all_resources() -> Rule {
    let all = || vec!["*".to_owned()];
    Rule {
        verbs: all(),
        api_groups: all(),
        resources: all(),
        ..Rule::default()
    }
}

fn all_paths() -> Rule {
    let all = || vec!["*".to_owned()];
    Rule {
        verbs: all(),
        non_resource_urls: all(),
        ..Rule::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_garbage_collection_changes_a_role_without_its_permissions() {
        let live = json!({
            "metadata": {"name": "r", "finalizers": ["a/b"], "resourceVersion": "7"},
            "rules": [{"verbs": ["*"]}],
        });
        let changed = |pointer: &str, value: Value| {
            let mut object = live.clone();
            let (parent, field) = pointer.rsplit_once('/').expect("a path");
            object.pointer_mut(parent).expect("a parent")[field] = value;
            object
        };
        for (pointer, value, expected) in [
            ("/metadata/finalizers", json!(null), true),
            ("/metadata/ownerReferences", json!([{"uid": "u"}]), true),
            ("/metadata/managedFields", json!([{"manager": "m"}]), true),
            ("/metadata/resourceVersion", json!("8"), true),
            ("/metadata/labels", json!({"a": "b"}), false),
            ("/metadata/annotations", json!({"a": "b"}), false),
            ("/aggregationRule", json!(null), true),
            ("/rules", json!([]), false),
            ("/aggregationRule", json!({}), false),
        ] {
            let found = is_released_only(&live, &changed(pointer, value));
            assert_eq!(found, expected, "{pointer}");
        }
    }
}
