//! Counts the pods of disruption budgets.
//!
//! Percentages refer to the existing pods: this server has no workload kinds with an expected
//! count.

use std::time::Duration;

use apimachinery::meta;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    disruption::{Budget, is_ready, of_namespace, selects, set_allowed},
    error::ApiError,
    fairness::panics::confine_pass,
    store::{Collection, Key, Scope},
    verbs::write,
};

const RETRY: Duration = Duration::from_secs(5);
/// An evicted pod that still exists is counted again after this time.
const EVICTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut live = api.store.live();
    // The affected namespace; all when none is named.
    let mut affected: Option<String> = None;
    loop {
        let (retry, waits) = match confine_pass(count(&api, affected.as_deref())).await {
            Ok(waits) => (Instant::now() + RETRY, waits),
            Err(error) => {
                tracing::debug!(%error, "counting disruption budgets failed, will retry");
                (Instant::now() + RETRY, true)
            }
        };
        affected = loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(retry), if waits => break None,
                event = live.recv() => match event {
                    Ok(event) => if is_relevant(&event.key) {
                        break (!waits).then(|| event.key.namespace.to_string());
                    },
                    Err(RecvError::Lagged(_)) => break None,
                    Err(RecvError::Closed) => return,
                },
            }
        };
    }
}

fn is_relevant(key: &Key) -> bool {
    matches!(
        (&*key.collection.group, &*key.collection.plural),
        ("", "pods") | ("policy", "poddisruptionbudgets")
    )
}

/// Updates the statuses. True if the result will change with time alone.
async fn count(api: &Api, only: Option<&str>) -> Result<bool, ApiError> {
    let namespaces = match only {
        Some(namespace) => vec![namespace.to_owned()],
        None => namespaces(api).await?,
    };
    let mut waits = false;
    for namespace in namespaces {
        let budgets = of_namespace(api, &namespace).await?;
        if budgets.is_empty() {
            continue;
        }
        let pods = pods(api, &namespace).await?;
        for Budget { call, live } in budgets {
            let now = api.clock.now();
            let counted = counted(&live.object, &pods, now);
            waits |= counted["status"]["disruptedPods"].is_object();
            if counted["status"] == live.object["status"] {
                continue;
            }
            match write::put(api, &call, &live, counted).await {
                // The event of the conflicting write triggers another run.
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                done => drop(done?),
            }
        }
    }
    Ok(waits)
}

/// The namespaces with budgets.
async fn namespaces(api: &Api) -> Result<Vec<String>, ApiError> {
    let scope = Scope::all(Collection::new("policy", "poddisruptionbudgets"));
    let mut out = Vec::new();
    for stored in api.store.list(&scope, None, None).await?.items {
        let namespace = meta::namespace(&stored.parse()?).to_owned();
        if !out.contains(&namespace) {
            out.push(namespace);
        }
    }
    Ok(out)
}

async fn pods(api: &Api, namespace: &str) -> Result<Vec<Value>, ApiError> {
    let scope = Scope {
        namespace: Some(namespace.to_owned()),
        ..Scope::all(Collection::new("", "pods"))
    };
    let page = api.store.list(&scope, None, None).await?;
    page.items
        .iter()
        .map(|stored| Ok(stored.parse()?))
        .collect()
}

/// The budget with its current status.
fn counted(budget: &Value, pods: &[Value], now: Timestamp) -> Value {
    let mut out = budget.clone();
    let counted: Vec<&Value> = pods.iter().filter(|pod| selects(budget, pod)).collect();
    let evicted = evicted(budget, &counted, now);
    let healthy = counted.iter().filter(|pod| {
        !meta::is_deleting(pod) && !evicted.contains_key(meta::name(pod)) && is_ready(pod)
    });
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let expected = i64::try_from(counted.len()).unwrap_or(i64::MAX);
    let desired = desired(&budget["spec"], expected);
    let allowed = if expected == 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    let status = &mut out["status"];
    for (field, value) in [
        ("currentHealthy", healthy),
        ("desiredHealthy", desired),
        ("disruptionsAllowed", allowed),
        ("expectedPods", expected),
        ("observedGeneration", meta::generation(budget)),
    ] {
        status[field] = value.into();
    }
    if let Value::Object(status) = status {
        status.shift_remove("disruptedPods");
        if !evicted.is_empty() {
            status.insert("disruptedPods".to_owned(), evicted.into());
        }
    }
    set_allowed(&mut out, &meta::format_time(now));
    out
}

