//! Registry credentials from image pull secrets.
//!
//! The format is `.dockerconfigjson`: a table from registry (with an optional path) to user and
//! password. The longest key that is a prefix of the repository applies.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::Reference;
use oci_client::secrets::RegistryAuth;
use reasons::Reason;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

/// User names and passwords by registry; empty means anonymous.
#[derive(Debug, Clone, Default)]
pub struct Credentials(BTreeMap<String, Login>);

/// Why a pull secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("the pull secret is not a .dockerconfigjson document")]
    Parse(#[source] serde_json::Error),
    #[error("the pull secret's \"auth\" for {registry} is not base64 of user:password")]
    Auth { registry: String },
}

impl CredentialsError {
    /// A stable reason for conditions and events.
    pub fn reason(&self) -> Reason {
        Reason::InvalidPullSecret
    }
}

#[derive(Debug, Clone)]
struct Login {
    user: String,
    password: SecretString,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Deserialize)]
struct DockerAuth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl Credentials {
    /// No credentials at all.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Parses one pull secret. Errors name the registry, never the secret.
    pub fn from_docker_config_json(json: &[u8]) -> Result<Self, CredentialsError> {
        let config: DockerConfig = serde_json::from_slice(json).map_err(CredentialsError::Parse)?;
        let mut logins = BTreeMap::new();
        for (key, auth) in config.auths {
            let registry = normalise(&key);
            if let Some(login) = auth.login(&registry)? {
                logins.insert(registry, login);
            }
        }
        Ok(Self(logins))
    }

    /// Adds those of another pull secret; existing entries are kept.
    pub fn merge(&mut self, other: Self) {
        for (registry, login) in other.0 {
            self.0.entry(registry).or_insert(login);
        }
    }

    pub(crate) fn for_reference(&self, reference: &Reference) -> RegistryAuth {
        let repository = format!("{}/{}", reference.registry(), reference.repository());
        let fits = |key: &str| {
            repository
                .strip_prefix(key)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.0
            .iter()
            .filter(|(key, _)| fits(key))
            .max_by_key(|(key, _)| key.len())
            .map_or(RegistryAuth::Anonymous, |(_, login)| {
                RegistryAuth::Basic(
                    login.user.clone(),
                    login.password.expose_secret().to_owned(),
                )
            })
    }

    /// Differs between different credentials, so that callers share a pull only with the same rights.
    pub(crate) fn fingerprint(&self, reference: &Reference) -> String {
        match self.for_reference(reference) {
            RegistryAuth::Basic(user, password) => {
                crate::Digest::of(format!("{}:{user}{password}", user.len()).as_bytes()).into()
            }
            RegistryAuth::Anonymous | RegistryAuth::Bearer(_) => String::new(),
        }
    }
}

impl DockerAuth {
    fn login(self, registry: &str) -> Result<Option<Login>, CredentialsError> {
        if let (Some(user), Some(password)) = (self.username, self.password) {
            return Ok(Some(Login {
                user,
                password: password.into(),
            }));
        }
        let Some(auth) = self.auth.filter(|auth| !auth.is_empty()) else {
            return Ok(None);
        };
        let refused = || CredentialsError::Auth {
            registry: registry.to_owned(),
        };
        let bytes = STANDARD.decode(auth).map_err(|_| refused())?;
        let text = String::from_utf8(bytes).map_err(|_| refused())?;
        let (user, password) = text.split_once(':').ok_or_else(refused)?;
        Ok(Some(Login {
            user: user.to_owned(),
            password: password.into(),
        }))
    }
}

/// Normalises a key to `host[:port][/path]`. Docker Hub's historic key is a URL with a version.
fn normalise(key: &str) -> String {
    let without_scheme = key.split_once("://").map_or(key, |(_, rest)| rest);
    let trimmed = without_scheme.trim_end_matches('/');
    let trimmed = trimmed
        .strip_suffix("/v1")
        .or(trimmed.strip_suffix("/v2"))
        .unwrap_or(trimmed);
    match trimmed {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user_for(config: &str, reference: &str) -> Option<String> {
        let credentials = Credentials::from_docker_config_json(config.as_bytes()).unwrap();
        match credentials.for_reference(&reference.parse().unwrap()) {
            RegistryAuth::Basic(user, password) => Some(format!("{user}/{password}")),
            _ => None,
        }
    }

    #[test]
    fn longest_matching_key_wins() {
        let config = r#"{"auths":{
            "https://index.docker.io/v1/":{"auth":"aHViOnB3"},
            "r.example:5000":{"username":"all","password":"a"},
            "r.example:5000/team":{"username":"team","password":"t"}}}"#;
        let cases = [
            ("busybox", Some("hub/pw")),
            ("r.example:5000/other/x:1", Some("all/a")),
            ("r.example:5000/team/x:1", Some("team/t")),
            ("r.example:5000/teamster/x:1", Some("all/a")),
            ("elsewhere.example/x:1", None),
        ];
        for (reference, expected) in cases {
            assert_eq!(
                user_for(config, reference).as_deref(),
                expected,
                "{reference}"
            );
        }
    }

    #[test]
    fn invalid_pull_secret_is_refused_without_showing_it() {
        let parse = Credentials::from_docker_config_json(b"{").unwrap_err();
        assert_eq!(parse.reason(), "InvalidPullSecret");
        let auth = Credentials::from_docker_config_json(
            br#"{"auths":{"r.example":{"auth":"aHVudGVyMg=="}}}"#,
        )
        .unwrap_err();
        let text = auth.to_string();
        assert!(
            text.contains("r.example") && !text.contains("hunter2"),
            "{text}"
        );
    }
}
