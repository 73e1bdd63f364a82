//! The image configuration: which process to run.
//!
//! Only members that a container runtime needs. JSON names are those of the OCI image
//! configuration; the same structs are stored in the store's markers.

use serde::{Deserialize, Serialize};

/// The `config` part of an OCI image configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageConfig {
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub entrypoint: Vec<String>,
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cmd: Vec<String>,
    /// `NAME=value` each.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub env: Vec<String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty for root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
}

/// Numeric ids for [`ImageConfig::user`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageUser {
    pub uid: u32,
    pub gid: u32,
}

impl ImageConfig {
    /// Looks the user up in the contents of the image's `/etc/passwd` and `/etc/group`. `None` if a
    /// name is in neither.
    pub fn resolve_user(&self, passwd: &str, group: &str) -> Option<ImageUser> {
        let (user, wanted_group) = match self.user.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (self.user.as_str(), None),
        };
        let (uid, own_gid) = match user {
            "" => (0, 0),
            name => match name.parse() {
                Ok(uid) => (uid, field(passwd, 2, name, 3).unwrap_or(0)),
                Err(_) => (field(passwd, 0, name, 2)?, field(passwd, 0, name, 3)?),
            },
        };
        let gid = match wanted_group {
            None | Some("") => own_gid,
            Some(name) => name.parse().ok().or_else(|| field(group, 0, name, 2))?,
        };
        Some(ImageUser { uid, gid })
    }
}

/// In a colon-separated table: the number in `column` of the line with `key` in `key_column`.
fn field(table: &str, key_column: usize, key: &str, column: usize) -> Option<u32> {
    table
        .lines()
        .find(|line| line.split(':').nth(key_column) == Some(key))
        .and_then(|line| line.split(':').nth(column)?.parse().ok())
}

fn null_is_empty<'de, D>(deserializer: D) -> Result<Vec<String>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Ok(Option::<Vec<String>>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_or_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nqemu:x:107:36::/:/sbin/nologin\n";
        let group = "root:x:0:\nkvm:x:36:\n";
        let cases = [
            ("", Some((0, 0))),
            ("107", Some((107, 36))),
            ("5", Some((5, 0))),
            ("107:107", Some((107, 107))),
            ("qemu", Some((107, 36))),
            ("qemu:kvm", Some((107, 36))),
            ("nobody", None),
            ("qemu:staff", None),
        ];
        for (user, expected) in cases {
            let config = ImageConfig {
                user: user.to_owned(),
                ..ImageConfig::default()
            };
            let found = config
                .resolve_user(passwd, group)
                .map(|user| (user.uid, user.gid));
            assert_eq!(found, expected, "{user}");
        }
    }

    #[test]
    fn null_lists_are_empty() {
        let config: ImageConfig =
            serde_json::from_str(r#"{"Cmd":null,"Entrypoint":["/a"],"User":"1"}"#).unwrap();
        assert_eq!((config.cmd.len(), config.entrypoint.len()), (0, 1));
    }
}
