//! Admission webhooks: HTTP in front of the pure functions of `admission`.
//!
//! Other objects that a check needs are read for each review; no object is cached.

mod copies;
mod eviction;
mod guard;
mod lookup;
mod rights;

use admission::review::Stage;
use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    middleware,
    response::{IntoResponse, Response},
    routing::post,
};
use defaults::Environment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use uuid::Uuid;

use installation::{
    guard::GUARD_PATH,
    webhooks::{EVICTION_PATH, MUTATE, MUTATE_COPY, VALIDATE, VALIDATE_COPY},
};

use crate::{
    metrics::{self, Allowed},
    refusal::Refusal,
    settings::Shared,
};

/// Objects are at most 3 MiB at the API server; a review holds up to two of them.
const REVIEW_LIMIT: usize = 8 << 20;

pub(crate) fn mount(router: Router<Shared>) -> Router<Shared> {
    let mut webhooks = Router::new();
    for webhook in MUTATE {
        webhooks = webhooks.route(webhook.path, post(mutate));
    }
    for webhook in VALIDATE {
        webhooks = webhooks.route(webhook.path, post(validate));
    }
    webhooks = webhooks.route(MUTATE_COPY.path, post(copies::record));
    webhooks = webhooks.route(VALIDATE_COPY.path, post(copies::check));
    webhooks = webhooks.route(EVICTION_PATH, post(eviction::answer));
    webhooks = webhooks.route(GUARD_PATH, post(guard::answer));
    webhooks = webhooks.route_layer(middleware::from_fn(metrics::record_review));
    router
        .merge(webhooks)
        .layer(DefaultBodyLimit::max(REVIEW_LIMIT))
}

async fn mutate(State(shared): State<Shared>, body: Bytes) -> Response {
    answer(&shared, Stage::Mutate, &body).await
}

async fn validate(State(shared): State<Shared>, body: Bytes) -> Response {
    answer(&shared, Stage::Validate, &body).await
}

async fn answer(shared: &Shared, stage: Stage, body: &[u8]) -> Response {
    let review = match read(body) {
        Ok(review) => review,
        Err(refusal) => return refusal.into_response(),
    };
    if stage == Stage::Validate {
        let refused = async {
            let missing = rights::missing(&shared.client, &review).await?;
            if let Some(message) = missing {
                return Ok(Some((403, "Forbidden", message)));
            }
            let missing = copies::rights::missing(&shared.client, &review).await?;
            Ok::<_, Refusal>(missing.map(|message| (422, "Invalid", message)))
        };
        match Box::pin(refused).await {
            Ok(None) => {}
            Ok(refused) => return send(respond(&review, refused)),
            Err(refusal) => return refusal.into_response(),
        }
    }
    let now = Time(shared.clock.now());
    let cluster = shared.cluster.now();
    let lookups = match stage {
        Stage::Mutate => Vec::new(),
        Stage::Validate => admission::kinds::lookups(&review, &cluster, environment(&now)),
    };
    let found = Box::pin(async {
        let mut related = lookup::all(&shared.client, lookups).await?;
        lookup::vm::complete(&shared.client, stage, &review, &mut related).await?;
        Ok::<_, kube::Error>(related)
    });
    match found.await {
        Ok(related) => {
            let env = environment(&now);
            send(admission::review_with(
                stage, &review, &cluster, env, &related,
            ))
        }
        Err(err) => Refusal::from(err).into_response(),
    }
}

/// The response to a review; a refusal has a code, its reason and a message.
fn respond(review: &Value, refused: Option<(u16, &str, String)>) -> Value {
    let mut response = json!({ "uid": review["request"]["uid"], "allowed": refused.is_none() });
    if let Some((code, reason, message)) = refused {
        response["status"] = json!({
            "status": "Failure", "message": message, "reason": reason, "code": code,
        });
    }
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    })
}

/// A response with its result for the metrics.
fn send(review: Value) -> Response {
    let allowed = Allowed(review["response"]["allowed"] == true);
    (Extension(allowed), Json(review)).into_response()
}

fn read(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body)
        .map_err(|err| Refusal::bad_request(format!("the review is malformed: {err}")))
}

fn environment(now: &Time) -> Environment<'_> {
    Environment {
        now,
        new_uuid: &Uuid::new_v4,
    }
}
