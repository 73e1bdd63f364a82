//! The servers of the guest's shared filesystems: one virtiofsd for each.
//!
//! A server is started before QEMU and serves only the connection that QEMU then makes. It outlives this
//! launcher, like QEMU. QEMU does not connect again: when a server ends while the guest runs, that
//! filesystem is lost until the next start of the VM.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use launcher_channel::FileServer;
use rustix::process::{Pid, Resource, getrlimit};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::device_servers::{self, Helper};

const VIRTIOFSD: &str = "/usr/libexec/virtiofsd";
/// The first part of the name of each process.
const PROCESS: &str = "virtiofsd";
/// The servers end with QEMU: only a guest that is still there after this time has lost one.
const SETTLING: Duration = Duration::from_secs(2);
/// A server ends once; the guest's task takes the names out as they come.
const ENDS: usize = 16;

/// Why a filesystem cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileServerError {
    #[error("filesystem {name}: use the directory {directory}")]
    Directory {
        name: String,
        directory: String,
        source: io::Error,
    },
    #[error("filesystem {name}: start its server")]
    Start { name: String, source: io::Error },
}

/// The servers that run, and those that have ended.
#[derive(Debug)]
pub(super) struct FileServers {
    tasks: TaskTracker,
    watched: Option<CancellationToken>,
    sender: mpsc::Sender<String>,
    ends: mpsc::Receiver<String>,
    ended: Vec<(Instant, String)>,
    lost: BTreeSet<String>,
}

impl FileServers {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        let (sender, ends) = mpsc::channel(ENDS);
        Self {
            tasks,
            watched: None,
            sender,
            ends,
            ended: Vec::new(),
            lost: BTreeSet::new(),
        }
    }

    /// Starts all servers for a guest that is about to start, in place of those of an earlier try.
    pub(super) fn start(&mut self, servers: &[FileServer]) -> Result<(), FileServerError> {
        self.stop();
        for server in servers {
            let process = start(server).map_err(|source| FileServerError::Start {
                name: server.name.clone(),
                source,
            })?;
            self.watch(&server.name, process);
        }
        Ok(())
    }

    /// Watches the servers of a guest that an earlier launcher has started.
    pub(super) fn adopt(&mut self, servers: &[FileServer]) {
        if self.watched.is_some() {
            return;
        }
        for server in servers {
            match device_servers::find(PROCESS, &server.name) {
                Some(process) => self.watch(&server.name, process),
                None => self.ended.push((Instant::now(), server.name.clone())),
            }
        }
        self.watched.get_or_insert_default();
    }

    /// Ends all servers: the guest has ended, or is started anew.
    pub(super) fn stop(&mut self) {
        if let Some(stop) = self.watched.take() {
            stop.cancel();
        }
        device_servers::kill_all(PROCESS);
        while self.ends.try_recv().is_ok() {}
        self.ended.clear();
        self.lost.clear();
    }

    /// Completes when a server has ended.
    pub(super) async fn next_end(&mut self) {
        // The sender is never dropped.
        if let Some(name) = self.ends.recv().await {
            self.ended.push((Instant::now(), name));
        }
    }

    /// When [`Self::settle`] is to be called.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = self.ended.first();
        first.map(|(at, _)| *at + SETTLING)
    }

    /// Counts servers that ended some time ago as lost, for a guest that is alive.
    pub(super) fn settle(&mut self, now: Instant) {
        let is_settled = |(at, _): &mut (Instant, String)| *at + SETTLING <= now;
        for (_, name) in self.ended.extract_if(.., is_settled) {
            tracing::warn!(name, "the server of a filesystem has ended under the guest");
            self.lost.insert(name);
        }
    }

    /// The guest has ended together with its servers.
    pub(super) fn forget_ends(&mut self) {
        self.ended.clear();
    }

    /// Names of the filesystems that the guest cannot use any more.
    pub(super) fn lost(&self) -> Vec<String> {
        self.lost.iter().cloned().collect()
    }

    fn watch(&mut self, name: &str, process: Helper) {
        let stop = self.watched.get_or_insert_default().clone();
        let (name, sender) = (name.to_owned(), self.sender.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                // The end of a server that is being stopped is no loss.
                biased;
                () = stop.cancelled() => {}
                () = process.ended() => {
                    // Without a receiver the guest's task has ended, too.
                    sender.send(name).await.ok();
                }
            }
        });
    }
}

/// Fails if a directory is missing; a directory may hang with its storage, so never on a worker.
pub(super) fn check(servers: &[FileServer]) -> Result<(), FileServerError> {
    for server in servers {
        fs::read_dir(&server.directory).map_err(|source| FileServerError::Directory {
            name: server.name.clone(),
            directory: server.directory.clone(),
            source,
        })?;
    }
    Ok(())
}

/// The server gets a socket that listens already, so QEMU need not wait for it.
fn start(server: &FileServer) -> io::Result<Helper> {
    let socket = Path::new(&server.socket);
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    let mut command = Command::new(VIRTIOFSD);
    command
        .arg0(device_servers::process_name(PROCESS, &server.name))
        .args(arguments(server, getrlimit(Resource::Nofile).maximum))
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .env_clear();
    // tokio reaps it without its handle.
    let child = command.spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("it has ended at once"))?;
    tracing::info!(
        name = server.name,
        pid = pid.as_raw_nonzero(),
        "started a file server"
    );
    Helper::open(pid)
}

/// It has no privileges, so it cannot enter a namespace of its own, and creates all files as the pod's
/// user.
fn arguments(server: &FileServer, max_files: Option<u64>) -> Vec<String> {
    let files = max_files.unwrap_or(0);
    let mut all = vec![
        "--fd=0".to_owned(),
        format!("--shared-dir={}", server.directory),
        "--sandbox=none".to_owned(),
        "--cache=auto".to_owned(),
        "--migration-on-error=guest-error".to_owned(),
        "--migration-mode=find-paths".to_owned(),
        "--log-level=warn".to_owned(),
        format!("--rlimit-nofile={files}"),
    ];
    if server.is_read_only {
        all.push("--readonly".to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(directory: &str, is_read_only: bool) -> FileServer {
        FileServer {
            name: "files".to_owned(),
            socket: "/s".to_owned(),
            directory: directory.to_owned(),
            is_read_only,
        }
    }

    #[test]
    fn server_of_a_read_only_directory_refuses_writes() {
        let has = |is_read_only| {
            let all = arguments(&server("/d", is_read_only), Some(4096));
            assert!(all.contains(&"--shared-dir=/d".to_owned()), "{all:?}");
            assert!(all.contains(&"--rlimit-nofile=4096".to_owned()), "{all:?}");
            all.contains(&"--readonly".to_owned())
        };
        assert_eq!((has(true), has(false)), (true, false));
    }

    #[test]
    fn missing_directory_is_named() {
        let error = check(&[server("/nowhere", true)]).unwrap_err();
        let expected = "filesystem files: use the directory /nowhere";
        assert_eq!(error.to_string(), expected);
        assert!(check(&[server("/", true)]).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_guest_that_survives_its_server_has_lost_it() {
        let mut all = FileServers::new(TaskTracker::new());
        all.sender.send("files".to_owned()).await.unwrap();
        all.next_end().await;
        all.settle(Instant::now());
        assert!(all.lost().is_empty());
        tokio::time::advance(SETTLING).await;
        assert!(all.next().is_some_and(|at| at <= Instant::now()));
        all.settle(Instant::now());
        assert_eq!((all.lost(), all.next()), (vec!["files".to_owned()], None));
    }
}
