//! The metrics of this crate, and the path `/metrics`.

use std::time::Duration;

use axum::{body::Body, extract::Request, response::Response};
use http::{HeaderValue, StatusCode, header};
use metrics::{CONTENT_TYPE, PROCESS, Table, render};

use crate::{
    access::Attributes, api::Api, error::ApiError, request::ResourcePath, store::Statistics,
};

metrics::table! {
    pub METRICS of "embedded-api":
    counter REQUESTS["verb", "resource", "code"] "ferrovirt_embedded_api_requests_total"
        "Requests by verb, resource (empty for other paths and for aggregated APIs) and HTTP code.";
    histogram REQUEST_SECONDS["verb"] "ferrovirt_embedded_api_request_duration_seconds"
        "Time until the head of the response; the stream of a watch is not included.";
    gauge WATCHERS["resource"] "ferrovirt_embedded_api_watchers"
        "Open watches by resource.";
    gauge OBJECTS["resource"] "ferrovirt_embedded_api_objects"
        "Stored objects by resource.";
    gauge REVISION[] "ferrovirt_embedded_api_revision"
        "Latest revision of the store.";
    gauge COMPACTED[] "ferrovirt_embedded_api_compacted_revision"
        "Revision up to which the log of changes was compacted.";
    gauge DATABASE_BYTES[] "ferrovirt_embedded_api_database_bytes"
        "Size of the database, without its write-ahead log.";
    gauge LOG_BYTES[] "ferrovirt_embedded_api_log_bytes"
        "Size of the database's write-ahead log.";
}

/// The tables of a server that runs alone.
pub(crate) static OWN_TABLES: [&Table; 2] = [&METRICS, &PROCESS];

/// The verbs of Kubernetes and HTTP; others, which clients may invent, count as `other`.
const VERBS: [&str; 14] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "post",
    "put",
    "head",
    "options",
    "connect",
    "impersonate",
];

/// The labels of one request.
#[derive(Debug)]
pub(crate) struct Labels {
    verb: &'static str,
    resource: String,
}

impl Labels {
    pub(crate) fn of(api: &Api, request: &Request) -> Self {
        let wanted = Attributes::of(request);
        let known = VERBS.iter().copied().find(|verb| *verb == wanted.verb);
        let path = ResourcePath::parse(request.uri().path());
        let kind = path.and_then(|path| {
            let (path, _) = path.without_watch();
            api.registry.find(&path.group, &path.version, &path.plural)
        });
        Self {
            verb: known.unwrap_or("other"),
            resource: kind.map_or_else(String::new, |kind| kind.resource().to_string()),
        }
    }

    pub(crate) fn record(&self, code: StatusCode, duration: Duration) {
        REQUESTS.increment([self.verb, &self.resource, code.as_str()]);
        REQUEST_SECONDS.observe([self.verb], duration);
    }
}

/// The response to `GET /metrics`.
pub(crate) async fn serve(api: &Api) -> Result<Response, ApiError> {
    let Statistics {
        revision,
        compacted,
        bytes,
        log_bytes,
        objects,
    } = api.store.statistics().await?;
    REVISION.set([], revision);
    COMPACTED.set([], compacted);
    DATABASE_BYTES.set([], bytes);
    LOG_BYTES.set([], log_bytes);
    OBJECTS.clear();
    for (collection, count) in objects {
        OBJECTS.set([&collection.resource().to_string()], count);
    }
    let tables = api.metrics.get().map_or(&OWN_TABLES[..], Vec::as_slice);
    let mut response = Response::new(Body::from(render(tables)));
    let plain = HeaderValue::from_static(CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}
