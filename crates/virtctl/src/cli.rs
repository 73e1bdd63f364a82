//! The command line.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Controls virtual machines: start and stop them, reach their consoles and screens.
#[derive(Debug, Parser)]
#[command(
    name = "virtctl",
    version,
    disable_help_subcommand = true,
    after_help = "Also usable as a kubectl plugin: install it as kubectl-virt and say `kubectl virt`."
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub command: Command,
}

/// How to reach the cluster; the same flags as kubectl's.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Path to the kubeconfig file; without it the files that `KUBECONFIG` lists
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Cluster of the kubeconfig to use
    #[arg(long, global = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig to use
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// Namespace of the virtual machine
    #[arg(long, short, global = true)]
    pub namespace: Option<String>,
    /// Address of the API server
    #[arg(long, short, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// File with the certificate of the server's authority
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// File with the client certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Bearer token
    #[arg(long, global = true)]
    pub token: Option<String>,
    /// Name to expect in the server's certificate
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Do not check the server's certificate
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// User to act as
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to act as; may be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a virtual machine
    #[command(after_help = "Example: virtctl start myvm")]
    Start {
        /// Name of the VM
        vm: String,
        /// Leave the guest paused at its first instruction
        #[arg(long)]
        paused: bool,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Stop a virtual machine
    #[command(after_help = "Example: virtctl stop myvm --grace-period 0 --force")]
    Stop {
        /// Name of the VM
        vm: String,
        #[command(flatten)]
        grace: Grace,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Stop a virtual machine and start it again
    Restart {
        /// Name of the VM
        vm: String,
        #[command(flatten)]
        grace: Grace,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Pause a guest; it stays in memory
    #[command(after_help = "Example: virtctl pause vm myvm")]
    Pause {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Let a paused guest go on
    Unpause {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Connect to the serial console of a guest
    #[command(
        after_help = "Leave the console with Ctrl+]. Standard input may be a pipe; \
                            the byte 0x1d in it ends the session."
    )]
    Console {
        /// Name of the VM or VMI
        vmi: String,
        /// Minutes to wait for the guest to run
        #[arg(long, default_value_t = 5, value_name = "MINUTES")]
        timeout: u64,
    },
    /// Open the screen of a guest
    Vnc(Vnc),
    /// Show the versions of client and server
    Version {
        /// Client version only
        #[arg(long, short)]
        client: bool,
        #[arg(long, short, value_enum)]
        output: Option<Output>,
    },
    /// Print a script that completes commands in a shell
    #[command(after_help = "Example: source <(virtctl completion bash)")]
    Completion { shell: clap_complete::Shell },
}

#[derive(Debug, Clone, Copy, Args)]
pub struct DryRun {
    /// Check everything on the server and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub struct Grace {
    /// Seconds for the guest to shut down; for restart only 0, with --force
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_hyphen_values = true)]
    pub grace_period: i64,
    /// Do not wait for the guest; needs --grace-period
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Target {
    /// What NAME is
    #[arg(value_enum, ignore_case = true)]
    pub kind: Kind,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    #[value(alias = "vms", alias = "virtualmachine", alias = "virtualmachines")]
    Vm,
    #[value(
        alias = "vmis",
        alias = "virtualmachineinstance",
        alias = "virtualmachineinstances"
    )]
    Vmi,
}

#[derive(Debug, Clone, Args)]
pub struct Vnc {
    /// Name of the VM or VMI
    pub vmi: String,
    /// Only offer the screen on a local port, start no viewer
    #[arg(long)]
    pub proxy_only: bool,
    /// Local address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Local port to listen on; 0 chooses a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Fail rather than end a session that is open
    #[arg(long)]
    pub preserve_session: bool,
    /// Viewer to start
    #[arg(long, value_name = "PROGRAM")]
    pub vnc_path: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Output {
    Json,
    Yaml,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn kinds_are_known_in_any_case_and_number() {
        for kind in ["vm", "VM", "VirtualMachine", "virtualmachines"] {
            let cli = Cli::try_parse_from(["virtctl", "pause", kind, "x"]).unwrap();
            let Command::Pause { target, .. } = cli.command else {
                panic!("{kind} is another command");
            };
            assert_eq!(target.kind, Kind::Vm);
        }
    }
}
