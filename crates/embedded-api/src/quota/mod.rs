//! Quotas of namespaces: an object that would take more than is left is not let in.
//!
//! **Invariants**: what is taken is counted from the objects that are there, never from a status, so
//! that nothing can go out of step; two objects of one namespace are not let in at once.

mod amount;
mod usage;

use apimachinery::{Status, meta};
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use self::usage::Usage;
use crate::{
    api::Api,
    error::ApiError,
    store::{Collection, Scope},
    verbs::Call,
};

const PLURAL: &str = "resourcequotas";

/// Held by whoever lets something in where there are quotas.
pub(crate) type Gate = std::sync::Arc<Mutex<()>>;

/// Lets a new object in, or says which quota has no room for it. Keep what is answered until the
/// object is stored.
pub(crate) async fn admit(
    api: &Api,
    call: &Call,
    object: &Value,
) -> Result<Option<OwnedMutexGuard<()>>, ApiError> {
    let group = call.kind.group.as_str();
    // Much comes and goes of these, and nobody counts them.
    let is_exempt = matches!(call.kind.plural.as_str(), "events" | "leases");
    if call.namespace.is_empty() || is_exempt {
        return Ok(None);
    }
    let kind = (group, call.kind.plural.as_str());
    let asked = usage::of(kind, object);
    let is_touched = |quota: &Value| {
        let hard = quota["spec"]["hard"].as_object();
        let mut names = hard.into_iter().flatten().map(|(name, _)| name);
        names.any(|name| asked.contains_key(name)) || kind == ("", "pods")
    };
    let mut quotas = of_namespace(api, &call.namespace).await?;
    quotas.retain(is_touched);
    if quotas.is_empty() {
        return Ok(None);
    }
    let gate = Gate::clone(&api.quota_gate).lock_owned().await;
    for quota in &quotas {
        let hard = &quota["spec"]["hard"];
        let used = used(api, &call.namespace, hard).await?;
        if let Some(why) = refusal(quota, kind, object, (&asked, &used)) {
            let resource = call.kind.resource();
            return Err(Status::forbidden(resource, meta::name(object), &why).into());
        }
    }
    Ok(Some(gate))
}

/// Why the quota has no room for the object.
fn refusal(
    quota: &Value,
    kind: usage::Kind<'_>,
    object: &Value,
    (asked, used): (&Usage, &Usage),
) -> Option<String> {
    let (name, hard) = (meta::name(quota), &quota["spec"]["hard"]);
    if kind == ("", "pods") {
        let silent = usage::silent(object, hard);
        if !silent.is_empty() {
            let what = silent.join("; ");
            return Some(format!("failed quota: {name}: must specify {what}"));
        }
    }
    let limits = limits(hard);
    let is_exceeded = |name: &&String| {
        let (Some(limit), Some(more)) = (limits.get(*name), asked.get(*name)) else {
            return false;
        };
        let before = used.get(*name).copied().unwrap_or(amount::Amount::ZERO);
        *more > amount::Amount::ZERO && before.plus(*more) > *limit
    };
    let exceeded: Vec<&String> = limits.keys().filter(is_exceeded).collect();
    (!exceeded.is_empty()).then(|| {
        format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            usage::shown(asked, &exceeded),
            usage::shown(used, &exceeded),
            usage::shown(&limits, &exceeded),
        )
    })
}

fn limits(hard: &Value) -> Usage {
    let hard = hard.as_object().into_iter().flatten();
    let read = |amount: &Value| match amount {
        Value::String(text) => amount::Amount::parse(text),
        Value::Number(number) => amount::Amount::parse(&number.to_string()),
        _ => None,
    };
    hard.filter_map(|(name, amount)| Some((name.clone(), read(amount)?)))
        .collect()
}

/// What the objects of a namespace take of what is counted.
async fn used(api: &Api, namespace: &str, hard: &Value) -> Result<Usage, ApiError> {
    let mut sum = Usage::new();
    for (group, plural) in usage::kinds(hard) {
        let scope = Scope {
            namespace: Some(namespace.to_owned()),
            ..Scope::all(Collection::new(&group, &plural))
        };
        for stored in api.store.list(&scope, None, None).await?.items {
            usage::add(&mut sum, &usage::of((&group, &plural), &stored.parse()?));
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

/// The quota with the status that follows from what is there.
pub(crate) async fn counted(api: &Api, quota: &Value) -> Result<Value, ApiError> {
    let hard = &quota["spec"]["hard"];
    let used = used(api, meta::namespace(quota), hard).await?;
    let names = hard.as_object().into_iter().flatten();
    let shown: Map<String, Value> = names
        .map(|(name, _)| {
            let amount = used.get(name).copied().unwrap_or(amount::Amount::ZERO);
            (name.clone(), amount.to_string().into())
        })
        .collect();
    let mut out = quota.clone();
    let hard = if hard.is_object() {
        hard.clone()
    } else {
        json!({})
    };
    out["status"] = json!({"hard": hard, "used": shown});
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_quota_and_what_there_is_too_little_of() {
        let quota = |hard: Value| json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "c", "resources": {"requests": {"memory": "512Mi"}}}]}});
        let kind = ("", "pods");
        let asked = usage::of(kind, &pod);
        let used: Usage = [("requests.memory", "768Mi"), ("pods", "1")]
            .into_iter()
            .map(|(name, text)| (name.to_owned(), amount::Amount::parse(text).expect(text)))
            .collect();
        let why = |hard| refusal(&quota(hard), kind, &pod, (&asked, &used));
        assert_eq!(why(json!({"pods": "2", "requests.memory": "2Gi"})), None);
        assert_eq!(
            why(json!({"pods": "1", "requests.memory": "1Gi", "services": "0"})).expect("full"),
            "exceeded quota: q, requested: pods=1,requests.memory=512Mi, used: \
             pods=1,requests.memory=768Mi, limited: pods=1,requests.memory=1Gi"
        );
        assert_eq!(
            why(json!({"limits.memory": "1Gi"})).expect("silent"),
            "failed quota: q: must specify limits.memory for: c"
        );
    }
}
