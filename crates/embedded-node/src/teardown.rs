//! Tears pods down: processes first, then their resources. Needs no API server.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::join_all;
use pod_supervisor::{cgroup, layout, model::Sandbox, protocol::Request};
use tokio::time::{Instant, sleep};

use crate::{
    Failure, Network,
    node::{CGROUP_PARENT_FILE, pod_dirs, recorded_object},
    storage, supervisor,
    supervisor::Link,
    volumes::mounts,
};

/// A killed process ends at once, unless a system call blocks it in the kernel.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The grace period of a pod without a readable record, as Kubernetes has it by default.
const USUAL_GRACE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    #[error("end the processes of pod {uid}: a system call blocks them in the kernel")]
    Processes {
        uid: String,
        #[source]
        source: io::Error,
    },
    #[error("remove the network of pod {uid}")]
    Network {
        uid: String,
        #[source]
        source: Failure,
    },
    #[error("remove the files of pod {uid}")]
    Files {
        uid: String,
        #[source]
        source: io::Error,
    },
    #[error("remove the devices of volumes")]
    Devices {
        #[source]
        source: io::Error,
    },
    #[error("remove the cgroup of all pods")]
    Group {
        #[source]
        source: io::Error,
    },
}

/// How the pods of a node are stopped.
#[derive(Clone, Copy)]
pub struct Stopping<'a> {
    /// Each pod has its own grace period, up to this one.
    pub longest_grace: Duration,
    /// Called for each pod with processes.
    pub progress: &'a (dyn Fn(Progress<'_>) + Send + Sync),
}

impl std::fmt::Debug for Stopping<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopping")
            .field("longest_grace", &self.longest_grace)
            .finish_non_exhaustive()
    }
}

/// The progress of one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    /// It was asked to stop, and is killed after the grace period.
    Stopping {
        pod: &'a str,
        grace: Duration,
    },
    Stopped {
        pod: &'a str,
    },
}

/// Stops every pod of the node directory `root` and removes all their processes, mounts,
/// interfaces, cgroups and files. Returns the number of pods; a failure does not stop the others.
///
/// No node may be running on `root`.
pub async fn teardown_all(
    root: &Path,
    network: &dyn Network,
    stopping: Stopping<'_>,
) -> Result<usize, TeardownError> {
    let pods = pod_dirs(root);
    let count = pods.len();
    let all = pods
        .into_iter()
        .map(|(uid, dir)| teardown(uid, dir, network, stopping));
    join_all(all)
        .await
        .into_iter()
        .collect::<Result<Vec<()>, _>>()?;
    storage::sweep_devices(root).map_err(|source| TeardownError::Devices { source })?;
    remove_parent(root).map_err(|source| TeardownError::Group { source })?;
    Ok(count)
}

fn remove_parent(root: &Path) -> io::Result<()> {
    let file = root.join(CGROUP_PARENT_FILE);
    match fs::read_to_string(&file) {
        Ok(parent) => {
            cgroup::remove_empty(&parent)?;
            fs::remove_file(file)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

async fn teardown(
    uid: String,
    dir: PathBuf,
    network: &dyn Network,
    stopping: Stopping<'_>,
) -> Result<(), TeardownError> {
    let sandbox = fs::read(dir.join(layout::SANDBOX_FILE)).ok();
    let sandbox = sandbox.and_then(|bytes| serde_json::from_slice::<Sandbox>(&bytes).ok());
    if let Ok((link, _)) = Link::open(&dir).await {
        let grace = grace_period(sandbox.as_ref(), stopping.longest_grace);
        let pod = pod_name(&uid, &dir);
        (stopping.progress)(Progress::Stopping { pod: &pod, grace });
        stop(&uid, &dir, link, grace).await;
        (stopping.progress)(Progress::Stopped { pod: &pod });
    }
    let _lock = if let Some(sandbox) = &sandbox {
        let processes = |source| TeardownError::Processes {
            uid: uid.clone(),
            source,
        };
        let lock = end_processes(&sandbox.cgroup, &dir).await;
        let lock = lock.map_err(processes)?;
        cgroup::remove(&sandbox.cgroup).map_err(processes)?;
        lock
    } else {
        None
    };
    network
        .delete(&uid)
        .await
        .map_err(|source| TeardownError::Network {
            uid: uid.clone(),
            source,
        })?;
    let files = dir.clone();
    tokio::task::spawn_blocking(move || {
        mounts::unmount_all(&files)?;
        storage::in_use::release(&files)?;
        fs::remove_dir_all(&files)
    })
    .await
    .unwrap_or_else(|error| Err(io::Error::other(error)))
    .map_err(|source| TeardownError::Files { uid, source })
}

/// The pod's own grace period, which is longer than that of its guest.
fn grace_period(sandbox: Option<&Sandbox>, longest: Duration) -> Duration {
    let own = sandbox.map(|sandbox| Duration::from_secs(sandbox.grace_seconds.into()));
    own.unwrap_or(USUAL_GRACE).min(longest)
}

/// Namespace and name; the uid if the record cannot be read.
fn pod_name(uid: &str, dir: &Path) -> String {
    let metadata = recorded_object(uid, dir).metadata;
    match (metadata.namespace, metadata.name) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        _ => uid.to_owned(),
    }
}

/// Asks the pod's supervisor to stop the pod, and waits until it has ended.
async fn stop(uid: &str, dir: &Path, mut link: Link, grace: Duration) {
    let request = Request::Shutdown {
        grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
        held: Vec::new(),
    };
    let sent = supervisor::request(dir, &request).await;
    let ended = async { while link.next().await.is_ok() {} };
    if sent.is_err() || tokio::time::timeout(grace + TIMEOUT, ended).await.is_err() {
        tracing::warn!(uid, "pod supervisor did not end in time and is killed");
    }
}

/// Kills the processes of the cgroup until it is empty and the pod has no supervisor.
///
/// A starting supervisor holds its lock before it is in the cgroup. The returned lock keeps other
/// supervisors from starting until it is dropped; there is none if the pod has no files.
pub(crate) async fn end_processes(group: &str, dir: &Path) -> io::Result<Option<File>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if cgroup::pids(group)?.is_empty()
            && let Some(lock) = lock_out(dir)?
        {
            // A supervisor may have started a process before it released its lock.
            if cgroup::pids(group)?.is_empty() {
                return Ok(lock.file());
            }
        }
        cgroup::kill(group)?;
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // A version 1 cgroup sends no notification when it becomes empty.
        sleep(POLL_INTERVAL).await;
    }
}

