//! The command line.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Controls virtual machines: start and stop them, reach their consoles and screens.
#[derive(Debug, Parser)]
#[command(
    name = "virtctl",
    version,
    disable_help_subcommand = true,
    after_help = "Also usable as a kubectl plugin: install it as kubectl-virt and run `kubectl virt`."
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

const WHY: &str = "\
Explain why a virtual machine does not run, and what to do next.

Reads the VM, its VMI and pod, the claims, Secrets and images that it names, its node and their
events, and names the deepest cause: the missing claim rather than the pod that waits for it. Each
cause has its evidence (an object, a field and its value), the reason and remedy that conditions have
for it, and one command to run next. Nothing is changed. Objects that you may not read are listed.

A cause is one of four kinds: broken, you or an administrator must act; waiting, it resolves by
itself; off, as the run strategy requests; notice, the guest runs and there is something to know.";

const WHY_EXAMPLES: &str = "\
Examples:
  virtctl why myvm
  virtctl why myvm -n tests -o json | jq -r '.causes[0].id'
  until virtctl why myvm; do sleep 5; done
  virtctl why --causes

Exit code: 0 the guest runs and is ready, or is off as requested; 1 it is not; 2 there is no such VM,
the command line is wrong, or the cluster does not answer.";

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
    /// Resume a paused guest
    Unpause {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Ask a guest to reboot, by its guest agent or the power button
    SoftReboot {
        /// Name of the VM or VMI
        vmi: String,
    },
    /// Reset a guest at once, like the reset button of a computer
    Reset {
        /// Name of the VM or VMI
        vmi: String,
    },
    /// Show the operating system that the guest agent reports
    #[command(name = "guestosinfo")]
    GuestOsInfo {
        /// Name of the VM or VMI
        vmi: String,
    },
    /// Show the users that are logged in to a guest
    #[command(name = "userlist")]
    UserList {
        /// Name of the VM or VMI
        vmi: String,
    },
    /// Show the file systems of a guest
    #[command(name = "fslist")]
    FsList {
        /// Name of the VM or VMI
        vmi: String,
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
    /// Explain why a virtual machine does not run, and what to do next
    #[command(long_about = WHY, after_help = WHY_EXAMPLES)]
    Why {
        /// Name of the VM or VMI
        #[arg(required_unless_present = "causes")]
        name: Option<String>,
        #[arg(long, short, value_enum)]
        output: Option<Output>,
        /// List every known cause instead
        #[arg(long, conflicts_with = "name")]
        causes: bool,
    },
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
    /// The kind of NAME
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
    /// Fail if another session is open, instead of closing it
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
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn why_needs_a_name_or_the_list_of_causes() {
        let parse =
            |arguments: &[&str]| Cli::try_parse_from([&["virtctl", "why"], arguments].concat());
        assert!(parse(&["tiny", "-n", "tests", "-o", "json"]).is_ok());
        assert!(parse(&["--causes"]).is_ok());
        for wrong in [&[][..], &["tiny", "--causes"], &["tiny", "-o", "xml"]] {
            let error = parse(wrong).expect_err("rejected");
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
    }

    #[test]
    fn kinds_parse_in_any_case_and_number() {
        for kind in ["vm", "VM", "VirtualMachine", "virtualmachines"] {
            let cli = Cli::try_parse_from(["virtctl", "pause", kind, "x"]).unwrap();
            let Command::Pause { target, .. } = cli.command else {
                panic!("{kind} is another command");
            };
            assert_eq!(target.kind, Kind::Vm);
        }
    }
}
