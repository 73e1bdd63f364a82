//! A call of one webhook: request, response, failure policy.

use std::time::Duration;

use apimachinery::Status;
use error_chain::error_chain;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};
use serving::Target;

use super::{Review, matching::matches_conditions, review};
use crate::{api::Api, backend, error::ApiError, verbs::Call};

const MAX_RESPONSE: usize = 4 * 1024 * 1024;

/// Calls the webhook. None if the call failed and the failure policy is `Ignore`.
pub(super) async fn call_webhook(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    webhook: &Value,
    warnings: &mut Vec<String>,
) -> Result<Option<Value>, ApiError> {
    let name = webhook["name"].as_str().unwrap_or_default();
    let effects = webhook["sideEffects"].as_str().unwrap_or_default();
    if review.dry_run && !matches!(effects, "None" | "NoneOnDryRun") {
        let why = format!("admission webhook \"{name}\" does not support dry run");
        return Err(Status::bad_request(why).into());
    }
    let request = review::request(api, call, review, object, webhook).await?;
    let failed = |failure: String| {
        if webhook["failurePolicy"].as_str() == Some("Ignore") {
            tracing::warn!(
                webhook = name,
                failure,
                "admission webhook failed, ignored by its failure policy"
            );
            return Ok(None);
        }
        Err(Status::internal(format!("failed calling webhook \"{name}\": {failure}")).into())
    };
    match matches_conditions(webhook, &request["request"]) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(why) => return failed(why),
    }
    let limit = Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10).min(30));
    let posted = tokio::time::timeout(limit, post(api, webhook, &request, limit));
    let failure = match api.fairness.without_seat(posted).await? {
        Ok(Ok(answer)) if answer["response"].is_object() => {
            return apply_response(name, &answer["response"], warnings).map(Some);
        }
        Ok(Ok(_)) => "the review has no response".to_owned(),
        Ok(Err(error)) => error.to_string(),
        // Clients look for this text.
        Err(_) => format!(
            "failed to call webhook: Post \"{}\": context deadline exceeded (timeout after {} s)",
            url(&webhook["clientConfig"], limit),
            limit.as_secs()
        ),
    };
    failed(failure)
}

fn apply_response(
    name: &str,
    response: &Value,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let sent = response["warnings"].as_array().into_iter().flatten();
    warnings.extend(sent.filter_map(Value::as_str).map(ToOwned::to_owned));
    if response["allowed"] == json!(true) {
        return Ok(response.clone());
    }
    let status = &response["status"];
    let prefix = format!("admission webhook \"{name}\" denied the request");
    let message = match status["message"].as_str().or(status["reason"].as_str()) {
        Some(why) => format!("{prefix}: {why}"),
        None => format!("{prefix} without explanation"),
    };
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let reason = status["reason"]
        .as_str()
        .filter(|r| !r.contains(' '))
        .unwrap_or("BadRequest");
    let mut error = ApiError::foreign(code, reason, &message).to_value();
    if status["details"].is_object() {
        error["details"] = status["details"].clone();
    }
    Err(ApiError::from_value(error))
}

/// The address of a webhook as kube-apiserver shows it.
fn url(config: &Value, limit: Duration) -> String {
    let service = &config["service"];
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    if let Some(url) = config["url"].as_str() {
        return with_timeout(url, limit);
    }
    let port = service["port"].as_u64().unwrap_or(443);
    let (name, namespace, path) = (text("name"), text("namespace"), text("path"));
    let path = path.trim_start_matches('/');
    let base = format!("https://{name}.{namespace}.svc:{port}/{path}");
    with_timeout(&base, limit)
}

/// Webhooks learn how long they may take.
fn with_timeout(address: &str, limit: Duration) -> String {
    let sign = if address.contains('?') { '&' } else { '?' };
    format!("{address}{sign}timeout={}s", limit.as_secs())
}

/// virt-api acts on some reviews, and so must know their sender. Other servers may refuse certificates of
/// an authority that they do not know.
fn presented_to(config: &Value) -> backend::ClientIdentity {
    if config["service"]["namespace"] == "kubevirt" {
        backend::ClientIdentity::FrontProxy
    } else {
        backend::ClientIdentity::Anonymous
    }
}

/// Sends a review to the server in `webhook.clientConfig`.
pub(crate) async fn post(
    api: &Api,
    webhook: &Value,
    review: &Value,
    limit: Duration,
) -> Result<Value, ApiError> {
    let config = &webhook["clientConfig"];
    let (target, path) = address(api, config).await?;
    let client = backend::client(
        api,
        config["caBundle"].as_str().unwrap_or_default(),
        presented_to(config),
    )?;
    let failed = |why: String| ApiError::from(Status::internal(why));
    let request = Request::post(with_timeout(&path, limit))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Full::new(bytes::Bytes::from(review.to_string())))
        .map_err(|error| failed(error.to_string()))?;
    let response = client
        .send(&target, request)
        .await
        .map_err(|error| failed(error_chain(&error)))?;
    if !response.status().is_success() {
        return Err(failed(format!("the server answered {}", response.status())));
    }
    let body = Limited::new(response.into_body(), MAX_RESPONSE)
        .collect()
        .await
        .map_err(|error| failed(format!("read response: {error}")))?;
    Ok(serde_json::from_slice(&body.to_bytes())?)
}

/// The server of a webhook and the path of its URL.
async fn address(api: &Api, config: &Value) -> Result<(Target, String), ApiError> {
    if let Some(url) = config["url"].as_str() {
        let wrong = || Status::internal(format!("the URL {url:?} is not https://host[:port]/path"));
        let uri: http::Uri = url.parse().map_err(|_| wrong())?;
        let host = uri
            .host()
            .filter(|_| uri.scheme_str() == Some("https"))
            .ok_or_else(wrong)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        return Ok((
            Target::host(host, uri.port_u16().unwrap_or(443)),
            path.to_owned(),
        ));
    }
    let service = &config["service"];
    let text = |key: &str| service[key].as_str().unwrap_or_default();
    let port = service["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(443);
    let target = backend::resolve(api, text("namespace"), text("name"), port).await?;
    let path = if text("path").is_empty() {
        "/"
    } else {
        text("path")
    };
    Ok((target, path.to_owned()))
}
