//! The flags of `vnc`.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Vnc {
    #[command(subcommand)]
    pub command: Option<VncCommand>,
    /// Name of the VM or VMI
    #[arg(required = true)]
    pub vmi: Option<String>,
    /// Only offer the screen on a local port, start no viewer
    #[arg(long)]
    pub proxy_only: bool,
    /// Local address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Local port to listen on; 0 chooses a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Fail if another session is open, instead of closing it
    #[arg(long)]
    pub preserve_session: bool,
    /// Viewer to start
    #[arg(long, value_name = "PROGRAM")]
    pub vnc_path: Option<PathBuf>,
    /// Kind of the viewer
    #[arg(long, value_enum, value_name = "TYPE", conflicts_with = "proxy_only")]
    pub vnc_type: Option<VncType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VncType {
    Tiger,
    Chicken,
    Real,
    RemoteViewer,
}

#[derive(Debug, Clone, Subcommand)]
pub enum VncCommand {
    /// Save a picture of a guest's screen, as PNG
    #[command(after_help = "Example: virtctl vnc screenshot myvm -f myvm.png")]
    Screenshot(Screenshot),
}

#[derive(Debug, Clone, Args)]
pub struct Screenshot {
    /// Name of the VM or VMI
    pub vmi: String,
    /// Where to store the picture; - for standard output
    #[arg(long, short)]
    pub file: PathBuf,
    /// Move the guest's pointer first, to wake a screen that is blanked
    #[arg(long, short)]
    pub move_cursor: bool,
}
