//! The command lines of the SSH client.

use std::{ffi::OsString, path::Path};

use super::{
    cli::{Client, Scp, Ssh},
    location::{Location, SshTarget},
};
use crate::{cli::Connection, failure::Usage};

/// What the client's command line depends on besides the flags.
pub(super) struct Surroundings<'a> {
    /// Of the command line or the kubeconfig.
    pub(super) namespace: &'a str,
    /// This program.
    pub(super) program: &'a Path,
    pub(super) connection: &'a Connection,
}

pub(super) fn ssh(flags: &Ssh, around: &Surroundings<'_>) -> Vec<OsString> {
    let mut arguments = common(&flags.client, &flags.target, around);
    arguments.push(host(&flags.client, &flags.target, around).into());
    arguments.extend(flags.command.iter().map(OsString::from));
    arguments
}

/// `draft` is written in place of the file that the destination names.
pub(super) fn scp(
    flags: &Scp,
    draft: Option<&Path>,
    around: &Surroundings<'_>,
) -> Result<Vec<OsString>, Usage> {
    let ((Location::Remote { target, .. }, Location::Local(_))
    | (Location::Local(_), Location::Remote { target, .. })) = (&flags.source, &flags.destination)
    else {
        return Err(Usage::new(
            "one of SOURCE and DESTINATION must be in a guest: write it as vm/NAME:PATH",
        ));
    };
    let mut arguments = common(&flags.client, target, around);
    if flags.recursive {
        arguments.push("-r".into());
    }
    if flags.preserve {
        arguments.push("-p".into());
    }
    let argument = |location: &Location| match location {
        Location::Local(path) => local(path).into(),
        Location::Remote { target, path } => {
            format!("{}:{path}", host(&flags.client, target, around)).into()
        }
    };
    arguments.push(argument(&flags.source));
    arguments.push(match draft {
        Some(draft) => local(&draft.to_string_lossy()).into(),
        None => argument(&flags.destination),
    });
    Ok(arguments)
}

/// A path that scp reads neither as an option nor as a host.
fn local(path: &str) -> String {
    let ambiguous = path.starts_with('-') || (cfg!(unix) && path.contains(':'));
    if ambiguous && !path.starts_with('/') && !path.starts_with('.') {
        format!("./{path}")
    } else {
        path.to_owned()
    }
}

fn common(client: &Client, target: &SshTarget, around: &Surroundings<'_>) -> Vec<OsString> {
    let proxy = proxy_command(client, target, around);
    let mut arguments: Vec<OsString> = vec!["-o".into(), format!("ProxyCommand={proxy}").into()];
    if let Some(file) = &client.known_hosts {
        let file = file.display();
        arguments.extend(["-o".into(), format!("UserKnownHostsFile={file}").into()]);
    }
    for option in &client.local_ssh_opts {
        // One argument may hold an option and its value, as with the original.
        match option.trim().split_once(' ') {
            Some((option, value)) => arguments.extend([option.into(), value.trim().into()]),
            None => arguments.push(option.trim().into()),
        }
    }
    if let Some(file) = &client.identity_file {
        arguments.extend(["-i".into(), file.into()]);
    }
    arguments
}

fn namespace<'a>(target: &'a SshTarget, around: &'a Surroundings<'_>) -> &'a str {
    target
        .guest
        .namespace
        .as_deref()
        .unwrap_or(around.namespace)
}

fn short_kind(target: &SshTarget) -> &'static str {
    if target.guest.plural == "virtualmachines" {
        "vm"
    } else {
        "vmi"
    }
}

/// The name under which the client remembers the guest's host key.
fn host(client: &Client, target: &SshTarget, around: &Surroundings<'_>) -> String {
    let kind = short_kind(target);
    let host = format!("{kind}.{}.{}", target.guest.name, namespace(target, around));
    match target.user.as_ref().or(client.login.as_ref()) {
        Some(user) => format!("{user}@{host}"),
        None => host,
    }
}

