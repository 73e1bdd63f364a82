//! Disruption budgets: limits evictions.
//!
//! Invariant: a budget's count is decremented before the pod is evicted, so that two concurrent
//! evictions cannot both use the last disruption.

use apimachinery::{GroupResource, Status, meta, selector::LabelSelector, status::Cause};
use serde_json::{Value, json};

use crate::{
    api::Api,
    error::ApiError,
    store::{Collection, Scope},
    verbs::{Call, Live, write},
};

const GROUP: &str = "policy";
const PLURAL: &str = "poddisruptionbudgets";
/// Maximum number of evicted pods that still exist.
const MAX_DISRUPTED: usize = 2000;
/// Seconds until a client should retry if the budget has not been counted yet.
const RETRY: u32 = 10;
/// Attempts to decrement the count after a conflict.
const ATTEMPTS: usize = 5;

/// Takes one disruption from the pod's budget, if it has one; an error if none is left.
pub(crate) async fn take(api: &Api, pod: &Value) -> Result<(), ApiError> {
    let mut attempt = 1;
    loop {
        let Some(disruption) = available(api, pod).await? else {
            return Ok(());
        };
        let Disruption { budget, remaining } = disruption;
        match write::put(api, &budget.call, &budget.live, remaining).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            done => return done.map(drop),
        }
    }
}

/// An error if the pod's budget has no disruption left.
pub(crate) async fn check(api: &Api, pod: &Value) -> Result<(), ApiError> {
    available(api, pod).await.map(drop)
}

/// A stored budget.
pub(crate) struct Budget {
    pub call: Call,
    pub live: Live,
}

/// A disruption that can be taken: the budget, and its state without the disruption.
struct Disruption {
    budget: Budget,
    remaining: Value,
}

/// The next disruption of the pod's budget; none if the eviction needs none.
async fn available(api: &Api, pod: &Value) -> Result<Option<Disruption>, ApiError> {
    let needs_none = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    );
    if needs_none || meta::is_deleting(pod) {
        return Ok(None);
    }
    let mut budgets = of_pod(api, pod).await?.into_iter();
    let Some(budget) = budgets.next() else {
        return Ok(None);
    };
    if budgets.next().is_some() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(ApiError::foreign(500, "InternalError", why));
    }
    if is_evictable_unready(pod, &budget.live.object) {
        return Ok(None);
    }
    let now = meta::format_time(api.clock.now());
    let remaining = decremented(&budget.live.object, meta::name(pod), &now)?;
    Ok(Some(Disruption { budget, remaining }))
}

/// The budgets that select a pod.
async fn of_pod(api: &Api, pod: &Value) -> Result<Vec<Budget>, ApiError> {
    let mut out = of_namespace(api, meta::namespace(pod)).await?;
    out.retain(|budget| selects(&budget.live.object, pod));
    Ok(out)
}

pub(crate) async fn of_namespace(api: &Api, namespace: &str) -> Result<Vec<Budget>, ApiError> {
    let Some(kind) = api.registry.find(GROUP, "v1", PLURAL) else {
        return Ok(Vec::new());
    };
    let scope = Scope {
        namespace: Some(namespace.to_owned()),
        ..Scope::all(Collection::new(GROUP, PLURAL))
    };
    let page = api.store.list(&scope, None, None).await?;
    let found = page.items.iter().map(|stored| {
        let live = Live::of(stored, &kind)?;
        let name = meta::name(&live.object).to_owned();
        let call = Call::internal(std::sync::Arc::clone(&kind), namespace, Some(&name));
        Ok(Budget { call, live })
    });
    found.collect()
}

/// Whether the budget selects the pod. An empty selector selects all pods, an absent one none.
pub(crate) fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = LabelSelector::from_object(&budget["spec"]["selector"]);
    selector.is_ok_and(|selector| selector.is_some_and(|selector| selector.matches(pod)))
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}

/// A pod that is not ready may be evicted while enough others are healthy.
fn is_evictable_unready(pod: &Value, budget: &Value) -> bool {
    if is_ready(pod) {
        return false;
    }
    if budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
        return true;
    }
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    let enough = count("currentHealthy") >= count("desiredHealthy");
    enough && count("desiredHealthy") > 0
}

