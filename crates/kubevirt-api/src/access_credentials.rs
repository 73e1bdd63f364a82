//! Keys and passwords for a guest, and how they are transferred.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::tolerant::null_as_default;

/// A key or password; exactly one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::exactly_one(&["sshPublicKey", "userPassword"])])))]
pub struct AccessCredential {
    /// SSH keys of a secret, put into the authorized keys of users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_public_key: Option<SshPublicKeyAccessCredential>,
    /// Passwords of a secret, set for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_password: Option<UserPasswordAccessCredential>,
}

/// `sshPublicKey` of [`AccessCredential`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SshPublicKeyAccessCredential {
    /// Where the keys come from.
    #[serde(deserialize_with = "null_as_default")]
    pub source: SshPublicKeyAccessCredentialSource,
    /// How the keys get into the guest; exactly one way.
    #[serde(deserialize_with = "null_as_default")]
    pub propagation_method: SshPublicKeyAccessCredentialPropagationMethod,
}

/// `userPassword` of [`AccessCredential`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UserPasswordAccessCredential {
    /// Where the passwords come from.
    #[serde(deserialize_with = "null_as_default")]
    pub source: UserPasswordAccessCredentialSource,
    /// How the passwords get into the guest.
    #[serde(deserialize_with = "null_as_default")]
    pub propagation_method: UserPasswordAccessCredentialPropagationMethod,
}

/// `source` of [`SshPublicKeyAccessCredential`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SshPublicKeyAccessCredentialSource {
    /// A secret; every value in it is a public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<AccessCredentialSecretSource>,
}

/// `propagationMethod` of [`SshPublicKeyAccessCredential`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::exactly_one(&["configDrive", "noCloud", "qemuGuestAgent"])])))]
pub struct SshPublicKeyAccessCredentialPropagationMethod {
    /// In the metadata of a config drive: needs a `cloudInitConfigDrive` volume, and the keys are
    /// fixed at start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<ConfigDriveSshPublicKeyAccessCredentialPropagation>,
    /// In the metadata of a `NoCloud` seed: needs a `cloudInitNoCloud` volume, and the keys are
    /// fixed at start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_cloud: Option<NoCloudSshPublicKeyAccessCredentialPropagation>,
    /// Written by the guest agent while the guest runs, again whenever the secret changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_guest_agent: Option<QemuGuestAgentSshPublicKeyAccessCredentialPropagation>,
}

/// `source` of [`UserPasswordAccessCredential`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UserPasswordAccessCredentialSource {
    /// A secret; its keys are user names, its values passwords.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<AccessCredentialSecretSource>,
}

/// `propagationMethod` of [`UserPasswordAccessCredential`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UserPasswordAccessCredentialPropagationMethod {
    /// Set by the guest agent while the guest runs, again whenever the secret changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_guest_agent: Option<QemuGuestAgentUserPasswordAccessCredentialPropagation>,
}

/// `secret` of [`SshPublicKeyAccessCredentialSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AccessCredentialSecretSource {
    /// Name of the secret, in the namespace of the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub secret_name: String,
}

/// `configDrive` of [`SshPublicKeyAccessCredentialPropagationMethod`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigDriveSshPublicKeyAccessCredentialPropagation {}

/// `noCloud` of [`SshPublicKeyAccessCredentialPropagationMethod`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NoCloudSshPublicKeyAccessCredentialPropagation {}

/// `qemuGuestAgent` of [`SshPublicKeyAccessCredentialPropagationMethod`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct QemuGuestAgentSshPublicKeyAccessCredentialPropagation {
    /// Users of the guest that get the keys.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "set")))]
    pub users: Vec<String>,
}

/// `qemuGuestAgent` of [`UserPasswordAccessCredentialPropagationMethod`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct QemuGuestAgentUserPasswordAccessCredentialPropagation {}

/// A file with keys in a guest. No object holds one today; older clients know the shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizedKeysFile {
    /// Path of the file in the guest.
    #[serde(deserialize_with = "null_as_default")]
    pub file_path: String,
}
