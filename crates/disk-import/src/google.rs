//! The key of a service account of Google, and the tokens that it signs for requests.
//!
//! Google accepts a token that the account signed by itself, so nothing is exchanged with another server, and each request
//! has a fresh one. Pure: the time comes from the caller.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use jiff::Timestamp;
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::SigningKey;
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::json;

/// What the tokens permit: to read objects.
const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_only";
/// How long a token is valid, in seconds: the longest that Google accepts is an hour.
const LIFETIME: i64 = 3000;

/// A service account.
pub(crate) struct Account {
    email: String,
    key_id: Option<String>,
    key: Arc<dyn SigningKey>,
    clock: fn() -> Timestamp,
}

/// The file that Google gives for the key of an account. Other members are ignored.
#[derive(Deserialize)]
struct File {
    client_email: String,
    private_key_id: Option<String>,
    private_key: String,
}

impl Account {
    /// Errors say nothing of the content.
    pub(crate) fn parse(file: &[u8], clock: fn() -> Timestamp) -> Result<Self, &'static str> {
        let file = serde_json::from_slice::<File>(file);
        let file = file.map_err(
            |_| "credentials.json is not the key of a service account: it needs client_email and private_key",
        )?;
        let wrong = "private_key of credentials.json is not an RSA key";
        let key = PrivateKeyDer::from_pem_slice(file.private_key.as_bytes()).map_err(|_| wrong)?;
        let key = any_supported_type(&key).map_err(|_| wrong)?;
        if key.choose_scheme(&[SCHEME]).is_none() {
            return Err(wrong);
        }
        Ok(Self {
            email: file.client_email,
            key_id: file.private_key_id,
            key,
            clock,
        })
    }

    /// The header `Authorization` of a request that is sent now.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let unsigned = self.unsigned((self.clock)().as_second());
        let signer = self.key.choose_scheme(&[SCHEME])?;
        let signature = signer.sign(unsigned.as_bytes()).ok()?;
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
        let mut value = HeaderValue::try_from(format!("Bearer {unsigned}.{signature}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Header and claims, encoded. `now` is in seconds.
    fn unsigned(&self, now: i64) -> String {
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(id) = &self.key_id {
            header["kid"] = id.as_str().into();
        }
        let claims = json!({
            "iss": self.email, "sub": self.email, "scope": SCOPE,
            "iat": now, "exp": now.saturating_add(LIFETIME),
        });
        let [header, claims] =
            [header, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
        format!("{header}.{claims}")
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("email", &self.email)
            .finish_non_exhaustive()
    }
}

const SCHEME: SignatureScheme = SignatureScheme::RSA_PKCS1_SHA256;

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use base64::prelude::BASE64_STANDARD;
    use serde_json::Value;

    use super::*;

    fn then() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn file(key: &KeyPair) -> Value {
        let der: Pkcs8V1Der<'static> = key.as_der().unwrap();
        let text = BASE64_STANDARD.encode(der.as_ref());
        json!({
            "type": "service_account",
            "client_email": "importer@project.example",
            "private_key_id": "k1",
            "private_key": format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n"),
        })
    }

    #[test]
    fn token_is_signed_by_the_account_and_expires() {
        let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let account = Account::parse(file(&key).to_string().as_bytes(), then).unwrap();
        let value = account.authorization().unwrap();
        assert!(value.is_sensitive());
        let token = value.to_str().unwrap().strip_prefix("Bearer ").unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
        public
            .verify(signed.as_bytes(), &decode(signature))
            .unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let read = |text: &str| -> Value { serde_json::from_slice(&decode(text)).unwrap() };
        assert_eq!(read(header)["kid"], "k1");
        let claims = read(claims);
        assert_eq!(claims["iss"], "importer@project.example");
        assert_eq!(claims["iat"], 1_000_000);
        assert_eq!(claims["exp"], 1_003_000);
    }

    #[test]
    fn other_files_are_refused_without_a_secret_in_the_message() {
        for file in [
            "",
            "{}",
            "hunter2",
            r#"{"client_email": "a", "private_key": "hunter2"}"#,
            r#"{"client_email": "a", "private_key": 7}"#,
        ] {
            let error = Account::parse(file.as_bytes(), then).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
