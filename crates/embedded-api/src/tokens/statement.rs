//! Statements that a component has signed by this server, to recognise them later.
//!
//! Invariant: a statement names its purpose as the issuer, so that it counts neither for another purpose nor as
//! the token of a service account, and the other way round.

use serde_json::Value;

use super::{ISSUER, KeyError, jwt};
use crate::api::Api;

/// Signs and recognises the statements of one purpose. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Statements {
    api: Api,
    issuer: String,
}

impl Statements {
    pub(crate) fn new(api: Api, purpose: &str) -> Self {
        Self {
            api,
            issuer: format!("{ISSUER}/{purpose}"),
        }
    }

    /// A token with these claims, the members of an object.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let mut claims = claims.as_object().cloned().unwrap_or_default();
        claims.insert("iss".to_owned(), self.issuer.as_str().into());
        jwt::encode(&self.api.tokens.key, &Value::Object(claims))
    }

    /// The claims of a token of this purpose. Their meaning, also that of times, is up to the caller.
    pub fn claims(&self, token: &str) -> Option<Value> {
        let claims = jwt::decode(&self.api.tokens.key, token)?;
        (claims["iss"] == self.issuer).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Clock, Database, EmbeddedApi, ServiceSettings, Settings, tokens};

    #[tokio::test]
    async fn statement_counts_for_its_purpose_only() {
        let settings = Settings {
            database: Database::Memory,
            clock: Clock::Wall,
            front_proxy: None,
            kubelet: None,
            services: ServiceSettings::usual(),
        };
        let api = EmbeddedApi::open(settings).await.expect("a server");
        let statements = api.statements("uploads");
        // Whatever issuer the claims name.
        let token = statements.sign(&json!({"a": 1, "iss": ISSUER}));
        let token = token.expect("a token");
        assert_eq!(statements.claims(&token).expect("its claims")["a"], 1);
        assert_eq!(api.statements("others").claims(&token), None);
        let audience = [ISSUER.to_owned()];
        let accepted = tokens::authenticate(&statements.api, &token, &audience).await;
        assert!(accepted.expect("an answer").is_err());
    }
}
