//! Admission webhooks: other servers that may change or reject a write.
//!
//! Invariants: configurations are read from the store at each write, so they are never stale; a
//! webhook that cannot be called rejects the write, unless its failure policy is `Ignore`; changes
//! to webhook configurations themselves are never sent to webhooks.

mod call;
mod matching;
mod review;

use apimachinery::{Status, patch};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

pub(crate) use self::call::post;
use self::{call::call_webhook, matching::matching};
use crate::{api::Api, error::ApiError, verbs::Call};

/// The operation of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// Opening a stream into a pod.
    Connect,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A write under admission review.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    pub operation: Operation,
    pub old: Option<&'a Value>,
    pub dry_run: bool,
}

/// Calls the mutating webhooks. True if one changed `object`.
pub(crate) async fn mutate(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<bool, ApiError> {
    let mut changed = false;
    for webhook in matching(api, call, review, object, "mutatingwebhookconfigurations").await? {
        let Some(answer) = call_webhook(api, call, review, object, &webhook, warnings).await?
        else {
            continue;
        };
        let Some(encoded) = answer["patch"].as_str() else {
            continue;
        };
        let failed = |why: String| {
            let name = webhook["name"].as_str().unwrap_or_default();
            ApiError::from(Status::internal(format!(
                "admission webhook \"{name}\": {why}"
            )))
        };
        let raw = STANDARD
            .decode(encoded)
            .map_err(|e| failed(e.to_string()))?;
        let operations: Value = serde_json::from_slice(&raw).map_err(|e| failed(e.to_string()))?;
        let patched = patch::json::apply(object, &operations).map_err(|e| failed(e.to_string()))?;
        changed |= patched != *object;
        *object = patched;
    }
    Ok(changed)
}

/// Calls the validating webhooks.
pub(crate) async fn validate(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    for webhook in matching(api, call, review, object, "validatingwebhookconfigurations").await? {
        call_webhook(api, call, review, object, &webhook, warnings).await?;
    }
    Ok(())
}
