//! Requests that the API server refused.

use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::Value;
use tokio::sync::mpsc;
use tower::BoxError;

use super::right::Right;

/// Refusals that wait to be checked. Refused requests are repeated, so one that does not fit is not lost.
const WAITING: usize = 64;
/// In the message of a refusal by the authorizer. Its `Status` does not differ otherwise from the refusal of a
/// quota, an admission plugin or a webhook.
const BY_AUTHORIZER: &str = " is forbidden: User \"";

/// Where refusals are sent to.
pub(crate) type Refused = mpsc::Sender<Right>;

/// The two ends between a client and [`super::watch`].
pub(crate) fn refusals() -> (Refused, mpsc::Receiver<Right>) {
    mpsc::channel(WAITING)
}

/// A response as received, or with a body that was read and is sent on.
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// Reports a refused request to [`super::watch`] and returns the response unchanged.
pub(crate) async fn report_refusal(
    response: Response<Incoming>,
    right: Option<Right>,
    refused: Refused,
) -> Result<Answer, BoxError> {
    if response.status() != StatusCode::FORBIDDEN {
        return Ok(response.map(Either::Left));
    }
    let (head, body) = response.into_parts();
    let bytes = body.collect().await?.to_bytes();
    if is_by_authorizer(&bytes)
        && let Some(right) = right
        && let Err(full) = refused.try_send(right)
    {
        tracing::debug!(error = %full, "refusal dropped");
    }
    Ok(Response::from_parts(head, Either::Right(Full::new(bytes))))
}

/// Whether this `Status` is a refusal by the authorizer.
fn is_by_authorizer(status: &[u8]) -> bool {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    status["reason"] == "Forbidden" && message.contains(BY_AUTHORIZER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_refusals_by_the_authorizer_count() {
        let user = "User \"system:serviceaccount:kubevirt:kubevirt-controller\"";
        for (reason, message, expected) in [
            (
                "Forbidden",
                &*format!(
                    "pods is forbidden: {user} cannot create resource \"pods\" in API group \"\""
                ),
                true,
            ),
            (
                "Forbidden",
                &*format!(
                    "secrets \"kubevirt-ca\" is forbidden: {user} cannot get resource \"secrets\" in API \
                     group \"\" in the namespace \"kubevirt\": RBAC: role \"x\" not found"
                ),
                true,
            ),
            (
                "Forbidden",
                "pods \"a\" is forbidden: exceeded quota: none, requested: pods=1",
                false,
            ),
            (
                "Forbidden",
                "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"",
                false,
            ),
            ("", "admission webhook \"x\" denied the request: no", false),
            ("", "", false),
        ] {
            let status =
                json!({"kind": "Status", "reason": reason, "message": message}).to_string();
            assert_eq!(is_by_authorizer(status.as_bytes()), expected, "{message}");
        }
        assert!(!is_by_authorizer(b"forbidden"));
    }
}
