//! Aggregated cluster roles: combines the rules of labelled roles.
//!
//! Invariant: the rules of an aggregated role are exactly those of its parts, in the order of their
//! names.

use std::time::Duration;

use apimachinery::{meta, rbac::Rule, selector::LabelSelector};
use serde_json::Value;
use tokio::{
    sync::broadcast::error::{RecvError, TryRecvError},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    access::GROUP,
    api::Api,
    error::ApiError,
    fairness::panics::confine_pass,
    store::{Collection, Key, Scope, Stored},
    verbs::{Call, Live, write},
};

const RETRY: Duration = Duration::from_secs(5);

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut live = api.store.live();
    loop {
        // One run accounts for all writes before it.
        while matches!(live.try_recv(), Ok(_) | Err(TryRecvError::Lagged(_))) {}
        let retry = match confine_pass(aggregate(&api)).await {
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(%error, "aggregating roles failed, will retry");
                Some(Instant::now() + RETRY)
            }
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => break,
                event = live.recv() => match event {
                    Ok(event) if is_relevant(&event.key) => break,
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }
}

fn is_relevant(key: &Key) -> bool {
    (&*key.collection.group, &*key.collection.plural) == (GROUP, "clusterroles")
}

/// Updates all aggregated roles. Parts may be aggregated themselves: a write triggers another run.
async fn aggregate(api: &Api) -> Result<(), ApiError> {
    let Some(kind) = api.registry.find(GROUP, "v1", "clusterroles") else {
        return Ok(());
    };
    let scope = Scope::all(Collection::new(GROUP, "clusterroles"));
    let stored: Vec<Stored> = api.store.list(&scope, None, None).await?.items;
    let roles = stored
        .iter()
        .map(|stored| Live::of(stored, &kind))
        .collect::<Result<Vec<Live>, ApiError>>()?;
    for role in &roles {
        let Some(rules) = wanted(&role.object, &roles)? else {
            continue;
        };
        if rules == role.object["rules"] {
            continue;
        }
        let mut object = role.object.clone();
        object["rules"] = rules;
        let call = Call::internal(
            std::sync::Arc::clone(&kind),
            "",
            Some(meta::name(&role.object)),
        );
        match write::put(api, &call, role, object).await {
            // The event of the conflicting write triggers another run.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            done => drop(done?),
        }
    }
    Ok(())
}

/// The rules of an aggregated role; none for other roles.
fn wanted(role: &Value, all: &[Live]) -> Result<Option<Value>, ApiError> {
    let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array() else {
        return Ok(None);
    };
    let mut rules: Vec<Rule> = Vec::new();
    for selector in selectors {
        let Some(selector) = LabelSelector::from_object(selector)? else {
            continue;
        };
        let parts = all
            .iter()
            .map(|live| &live.object)
            .filter(|part| meta::name(part) != meta::name(role) && selector.matches(part));
        for rule in parts.flat_map(Rule::all_of) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    if rules.is_empty() {
        return Ok(Some(Value::Null));
    }
    Ok(Some(rules.iter().map(Rule::to_value).collect()))
}
