//! The command line.

mod connection;
#[cfg(test)]
mod every_command;
#[cfg(test)]
mod facts;
mod flags;
mod objects;
mod switches;
mod vnc;

use std::{
    ffi::OsString,
    net::IpAddr,
    path::{Path, PathBuf},
};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use connection::Connection;
pub use flags::{Changed, DryRun, Grace, Kind, Made, ObjectOutput, Output, Printed, Target};
pub use objects::ObjectCommand;
pub use vnc::{Screenshot, Vnc, VncCommand, VncType};

use crate::{
    commands::ssh::{Scp, Ssh},
    create::Create,
    ports::{ForwardTarget, ForwardedPort},
};

/// Controls virtual machines: start and stop them, reach their consoles and screens.
#[derive(Debug, Parser)]
#[command(
    name = "virtctl",
    version,
    disable_help_subcommand = true,
    after_help = AFTER
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line. As a plugin of kubectl, the program shows that in its usage.
    pub(crate) fn from_environment() -> Self {
        let program = std::env::args_os().next().map(PathBuf::from);
        let stem = program.as_deref().and_then(Path::file_stem);
        let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
        let mut command = command();
        if stem.is_some_and(|stem| stem.starts_with("kubectl-virt")) {
            command = command.bin_name("kubectl virt");
        }
        Self::from_words(command, std::env::args_os()).unwrap_or_else(|err| err.exit())
    }

    /// The command line of these words, the first of which is the program.
    pub(crate) fn from_words(
        mut command: clap::Command,
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        let words = switches::plain(&command, words);
        let matches = command.try_get_matches_from_mut(words)?;
        let cli = Self::from_arg_matches(&matches).map_err(|err| err.format(&mut command))?;
        Ok(cli.without_flags_of_commands())
    }

    /// Some commands have flags `--user`, `--username` and `--password` of their own, as with the original;
    /// they are not those of the connection then.
    fn without_flags_of_commands(mut self) -> Self {
        match self.command {
            Command::Create(_) => self.connection.user = None,
            Command::Objects(ObjectCommand::Credentials(_)) => {
                (self.connection.user, self.connection.password) = (None, None);
            }
            Command::Ssh(_) | Command::Scp(_) | Command::Objects(ObjectCommand::Run(_)) => {
                self.connection.username = None;
            }
            _ => {}
        }
        self
    }
}

/// The whole command line.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

const AFTER: &str = "\
Exit codes:
  0  the command succeeded
  1  it failed; the message says why
  2  the command line is wrong
`why` has codes for the health of the VM; `ssh` and `scp` end with the code of the SSH client.

Also usable as a kubectl plugin: install it as kubectl-virt and run `kubectl virt`.";

const WHY: &str = "\
Explain why a virtual machine does not run, and what to do next.

Reads the VM, its VMI and pod, the claims, Secrets and images that it names, its node and their
events, and names the deepest cause: the missing claim rather than the pod that waits for it. Each
cause has its evidence (an object, a field and its value), the reason and remedy that conditions have
for it, and one command to run next. Nothing is changed. Objects that you may not read are listed, with
the permission that is missing.

A cause is one of four kinds: broken, you or an administrator must act; waiting, it resolves by
itself; off, as the run strategy requests; notice, the guest runs and there is something to know.";

const WHY_EXAMPLES: &str = "\
Examples:
  virtctl why myvm
  virtctl why myvm -n tests -o json | jq -r '.causes[0].id'
  virtctl start myvm && virtctl why myvm --watch
  virtctl why --causes

Exit code: 0 the guest runs and is ready, or is off as requested; 1 it is not; 2 there is no such VM,
the command line is wrong, or the cluster does not answer. With --watch the command ends with 0 when the
VM is healthy, and with 2 when it is deleted.";

const PORT_FORWARD: &str = "\
Forward local ports to ports of a guest.

TARGET is vm/NAME or vmi/NAME, with /NAMESPACE behind it if it is not that of the command line. A port is
[PROTOCOL/]LOCAL[:TARGET]: PROTOCOL is tcp (the default) or udp; LOCAL 0 chooses a free port; without
:TARGET both are the same. The data goes through the API server, so this is for debugging and
administration: use a Service for applications.";

const PORT_FORWARD_EXAMPLES: &str = "\
Examples:
  virtctl port-forward vm/myvm 8080:80
  virtctl port-forward vmi/myvm/tests udp/5353:53 2222:22
  ssh -o ProxyCommand='virtctl port-forward --stdio vm/myvm 22' user@myvm";

const UI: &str = "\
Open the web console in the browser.

