//! The cloud-init disk: given as a whole, or generated from a user, password and keys.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::volumes::{Inferable, Volume};

const NAME: &str = "cloudinitdisk";

#[derive(Debug, Args)]
#[command(next_help_heading = "Access to the guest")]
pub struct CloudInitFlags {
    /// User that cloud-init makes
    #[arg(long, value_name = "NAME", conflicts_with = "cloud_init_user_data")]
    pub user: Option<String>,
    /// File with the user's password; the VM's spec will contain it
    #[arg(long, value_name = "FILE", conflicts_with = "cloud_init_user_data")]
    pub password_file: Option<PathBuf>,
    /// Public SSH key that may log in; may be repeated, or list several with commas
    #[arg(
        long,
        value_name = "KEY",
        value_delimiter = ',',
        conflicts_with = "cloud_init_user_data"
    )]
    pub ssh_key: Vec<String>,
    /// Allow the guest agent to manage keys, on systems with `SELinux`
    #[arg(long, conflicts_with = "cloud_init_user_data")]
    pub ga_manage_ssh: bool,
    /// Credential of a Secret: src:SECRET, type:ssh or password, method:ga, nocloud or configdrive,
    /// user:NAME; may be repeated
    #[arg(long, value_name = "PARAMETERS")]
    pub access_cred: Vec<String>,
    /// Kind of the cloud-init disk [default: nocloud, if one is needed]
    #[arg(long, value_enum, ignore_case = true)]
    pub cloud_init: Option<DataSource>,
    /// User data, in base64
    #[arg(long, value_name = "BASE64")]
    pub cloud_init_user_data: Option<String>,
    /// Network data, in base64
    #[arg(long, value_name = "BASE64")]
    pub cloud_init_network_data: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataSource {
    #[value(name = "nocloud")]
    NoCloud,
    #[value(name = "configdrive")]
    ConfigDrive,
    None,
}

impl DataSource {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoCloud => "nocloud",
            Self::ConfigDrive => "configdrive",
            Self::None => "none",
        }
    }
}

/// What the disk will contain; access credentials add to it.
#[derive(Debug)]
pub(super) struct Generated {
    source: Option<DataSource>,
    manage_keys: bool,
}

impl Generated {
    pub(super) fn of(flags: &CloudInitFlags) -> Self {
        Self {
            source: flags.cloud_init,
            manage_keys: flags.ga_manage_ssh,
        }
    }

    pub(super) fn manage_keys(&mut self) {
        self.manage_keys = true;
    }

    /// Fails with the other data source that is required already.
    pub(super) fn require(&mut self, source: DataSource) -> Result<(), DataSource> {
        match self.source {
            Some(other) if other != source => Err(other),
            _ => {
                self.source = Some(source);
                Ok(())
            }
        }
    }

    /// The disk, if anything needs one.
    pub(super) fn disk(&self, flags: &CloudInitFlags, password: Option<&SecretString>) -> Disk {
        let keys: Vec<&str> = keys(flags).collect();
        let wanted = flags.cloud_init_user_data.is_some()
            || flags.cloud_init_network_data.is_some()
            || flags.user.is_some()
            || password.is_some()
            || !keys.is_empty()
            || self.manage_keys;
        let field = match self.source {
            Some(DataSource::None) if wanted => return Disk::Suppressed,
            Some(DataSource::ConfigDrive) => "cloudInitConfigDrive",
            Some(DataSource::NoCloud) => "cloudInitNoCloud",
            None if wanted => "cloudInitNoCloud",
            Some(DataSource::None) | None => return Disk::None,
        };
        let mut data = match &flags.cloud_init_user_data {
            Some(given) => json!({"userDataBase64": given}),
            None => json!({"userData": self.user_data(flags, password, &keys)}),
        };
        if let Some(network) = &flags.cloud_init_network_data {
            data["networkDataBase64"] = Value::from(network.as_str());
        }
        Disk::Volume(Volume {
            name: NAME.to_owned(),
            source: (field, data),
            template: None,
            boot_order: None,
            inferable: Inferable::No,
        })
    }

    fn user_data(
        &self,
        flags: &CloudInitFlags,
        password: Option<&SecretString>,
        keys: &[&str],
    ) -> String {
        let mut lines = vec!["#cloud-config".to_owned()];
        if let Some(user) = &flags.user {
            lines.push(format!("user: {}", scalar(user)));
        }
        if let Some(password) = password {
            lines.push(format!("password: {}", scalar(password.expose_secret())));
            lines.push("chpasswd: { expire: False }".to_owned());
        }
        if !keys.is_empty() {
            lines.push("ssh_authorized_keys:".to_owned());
            lines.extend(keys.iter().map(|key| format!("  - {}", scalar(key))));
        }
        if self.manage_keys {
            lines.push("runcmd:".to_owned());
            lines.push("  - [ setsebool, -P, 'virt_qemu_ga_manage_ssh', 'on' ]".to_owned());
        }
        lines.join("\n")
    }
}

#[derive(Debug)]
pub(super) enum Disk {
    None,
    /// Flags need one, and another excludes it.
    Suppressed,
    Volume(Volume),
}

fn keys(flags: &CloudInitFlags) -> impl Iterator<Item = &str> {
    let keys = flags.ssh_key.iter().map(|key| key.trim());
    keys.filter(|key| !key.is_empty())
}

/// A YAML scalar: plain if that cannot be misread, else in double quotes.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        );
    if plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_keep_their_text() {
        for plain in ["me", "ssh-ed25519 AAAA+/= me@host", "a:b", "se#cret"] {
            assert_eq!(scalar(plain), plain);
        }
        for quoted in [
            "1234", "a: b", "a #b", "yes", "", "#x", "{a}", "*x", "é", "a\"b\n", "x:",
        ] {
            let text = scalar(quoted);
            assert_eq!(serde_saphyr::from_str::<String>(&text).unwrap(), quoted);
            assert!(text.starts_with('"'), "{text}");
        }
    }
}
