//! Keys and passwords for users of the guest.

use kubevirt_api::access_credentials::AccessCredential;

use crate::{CloudInitFormat, paths};

/// The content of a secret, and how it gets into the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credential<'a> {
    pub secret: &'a str,
    pub propagation: Propagation<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation<'a> {
    /// Public keys in the meta data of cloud-init.
    Seed(CloudInitFormat),
    /// Public keys that the guest agent writes for these users.
    AgentKeys(&'a [String]),
    /// Passwords that the guest agent sets; the secret's keys are the users.
    AgentPasswords,
}

impl<'a> Credential<'a> {
    /// `None` if the credential has no source or no method, which admission refuses.
    pub(crate) fn of(credential: &'a AccessCredential) -> Option<Self> {
        if let Some(key) = &credential.ssh_public_key {
            let method = &key.propagation_method;
            let agent = method.qemu_guest_agent.as_ref();
            let seed = |format| Some(Propagation::Seed(format));
            let propagation = match (&method.no_cloud, &method.config_drive) {
                (Some(_), _) => seed(CloudInitFormat::NoCloud),
                (None, Some(_)) => seed(CloudInitFormat::ConfigDrive),
                (None, None) => agent.map(|agent| Propagation::AgentKeys(&agent.users)),
            };
            return Some(Self {
                secret: &key.source.secret.as_ref()?.secret_name,
                propagation: propagation?,
            });
        }
        let password = credential.user_password.as_ref()?;
        Some(Self {
            secret: &password.source.secret.as_ref()?.secret_name,
            propagation: password
                .propagation_method
                .qemu_guest_agent
                .as_ref()
                .map(|_| Propagation::AgentPasswords)?,
        })
    }

    /// The directory in which the pod mounts the secret.
    pub fn directory(&self) -> String {
        paths::secret(&paths::credential_volume(self.secret))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn propagation_is_that_of_the_one_method() {
        let source = json!({"secret": {"secretName": "s"}});
        let keys = |method: Value| {
            let credential =
                json!({"sshPublicKey": {"source": source, "propagationMethod": method}});
            let credential: AccessCredential = serde_json::from_value(credential).expect("keys");
            Credential::of(&credential).map(|credential| format!("{:?}", credential.propagation))
        };
        for (method, expected) in [
            (json!({"noCloud": {}}), Some("Seed(NoCloud)")),
            (json!({"configDrive": {}}), Some("Seed(ConfigDrive)")),
            (
                json!({"qemuGuestAgent": {"users": ["a"]}}),
                Some(r#"AgentKeys(["a"])"#),
            ),
            (json!({}), None),
        ] {
            assert_eq!(keys(method.clone()).as_deref(), expected, "{method}");
        }
        let method = json!({"qemuGuestAgent": {}});
        let credential = json!({"userPassword": {"source": source, "propagationMethod": method}});
        let credential: AccessCredential = serde_json::from_value(credential).expect("passwords");
        let parsed = Credential::of(&credential).expect("a credential");
        assert_eq!(parsed.propagation, Propagation::AgentPasswords);
        assert_eq!(
            parsed.directory(),
            "/var/run/kubevirt-private/secret/s-access-cred"
        );
    }
}