/// This program with the same connection, for the client's shell.
fn proxy_command(client: &Client, target: &SshTarget, around: &Surroundings<'_>) -> String {
    let kind = short_kind(target);
    let guest = format!("{kind}/{}/{}", target.guest.name, namespace(target, around));
    let mut words = vec![around.program.display().to_string()];
    words.extend(around.connection.arguments());
    let port = client.port.to_string();
    words.extend(["port-forward", "--stdio", &guest, &port].map(ToOwned::to_owned));
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    // The client replaces what follows a percent sign.
    words.join(" ").replace('%', "%%")
}

/// An argument, quoted for the shell that the client uses.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+\\".contains(c);
    if cfg!(windows) {
        let spaces = argument.contains(' ');
        return if spaces {
            format!("\"{argument}\"")
        } else {
            argument.to_owned()
        };
    }
    if !argument.is_empty() && argument.chars().all(|c| plain(c) && c != '\\') {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Cli, Command};

    fn made(words: &[&str]) -> Result<Vec<String>, Usage> {
        let words = [&["virtctl"], words].concat();
        let words = words.into_iter().map(OsString::from);
        let cli = Cli::from_words(cli::command(), words).unwrap();
        let around = Surroundings {
            namespace: "tests",
            program: Path::new("/bin/virtctl"),
            connection: &cli.connection,
        };
        let arguments = match &cli.command {
            Command::Ssh(flags) => ssh(flags, &around),
            Command::Scp(flags) => scp(flags, None, &around)?,
            other => panic!("{other:?}"),
        };
        Ok(arguments
            .into_iter()
            .map(|one| one.into_string().unwrap())
            .collect())
    }

    #[test]
    fn ssh_calls_the_client_with_a_proxy_command() {
        let proxy = |text: &str| format!("ProxyCommand=/bin/virtctl {text}");
        for (words, expected) in [
            (
                &["ssh", "me@vmi/a"][..],
                vec![
                    "-o".to_owned(),
                    proxy("port-forward --stdio vmi/a/tests 22"),
                    "me@vmi.a.tests".to_owned(),
                ],
            ),
            (
                &[
                    "ssh",
                    "vm/a/n",
                    "-l",
                    "me",
                    "-i",
                    "/k",
                    "-p",
                    "23",
                    "-t",
                    "-o A=b",
                    "-t",
                    "-v",
                    "-c",
                    "ls /",
                    "--known-hosts",
                    "/h",
                    "--local-ssh=true",
                ],
                [
                    "-o",
                    &proxy("port-forward --stdio vm/a/n 23"),
                    "-o",
                    "UserKnownHostsFile=/h",
                    "-o",
                    "A=b",
                    "-v",
                    "-i",
                    "/k",
                    "me@vm.a.n",
                    "ls /",
                ]
                .map(ToOwned::to_owned)
                .to_vec(),
            ),
            (
                &[
                    "ssh",
                    "vm/a",
                    "--kubeconfig",
                    "/my dir/100%",
                    "--as",
                    "it's",
                ],
                vec![
                    "-o".to_owned(),
                    proxy(
                        "--kubeconfig '/my dir/100%%' --as 'it'\\''s' port-forward --stdio \
                         vm/a/tests 22",
                    ),
                    "vm.a.tests".to_owned(),
                ],
            ),
        ] {
            assert_eq!(made(words).unwrap(), expected, "{words:?}");
        }
    }

    #[test]
    fn scp_copies_in_both_directions() {
        let proxy = "ProxyCommand=/bin/virtctl port-forward --stdio vm/a/tests 22";
        let made_of = |words: &[&str]| made(&[&["scp"], words].concat()).unwrap();
        assert_eq!(
            made_of(&["f", "me@vm/a:g"]),
            ["-o", proxy, "f", "me@vm.a.tests:g"]
        );
        assert_eq!(
            made_of(&["vm/a:f", "x:y", "-r", "--preserve", "-l", "me"]),
            ["-o", proxy, "-r", "-p", "me@vm.a.tests:f", "./x:y"]
        );
        made(&["scp", "a", "b"]).unwrap_err();
        made(&["scp", "vm/a:x", "vm/b:x"]).unwrap_err();
    }
}
