//! Resource quotas: rejects an object that would exceed the quota of its namespace.
//!
//! **Invariants**: usage is counted from the existing objects, never from a status, so that it
//! cannot drift; two objects of one namespace are never admitted concurrently.

mod scopes;
mod usage;

use apimachinery::{GroupResource, Status, meta};
use quantity::Amount;
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use self::usage::Usage;
pub(crate) use self::usage::{containers, pod_amounts};
use crate::{
    api::Api,
    error::ApiError,
    store::{Collection, Scope},
    verbs::Call,
};

const PLURAL: &str = "resourcequotas";

/// Serializes the admission of objects in namespaces with quotas.
pub(crate) type Gate = std::sync::Arc<Mutex<()>>;

/// Admits a new or changed object, or names the exceeded quota. Hold the returned guard until the
/// object is stored.
pub(crate) async fn admit(
    api: &Api,
    call: &Call,
    live: Option<&Value>,
    object: &Value,
) -> Result<Option<OwnedMutexGuard<()>>, ApiError> {
    // These change often, and quotas do not count them.
    let is_exempt = matches!(call.kind.plural.as_str(), "events" | "leases");
    // Only these use more after some changes.
    let may_grow = call.kind.is("", "services") || call.kind.is("", "persistentvolumeclaims");
    let is_skipped = live.is_some() && (!may_grow || call.subresource.is_some());
    if call.namespace.is_empty() || is_exempt || is_skipped {
        return Ok(None);
    }
    let kind = call.kind.resource();
    let mut requested = usage::of(kind, object);
    if let Some(live) = live {
        let before = usage::of(kind, live);
        requested = usage::growth(&requested, &before);
        if requested.is_empty() {
            return Ok(None);
        }
    }
    let is_touched = |quota: &Value| {
        let hard = quota["spec"]["hard"].as_object();
        let mut names = hard.into_iter().flatten().map(|(name, _)| name);
        scopes::counts(quota, kind, object)
            && (names.any(|name| requested.contains_key(name)) || kind == usage::PODS)
    };
    let mut quotas = of_namespace(api, &call.namespace).await?;
    quotas.retain(is_touched);
    if quotas.is_empty() {
        return Ok(None);
    }
    let gate = Gate::clone(&api.quota_gate).lock_owned().await;
    for quota in &quotas {
        let usages = Usages {
            requested: &requested,
            used: &used(api, &call.namespace, quota).await?,
        };
        if let Some(why) = refusal(quota, kind, object, usages) {
            return Err(Status::forbidden(kind, meta::name(object), &why).into());
        }
    }
    Ok(Some(gate))
}

/// The usage of the new object and of the existing ones.
#[derive(Debug, Clone, Copy)]
struct Usages<'a> {
    requested: &'a Usage,
    used: &'a Usage,
}

/// Why the quota rejects the object.
fn refusal(
    quota: &Value,
    kind: GroupResource<'_>,
    object: &Value,
    usage: Usages<'_>,
) -> Option<String> {
    let Usages { requested, used } = usage;
    let (name, hard) = (meta::name(quota), &quota["spec"]["hard"]);
    if kind == usage::PODS {
        let unspecified = usage::unspecified(object, hard);
        if !unspecified.is_empty() {
            let list = unspecified.join("; ");
            return Some(format!("failed quota: {name}: must specify {list}"));
        }
    }
    let limits = limits(hard);
    let is_exceeded = |name: &&String| {
        let (Some(limit), Some(more)) = (limits.get(*name), requested.get(*name)) else {
            return false;
        };
        let before = used.get(*name).copied().unwrap_or(Amount::ZERO);
        *more > Amount::ZERO && before.plus(*more) > *limit
    };
    let exceeded: Vec<&String> = limits.keys().filter(is_exceeded).collect();
    (!exceeded.is_empty()).then(|| {
        format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            usage::format(requested, &exceeded),
            usage::format(used, &exceeded),
            usage::format(&limits, &exceeded),
        )
    })
}

fn limits(hard: &Value) -> Usage {
    let hard = hard.as_object().into_iter().flatten();
    let read = |amount: &Value| match amount {
        Value::String(text) => Amount::parse_text(text).ok(),
        Value::Number(number) => Amount::parse_text(&number.to_string()).ok(),
        _ => None,
    };
    hard.filter_map(|(name, amount)| Some((name.clone(), read(amount)?)))
        .collect()
}

/// The usage of the counted resources in a namespace.
async fn used(api: &Api, namespace: &str, quota: &Value) -> Result<Usage, ApiError> {
    let mut sum = Usage::new();
    let mut collections = usage::collections(&quota["spec"]["hard"]);
    if scopes::has_any(quota) {
        collections.retain(|collection| collection.resource() == usage::PODS);
    }
    for collection in collections {
        let scope = Scope {
            namespace: Some(namespace.to_owned()),
            ..Scope::all(collection)
        };
        let kind = scope.collection.resource();
        for stored in api.store.list(&scope, None, None).await?.items {
            let object = stored.parse()?;
            if scopes::counts(quota, kind, &object) {
                usage::add(&mut sum, &usage::of(kind, &object));
            }
        }
    }
    Ok(sum)
}

pub(crate) async fn of_namespace(api: &Api, namespace: &str) -> Result<Vec<Value>, ApiError> {
    let scope = Scope {
        namespace: Some(namespace.to_owned()),
        ..Scope::all(Collection::new("", PLURAL))
    };
    let page = api.store.list(&scope, None, None).await?;
    page.items
        .iter()
        .map(|stored| Ok(stored.parse()?))
        .collect()
}

/// The quota with its current status.
pub(crate) async fn counted(api: &Api, quota: &Value) -> Result<Value, ApiError> {
    let hard = &quota["spec"]["hard"];
    let used = used(api, meta::namespace(quota), quota).await?;
    let names = hard.as_object().into_iter().flatten();
    let amounts: Map<String, Value> = names
        .map(|(name, _)| {
            let amount = used.get(name).copied().unwrap_or(Amount::ZERO);
            (name.clone(), amount.to_string().into())
        })
        .collect();
    let mut out = quota.clone();
    let hard = if hard.is_object() {
        hard.clone()
    } else {
        json!({})
    };
    out["status"] = json!({"hard": hard, "used": amounts});
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_quota_and_the_exceeded_resources() {
        let quota = |hard: Value| json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "c", "resources": {"requests": {"memory": "512Mi"}}}]}});
        let kind = usage::PODS;
        let requested = usage::of(kind, &pod);
        let used: Usage = [("requests.memory", "768Mi"), ("pods", "1")]
            .into_iter()
            .map(|(name, text)| (name.to_owned(), Amount::parse_text(text).expect(text)))
            .collect();
        let usages = Usages {
            requested: &requested,
            used: &used,
        };
        let why = |hard| refusal(&quota(hard), kind, &pod, usages);
        assert_eq!(why(json!({"pods": "2", "requests.memory": "2Gi"})), None);
        assert_eq!(
            why(json!({"pods": "1", "requests.memory": "1Gi", "services": "0"})).expect("full"),
            "exceeded quota: q, requested: pods=1,requests.memory=512Mi, used: \
             pods=1,requests.memory=768Mi, limited: pods=1,requests.memory=1Gi"
        );
        assert_eq!(
            why(json!({"limits.memory": "1Gi"})).expect("unspecified"),
            "failed quota: q: must specify limits.memory for: c"
        );
    }
}
