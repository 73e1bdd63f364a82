//! Sets keys and passwords in the guest through its agent, and again when their secrets change.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use error_chain::error_chain;
use launcher_channel::{AgentCredentials, Credential};
use serde_json::json;

use super::commands::Transport;
use crate::secret_files;

/// The credentials of the guest, and what was set last.
#[derive(Debug)]
pub(super) struct Credentials {
    all: Vec<Credential>,
    /// A hash of the content that the guest has, which keeps no secrets in memory.
    set: Option<u64>,
}

/// The content of all secrets, by user.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Content {
    keys: BTreeMap<String, Vec<String>>,
    passwords: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
enum CredentialError {
    #[error("read the secret mounted at {directory}")]
    Secret {
        directory: String,
        #[source]
        source: io::Error,
    },
    #[error("set the keys of user {user}")]
    Keys {
        user: String,
        #[source]
        source: libvirt::Error,
    },
    #[error("set the password of user {user}")]
    Password {
        user: String,
        #[source]
        source: libvirt::Error,
    },
}

impl Credentials {
    pub(super) fn new(all: Vec<Credential>) -> Self {
        Self { all, set: None }
    }

    /// Sets what has changed since the last success; `None` if the guest has no credentials.
    pub(super) async fn synchronize(
        &mut self,
        transport: &impl Transport,
    ) -> Option<AgentCredentials> {
        if self.all.is_empty() {
            return None;
        }
        let end = match Content::read(&self.all) {
            Err(error) => Err(error),
            Ok(content) if self.set == Some(content.fingerprint()) => Ok(()),
            Ok(content) => {
                let end = content.send(transport).await;
                self.set = end.is_ok().then(|| content.fingerprint());
                end
            }
        };
        Some(match end {
            Ok(()) => AgentCredentials::Set,
            Err(error) => AgentCredentials::Failed(format!("failed to {}", error_chain(&error))),
        })
    }
}

impl Content {
    fn read(all: &[Credential]) -> Result<Self, CredentialError> {
        let mut content = Self::default();
        for credential in all {
            let (Credential::Keys { directory, .. } | Credential::Passwords { directory }) =
                credential;
            let failed = |source| CredentialError::Secret {
                directory: directory.clone(),
                source,
            };
            let path = Path::new(directory);
            match credential {
                Credential::Keys { users, .. } => {
                    let keys = secret_files::keys(path).map_err(failed)?;
                    for user in users {
                        let all = content.keys.entry(user.clone()).or_default();
                        all.extend(keys.iter().cloned());
                    }
                }
                Credential::Passwords { .. } => {
                    content
                        .passwords
                        .extend(secret_files::read(path).map_err(failed)?);
                }
            }
        }
        Ok(content)
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    async fn send(&self, transport: &impl Transport) -> Result<(), CredentialError> {
        for (user, keys) in &self.keys {
            let arguments = json!({"username": user, "keys": keys, "reset": true});
            let command = json!({
                "execute": "guest-ssh-add-authorized-keys",
                "arguments": arguments,
            });
            let sent = transport.send(&command.to_string()).await;
            sent.map_err(|source| CredentialError::Keys {
                user: user.clone(),
                source,
            })?;
        }
        for (user, password) in &self.passwords {
            let password = STANDARD.encode(password);
            let arguments = json!({"username": user, "password": password, "crypted": false});
            let command = json!({"execute": "guest-set-user-password", "arguments": arguments});
            let sent = transport.send(&command.to_string()).await;
            sent.map_err(|source| CredentialError::Password {
                user: user.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;

    use super::*;

    /// Records the commands, and refuses those that contain a text.
    #[derive(Default)]
    struct Recorder {
        commands: RefCell<Vec<String>>,
        refused: &'static str,
    }

    impl Transport for Recorder {
        async fn send(&self, command: &str) -> Result<String, libvirt::Error> {
            self.commands.borrow_mut().push(command.to_owned());
            if !self.refused.is_empty() && command.contains(self.refused) {
                return Err(libvirt::Error::Closed);
            }
            Ok(r#"{"return": {}}"#.to_owned())
        }
    }

    fn credentials(directory: &Path) -> Credentials {
        let at = |name: &str| directory.join(name).to_string_lossy().into_owned();
        Credentials::new(vec![
            Credential::Keys {
                directory: at("keys"),
                users: vec!["ann".to_owned()],
            },
            Credential::Passwords {
                directory: at("passwords"),
            },
        ])
    }

    fn secrets() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "keys/one",
                "ssh-rsa K
",
            ),
            (
                "passwords/bob",
                "geheim
",
            ),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[tokio::test]
    async fn secrets_are_set_once_and_again_after_a_change() {
        let dir = secrets();
        let (mut credentials, agent) = (credentials(dir.path()), Recorder::default());
        for _ in 0..3 {
            let end = credentials.synchronize(&agent).await;
            assert_eq!(end, Some(AgentCredentials::Set));
        }
        let sent = agent.commands.borrow().clone();
        assert_eq!(sent.len(), 2, "{sent:?}");
        assert!(
            sent[0].contains("ssh-rsa K") && sent[0].contains("ann"),
            "{sent:?}"
        );
        assert!(
            sent[1].contains("Z2VoZWlt") && sent[1].contains("bob"),
            "{sent:?}"
        );
        fs::write(dir.path().join("keys/two"), "ssh-rsa L").unwrap();
        credentials.synchronize(&agent).await;
        assert_eq!(agent.commands.borrow().len(), 4);
    }

    #[tokio::test]
    async fn failure_names_the_user_and_is_repeated() {
        let dir = secrets();
        let refusing = Recorder {
            refused: "password",
            ..Recorder::default()
        };
        let mut credentials = credentials(dir.path());
        let Some(AgentCredentials::Failed(message)) = credentials.synchronize(&refusing).await
        else {
            panic!("set")
        };
        assert!(
            message.starts_with("failed to set the password of user bob"),
            "{message}"
        );
        assert!(!message.contains("geheim"), "{message}");
        let end = credentials.synchronize(&Recorder::default()).await;
        assert_eq!(end, Some(AgentCredentials::Set));
    }

    #[tokio::test]
    async fn guest_without_credentials_reports_nothing() {
        let agent = Recorder::default();
        assert_eq!(Credentials::new(Vec::new()).synchronize(&agent).await, None);
    }
}
