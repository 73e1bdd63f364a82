//! The digest of a blob.
//!
//! Only lower-case SHA-256 is supported, so that a digest may be used as a file name and equal
//! digests are equal strings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
const HEX_LENGTH: usize = 64;

/// A valid `sha256:<64 hexadecimal digits>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// Why a string is not a digest.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0:?} is not a sha256 digest")]
pub struct DigestError(String);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    pub(crate) fn finish(hasher: Sha256) -> Self {
        Self(format!("{PREFIX}{}", hex::encode(hasher.finalize())))
    }

    /// The hexadecimal part, usable as a file name.
    pub fn hex(&self) -> &str {
        self.0.get(PREFIX.len()..).unwrap_or_default()
    }

    /// The whole string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.strip_prefix(PREFIX) {
            Some(hex) if hex.len() == HEX_LENGTH && hex.bytes().all(lower_hex) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(DigestError(text.chars().take(100).collect())),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_sha256_is_a_digest() {
        let good = Digest::of(b"");
        assert_eq!(
            good.as_str(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(good.as_str().parse::<Digest>().unwrap(), good);
        let upper = good.as_str().replace('e', "E");
        for bad in ["", "sha256:", "sha256:../../etc/passwd", "md5:00", &upper] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
