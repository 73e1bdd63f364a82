//! Tokens: a signed statement that its holder may send a disk for one claim.

use std::{fmt, sync::Arc};

use reconcile::Clock;
use serde_json::{Value, json};

/// How long a token is valid, in seconds, as with CDI.
const LIFETIME: i64 = 300;
/// Tolerated difference between clocks, in seconds.
const LEEWAY: i64 = 10;

/// Signs statements, and recognises its own.
pub trait Signer: Send + Sync {
    /// A token with these claims, or why there is none.
    fn sign(&self, claims: &Value) -> Result<String, String>;
    /// The claims of a token that this signer has signed, however old it is.
    fn claims(&self, token: &str) -> Option<Value>;
}

/// A claim, by its name and identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) claim: String,
    pub(super) uid: String,
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denial {
    #[error(
        "the upload token was not issued by this server: request one with an UploadTokenRequest"
    )]
    Unknown,
    #[error(
        "the upload token has expired, as it is valid for {} minutes: request another one with an \
         UploadTokenRequest",
        LIFETIME / 60
    )]
    Expired,
    #[error("the upload token is not valid yet: correct the clock of the host")]
    Early,
}

/// Issues tokens and checks them. Cheap to clone.
#[derive(Clone)]
pub struct UploadTokens {
    signer: Arc<dyn Signer>,
    clock: Clock,
}

impl fmt::Debug for UploadTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadTokens").finish_non_exhaustive()
    }
}

impl UploadTokens {
    pub fn new(signer: Arc<dyn Signer>, clock: Clock) -> Self {
        Self { signer, clock }
    }

    pub(super) fn issue(&self, target: &Target) -> Result<String, String> {
        let claims = claims(target, self.clock.now().as_second());
        self.signer.sign(&claims)
    }

    pub(super) fn check(&self, token: &str) -> Result<Target, Denial> {
        let claims = self.signer.claims(token).ok_or(Denial::Unknown)?;
        check(&claims, self.clock.now().as_second())
    }
}

fn claims(target: &Target, now: i64) -> Value {
    json!({
        "nbf": now, "exp": now.saturating_add(LIFETIME),
        "namespace": target.namespace, "claim": target.claim, "uid": target.uid,
    })
}

/// `now` is in seconds.
fn check(claims: &Value, now: i64) -> Result<Target, Denial> {
    let text = |name: &str| {
        let found = claims[name].as_str().filter(|text| !text.is_empty());
        found.map(ToOwned::to_owned).ok_or(Denial::Unknown)
    };
    let time = |name: &str| claims[name].as_i64().ok_or(Denial::Unknown);
    if time("exp")?.saturating_add(LEEWAY) < now {
        return Err(Denial::Expired);
    }
    if time("nbf")?.saturating_sub(LEEWAY) > now {
        return Err(Denial::Early);
    }
    Ok(Target {
        namespace: text("namespace")?,
        claim: text("claim")?,
        uid: text("uid")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_valid_for_its_claim_and_time_only() {
        let target = Target {
            namespace: "n".to_owned(),
            claim: "disk".to_owned(),
            uid: "u".to_owned(),
        };
        let issued = claims(&target, 1000);
        for (now, expected) in [
            (989, Err(Denial::Early)),
            (990, Ok(target.clone())),
            (1000, Ok(target.clone())),
            (1310, Ok(target.clone())),
            (1311, Err(Denial::Expired)),
        ] {
            assert_eq!(check(&issued, now), expected, "{now}");
        }
        for name in ["nbf", "exp", "namespace", "claim", "uid"] {
            let mut cut = issued.clone();
            cut[name] = Value::Null;
            assert_eq!(check(&cut, 1000), Err(Denial::Unknown), "{name}");
        }
        let mut empty = issued;
        empty["uid"] = "".into();
        assert_eq!(check(&empty, 1000), Err(Denial::Unknown));
    }
}
