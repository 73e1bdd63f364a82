//! The answer of `virtctl why`, with the rights of the user.

use apimachinery::names::is_subdomain;
use axum::response::Response;
use diagnosis::diagnose;
use error_chain::error_chain;
use http::{Method, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use observation::{Target, observe};

use crate::respond;

/// Answers a request for `NAMESPACE/NAME`.
pub(crate) async fn explain(
    client: &Client,
    now: Time,
    method: &Method,
    subject: &str,
) -> Response {
    let Some((namespace, name)) = subject.split_once('/').filter(|_| *method == Method::GET) else {
        let message = "ask by GET for /console/why/NAMESPACE/NAME";
        return respond::error(StatusCode::BAD_REQUEST, message);
    };
    if !is_subdomain(namespace) || !is_subdomain(name) {
        return respond::error(
            StatusCode::BAD_REQUEST,
            "a name has characters that no name has",
        );
    }
    let observed = Box::pin(observe(client, Target { namespace, name }, now)).await;
    let diagnosis = match observed {
        Ok(Some(observed)) => serde_json::to_value(diagnose(&observed)),
        Ok(None) => {
            let message = format!("there is no VM and no VMI {name:?} in namespace {namespace:?}");
            return respond::error(StatusCode::NOT_FOUND, &message);
        }
        Err(kube::Error::Api(status)) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY);
            return respond::error(code, &status.message);
        }
        Err(error) => return respond::error(StatusCode::BAD_GATEWAY, &error_chain(&error)),
    };
    match diagnosis {
        Ok(diagnosis) => respond::json(StatusCode::OK, &diagnosis),
        Err(error) => respond::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
