//! Going to the background: the same program again, watched until it is up.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader},
    os::unix::fs::OpenOptionsExt,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{cli, printer::Printer, state_dir::StateDir};

/// The line by which the background process says that all is up.
const READY: &str = "ferrovirt: ready";

/// Starts the background process and passes its progress on until it is up or has failed.
pub(super) fn up(flags: &cli::Up, state: &StateDir, printer: Printer) -> Result<()> {
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
        .args(arguments(flags))
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
        last_words(&path, begin).unwrap_or_default()
    )
}

fn arguments(flags: &cli::Up) -> Vec<std::ffi::OsString> {
    let mut words: Vec<std::ffi::OsString> = vec!["up".into(), "--detached".into()];
    let mut option = |name: &str, value: std::ffi::OsString| {
        words.push(name.into());
        words.push(value);
    };
    option("--state-dir", flags.state.state_dir.clone().into());
    option("--listen", flags.listen.to_string().into());
    if let Some(images) = &flags.images {
        option("--images", images.clone().into());
    }
    option("--launcher-image", flags.launcher_image.clone().into());
    option("--pod-cidr", flags.pod_cidr.clone().into());
    option("--node-name", flags.node_name.clone().into());
    if let Some(log) = &flags.log {
        option("--log", log.into());
    }
    if flags.emulation {
        words.push("--emulation".into());
    }
    words
}

/// What the failed process had to say, which is at the end of its log.
fn last_words(path: &std::path::Path, begin: u64) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let new = bytes.get(usize::try_from(begin).ok()?..)?;
    let text = String::from_utf8_lossy(new);
    let lines: Vec<&str> = text.lines().collect();
    Some(lines.get(lines.len().saturating_sub(5)..)?.join("\n"))
}

/// In the background process: no terminal any more.
pub(super) fn leave_session() -> Result<()> {
    match rustix::process::setsid() {
        // It leads a session already: somebody else took care of it.
        Ok(_) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(err) => Err(err).context("leave the terminal's session"),
    }
}

/// In the background process: the one who waits may go.
pub(super) fn say_ready(printer: Printer) {
    printer.line(READY);
}
