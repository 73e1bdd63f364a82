//! The metrics of this crate, and the layers that record them.

use axum::{
    extract::{MatchedPath, Request},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use metrics::{CONTENT_TYPE, Table, render};
use tokio::time::Instant;

use crate::verbs::{Entry, Object};

metrics::table! {
    pub METRICS of "virt-api":
    counter REVIEWS["webhook", "result"] "ferrovirt_virt_api_webhook_reviews_total"
        "Admission reviews by path of the webhook and result: allowed, refused or failed.";
    histogram REVIEW_SECONDS["webhook"] "ferrovirt_virt_api_webhook_review_duration_seconds"
        "Duration of an admission review.";
    counter REQUESTS["resource", "verb", "code"] "ferrovirt_virt_api_subresource_requests_total"
        "Requests for subresources by object, verb and HTTP code; a stream counts when it opens.";
    histogram REQUEST_SECONDS["verb"] "ferrovirt_virt_api_subresource_request_duration_seconds"
        "Time until the head of the response of a subresource.";
}

/// On the response to a review: whether it allows the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed(pub(crate) bool);

/// Records a response to a review.
pub(crate) async fn record_review(path: MatchedPath, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let mut response = next.run(request).await;
    let result = match response.extensions_mut().remove::<Allowed>() {
        Some(Allowed(true)) => "allowed",
        Some(Allowed(false)) => "refused",
        None => "failed",
    };
    let webhook = path.as_str().trim_start_matches('/');
    REVIEWS.increment([webhook, result]);
    REVIEW_SECONDS.observe([webhook], started.elapsed());
    response
}

/// Records a response of a subresource.
pub(crate) async fn record_request(entry: &Entry, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let response = next.run(request).await;
    let resource = match entry.object {
        Object::Vm | Object::Vmi | Object::Template => entry.object.plural(),
        Object::Namespace | Object::Cluster => "",
    };
    REQUESTS.increment([resource, entry.name, response.status().as_str()]);
    REQUEST_SECONDS.observe([entry.name], started.elapsed());
    response
}

/// Serves the tables.
pub(crate) fn endpoint<S: Clone + Send + Sync + 'static>(
    tables: Vec<&'static Table>,
) -> MethodRouter<S> {
    get(move || async move {
        let headers = [(http::header::CONTENT_TYPE, CONTENT_TYPE)];
        (StatusCode::OK, headers, render(&tables)).into_response()
    })
}