/// Evicted pods that still exist, for a limited time.
fn evicted(budget: &Value, pods: &[&Value], now: Timestamp) -> Map<String, Value> {
    let evicted = budget["status"]["disruptedPods"].as_object();
    let is_going = |name: &str, since: &Value| {
        let since: Option<Timestamp> = since.as_str().and_then(|text| text.parse().ok());
        let is_recent = since.is_some_and(|since| now.duration_since(since) < EVICTION_TIMEOUT);
        let mut pods = pods.iter();
        is_recent && pods.any(|pod| meta::name(pod) == name && !meta::is_deleting(pod))
    };
    let evicted = evicted.into_iter().flatten();
    evicted
        .filter(|(name, since)| is_going(name, since))
        .map(|(name, since)| (name.clone(), since.clone()))
        .collect()
}

/// How many pods must stay healthy.
fn desired(spec: &Value, expected: i64) -> i64 {
    let amount = |value: &Value| match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let share: i64 = text.strip_suffix('%')?.parse().ok()?;
            // Rounded up, as kube-apiserver does with both.
            Some((expected * share + 99) / 100)
        }
        _ => None,
    };
    match (
        amount(&spec["minAvailable"]),
        amount(&spec["maxUnavailable"]),
    ) {
        (Some(least), _) => least,
        (None, Some(most)) => (expected - most).max(0),
        (None, None) => (expected - 1).max(0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"a": "b"}},
               "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn counts_follow_from_spec_and_pods() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let pods = [pod("x", "True"), pod("y", "True"), pod("z", "False")];
        for (spec, expected) in [
            (json!({"minAvailable": 1}), (2, 1, 1)),
            (json!({"minAvailable": 2}), (2, 2, 0)),
            (json!({"minAvailable": "50%"}), (2, 2, 0)),
            (json!({"maxUnavailable": 2}), (2, 1, 1)),
            (json!({"maxUnavailable": "34%"}), (2, 1, 1)),
            (json!({"maxUnavailable": 0}), (2, 3, 0)),
        ] {
            let mut spec = spec;
            spec["selector"] = json!({"matchLabels": {"a": "b"}});
            let budget = json!({"metadata": {"generation": 1}, "spec": spec, "status": {}});
            let found = counted(&budget, &pods, now);
            let status = &found["status"];
            let (healthy, desired, allowed) = expected;
            assert_eq!(status["currentHealthy"], healthy, "{spec}");
            assert_eq!(status["desiredHealthy"], desired, "{spec}");
            assert_eq!(status["disruptionsAllowed"], allowed, "{spec}");
            assert_eq!(counted(&found, &pods, now), found, "counting is idempotent");
        }
    }

    #[test]
    fn evicted_pods_are_not_counted_for_a_limited_time() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let budget = json!({"metadata": {"generation": 1},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
            "status": {"disruptedPods": {"x": "2026-01-02T03:04:00Z", "gone": "2026-01-02T03:04:00Z"}}});
        let pods = [pod("x", "True"), pod("y", "True")];
        let found = counted(&budget, &pods, now);
        assert_eq!(found["status"]["disruptionsAllowed"], 0);
        assert_eq!(
            found["status"]["disruptedPods"],
            json!({"x": "2026-01-02T03:04:00Z"})
        );
        let later = counted(&found, &pods, now + SignedDuration::from_mins(3));
        assert_eq!(later["status"]["disruptionsAllowed"], 1);
    }
}
