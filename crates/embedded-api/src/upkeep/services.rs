//! Health, discovery and `OpenAPI` of the servers behind `APIServices`.
//!
//! Writes the `Available` condition and completes discovery and the `OpenAPI` documents.

use std::{sync::Arc, time::Duration};

use apimachinery::{discovery, meta};
use axum::extract::Request;
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    aggregate,
    api::Api,
    auth::Identity,
    error::ApiError,
    fairness::panics::confine_pass,
    registry::{Aggregated, Documents},
    store::{Collection, Key, Scope},
    verbs::{Call, Live, write},
};

const PERIOD: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(5);
const MAX_DOCUMENT: usize = 4 * 1024 * 1024;

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut live = api.store.live();
    loop {
        if let Err(error) = confine_pass(check_all(&api)).await {
            tracing::warn!(%error, "check of API services failed");
        }
        let next = Instant::now() + PERIOD;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(next), if !api.registry.all_aggregated().is_empty() => break,
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
    matches!(
        (&*key.collection.group, &*key.collection.plural),
        ("apiregistration.k8s.io", "apiservices") | ("", "services" | "endpoints")
    )
}

/// The values of the `Available` condition.
struct Available {
    status: &'static str,
    reason: &'static str,
    message: String,
}

async fn check_all(api: &Api) -> Result<(), ApiError> {
    // The event of a new object may arrive before the registry has it.
    api.load_services().await?;
    let mut checked = Vec::new();
    for one in api.registry.all_aggregated() {
        let mut one = (*one).clone();
        let condition = match discover(api, &one).await {
            Ok(document) => {
                one.resources = discovery::from_resource_list(&document);
                one.documents = Arc::new(documents(api, &one).await);
                Available {
                    status: "True",
                    reason: "Passed",
                    message: "all checks passed".to_owned(),
                }
            }
            Err(why) => {
                one.resources.clear();
                one.documents = Arc::default();
                Available {
                    status: "False",
                    reason: "FailedDiscoveryCheck",
                    message: why.to_string(),
                }
            }
        };
        set_condition(api, &one, condition).await?;
        checked.push(one);
    }
    if !checked.is_empty() {
        api.registry.set_aggregated(checked);
    }
    Ok(())
}

async fn discover(api: &Api, one: &Aggregated) -> Result<Value, ApiError> {
    fetch(api, one, &format!("/apis/{}/{}", one.group, one.version)).await
}

/// A server does not need to have such documents.
async fn documents(api: &Api, one: &Aggregated) -> Documents {
    let of = async |path: String| {
        let fetched = fetch(api, one, &path).await;
        fetched.unwrap_or_else(|error| {
            tracing::debug!(group = one.group, path, %error, "no OpenAPI of an API service");
            Value::Null
        })
    };
    Documents {
        v2: of("/openapi/v2".to_owned()).await,
        v3: of(format!("/openapi/v3/apis/{}/{}", one.group, one.version)).await,
    }
}

async fn fetch(api: &Api, one: &Aggregated, path: &str) -> Result<Value, ApiError> {
    let failed = |why: String| ApiError::foreign(503, "ServiceUnavailable", &why);
    let mut request = Request::get(path)
        .header(http::header::ACCEPT, "application/json")
        .body(axum::body::Body::empty())
        .map_err(|error| failed(error.to_string()))?;
    aggregate::set_user_headers(&Identity::component("system:apiserver"), &mut request)?;
    let answer = async {
        let answer = aggregate::send(api, &one.backend, request).await?;
        if !answer.status().is_success() {
            return Err(failed(format!("the server answered {}", answer.status())));
        }
        let body = Limited::new(answer.into_body(), MAX_DOCUMENT)
            .collect()
            .await;
        let body = body.map_err(|error| failed(error.to_string()))?;
        Ok(serde_json::from_slice(&body.to_bytes())?)
    };
    timeout(ANSWER, answer)
        .await
        .map_err(|_| failed("no response in time".to_owned()))?
}

async fn set_condition(api: &Api, one: &Aggregated, condition: Available) -> Result<(), ApiError> {
    let Available {
        status,
        reason,
        message,
    } = condition;
    let name = format!("{}.{}", one.version, one.group);
    let Some(kind) = api
        .registry
        .find("apiregistration.k8s.io", "v1", "apiservices")
    else {
        return Ok(());
    };
    let call = Call::internal(kind, "", Some(&name));
    let scope = Scope {
        collection: Collection::new("apiregistration.k8s.io", "apiservices"),
        namespace: None,
        name: Some(name),
    };
    let Some(stored) = api
        .store
        .list(&scope, None, None)
        .await?
        .items
        .into_iter()
        .next()
    else {
        return Ok(());
    };
    let live = Live::of(&stored, &call.kind)?;
    let found = &live.object["status"]["conditions"][0];
    if found["status"] == status && found["reason"] == reason && found["message"] == *message {
        return Ok(());
    }
    let mut object = live.object.clone();
    let now = meta::format_time(api.clock.now());
    object["status"] = json!({"conditions": [{
        "type": "Available", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now,
    }]});
    match write::put(api, &call, &live, object).await {
        // The event of the conflicting write triggers another run.
        Err(error) if error.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}