The console shows virtual machines with live status, starts and stops them, explains why one does not run,
and has their serial console and screen. It is served on a local port until the command is ended, and has
the rights of the user of your kubeconfig. The printed link works once, for one browser tab; after that,
a new one is printed for the next tab.";

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
    #[command(after_help = "Example: virtctl restart myvm")]
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
    #[command(after_help = "Example: virtctl unpause vm myvm")]
    Unpause {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Save the state of a running guest to a claim, and end the guest
    #[command(after_help = "\
Example: virtctl suspend myvm

The node may be drained or rebooted meanwhile; virtctl resume lets the guest go on where it was. Needs the feature \
gate SuspendToClaim, which a single host has on.")]
    Suspend {
        /// Name of the VM
        vm: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Let a suspended guest go on where it was
    #[command(
        after_help = "Examples:\n  virtctl resume myvm\n  virtctl resume myvm --discard-state"
    )]
    Resume {
        /// Name of the VM
        vm: String,
        /// Delete the saved state: the guest starts anew, if the run strategy says so
        #[arg(long)]
        discard_state: bool,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Ask a guest to reboot, by its guest agent or the power button
    #[command(after_help = "Example: virtctl soft-reboot myvm")]
    SoftReboot {
        /// Name of the VM or VMI
        vmi: String,
    },
    /// Reset a guest at once, like the reset button of a computer
    #[command(after_help = "Example: virtctl reset myvm")]
    Reset {
        /// Name of the VM or VMI
        vmi: String,
    },
    /// Show the operating system that the guest agent reports
    #[command(after_help = "Example: virtctl guestosinfo myvm")]
    #[command(name = "guestosinfo")]
    GuestOsInfo {
        /// Name of the VM or VMI
        vmi: String,
        #[command(flatten)]
        printed: Printed,
    },
    /// Show the users that are logged in to a guest
    #[command(after_help = "Example: virtctl userlist myvm")]
    #[command(name = "userlist")]
    UserList {
        /// Name of the VM or VMI
        vmi: String,
        #[command(flatten)]
        printed: Printed,
    },
    /// Show the file systems of a guest
    #[command(after_help = "Example: virtctl fslist myvm")]
    #[command(name = "fslist")]
    FsList {
        /// Name of the VM or VMI
        vmi: String,
        #[command(flatten)]
        printed: Printed,
    },
    /// Connect to the serial console of a guest
    #[command(after_help = "Example: virtctl console myvm\n\n\
                            Leave the console with Ctrl+]. Standard input may be a pipe; \
                            the byte 0x1d in it ends the session.")]
    Console {
        /// Name of the VM or VMI
        vmi: String,
        /// Minutes to wait for the guest to run
        #[arg(long, default_value_t = 5, value_name = "MINUTES")]
        timeout: u64,
    },
    /// Open the screen of a guest
    #[command(after_help = "Example: virtctl vnc myvm --proxy-only --port 5901")]
    Vnc(Vnc),
    /// Forward local ports to ports of a guest
    #[command(long_about = PORT_FORWARD, after_help = PORT_FORWARD_EXAMPLES)]
    PortForward(PortForward),
    /// Explain why a virtual machine does not run, and what to do next
    #[command(long_about = WHY, after_help = WHY_EXAMPLES)]
    Why(Why),
    /// Open the web console in the browser
    #[command(long_about = UI, after_help = "Example: virtctl ui -n tests")]
    Ui(Ui),
    /// Open a shell in a guest with the SSH client of this computer
    #[command(after_help = "Example: virtctl ssh me@vm/myvm\n\n\
                            The connection goes through the API server, so the guest needs no address \
                            that this computer can reach. Exit code: that of the command in the guest; \
                            255 if there is no connection.")]
    Ssh(Ssh),
    /// Copy files from or to a guest with the SSH client of this computer
    #[command(after_help = "Example: virtctl scp notes.txt me@vm/myvm:notes.txt")]
    Scp(Scp),
    #[command(flatten)]
    Objects(ObjectCommand),
    /// Print a manifest: of a VM, an instance type, a preference or a clone
    Create(Create),
    /// Show the versions of client and server
    #[command(after_help = "Example: virtctl version --client -o json")]
    Version {
        /// Client version only
        #[arg(long, short)]
        client: bool,
        #[arg(long, short, value_enum)]
        output: Option<Output>,
    },
    /// List the flags that all commands have
    #[command(hide = true, after_help = "Example: virtctl options")]
    Options,
    /// Print a script that completes commands in a shell
    #[command(after_help = "Example: source <(virtctl completion bash)")]
    Completion {
        shell: clap_complete::Shell,
        /// Leave descriptions of commands and flags out
        #[arg(long)]
        no_descriptions: bool,
    },
}

