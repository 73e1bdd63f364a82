//! The token of an export: who knows it may download.

use std::io;
use std::path::PathBuf;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::HeaderMap;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use url::form_urlencoded;

/// The name of the header and of the parameter with the token, as `KubeVirt` has it.
pub(crate) const NAME: &str = "x-kubevirt-export-token";
/// The longest token, in bytes.
const LONGEST: u64 = 64 << 10;

/// The file with the token. It is read for each request, so that a change of the secret takes effect.
#[derive(Debug, Clone)]
pub(crate) struct TokenFile(pub(crate) PathBuf);

impl TokenFile {
    /// Never empty.
    pub(crate) async fn read(&self) -> io::Result<String> {
        let file = tokio::fs::File::open(&self.0).await?;
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text).await?;
        let token = text.trim_end_matches(['\r', '\n']);
        if token.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the token is empty",
            ));
        }
        Ok(token.to_owned())
    }
}

/// Whether the request has the token. The time that this takes says nothing about the token.
pub(crate) fn is_presented(token: &str, headers: &HeaderMap, query: Option<&str>) -> bool {
    let header = headers.get(NAME).map(|value| value.as_bytes().to_vec());
    let mut parameters = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let parameter = parameters.find(|(name, _)| name == NAME);
    let parameter = parameter.map(|(_, value)| value.as_bytes().to_vec());
    let presented = [header, parameter].into_iter().flatten();
    // Digests have one length, so that the length of the token does not matter either.
    let expected = Sha256::digest(token.as_bytes());
    presented
        .map(|one| Sha256::digest(&one))
        .any(|one| verify_slices_are_equal(&one, &expected).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_in_the_header_or_the_query() {
        let check = |header: Option<&str>, query: Option<&str>, expected: bool| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(NAME, header.parse().unwrap());
            }
            let found = is_presented("se cret", &headers, query);
            assert_eq!(found, expected, "{header:?} {query:?}");
        };
        check(None, None, false);
        check(Some("se cret"), None, true);
        check(Some("se cre"), None, false);
        check(Some("se crets"), None, false);
        check(Some(""), Some(""), false);
        check(None, Some("x-kubevirt-export-token=se%20cret"), true);
        check(None, Some("a=b&x-kubevirt-export-token=se+cret"), true);
        check(None, Some("token=se+cret"), false);
        check(Some("wrong"), Some("x-kubevirt-export-token=se+cret"), true);
    }

    #[tokio::test]
    async fn empty_token_admits_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile(dir.path().join("token"));
        assert!(file.read().await.is_err());
        std::fs::write(&file.0, "\n").unwrap();
        assert!(file.read().await.is_err());
        std::fs::write(&file.0, "secret\n").unwrap();
        assert_eq!(file.read().await.unwrap(), "secret");
    }
}
