//! The command line of `ferrovirt`.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use clap::{Args, Subcommand, ValueEnum};

use crate::identities::ServerName;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start Ferrovirt on this host, unless it is running
    Up(Up),
    /// Stop all guests and everything else; keep all objects
    Down(Down),
    /// Show whether Ferrovirt is up, and its VMs
    Status(Status),
    /// Stop everything and delete all objects and data
    Reset(Reset),
    /// Copy the database with all objects, also while Ferrovirt runs
    Backup(Backup),
    /// Replace the database by a copy; Ferrovirt must be stopped
    Restore(Restore),
    /// Install Ferrovirt as a service of systemd and start it
    Install(Install),
    /// Stop everything and remove the service; keep all objects
    Uninstall(Uninstall),
}

/// Checks a value of `--name`.
fn server_name(text: &str) -> anyhow::Result<String> {
    ServerName::parse(text).map(|_| text.to_owned())
}

/// The value of `--reserved-cpus`, as the kernel writes lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(pub Vec<u32>);

impl FromStr for CpuList {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let cpus = host_cpus::parse_list(text)?;
        anyhow::ensure!(!cpus.is_empty(), "name at least one processor");
        Ok(Self(cpus))
    }
}

#[derive(Debug, Clone, Args)]
pub struct StateDir {
    /// Directory of all data
    #[arg(
        long,
        env = "FERROVIRT_STATE_DIR",
        default_value = "/var/lib/ferrovirt",
        value_name = "DIR"
    )]
    pub state_dir: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct Up {
    #[command(flatten)]
    pub state: StateDir,
    /// Continue in the background once everything is up
    #[arg(long)]
    pub detach: bool,
    /// Address of the API server
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Address of the web console, such as 127.0.0.1:8440, where users sign in with tokens. Without it there is none
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub console: Option<SocketAddr>,
    /// Another name or address of this host, for the API server's certificate; may be repeated
    #[arg(long = "name", value_name = "NAME", value_parser = server_name)]
    pub names: Vec<String>,
    /// Directory of OCI layouts and archives to take images from, before any registry
    #[arg(long, env = "FERROVIRT_IMAGES", value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Image of the virtual machines' pods
    #[arg(
        long,
        default_value = "ferrovirt/virt-launcher:devel",
        value_name = "REFERENCE"
    )]
    pub launcher_image: String,
    /// Run guests by software emulation even where KVM works
    #[arg(long)]
    pub emulation: bool,
    /// Processors for the host and for containers that share, such as 0 or 0-1: containers of guaranteed pods, and so
    /// guests with `dedicatedCpuPlacement`, get others for themselves. Without it, all containers share all processors
    #[arg(long, value_name = "LIST")]
    pub reserved_cpus: Option<CpuList>,
    /// Directory whose files may be disks of `hostDisk` volumes; may be repeated. Without it there are none
    #[arg(long = "host-disks", value_name = "DIR")]
    pub host_disks: Vec<PathBuf>,
    /// Addresses of pods, and after a comma IPv6 addresses of pods; must not overlap with a network of the host
    #[arg(long, default_value = "10.244.0.0/24", value_name = "CIDR[,CIDR]")]
    pub pod_cidr: String,
    /// Name of this host as a Kubernetes node
    #[arg(long, default_value = "localhost", value_name = "NAME")]
    pub node_name: String,
    /// Log filter, such as `debug` or `virt_handler=debug`
    #[arg(long, env = "FERROVIRT_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// Format of log lines: text or json
    #[arg(
        long,
        env = logging::FORMAT_VARIABLE,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub log_format: logging::Format,
    /// This is the background process of `--detach`
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub detached: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Down {
    #[command(flatten)]
    pub state: StateDir,
    /// Give guests at most this time to power off, instead of their own grace periods
    #[arg(long, value_name = "SECONDS")]
    pub grace_period: Option<u64>,
    /// Do nothing unless systemd shuts down the host
    #[arg(long)]
    pub for_shutdown: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Status {
    #[command(flatten)]
    pub state: StateDir,
    #[arg(long, short, value_enum)]
    pub output: Option<Output>,
}

#[derive(Debug, Clone, Args)]
pub struct Reset {
    #[command(flatten)]
    pub state: StateDir,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Backup {
    #[command(flatten)]
    pub state: StateDir,
    /// The new file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct Restore {
    #[command(flatten)]
    pub state: StateDir,
    /// A file that `backup` made, or an automatic copy
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct Install {
    #[command(flatten)]
    pub state: StateDir,
    /// Address of the API server
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Another name or address of this host, for the API server's certificate; may be repeated
    #[arg(long = "name", value_name = "NAME", value_parser = server_name)]
    pub names: Vec<String>,
    /// Install into the system below this directory, which does not run
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Print the files and change nothing
    #[arg(long, conflicts_with = "root")]
    pub dry_run: bool,
    /// Flags of `ferrovirt up`
    #[arg(last = true, value_name = "UP FLAGS")]
    pub up_flags: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Uninstall {
    #[command(flatten)]
    pub state: StateDir,
    /// Delete all objects and data, too
    #[arg(long)]
    pub delete_data: bool,
    /// Remove it from the system below this directory, which does not run
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Output {
    Json,
    Yaml,
}