/// The budget with one disruption less, or why none is left.
fn decremented(budget: &Value, pod: &str, now: &str) -> Result<Value, ApiError> {
    let name = meta::name(budget);
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    let refuse = |message: String, seconds: u32| {
        let cause = Cause {
            reason: "DisruptionBudget".to_owned(),
            message,
            field: String::new(),
        };
        let why = "Cannot evict pod as it would violate the pod's disruption budget.";
        ApiError::from(Status::too_many_requests(why, seconds).with_cause(cause))
    };
    let resource = GroupResource {
        group: GROUP,
        resource: "poddisruptionbudget",
    };
    if count("observedGeneration") < meta::generation(budget) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refuse(why, RETRY));
    }
    let left = count("disruptionsAllowed");
    if left < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(Status::forbidden(resource, name, why).into());
    }
    let terminating = budget["status"]["disruptedPods"].as_object();
    if terminating.is_some_and(|terminating| terminating.len() > MAX_DISRUPTED) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden(resource, name, why).into());
    }
    if left == 0 {
        let why = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            count("desiredHealthy"),
            count("currentHealthy"),
        );
        return Err(refuse(why, 0));
    }
    let mut out = budget.clone();
    out["status"]["disruptionsAllowed"] = (left - 1).into();
    out["status"]["disruptedPods"][pod] = json!(now);
    set_allowed(&mut out, now);
    Ok(out)
}

/// Sets the condition that follows from the count.
pub(crate) fn set_allowed(budget: &mut Value, now: &str) {
    let is_allowed = budget["status"]["disruptionsAllowed"]
        .as_i64()
        .is_some_and(|left| left > 0);
    let (status, reason) = if is_allowed {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let before = &budget["status"]["conditions"][0];
    let since = if before["status"] == status {
        before["lastTransitionTime"].clone()
    } else {
        now.into()
    };
    let generation = meta::generation(budget);
    budget["status"]["conditions"] = json!([{
        "type": "DisruptionAllowed", "status": status, "observedGeneration": generation,
        "lastTransitionTime": since, "reason": reason, "message": "",
    }]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_decremented_until_none_is_left() {
        let budget = |left: i64, observed: i64| {
            json!({"metadata": {"name": "b", "generation": 2}, "spec": {},
                   "status": {"disruptionsAllowed": left, "observedGeneration": observed,
                              "desiredHealthy": 2, "currentHealthy": 2}})
        };
        let now = "2026-01-02T03:04:05Z";
        let given = decremented(&budget(1, 2), "p", now).expect("one is left");
        assert_eq!(given["status"]["disruptionsAllowed"], 0);
        assert_eq!(given["status"]["disruptedPods"], json!({"p": now}));
        assert_eq!(
            given["status"]["conditions"][0]["reason"],
            "InsufficientPods"
        );
        for (left, observed, code, message) in [
            (
                0,
                2,
                429,
                "The disruption budget b needs 2 healthy pods and has 2 currently",
            ),
            (
                1,
                1,
                429,
                "The disruption budget b is still being processed by the server.",
            ),
            (-1, 2, 403, ""),
        ] {
            let refused =
                decremented(&budget(left, observed), "p", now).expect_err("nothing is left");
            assert_eq!(refused.code(), code);
            let cause = &refused.to_value()["details"]["causes"][0]["message"];
            assert_eq!(cause.as_str().unwrap_or_default(), message);
        }
    }

    #[test]
    fn unready_pods_are_evictable_while_enough_others_are_healthy() {
        let pod =
            |ready: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let budget = |policy: &str, healthy: i64| {
            json!({"spec": {"unhealthyPodEvictionPolicy": policy},
                   "status": {"currentHealthy": healthy, "desiredHealthy": 2}})
        };
        for (ready, policy, healthy, expected) in [
            ("True", "AlwaysAllow", 2, false),
            ("False", "AlwaysAllow", 0, true),
            ("False", "IfHealthyBudget", 2, true),
            ("False", "IfHealthyBudget", 1, false),
        ] {
            let found = is_evictable_unready(&pod(ready), &budget(policy, healthy));
            assert_eq!(found, expected, "{ready} {policy} {healthy}");
        }
    }
}
