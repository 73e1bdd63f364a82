//! The checksum that a user expects of the file, before any decompression.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256, Sha512};

use crate::ImportError;

/// An algorithm and the expected sum, written as `sha256:4f5c…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checksum {
    algorithm: Algorithm,
    sum: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Sha512,
}

/// A text that is no checksum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChecksumError {
    #[error("a checksum has the form ALGORITHM:HEX, such as sha256:4f5c…")]
    Form,
    #[error("the algorithm {0:?} is not supported: use sha256 or sha512")]
    Algorithm(String),
    #[error("a checksum of {algorithm} has {expected} hexadecimal digits, this one has {found}")]
    Length {
        algorithm: &'static str,
        expected: usize,
        found: usize,
    },
}

impl FromStr for Checksum {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Self, ChecksumError> {
        let (name, digits) = text.trim().split_once(':').ok_or(ChecksumError::Form)?;
        let algorithm = match name.to_ascii_lowercase().as_str() {
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return Err(ChecksumError::Algorithm(name.to_owned())),
        };
        let expected = algorithm.length() * 2;
        if digits.len() != expected {
            return Err(ChecksumError::Length {
                algorithm: algorithm.name(),
                expected,
                found: digits.len(),
            });
        }
        let sum = hex::decode(digits).map_err(|_| ChecksumError::Form)?;
        Ok(Self { algorithm, sum })
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), hex::encode(&self.sum))
    }
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// Sums up the bytes of a file, if a checksum is expected.
#[derive(Debug, Clone)]
pub(crate) struct Summing {
    expected: Option<Checksum>,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    None,
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Summing {
    pub(crate) fn new(expected: Option<Checksum>) -> Self {
        let state = match expected.as_ref().map(|one| one.algorithm) {
            None => State::None,
            Some(Algorithm::Sha256) => State::Sha256(Sha256::new()),
            Some(Algorithm::Sha512) => State::Sha512(Sha512::new()),
        };
        Self { expected, state }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::None => {}
            State::Sha256(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    pub(crate) fn check(self) -> Result<(), ImportError> {
        let sum = match self.state {
            State::None => return Ok(()),
            State::Sha256(state) => state.finalize().to_vec(),
            State::Sha512(state) => state.finalize().to_vec(),
        };
        match self.expected {
            Some(expected) if expected.sum != sum => Err(ImportError::Checksum {
                found: Checksum {
                    algorithm: expected.algorithm,
                    sum,
                }
                .to_string(),
                expected: expected.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_read_and_printed() {
        let zeros = "0".repeat(64);
        let check = |text: &str, expected: Result<String, ChecksumError>| {
            let found = text.parse::<Checksum>().map(|one| one.to_string());
            assert_eq!(found, expected, "{text:?}");
        };
        check(&format!("sha256:{zeros}"), Ok(format!("sha256:{zeros}")));
        check(&format!(" SHA256:{zeros}\n"), Ok(format!("sha256:{zeros}")));
        check(
            &format!("sha512:{zeros}{zeros}"),
            Ok(format!("sha512:{zeros}{zeros}")),
        );
        check(&zeros, Err(ChecksumError::Form));
        check(
            &format!("sha256:{}", "g".repeat(64)),
            Err(ChecksumError::Form),
        );
        check(
            &format!("md5:{zeros}"),
            Err(ChecksumError::Algorithm("md5".to_owned())),
        );
        check(
            "sha256:00",
            Err(ChecksumError::Length {
                algorithm: "sha256",
                expected: 64,
                found: 2,
            }),
        );
    }

    #[test]
    fn only_the_expected_sum_is_accepted() {
        // printf abc | sha256sum
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let sum = |bytes: &[u8]| {
            let mut summing = Summing::new(Some(abc.parse().unwrap()));
            for one in bytes {
                summing.update(&[*one]);
            }
            summing.check()
        };
        sum(b"abc").unwrap();
        assert!(matches!(sum(b"abd"), Err(ImportError::Checksum { .. })));
        Summing::new(None).check().unwrap();
    }
}