/// Keeps supervisors from starting for a pod.
#[derive(Debug)]
enum Lock {
    Held(File),
    /// The pod has no directory, so no supervisor can start.
    NoFiles,
}

impl Lock {
    fn file(self) -> Option<File> {
        match self {
            Self::Held(file) => Some(file),
            Self::NoFiles => None,
        }
    }
}

/// `None` while a supervisor holds the lock.
fn lock_out(dir: &Path) -> io::Result<Option<Lock>> {
    let file = match File::create(dir.join(layout::LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Lock::NoFiles)),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock::Held(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pod_supervisor::model::NetworkMode;

    use super::*;

    /// A cgroup that does not exist.
    const NO_GROUP: &str = "/ferrovirt-test-of-a-group-that-is-not-there";

    #[tokio::test(start_paused = true)]
    async fn starting_supervisor_is_awaited_then_locked_out() {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = File::create(dir.path().join(layout::LOCK_FILE)).unwrap();
        supervisor.lock().unwrap();
        let late = end_processes(NO_GROUP, dir.path()).await;
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);

        drop(supervisor);
        let lock = end_processes(NO_GROUP, dir.path()).await.unwrap();
        let next = File::create(dir.path().join(layout::LOCK_FILE)).unwrap();
        assert!(next.try_lock().is_err(), "another supervisor may start");
        drop(lock);
        next.try_lock().unwrap();
    }

    #[test]
    fn pod_has_its_own_grace_period_up_to_the_longest() {
        let sandbox = |grace_seconds| Sandbox {
            uid: "u".into(),
            hostname: "h".into(),
            cgroup: NO_GROUP.into(),
            network: NetworkMode::Host,
            sysctls: BTreeMap::new(),
            first_user: None,
            grace_seconds,
        };
        let seconds = Duration::from_secs;
        for (own, longest, expected) in [
            (Some(60), seconds(600), seconds(60)),
            (Some(3600), seconds(600), seconds(600)),
            (Some(60), Duration::ZERO, Duration::ZERO),
            (None, seconds(600), USUAL_GRACE),
            (None, Duration::MAX, USUAL_GRACE),
        ] {
            let sandbox = own.map(sandbox);
            assert_eq!(grace_period(sandbox.as_ref(), longest), expected, "{own:?}");
        }
    }

    #[test]
    fn pod_is_named_as_its_object() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(pod_name("u-1", dir.path()), "u-1");
        let object = r#"{"metadata": {"namespace": "ns", "name": "a"}}"#;
        fs::write(dir.path().join(crate::pod::OBJECT_FILE), object).unwrap();
        assert_eq!(pod_name("u-1", dir.path()), "ns/a");
    }

    #[tokio::test(start_paused = true)]
    async fn pod_without_files_needs_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let gone = end_processes(NO_GROUP, &dir.path().join("gone")).await;
        assert!(gone.unwrap().is_none());
    }
}
