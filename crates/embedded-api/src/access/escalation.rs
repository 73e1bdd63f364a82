//! Prevents privilege escalation.
//!
//! Writing a role requires all permissions in it, or the verb `escalate` on it; writing a binding
//! requires all permissions of the role, or the verb `bind` on it.

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
    let same = |field: &str| live.is_some_and(|live| live[field] == object[field]);
    if same("rules") && same("aggregationRule") {
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
    let same = |field: &str| live.is_some_and(|live| live[field] == object[field]);
    if same("roleRef") && same("subjects") {
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
