//! The background process of `--detach`: the same program again, observed until it is up.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio_util::sync::CancellationToken;

use crate::{printer::Printer, state_dir::StateDir};

/// The line by which the background process reports that everything is up.
const READY: &str = "ferrovirt: ready";

/// The size from which the log is rotated.
const MAX_LOG: u64 = 10 << 20;
const CHECK_LOG_EVERY: Duration = Duration::from_mins(1);

/// Starts the background process and prints its progress until it is up or has failed.
pub(super) fn up(state: &StateDir, printer: Printer) -> Result<()> {
    let path = state.log();
    let log = open_log(&path).with_context(|| format!("open {}", path.display()))?;
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
fn log_tail(path: &Path, begin: u64) -> Option<String> {
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

/// Keeps the log of the background process below twice [`MAX_LOG`], until `stop`.
pub(super) async fn keep_log_small(log: PathBuf, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(CHECK_LOG_EVERY);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let rotated = rotate(&log, MAX_LOG).and_then(|fresh| match fresh {
            Some(fresh) => Ok(rustix::stdio::dup2_stderr(&fresh)?),
            None => Ok(()),
        });
        if let Err(error) = rotated {
            tracing::warn!(%error, "the log cannot be rotated");
        }
    }
}

/// Gives a log above the limit the name of the older half, and opens a new one.
fn rotate(log: &Path, limit: u64) -> io::Result<Option<File>> {
    match log.metadata() {
        Ok(metadata) if metadata.len() <= limit => return Ok(None),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
        Ok(_) => std::fs::rename(log, log.with_extension("log.1"))?,
    }
    open_log(log).map(Some)
}

fn open_log(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).open(path)
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
        let values = ["example", "127.0.0.9:1", "json", "0-1"].map(OsString::from);
        let mut examples = values.map(|value| vec![flag.clone(), value]).into_iter();
        examples
            .find(|example| parse(&[&["up".into()], &example[..]].concat()).is_some())
            .expect("a valid example")
    }

    #[test]
    fn large_log_is_rotated_and_a_lost_one_is_made_again() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("ferrovirt.log");
        let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        assert!(rotate(&log, 5).expect("made").is_some());
        std::fs::write(&log, "12345").expect("written");
        assert!(rotate(&log, 5).expect("checked").is_none());
        std::fs::write(&log, "123456").expect("written");
        let mut fresh = rotate(&log, 5).expect("rotated").expect("a new log");
        fresh.write_all(b"new").expect("written");
        assert_eq!(
            (
                text("ferrovirt.log").as_str(),
                text("ferrovirt.log.1").as_str()
            ),
            ("new", "123456")
        );
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
