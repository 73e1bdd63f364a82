//! The command line of `guestfs`.

use clap::{ArgAction, Args, ValueEnum};

#[derive(Debug, Clone, Args)]
pub struct Guestfs {
    /// Name of the claim, which no pod may use
    #[arg(value_name = "CLAIM")]
    pub pvc: String,
    /// Container image with the tools [default: the one that the server names]
    #[arg(long)]
    pub image: Option<String>,
    /// When to pull the image
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        default_value = "IfNotPresent",
        value_name = "POLICY"
    )]
    pub pull_policy: PullPolicy,
    /// Use the node's KVM, which makes the tools fast
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true")]
    pub kvm: bool,
    /// Run as root
    #[arg(long, conflicts_with_all = ["uid", "gid", "fs_group"])]
    pub root: bool,
    /// Run as this user [default: that of the image]
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..))]
    pub uid: Option<i64>,
    /// Run as this group
    #[arg(long, requires = "uid", value_parser = clap::value_parser!(i64).range(0..))]
    pub gid: Option<i64>,
    /// Group that owns the files of the claim
    #[arg(long = "fsGroup", alias = "fs-group", value_name = "GID",
          value_parser = clap::value_parser!(i64).range(0..))]
    pub fs_group: Option<i64>,
    /// Run on a node where this VM may run
    #[arg(long, value_name = "NAME")]
    pub vm: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PullPolicy {
    #[value(name = "Always")]
    Always,
    #[value(name = "IfNotPresent")]
    IfNotPresent,
    #[value(name = "Never")]
    Never,
}

impl PullPolicy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}
