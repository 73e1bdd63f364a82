//! Manifests that import what is exported: files that were given, and the Secret with the token.

use std::io;
use std::path::Path;

use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::route::Audience;
use crate::token;

/// The longest manifest, in bytes. A `ConfigMap` is not longer.
const LONGEST: u64 = 2 << 20;

/// How a manifest is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Yaml,
    Json,
}

impl Form {
    /// YAML unless the client asks for JSON.
    pub(crate) fn wanted(headers: &HeaderMap) -> Self {
        let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let is_json = |one: &str| one.split(';').next().map(str::trim) == Some("application/json");
        match accepted {
            Some(accepted) if accepted.split(',').any(is_json) => Self::Json,
            _ => Self::Yaml,
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Yaml => "application/yaml",
            Self::Json => "application/json",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }
}

/// The manifest of all objects.
pub(crate) async fn all(directory: &Path, audience: Audience, form: Form) -> io::Result<Vec<u8>> {
    let name = format!("{}.{}", audience.as_str(), form.suffix());
    let file = tokio::fs::File::open(directory.join(name)).await?;
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).await?;
    Ok(text)
}

/// The Secret with the header that an importer sends.
pub(crate) fn secret(name: &str, token: &str, form: Form) -> String {
    let header = format!("{}:{token}", token::NAME);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {"token": header},
    });
    match form {
        Form::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": [secret]});
            format!("{list:#}\n")
        }
        // A string in JSON is one in YAML.
        Form::Yaml => format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {}\nstringData:\n  token: {}\n---\n",
            json!(name),
            json!(header),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_chooses_the_form() {
        let check = |accept: &str, expected: Form| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(Form::wanted(&headers), expected, "{accept}");
        };
        check("application/json", Form::Json);
        check("text/html, application/json;q=0.9", Form::Json);
        check("application/yaml", Form::Yaml);
        check("*/*", Form::Yaml);
        assert_eq!(Form::wanted(&HeaderMap::new()), Form::Yaml);
    }

    #[test]
    fn secret_has_the_header() {
        let text = secret("header-secret-a", "to\"ken", Form::Yaml);
        assert!(
            text.contains("  token: \"x-kubevirt-export-token:to\\\"ken\"\n"),
            "{text}"
        );
        let list: serde_json::Value = serde_json::from_str(&secret("a", "t", Form::Json)).unwrap();
        assert_eq!(
            list["items"][0]["stringData"]["token"],
            "x-kubevirt-export-token:t"
        );
    }
}
