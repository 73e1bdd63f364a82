//! The background process of `--detach`: the same program again, observed until it is up.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{BufRead, BufReader},
    os::unix::fs::OpenOptionsExt,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{printer::Printer, state_dir::StateDir};

/// The line by which the background process reports that everything is up.
const READY: &str = "ferrovirt: ready";

/// Starts the background process and prints its progress until it is up or has failed.
pub(super) fn up(state: &StateDir, printer: Printer) -> Result<()> {
    let path = state.log();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("open {}", path.display()))?;
    let begin = log.metadata().map_or(0, |meta| meta.len());
    let program = std::env::current_exe().context("find this program")?;
    let mut child = Command::new(program)
        .args(background_arguments(std::env::args_os().skip(1)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("start the background process")?;
    let output = child.stdout.take().context("read the background process")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("read the background process")?;
        if line == READY {
            return Ok(());
        }
        printer.line(&line);
    }
    let status = child.wait().context("wait for the background process")?;
    bail!(
        "ferrovirt did not come up ({status}):\n{}",
        log_tail(&path, begin).unwrap_or_default()
    )
}

/// The arguments of this process with `--detached` in place of `--detach`: every other flag is passed
/// on as it was given, and those from the environment are inherited with it.
fn background_arguments(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    arguments
        .map(|argument| {
            if argument == "--detach" {
                "--detached".into()
            } else {
                argument
            }
        })
        .collect()
}

/// The last lines that the failed process has logged.
fn log_tail(path: &std::path::Path, begin: u64) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let new = bytes.get(usize::try_from(begin).ok()?..)?;
    let text = String::from_utf8_lossy(new);
    let lines: Vec<&str> = text.lines().collect();
    Some(lines.get(lines.len().saturating_sub(5)..)?.join("\n"))
}

/// Detaches the background process from the terminal.
pub(super) fn leave_session() -> Result<()> {
    match rustix::process::setsid() {
        // It already leads a session.
        Ok(_) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error).context("leave the terminal's session"),
    }
}

/// Reports to the waiting foreground process that everything is up.
pub(super) fn report_ready(printer: Printer) {
    printer.line(READY);
}

#[cfg(test)]
mod tests {
    use clap::{Arg, CommandFactory as _, Parser};

    use super::*;
    use crate::cli;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(subcommand)]
        command: cli::Command,
    }

    fn parse(arguments: &[OsString]) -> Option<cli::Up> {
        let program = Program::try_parse_from([&["ferrovirt".into()], arguments].concat());
        match program.ok()?.command {
            cli::Command::Up(flags) => Some(flags),
            _ => None,
        }
    }

    /// The argument with a value that differs from its default.
    fn example(argument: &Arg) -> Vec<OsString> {
        let flag = OsString::from(format!("--{}", argument.get_long().expect("a long name")));
        if !argument.get_action().takes_values() {
            return vec![flag];
        }
        let values = ["example", "127.0.0.9:1", "json"].map(OsString::from);
        let mut examples = values.map(|value| vec![flag.clone(), value]).into_iter();
        examples
            .find(|example| parse(&[&["up".into()], &example[..]].concat()).is_some())
            .expect("a valid example")
    }

    #[test]
    fn background_process_gets_every_argument() {
        let program = Program::command();
        let up = program.find_subcommand("up").expect("the command up");
        let show = |flags: &cli::Up| format!("{flags:?}");
        let plain = ["up".into(), "--detach".into()];
        let without = show(&parse(&plain).expect("valid arguments"));
        let is_passed_on =
            |argument: &&Arg| !matches!(argument.get_id().as_str(), "detach" | "detached" | "help");
        for argument in up.get_arguments().filter(is_passed_on) {
            let given = [&plain[..], &example(argument)].concat();
            let flags = parse(&given).expect("valid arguments");
            assert_ne!(show(&flags), without, "{argument:?} has no effect");
            let expected = cli::Up {
                detach: false,
                detached: true,
                ..flags
            };
            let passed = background_arguments(given.into_iter());
            let found = parse(&passed).expect("valid arguments");
            assert_eq!(show(&found), show(&expected), "{argument:?}");
        }
    }
}
