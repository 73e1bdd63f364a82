//! Tokens: without the key's signature no claim is read, whatever the header says; a signed one is decoded.

use serde_json::{Value, json};

// A file of the API server is included: the whole crate would bring the database and the network.
#[path = "../../embedded-api/src/tokens/jwt.rs"]
mod token;

/// In place of the API server's module of this name: a key whose signatures are easy to compute and are not
/// in the input.
mod key {
    #[derive(Debug)]
    pub(super) struct KeyError;

    pub(super) struct SigningKey {
        pub(super) accepts: bool,
    }

    impl SigningKey {
        pub(super) fn id(&self) -> &'static str {
            "key"
        }

        pub(super) fn sign(&self, signed: &str) -> Result<Vec<u8>, KeyError> {
            Ok(signed.bytes().rev().collect())
        }

        pub(super) fn is_signed(&self, signed: &str, signature: &[u8]) -> bool {
            self.accepts && signed.bytes().rev().eq(signature.iter().copied())
        }
    }
}

use key::SigningKey;

const MAX: usize = 16 * 1024;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (ours, other) = (SigningKey { accepts: true }, SigningKey { accepts: false });
    drop(token::decode(&ours, &text));
    assert_eq!(token::decode(&other, &text), None, "it is not signed");
    let claims: Value = serde_json::from_slice(bytes).unwrap_or_else(|_| json!({"sub": text}));
    let encoded = token::encode(&ours, &claims).expect("it can be signed");
    // A number may be read with another last digit.
    let decoded = token::decode(&ours, &encoded);
    assert_eq!(decoded.is_some(), encoded.len() <= MAX, "of ours");
    assert_eq!(token::decode(&other, &encoded), None, "it is not signed");
}
