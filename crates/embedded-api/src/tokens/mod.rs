//! Tokens of service accounts: issued, verified, reviewed.
//!
//! - `key` signs and verifies, `jwt` is the format of tokens;
//! - `issue` serves token requests, `verify` authenticates tokens;
//! - `statement`: the same for statements of other components, which are no credentials of this server.
//!
//! Invariant: a token is valid until it expires, as long as its account is the one it was issued
//! for, and the object it is bound to exists. There is no other revocation.

mod issue;
mod jwt;
mod key;
mod statement;
mod verify;

use serde_json::{Value, json};

pub(crate) use issue::issue;
pub use key::{KeyError, SigningKey};
pub use statement::Statements;
pub(crate) use verify::authenticate;

/// The issuer, also the default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The signing key and its public document.
#[derive(Debug)]
pub(crate) struct Tokens {
    key: SigningKey,
}

impl Tokens {
    pub(crate) fn new(key: SigningKey) -> Self {
        Self { key }
    }

    /// For servers that verify our tokens themselves.
    pub(crate) fn keys_document(&self) -> Value {
        json!({"keys": [self.key.public_jwk()]})
    }
}

/// Points to the keys.
pub(crate) fn discovery_document() -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [jwt::ALGORITHM],
    })
}
