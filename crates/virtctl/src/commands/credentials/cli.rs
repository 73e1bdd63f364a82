//! The command line of `credentials`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use secrecy::SecretString;

use super::{password, ssh_keys};
use crate::{cli::Changed, connect::Cluster, failure::Usage, printer::Printer};

#[derive(Debug, Args)]
pub struct Credentials {
    #[command(subcommand)]
    pub command: CredentialsCommand,
}

#[derive(Debug, Subcommand)]
pub enum CredentialsCommand {
    /// Allow an SSH key to log in to a guest
    #[command(
        after_help = "Example: virtctl credentials add-ssh-key myvm --user me --file id_ed25519.pub\n\n\
                      The key goes into the Secret of the user's access credential, and the guest agent \
                      adds it to a running guest. Without such a Secret, or with --create-secret, a new \
                      Secret is made; a running guest uses it after a restart."
    )]
    AddSshKey(AddSshKey),
    /// Remove an SSH key from a guest
    #[command(
        after_help = "Example: virtctl credentials remove-ssh-key myvm --user me --file id_ed25519.pub"
    )]
    RemoveSshKey(RemoveSshKey),
    /// Set the password of a user of a guest
    #[command(
        after_help = "Example: virtctl credentials set-password myvm --user me --password hunter2"
    )]
    SetPassword(SetPassword),
}

#[derive(Debug, Args)]
pub struct AddSshKey {
    /// Name of the VM
    pub vm: String,
    #[command(flatten)]
    pub key: Key,
    #[command(flatten)]
    pub place: Place,
    /// Make a new Secret for the key
    #[arg(long, conflicts_with = "update_secret")]
    pub create_secret: bool,
    /// Fail if there is no Secret yet
    #[arg(long)]
    pub update_secret: bool,
}

#[derive(Debug, Args)]
pub struct RemoveSshKey {
    /// Name of the VM
    pub vm: String,
    #[command(flatten)]
    pub key: Key,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Debug, Args)]
pub struct SetPassword {
    /// Name of the VM
    pub vm: String,
    /// The password
    #[arg(long, short)]
    pub password: SecretString,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Key {
    /// File with the public key; - for standard input
    #[arg(long, short)]
    pub file: Option<PathBuf>,
    /// The public key itself
    #[arg(long, value_name = "KEY")]
    pub value: Option<String>,
}

#[derive(Debug, Args)]
pub struct Place {
    /// User of the guest
    #[arg(long, short, value_name = "NAME")]
    pub user: String,
    /// Name of the Secret
    #[arg(long, value_name = "NAME")]
    pub secret: Option<String>,
    /// Also if the Secret does not belong to the VM, or the VM runs and needs a restart
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub changed: Changed,
}

impl Key {
    pub(super) fn read(&self) -> Result<String> {
        let text = match (&self.value, &self.file) {
            (Some(value), _) => value.clone(),
            (None, Some(file)) if file == std::path::Path::new("-") => {
                std::io::read_to_string(std::io::stdin()).context("read standard input")?
            }
            (None, Some(file)) => std::fs::read_to_string(file)
                .with_context(|| format!("read --file {}", file.display()))?,
            (None, None) => String::new(),
        };
        let key = text.trim();
        if key.is_empty() {
            return Err(Usage::new("the key is empty: give a public key").into());
        }
        if key.contains("PRIVATE KEY") {
            let message = "this is a private key: give the public one, whose file ends in .pub";
            return Err(Usage::new(message).into());
        }
        Ok(key.to_owned())
    }
}

pub(crate) async fn run(cluster: &Cluster, printer: Printer, flags: &Credentials) -> Result<()> {
    match &flags.command {
        CredentialsCommand::AddSshKey(flags) => ssh_keys::add(cluster, printer, flags).await,
        CredentialsCommand::RemoveSshKey(flags) => ssh_keys::remove(cluster, printer, flags).await,
        CredentialsCommand::SetPassword(flags) => password::set(cluster, printer, flags).await,
    }
}
