//! The key that signs tokens: ECDSA on P-256, as required by `ES256`.

use aws_lc_rs::{
    digest,
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// The crypto library gives no details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("generate the token signing key")]
    Make,
    #[error("parse the token signing key: not a PKCS #8 key on P-256")]
    Read,
}

/// A key pair. [`SigningKey::to_pkcs8`] is the only way to extract the private key.
#[derive(Debug)]
pub struct SigningKey {
    pair: EcdsaKeyPair,
    /// The key id in tokens.
    id: String,
}

impl SigningKey {
    pub fn generate() -> Result<Self, KeyError> {
        let pair =
            EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| KeyError::Make)?;
        Ok(Self::of(pair))
    }

    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der)
            .map_err(|_| KeyError::Read)?;
        Ok(Self::of(pair))
    }

    pub fn to_pkcs8(&self) -> Result<Vec<u8>, KeyError> {
        let document = self.pair.to_pkcs8v1().map_err(|_| KeyError::Make)?;
        Ok(document.as_ref().to_vec())
    }

    fn of(pair: EcdsaKeyPair) -> Self {
        let hash = digest::digest(&digest::SHA256, pair.public_key().as_ref());
        Self {
            id: URL_SAFE_NO_PAD.encode(hash.as_ref()),
            pair,
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn sign(&self, text: &str) -> Result<Vec<u8>, KeyError> {
        let signed = self.pair.sign(&SystemRandom::new(), text.as_bytes());
        signed
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|_| KeyError::Make)
    }

    pub(super) fn is_signed(&self, text: &str, signature: &[u8]) -> bool {
        let public: UnparsedPublicKey<&[u8]> =
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        public.verify(text.as_bytes(), signature).is_ok()
    }

    /// The public key in the format of JSON Web Keys.
    pub(super) fn public_jwk(&self) -> Value {
        // The first byte announces two coordinates of 32 bytes each.
        let point = self.pair.public_key().as_ref();
        let part = |from: usize, to: usize| {
            URL_SAFE_NO_PAD.encode(point.get(from..to).unwrap_or_default())
        };
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": super::jwt::ALGORITHM,
            "x": part(1, 33), "y": part(33, 65),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_key_verifies_earlier_signatures() {
        let key = SigningKey::generate().expect("a key");
        let kept = SigningKey::from_pkcs8(&key.to_pkcs8().expect("der")).expect("the same");
        let signature = key.sign("text").expect("a signature");
        assert!(kept.is_signed("text", &signature));
        assert!(!kept.is_signed("other", &signature));
        assert_eq!(kept.id(), key.id());
        assert!(SigningKey::from_pkcs8(b"nonsense").is_err());
    }
}
