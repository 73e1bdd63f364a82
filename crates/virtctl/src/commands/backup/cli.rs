//! The command line of `backup`.

use std::{str::FromStr, time::Duration};

use clap::{Args, Subcommand, ValueEnum};

use super::object::Disk;
use crate::cli::{Made, ObjectOutput, Output};

#[derive(Debug, Clone, Args)]
pub struct Backup {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, Clone, Subcommand)]
pub enum Action {
    /// Copy the disks of a running VM to a claim
    #[command(after_help = "\
Examples:
  virtctl backup create wiki-sunday --vm wiki --pvc wiki-backups --wait
  virtctl backup create wiki-monday --tracker wiki --pvc wiki-backups --wait --timeout 1h
  virtctl backup create wiki-offer --vm wiki --pvc wiki-scratch --mode pull --token-secret wiki-token

With --mode pull, a client reads the disks from the addresses in the status of the backup, which ends when it is deleted or \
its time is over; --wait waits until they can be read; the claim gets what the guest overwrites meanwhile. With --tracker, only what has changed since the last backup of that tracker is copied, where that is known. The VM has to \
run. Exit code with --wait: 0 if the backup is complete, 1 if it has failed or takes longer than --timeout; it goes on then.")]
    Create(Create),
    /// Remember the backups of a VM, so that later ones have only what has changed
    #[command(after_help = "Example: virtctl backup track wiki --vm wiki")]
    Track(Track),
    /// List backups, with their state and where they are
    #[command(after_help = "\
Examples:
  virtctl backup list
  virtctl backup list --vm wiki
  virtctl backup list -A -o json | jq -r '.[] | select(.state == \"Failed\") | .name'")]
    List(List),
    /// Make disks of a backup, in new claims or in existing ones
    #[command(after_help = "\
Examples:
  virtctl backup restore wiki-back --backup wiki-sunday --wait
  virtctl backup restore wiki-back --pvc wiki-backups --directory wiki-sunday-20261127-031500 --volume root
  virtctl backup restore wiki-back --backup wiki-sunday --volume root=wiki-root --overwrite
  virtctl backup restore wiki-back --backup wiki-sunday --overwrite-vm wiki --wait

New claims have the names NAME-VOLUME. What is in overwritten claims is lost; stop their VM first, and start it again when the \
restore is complete. Exit code with --wait: 0 if all disks are complete, 1 if the restore has failed or takes longer than \
--timeout; it goes on then.")]
    Restore(Restore),
    /// Wait until a backup or a restore has ended, and show how far it is
    #[command(after_help = "\
Examples:
  virtctl backup wait backup wiki-sunday
  virtctl backup wait restore wiki-back --timeout 30m")]
    Wait(Wait),
}

#[derive(Debug, Clone, Args)]
pub struct Create {
    /// Name of the backup
    pub name: String,
    #[command(flatten)]
    pub source: Source,
    /// Whether the disks are copied to the claim, or offered to a client that reads them
    #[arg(long, value_enum, ignore_case = true, default_value_t = Mode::Push, value_name = "MODE")]
    pub mode: Mode,
    /// Secret whose key `token` is the password of the client, for --mode pull
    #[arg(long, value_name = "SECRET", required_if_eq("mode", "pull"))]
    pub token_secret: Option<String>,
    /// How long the disks are offered, such as 30m, for --mode pull [default: 2h]
    #[arg(long, value_name = "DURATION", requires = "token_secret", value_parser = duration)]
    pub ttl: Option<Duration>,
    /// Claim that gets the files; no volume of the VM itself
    #[arg(long, value_name = "CLAIM")]
    pub pvc: String,
    /// Copy everything, and let the tracker begin a new chain
    #[arg(long)]
    pub full: bool,
    /// Do not ask the guest to write its caches to disk first
    #[arg(long)]
    pub skip_quiesce: bool,
    #[command(flatten)]
    pub follow: Follow,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    #[default]
    Push,
    Pull,
}

