//! Process 1 of the pod: starts libvirtd and the launcher, reaps whatever ends, starts either
//! again when it dies, and passes the wish to end on to the launcher.
//!
//! It holds libvirtd's listening socket, so that a client can connect before libvirtd is up and
//! while it is being restarted. It is deliberately dull, because the pod ends with it: no async
//! runtime, no threads, no protocol.

mod child;
mod config;
mod ends;
mod socket_activation;

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};

pub(crate) use self::child::own_program;
use self::child::{Child, Program};
pub(crate) use self::config::write_config;
#[cfg(test)]
pub(crate) use self::ends::write as write_ends;
pub(crate) use self::ends::{End, read as read_ends};
pub(crate) use self::socket_activation::{START_LIBVIRTD, libvirtd_command, start_libvirtd};
use crate::settings::Paths;
use crate::signals;

/// A launcher that ends with this code cannot do better when it is started again.
pub(crate) const FINAL_EXIT_CODE: u8 = 64;
/// libvirtd has nothing to save: it gets a moment to be polite.
const LIBVIRTD_PATIENCE: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_hours(1);

/// Runs until the launcher has ended for good; the code is the pod's.
pub(crate) fn run(paths: &Paths, arguments: &[OsString]) -> Result<ExitCode, Box<dyn Error>> {
    signals::block()?;
    write_config(&paths.libvirt_config())?;
    let listener = OwnedFd::from(listen(paths)?);
    let mut children = [
        Child::new(Program::Libvirtd {
            paths: paths.clone(),
            listener,
        }),
        Child::new(Program::Launcher {
            arguments: arguments.to_vec(),
        }),
    ];
    let mut ending = false;
    loop {
        for child in &mut children {
            child.start_if_due(ending);
        }
        let patience = children
            .iter()
            .filter_map(Child::due_in)
            .min()
            .unwrap_or(LONG);
        if signals::next(patience) == Some(signals::Signal::Terminate) {
            tracing::info!("asked to end");
            ending = true;
            children[1].signal(Signal::TERM);
        }
        while let Some((pid, status)) = reap() {
            let [libvirtd, launcher] = &mut children;
            if ![libvirtd.pid(), launcher.pid()].contains(&Some(pid)) {
                ends::note(&paths.ends(), End::of(pid, status));
            }
            libvirtd.note_end(pid, status);
            launcher.note_end(pid, status);
        }
        if let Some(code) = children[1].final_code() {
            end_libvirtd(&mut children[0]);
            tracing::info!(code, "the launcher is done");
            return Ok(ExitCode::from(code));
        }
    }
}

fn listen(paths: &Paths) -> io::Result<UnixListener> {
    let path = paths.libvirt_socket();
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::remove_file(&path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    // libvirtd does not ask who connects: the socket's mode is the only guard.
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, owner_only)?;
    Ok(listener)
}

/// As process 1: runs `command`, reaps whatever ends, and ends as the command does.
pub(crate) fn reap_until_end_of(mut command: Command) -> io::Result<ExitCode> {
    signals::block()?;
    let child = i32::try_from(command.spawn()?.id())
        .ok()
        .and_then(Pid::from_raw);
    loop {
        if signals::next(LONG) == Some(signals::Signal::Terminate) {
            return Ok(ExitCode::FAILURE);
        }
        while let Some((pid, status)) = reap() {
            if Some(pid) == child {
                let code = status
                    .exit_status()
                    .and_then(|code| u8::try_from(code).ok());
                return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
            }
        }
    }
}

/// One process that has ended, ours or one that was left to us.
fn reap() -> Option<(Pid, WaitStatus)> {
    rustix::process::wait(WaitOptions::NOHANG).ok().flatten()
}

fn end_libvirtd(libvirtd: &mut Child) {
    libvirtd.signal(Signal::TERM);
    let deadline = Instant::now() + LIBVIRTD_PATIENCE;
    while let Some(pid) = libvirtd.pid() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            if let Err(err) = kill_process(pid, Signal::KILL) {
                tracing::warn!(%err, "libvirtd cannot be killed");
            }
            return;
        }
        signals::next(left);
        while let Some((pid, status)) = reap() {
            libvirtd.note_end(pid, status);
        }
    }
}
