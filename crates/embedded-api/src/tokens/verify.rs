//! Verification of tokens.

use std::collections::BTreeMap;

use apimachinery::meta;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{ISSUER, issue::load, jwt};
use crate::{api::Api, auth::Identity, error::ApiError};

/// Tolerated clock skew of nodes.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// An object counts as deleted this long after its deletion timestamp.
const DELETION_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// A valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verified {
    pub identity: Identity,
    /// The requested audiences that the token is for.
    pub audiences: Vec<String>,
}

/// The service account of a token, or why the token is rejected.
pub(crate) async fn authenticate(
    api: &Api,
    token: &str,
    audiences: &[String],
) -> Result<Result<Verified, String>, ApiError> {
    let Some(claims) = jwt::decode(&api.tokens.key, token) else {
        return Ok(Err("it was not issued by this server".to_owned()));
    };
    let audiences = match check_claims(api, &claims, audiences) {
        Ok(audiences) => audiences,
        Err(why) => return Ok(Err(why.to_owned())),
    };
    let facts = &claims["kubernetes.io"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&facts["namespace"]);
    let account = &facts["serviceaccount"];
    let (name, uid) = (text(&account["name"]), text(&account["uid"]));
    if !exists(api, "serviceaccounts", &namespace, account).await? {
        return Ok(Err(format!(
            "service account {namespace}/{name} does not exist"
        )));
    }
    let mut extra = BTreeMap::new();
    let mut add_extra = |key: &str, value: String| {
        extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    };
    if let Some(id) = claims["jti"].as_str() {
        add_extra("credential-id", format!("JTI={id}"));
    }
    for (fact, plural) in [("pod", "pods"), ("secret", "secrets"), ("node", "nodes")] {
        let bound = &facts[fact];
        if !bound.is_object() {
            continue;
        }
        let scope = if fact == "node" {
            ""
        } else {
            namespace.as_str()
        };
        // The node of a pod-bound token is informational only.
        let binds = fact != "node" || !facts["pod"].is_object();
        if binds && !exists(api, plural, scope, bound).await? {
            return Ok(Err(format!(
                "{fact} {} does not exist",
                text(&bound["name"])
            )));
        }
        if fact != "secret" {
            add_extra(&format!("{fact}-name"), text(&bound["name"]));
            add_extra(&format!("{fact}-uid"), text(&bound["uid"]));
        }
    }
    let mut identity = Identity::service_account(&namespace, &name);
    identity.uid = uid;
    identity.extra = extra;
    Ok(Ok(Verified {
        identity,
        audiences,
    }))
}

/// The requested audiences that the token is for.
fn check_claims(
    api: &Api,
    claims: &Value,
    audiences: &[String],
) -> Result<Vec<String>, &'static str> {
    if claims["iss"] != ISSUER {
        return Err("unknown issuer");
    }
    let now = api.clock.now();
    let seconds = |field: &str| claims[field].as_i64();
    if seconds("exp").is_none_or(|end| end < (now - LEEWAY).as_second()) {
        return Err("it has expired");
    }
    if seconds("nbf").is_some_and(|begin| begin > (now + LEEWAY).as_second()) {
        return Err("it is not yet valid");
    }
    let own = claims["aud"].as_array().map_or(&[][..], Vec::as_slice);
    let found: Vec<String> = audiences
        .iter()
        .filter(|wanted| own.iter().any(|one| one == wanted.as_str()))
        .cloned()
        .collect();
    if found.is_empty() {
        return Err("none of the audiences match");
    }
    Ok(found)
}

/// Whether the object in the claim exists, with the same uid.
async fn exists(api: &Api, plural: &str, namespace: &str, claim: &Value) -> Result<bool, ApiError> {
    let name = claim["name"].as_str().unwrap_or_default();
    let Some(found) = load(api, plural, namespace, name).await? else {
        return Ok(false);
    };
    let is_deleted = is_over(meta::deletion_timestamp(&found), api.clock.now());
    Ok(claim["uid"] == meta::uid(&found) && !is_deleted)
}

/// Whether the deletion is long past. A user may delete with any grace period, up to the last time that a
/// timestamp can hold.
fn is_over(deletion: Option<Timestamp>, now: Timestamp) -> bool {
    deletion.is_some_and(|at| now.duration_since(at) > DELETION_GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_counts_as_deleted_a_minute_after_its_deletion_timestamp() {
        let at = |text: &str| -> Timestamp { text.parse().expect(text) };
        let now = at("2026-01-02T03:04:05Z");
        for (deletion, expected) in [
            (None, false),
            (Some(at("2026-01-02T03:03:05Z")), false),
            (Some(at("2026-01-02T03:03:04Z")), true),
            (Some(Timestamp::MAX), false),
            (Some(Timestamp::MIN), true),
        ] {
            assert_eq!(is_over(deletion, now), expected, "{deletion:?}");
        }
    }
}
