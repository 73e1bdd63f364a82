//! Locks between tasks, as locked files.
//!
//! The holder writes its process id into the file. A task that has to wait reports the lock and its holder.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::printer::Printer;

/// Between two reports of a waiting task.
const REPORT: Duration = Duration::from_secs(30);

/// A held lock; the kernel releases it when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Waits for the lock.
pub(crate) fn lock(path: &Path) -> Result<Lock> {
    lock_with(path, |line| Printer::new().line(line))
}

fn lock_with(path: &Path, report: impl FnMut(&str)) -> Result<Lock> {
    let failed = || format!("lock {}", path.display());
    // Not truncated: the content is that of the holder.
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => wait(path, &mut file, report).with_context(failed)?,
        Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
    }
    file.set_len(0).with_context(failed)?;
    file.rewind().with_context(failed)?;
    write!(file, "{}", std::process::id()).with_context(failed)?;
    Ok(Lock { _file: file })
}

/// Waits on a thread of its own, so that this one can report.
fn wait(path: &Path, file: &mut File, mut report: impl FnMut(&str)) -> Result<()> {
    let begin = Instant::now();
    // The same open file, to which the lock belongs.
    let waiter = file.try_clone()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(waiter.lock()));
    loop {
        report(&waiting(path, &holder(file), begin.elapsed()));
        match receiver.recv_timeout(REPORT) {
            Ok(locked) => return Ok(locked?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("the waiting thread ended"),
        }
    }
}

fn waiting(path: &Path, holder: &str, waited: Duration) -> String {
    let seconds = waited.as_secs();
    format!(
        "waiting for the lock {} ({holder}), {seconds} s so far",
        path.display()
    )
}

/// `process 7: cargo xtask image launcher`.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let pid: Option<u32> = read.ok().and_then(|_| text.trim().parse().ok());
    let Some(pid) = pid else {
        return "held by an unknown process".to_owned();
    };
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command: Vec<_> = command
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    if command.is_empty() {
        // It wrote its id and ended; its child still has the file open, or it has another PID namespace.
        return format!("held by process {pid}");
    }
    format!("held by process {pid}: {}", command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_task_reports_the_holder() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lock");
        let held = lock_with(&path, |line| panic!("{line}")).expect("it is free");
        let mut held = Some(held);
        let mut lines = Vec::new();
        let again = lock_with(&path, |line| {
            lines.push(line.to_owned());
            held = None;
        });
        again.expect("it was released");
        let own = format!("held by process {}: ", std::process::id());
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains(&own), "{}", lines[0]);
        assert!(lines[0].contains(&*path.to_string_lossy()), "{}", lines[0]);
        assert!(lines[0].ends_with("0 s so far"), "{}", lines[0]);
    }
}
