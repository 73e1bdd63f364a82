//! JSON Web Tokens, as far as service account tokens need them.
//!
//! Invariant: one algorithm; no key or algorithm is taken from a token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::key::{KeyError, SigningKey};

pub(super) const ALGORITHM: &str = "ES256";
/// Our tokens have about a thousand bytes.
const MAX: usize = 16 * 1024;

/// A signed token with these claims.
pub(super) fn encode(key: &SigningKey, claims: &Value) -> Result<String, KeyError> {
    let header = json!({"alg": ALGORITHM, "kid": key.id()});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(&signed)?);
    Ok(format!("{signed}.{signature}"))
}

/// The claims of a token signed with the key.
pub(super) fn decode(key: &SigningKey, token: &str) -> Option<Value> {
    if token.len() > MAX {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let part = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let header: Value = serde_json::from_slice(&part(header)?).ok()?;
    if header["alg"] != ALGORITHM || !key.is_signed(signed, &part(signature)?) {
        return None;
    }
    serde_json::from_slice(&part(claims)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_signed_by_the_key_are_decoded() {
        let key = SigningKey::generate().expect("a key");
        let other = SigningKey::generate().expect("a key");
        let claims = json!({"sub": "x"});
        let token = encode(&key, &claims).expect("a token");
        assert_eq!(decode(&key, &token), Some(claims));
        assert_eq!(decode(&other, &token), None);
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let (_, body) = signed.split_once('.').expect("three parts");
        let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        for bad in [
            String::new(),
            "a.b".to_owned(),
            format!("{signed}."),
            format!("{none}.{body}."),
            format!("{none}.{body}.{signature}"),
            format!("{signed}x.{signature}"),
            format!("{}{token}", "x".repeat(MAX)),
        ] {
            assert_eq!(decode(&key, &bad), None, "{bad}");
        }
    }
}