#[derive(Debug, Clone, Args)]
pub struct Why {
    /// Name of the VM or VMI, also as vm/NAME or vmi/NAME
    #[arg(required_unless_present = "causes")]
    pub name: Option<String>,
    #[arg(long, short, value_enum)]
    pub output: Option<Output>,
    /// Print the answer again when it changes, until the VM is healthy
    #[arg(long, short, conflicts_with = "causes")]
    pub watch: bool,
    /// List every known cause instead
    #[arg(long, conflicts_with = "name")]
    pub causes: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Ui {
    /// Local port to listen on; 0 chooses a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Only print the link
    #[arg(long)]
    pub no_browser: bool,
}

#[derive(Debug, Clone, Args)]
pub struct PortForward {
    /// The VM or VMI: type/name[/namespace]
    pub target: ForwardTarget,
    /// Ports: [protocol/]localPort[:targetPort]
    #[arg(required = true, value_name = "PORT")]
    pub ports: Vec<ForwardedPort>,
    /// Local address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Forward one port to standard input and output
    #[arg(long)]
    pub stdio: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_the_guest_is_not_that_of_the_kubeconfig() {
        let user = |arguments: &str| {
            let cli = Cli::try_parse_from(arguments.split(' ')).unwrap();
            cli.without_flags_of_commands().connection.user
        };
        assert_eq!(
            user("virtctl start a --user admin").as_deref(),
            Some("admin")
        );
        assert_eq!(user("virtctl create vm --user me"), None);
        let set = "virtctl credentials set-password a --user me --password x";
        assert_eq!(user(set), None);
    }

    #[test]
    fn login_of_the_guest_is_not_that_of_the_cluster() {
        let login = |arguments: &str| {
            let cli = Cli::try_parse_from(arguments.split(' ')).unwrap();
            let Connection {
                username, password, ..
            } = cli.without_flags_of_commands().connection;
            (username, password.is_some())
        };
        let me = || Some("me".to_owned());
        assert_eq!(
            login("virtctl start a --username me --password x"),
            (me(), true)
        );
        assert_eq!(login("virtctl ssh vm/a --username you"), (None, false));
        assert_eq!(
            login("virtctl scp -l you --password x a vm/a:b"),
            (None, true)
        );
        assert_eq!(
            login("virtctl run a --image b --username you"),
            (None, false)
        );
        let set = "virtctl credentials set-password a --user you --password x";
        assert_eq!(login(set), (None, false));
    }

    #[test]
    fn command_line_is_consistent() {
        command().debug_assert();
    }

    /// Calls of virtctl in the help text of a command.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        help.lines()
            .map(|line| line.trim_start().trim_start_matches("Example: "))
            .filter(|line| line.starts_with("virtctl ") || line.starts_with("source "))
            .flat_map(|line| line.split(['|', '&', '(', ')']))
            .map(|call| call.trim().to_owned())
            .filter(|call| call.starts_with("virtctl "))
            .collect()
    }

    fn check_examples(command: &clap::Command, path: &str) {
        for inner in command.get_subcommands() {
            check_examples(inner, &format!("{path} {}", inner.get_name()));
        }
        if command.has_subcommands() && command.get_arguments().all(clap::Arg::is_global_set) {
            return;
        }
        let examples = examples(command);
        let own = |example: &String| example.starts_with(path);
        assert!(examples.iter().any(own), "`{path} --help` has no example");
        for example in examples {
            let parsed = Cli::try_parse_from(example.split_whitespace());
            assert!(parsed.is_ok(), "`{example}`: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn help_of_every_command_has_an_example_that_parses() {
        check_examples(&command(), "virtctl");
    }

    #[test]
    fn why_needs_a_name_or_the_list_of_causes() {
        let parse =
            |arguments: &[&str]| Cli::try_parse_from([&["virtctl", "why"], arguments].concat());
        assert!(parse(&["tiny", "-n", "tests", "-o", "json"]).is_ok());
        assert!(parse(&["--causes"]).is_ok());
        assert!(parse(&["vm/tiny", "--watch", "-o", "yaml"]).is_ok());
        let wrong = [
            &[][..],
            &["tiny", "--causes"],
            &["tiny", "-o", "xml"],
            &["--causes", "--watch"],
        ];
        for wrong in wrong {
            let error = parse(wrong).expect_err("rejected");
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
    }

    #[test]
    fn vnc_takes_a_name_or_a_command() {
        let parse = |arguments: &[&str]| {
            let all = [&["virtctl", "vnc"], arguments].concat();
            Cli::try_parse_from(all).map(|cli| match cli.command {
                Command::Vnc(vnc) => vnc,
                other => panic!("{other:?}"),
            })
        };
        let vnc = parse(&["tiny", "--proxy-only"]).unwrap();
        assert!(vnc.command.is_none() && vnc.vmi.as_deref() == Some("tiny"));
        let vnc = parse(&["screenshot", "tiny", "-f", "a.png", "-m"]).unwrap();
        let Some(VncCommand::Screenshot(screenshot)) = vnc.command else {
            panic!("no screenshot");
        };
        assert_eq!((&*screenshot.vmi, screenshot.move_cursor), ("tiny", true));
        for wrong in [&[][..], &["screenshot"], &["screenshot", "tiny"]] {
            parse(wrong).unwrap_err();
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
