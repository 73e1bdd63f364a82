//! Disruption budgets: how many pods may be asked to leave, and the question whether one more may.
//!
//! Invariant: a budget's count goes down with each pod that is let go, before that pod goes, so
//! that two evictions at once cannot both use the last one.

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
/// Pods that are on their way, at most.
const MAX_DISRUPTED: usize = 2000;
/// Seconds until a client should ask again when nobody has counted yet.
const RETRY: u32 = 10;
/// How often a count is taken down when somebody else was quicker.
const ATTEMPTS: usize = 5;

/// Takes one from the budget of the pod, if it has one; an error if nothing is left.
pub(crate) async fn take(api: &Api, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
    let is_over = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    );
    if is_over || meta::is_deleting(pod) {
        return Ok(());
    }
    let mut attempt = 1;
    loop {
        let budgets = of_pod(api, pod).await?;
        let Some((call, live)) = budgets.first() else {
            return Ok(());
        };
        if budgets.len() > 1 {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::foreign(500, "InternalError", why));
        }
        if goes_anyway(pod, &live.object) {
            return Ok(());
        }
        let now = meta::format_time(api.clock.now());
        let taken = taken(&live.object, meta::name(pod), &now)?;
        if dry_run {
            return Ok(());
        }
        match write::put(api, call, live, taken).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            done => return done.map(drop),
        }
    }
}

/// The budgets that count a pod.
async fn of_pod(api: &Api, pod: &Value) -> Result<Vec<(Call, Live)>, ApiError> {
    let mut out = of_namespace(api, meta::namespace(pod)).await?;
    out.retain(|(_, live)| counts(&live.object, pod));
    Ok(out)
}

pub(crate) async fn of_namespace(
    api: &Api,
    namespace: &str,
) -> Result<Vec<(Call, Live)>, ApiError> {
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
        Ok((call, live))
    });
    found.collect()
}

/// Does the budget choose this pod? An empty selector chooses all, none chooses nothing.
pub(crate) fn counts(budget: &Value, pod: &Value) -> bool {
    let selector = LabelSelector::from_object(&budget["spec"]["selector"]);
    selector.is_ok_and(|selector| selector.is_some_and(|selector| selector.matches(pod)))
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}

/// A pod that serves nobody may go while enough others do.
fn goes_anyway(pod: &Value, budget: &Value) -> bool {
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

/// The budget with one less, or why there is none left.
fn taken(budget: &Value, pod: &str, now: &str) -> Result<Value, ApiError> {
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
    let going = budget["status"]["disruptedPods"].as_object();
    if going.is_some_and(|going| going.len() > MAX_DISRUPTED) {
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

/// The condition that follows from the count.
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
    fn budget_gives_what_it_has_and_says_why_it_does_not() {
        let budget = |left: i64, observed: i64| {
            json!({"metadata": {"name": "b", "generation": 2}, "spec": {},
                   "status": {"disruptionsAllowed": left, "observedGeneration": observed,
                              "desiredHealthy": 2, "currentHealthy": 2}})
        };
        let now = "2026-01-02T03:04:05Z";
        let given = taken(&budget(1, 2), "p", now).expect("one is left");
        assert_eq!(given["status"]["disruptionsAllowed"], 0);
        assert_eq!(given["status"]["disruptedPods"], json!({"p": now}));
        assert_eq!(
            given["status"]["conditions"][0]["reason"],
            "InsufficientPods"
        );
        for (left, observed, code, told) in [
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
            let refused = taken(&budget(left, observed), "p", now).expect_err("nothing is left");
            assert_eq!(refused.code(), code);
            let cause = &refused.to_value()["details"]["causes"][0]["message"];
            assert_eq!(cause.as_str().unwrap_or_default(), told);
        }
    }

    #[test]
    fn pods_that_serve_nobody_go_while_enough_others_do() {
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
            let found = goes_anyway(&pod(ready), &budget(policy, healthy));
            assert_eq!(found, expected, "{ready} {policy} {healthy}");
        }
    }
}
