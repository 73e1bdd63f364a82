//! The command lines of `ssh` and `scp`.

use std::path::PathBuf;

use clap::Args;

use super::location::{Location, SshTarget};

#[derive(Debug, Clone, Args)]
pub struct Ssh {
    /// The guest: [USER@]vm/NAME[/NAMESPACE] or [USER@]vmi/NAME[/NAMESPACE]
    #[arg(value_name = "TARGET")]
    pub target: SshTarget,
    /// Run this command instead of a shell
    #[arg(long, short)]
    pub command: Option<String>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Clone, Args)]
pub struct Scp {
    /// What to copy: a path, or [USER@]vm/NAME[/NAMESPACE]:PATH
    pub source: Location,
    /// Where to: the same
    pub destination: Location,
    /// Copy directories with all they contain
    #[arg(long, short)]
    pub recursive: bool,
    /// Keep times and modes
    #[arg(long)]
    pub preserve: bool,
    #[command(flatten)]
    pub client: Client,
}

/// Flags for the SSH client.
#[derive(Debug, Clone, Args)]
pub struct Client {
    /// User to log in as
    #[arg(id = "username", long, short = 'l', value_name = "USER")]
    pub login: Option<String>,
    /// File with the private key [default: those of the SSH client]
    #[arg(long, short, value_name = "FILE")]
    pub identity_file: Option<PathBuf>,
    /// File with the keys of known hosts [default: that of the SSH client]
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<PathBuf>,
    /// Port of the guest
    #[arg(long, short, default_value_t = 22, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Option for the SSH client, such as "-o StrictHostKeyChecking=no"; may be repeated
    #[arg(long, short = 't', value_name = "OPTION", allow_hyphen_values = true)]
    pub local_ssh_opts: Vec<String>,
    /// Has no effect: the SSH client of this computer is always used
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub local_ssh: Option<bool>,
}
