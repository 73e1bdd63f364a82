//! Taking pods down: processes first, then what they stood on. Needs no API server.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::join_all;
use pod_supervisor::{cgroup, layout, model::Sandbox, protocol::Request};
use tokio::time::{Instant, sleep};

use crate::{
    Failure, Network,
    node::{CGROUP_PARENT_FILE, pod_dirs},
    supervisor,
    supervisor::Link,
    volumes::mounts,
};

/// A killed process is gone in a moment, unless the kernel holds it in a system call.
const PATIENCE: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    #[error("end the processes of pod {uid}: something holds them in the kernel")]
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
    #[error("remove what is left of pod {uid}")]
    Files {
        uid: String,
        #[source]
        source: io::Error,
    },
    #[error("remove the cgroup of all pods")]
    Group {
        #[source]
        source: io::Error,
    },
}

impl TeardownError {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Processes { .. } => "ProcessesRemain",
            Self::Network { .. } => "NetworkRemains",
            Self::Files { .. } => "FilesRemain",
            Self::Group { .. } => "CgroupRemains",
        }
    }
}

/// Stops every pod of the node directory `root` and leaves no process, mount, interface, cgroup or
/// file of any. Returns how many there were; all are tried even if one fails.
///
/// No node may be running on `root`.
pub async fn teardown_all(
    root: &Path,
    network: &dyn Network,
    grace: Duration,
) -> Result<usize, TeardownError> {
    let pods = pod_dirs(root);
    let count = pods.len();
    let all = pods
        .into_iter()
        .map(|(uid, dir)| teardown(uid, dir, network, grace));
    join_all(all)
        .await
        .into_iter()
        .collect::<Result<Vec<()>, _>>()?;
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
    grace: Duration,
) -> Result<(), TeardownError> {
    let sandbox = fs::read(dir.join(layout::SANDBOX_FILE)).ok();
    let sandbox = sandbox.and_then(|bytes| serde_json::from_slice::<Sandbox>(&bytes).ok());
    if let Ok((mut link, _)) = Link::open(&dir).await {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let asked = supervisor::ask(&dir, &Request::Shutdown { grace_ms }).await;
        let gone = async { while link.next().await.is_ok() {} };
        if asked.is_err() || tokio::time::timeout(grace + PATIENCE, gone).await.is_err() {
            tracing::warn!(uid, "pod supervisor does not end and is killed");
        }
    }
    if let Some(sandbox) = &sandbox {
        let processes = |source| TeardownError::Processes {
            uid: uid.clone(),
            source,
        };
        end_processes(&sandbox.cgroup).await.map_err(processes)?;
        cgroup::remove(&sandbox.cgroup).map_err(processes)?;
    }
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
        fs::remove_dir_all(&files)
    })
    .await
    .unwrap_or_else(|error| Err(io::Error::other(error)))
    .map_err(|source| TeardownError::Files { uid, source })
}

/// Kills what is in the group until nothing is.
pub(crate) async fn end_processes(group: &str) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !cgroup::pids(group)?.is_empty() {
        cgroup::kill(group)?;
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Nothing announces that a version 1 group is empty.
        sleep(GLANCE).await;
    }
    Ok(())
}
