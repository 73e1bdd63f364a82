//! Tokens of service accounts: issued, checked, reviewed.
//!
//! - `key` signs and verifies, `jwt` is the form of a token;
//! - `issue` answers requests for tokens, `verify` tells who shows one.
//!
//! Invariant: a token is good as long as it lives, its account is the one it was issued for, and
//! the object it is bound to is still there. Nothing else revokes one.

mod issue;
mod jwt;
mod key;
mod verify;

use serde_json::{Value, json};

pub(crate) use issue::issue;
pub use key::{KeyError, SigningKey};
pub(crate) use verify::authenticate;

/// Who issues tokens here, and for whom they are if nobody says otherwise.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// What tokens are made and checked with.
#[derive(Debug)]
pub(crate) struct Tokens {
    key: SigningKey,
}

impl Tokens {
    pub(crate) fn new(key: SigningKey) -> Self {
        Self { key }
    }

    /// For others who check our tokens themselves.
    pub(crate) fn keys_document(&self) -> Value {
        json!({"keys": [self.key.public_jwk()]})
    }
}

/// Where the keys are.
pub(crate) fn discovery_document() -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [jwt::ALGORITHM],
    })
}
