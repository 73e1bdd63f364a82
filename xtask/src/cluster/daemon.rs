//! Processes that outlive the task that starts them.
//!
//! **Invariants**: a process is identified by its PID and start time, so a reused PID matches no
//! record; every wait has a limit; starting a running process does nothing.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{deadline, place::Place};

const PATIENCE: Duration = Duration::from_secs(20);

/// A process that was started before, if it lives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Daemon {
    pid: i32,
    began: u64,
}

/// Starts `program` under this name unless it runs already. True when it was started.
pub(super) fn start(place: &Place, name: &str, command: &mut Command) -> Result<bool> {
    if find(place, name).is_some() {
        return Ok(false);
    }
    let log = place.log(name);
    let log = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| format!("open {}", log.display()))?;
    // A separate session, so that closing the terminal does not end the cluster.
    let mut detached = Command::new("setsid");
    detached
        .arg(command.get_program())
        .args(command.get_args())
        .envs(
            command
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        )
        .current_dir(place.root())
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("share the log")?)
        .stderr(log);
    let child = detached.spawn().with_context(|| format!("start {name}"))?;
    let pid = i32::try_from(child.id()).context("read the number of a process")?;
    let began = began(pid).with_context(|| format!("{name} ended at once; see its log"))?;
    let record = record(place, name);
    fs::write(&record, format!("{pid} {began}"))
        .with_context(|| format!("write {}", record.display()))?;
    Ok(true)
}

/// The living process of this name.
pub(super) fn find(place: &Place, name: &str) -> Option<Daemon> {
    let text = fs::read_to_string(record(place, name)).ok()?;
    let (pid, time) = text.split_once(' ')?;
    let daemon = Daemon {
        pid: pid.parse().ok()?,
        began: time.parse().ok()?,
    };
    daemon.lives().then_some(daemon)
}

/// Ends the process of this name, at once, and waits until it is gone.
pub(super) fn stop(place: &Place, name: &str) -> Result<()> {
    if let Some(daemon) = find(place, name) {
        end(daemon).with_context(|| format!("end {name}"))?;
    }
    match fs::remove_file(record(place, name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("remove the record of a process")
        }
        _ => Ok(()),
    }
}

/// Ends every process whose network namespace is this file: what lost its record.
pub(super) fn sweep(network: &Path) -> Result<()> {
    let Ok(wanted) = fs::metadata(network) else {
        return Ok(());
    };
    for pid in processes()? {
        let its = fs::metadata(format!("/proc/{pid}/ns/net"));
        let is_in = its.is_ok_and(|its| {
            use std::os::unix::fs::MetadataExt as _;
            (its.dev(), its.ino()) == (wanted.dev(), wanted.ino())
        });
        if let (true, Some(began)) = (is_in, began(pid)) {
            end(Daemon { pid, began })?;
        }
    }
    Ok(())
}

impl Daemon {
    pub(super) fn pid(self) -> i32 {
        self.pid
    }

    /// Its first child: what runs in a PID namespace behind `unshare`.
    pub(super) fn child(self) -> Option<i32> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid);
        let children = fs::read_to_string(path).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    fn lives(self) -> bool {
        began(self.pid) == Some(self.began)
    }
}

fn end(daemon: Daemon) -> Result<()> {
    if let Some(pid) = Pid::from_raw(daemon.pid)
        && let Err(error) = kill_process(pid, Signal::KILL)
        && daemon.lives()
    {
        return Err(error).context("send the signal");
    }
    let gone = deadline::look(PATIENCE, || Ok((!daemon.lives()).then_some(())))?;
    gone.with_context(|| format!("process {} does not end", daemon.pid))
}

fn record(place: &Place, name: &str) -> PathBuf {
    place.at("run").join(format!("{name}.pid"))
}

fn processes() -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("read /proc")? {
        let name = entry.context("read /proc")?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(found)
}

/// When a process began, in the kernel's ticks; `None` for one that is gone or only waits to be
/// reaped.
fn began(pid: i32) -> Option<u64> {
    const STATE: usize = 0;
    const START_TIME: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if matches!(fields.get(STATE), Some(&"Z" | &"X")) {
        return None;
    }
    fields.get(START_TIME)?.parse().ok()
}