#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = false)]
pub struct Source {
    /// Back up this VM, with all of its disks
    #[arg(long, value_name = "NAME")]
    pub vm: Option<String>,
    /// Back up the VM of this tracker, with what has changed
    #[arg(long, value_name = "NAME")]
    pub tracker: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Track {
    /// Name of the tracker
    pub name: String,
    /// The VM
    #[arg(long, value_name = "NAME")]
    pub vm: String,
    #[command(flatten)]
    pub made: Made,
}

#[derive(Debug, Clone, Args)]
pub struct List {
    /// Backups of all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Only backups of this VM, also by its trackers
    #[arg(long, value_name = "NAME")]
    pub vm: Option<String>,
    /// Format of the list, instead of a table
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<Output>,
}

#[derive(Debug, Clone, Args)]
pub struct Restore {
    /// Name of the restore
    pub name: String,
    #[command(flatten)]
    pub source: Place,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub claims: Claims,
    #[command(flatten)]
    pub follow: Follow,
}

#[derive(Debug, Clone, Default, Args)]
pub struct Place {
    /// The backup
    #[arg(long, value_name = "NAME", required_unless_present = "pvc", conflicts_with_all = ["pvc", "directory"])]
    pub backup: Option<String>,
    /// Claim with the backup, if its object is gone
    #[arg(long, value_name = "CLAIM", requires = "directory")]
    pub pvc: Option<String>,
    /// Directory of the backup in that claim
    #[arg(long, value_name = "NAME", requires = "pvc")]
    pub directory: Option<String>,
}

#[derive(Debug, Clone, Default, Args)]
pub struct Target {
    /// Volumes to restore, and the claims that get them [default: all volumes, to claims NAME-VOLUME]
    #[arg(long = "volume", value_name = "VOLUME[=CLAIM]", value_delimiter = ',')]
    pub volumes: Vec<Volume>,
    /// Write to existing claims, whose data is lost
    #[arg(long, requires = "volumes")]
    pub overwrite: bool,
    /// Write to the claims of this VM, whose data is lost
    #[arg(long, value_name = "VM", conflicts_with_all = ["volumes", "overwrite"])]
    pub overwrite_vm: Option<String>,
}

/// How new claims are made.
#[derive(Debug, Clone, Default, Args)]
pub struct Claims {
    /// Storage class of new claims [default: that of the cluster]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["overwrite", "overwrite_vm"])]
    pub storage_class: Option<String>,
    /// Access mode of new claims [default: `ReadWriteOnce`]
    #[arg(long, value_name = "MODE", conflicts_with_all = ["overwrite", "overwrite_vm"])]
    pub access_mode: Option<String>,
    /// Use of new claims [default: filesystem]
    #[arg(long, value_enum, value_name = "MODE", conflicts_with_all = ["overwrite", "overwrite_vm"])]
    pub volume_mode: Option<VolumeMode>,
    /// Size of the disks in new claims, such as 20Gi [default: that in the backup]
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["overwrite", "overwrite_vm"])]
    pub size: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VolumeMode {
    Filesystem,
    Block,
}

/// A value of `--volume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume(pub(super) Disk);

impl FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (volume, claim) = match text.split_once('=') {
            Some((volume, claim)) => (volume, Some(claim)),
            None => (text, None),
        };
        if volume.is_empty() || claim.is_some_and(str::is_empty) {
            return Err("write VOLUME or VOLUME=CLAIM".to_owned());
        }
        Ok(Self(Disk {
            volume: volume.to_owned(),
            claim: claim.map(str::to_owned),
        }))
    }
}

#[derive(Debug, Clone, Default, Args)]
pub struct Follow {
    /// Wait until it has ended, or its disks are offered, and show how far it is
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub limit: Limit,
    /// Print the object, in this format, instead of a message; with --wait at its end
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<ObjectOutput>,
}

#[derive(Debug, Clone, Default, Args)]
pub struct Limit {
    /// How long to wait, such as 30m [default: until it has ended]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok();
    let parsed = parsed.and_then(|found| Duration::try_from(found).ok());
    parsed.ok_or_else(|| "write a duration such as 90s or 5m".to_owned())
}

#[derive(Debug, Clone, Args)]
pub struct Wait {
    /// The kind of NAME
    #[arg(value_enum)]
    pub kind: Kind,
    /// Name of the backup or restore
    pub name: String,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A backup
    #[value(alias = "vmbackup", alias = "virtualmachinebackup")]
    Backup,
    /// A restore of a backup
    #[value(alias = "vmbackuprestore", alias = "virtualmachinebackuprestore")]
    Restore,
}
