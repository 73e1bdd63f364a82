//! The tasks of pods: started for pods of this node, notified by the watch.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use backoff::Backoff;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use reasons::Reason;
use reconcile::{EventType, Key};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::{
    pod::{self, Desired},
    schedule, slots,
};

/// The first and the longest pause of a pod's task after a panic.
const AFTER_PANIC: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(2));

pub(super) async fn watch_pods(shared: Arc<Shared>, stop: CancellationToken) {
    let wake = |pod: &Pod| shared.on_pod(pod, &stop);
    let (client, store) = (shared.settings.client.clone(), shared.pods.clone());
    reconcile::watch(
        client,
        watcher::Config::default(),
        store,
        wake,
        stop.clone(),
    )
    .await;
}

/// Tears down pods of an earlier node process that the API server does not know any more.
pub(super) async fn adopt_unknown(
    shared: Arc<Shared>,
    dirs: Vec<(String, PathBuf)>,
    stop: CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = shared.pods.ready() => {}
    }
    let pods = shared.pods.list();
    let known: HashSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.metadata.uid.as_deref())
        .collect();
    for (uid, dir) in dirs {
        if !known.contains(uid.as_str()) {
            let pod = recorded_object(&uid, &dir);
            shared.start_worker(Arc::new(pod), Desired::Deleted, &stop);
        }
    }
}

/// Every pod directory below a node's root, by the pod's uid.
pub(crate) fn pod_dirs(root: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(root.join("pods")) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect()
}

/// The pods of a node's directory: their uids, and their objects as last recorded.
pub fn recorded_pods(root: &Path) -> io::Result<Vec<(String, Option<Vec<u8>>)>> {
    let entries = match fs::read_dir(root.join("pods")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut pods = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Ok(uid) = entry.file_name().into_string() {
            pods.push((uid, fs::read(entry.path().join(pod::OBJECT_FILE)).ok()));
        }
    }
    Ok(pods)
}

/// The pod's object as last recorded; only its uid if there is none.
pub(crate) fn recorded_object(uid: &str, dir: &Path) -> Pod {
    let read = fs::read(dir.join(pod::OBJECT_FILE)).ok();
    let mut pod: Pod = read
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    pod.metadata.uid = Some(uid.to_owned());
    pod
}

impl Shared {
    /// Sends the pod's state on the API server to its worker; starts one if needed.
    fn on_pod(self: &Arc<Self>, pod: &Pod, stop: &CancellationToken) {
        self.storage.on_pod(pod);
        self.services.requeue("pod");
        self.policies.requeue("pod");
        let Some(uid) = pod
            .metadata
            .uid
            .as_deref()
            .filter(|uid| is_directory_name(uid))
        else {
            return;
        };
        let current = self
            .pods
            .get(&Key::of(pod))
            .filter(|current| current.metadata.uid.as_deref() == Some(uid));
        if current.as_deref().is_none_or(slots::has_ended) {
            self.node_changed.send_replace(());
        }
        let desired = current.map_or(Desired::Deleted, Desired::Pod);
        if let Some(worker) = self.workers.lock().get(uid) {
            worker.send_replace(desired);
            return;
        }
        if let Desired::Pod(pod) = &desired
            && self.is_ours(pod)
        {
            self.start_worker(Arc::clone(pod), desired.clone(), stop);
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node == Some(self.settings.node_name.as_str()) || schedule::is_ours_to_bind(pod)
    }

    fn start_worker(self: &Arc<Self>, pod: Arc<Pod>, desired: Desired, stop: &CancellationToken) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let (sender, receiver) = watch::channel(desired);
        self.workers.lock().insert(uid.clone(), sender);
        let (shared, stop) = (Arc::clone(self), stop.clone());
        self.tasks.spawn(async move {
            shared.keep_working(pod, receiver, stop).await;
            shared.workers.lock().remove(&uid);
        });
    }

    /// Runs the worker to its end. After a panic another one takes over the pod, as after a restart of this process.
    async fn keep_working(
        self: &Arc<Self>,
        pod: Arc<Pod>,
        desired: watch::Receiver<Desired>,
        stop: CancellationToken,
    ) {
        let mut failures = Backoff::new(AFTER_PANIC.0, AFTER_PANIC.1);
        loop {
            let (pod, desired, stop) = (Arc::clone(&pod), desired.clone(), stop.clone());
            let work = pod::run(Arc::clone(self), Arc::clone(&pod), desired, stop.clone());
            let Err(panicked) = panics::confined(work).await else {
                return;
            };
            let (reason, note) = (
                Reason::ReconcilePanicked,
                format!("the pod's task {panicked}"),
            );
            let failure = failures.failed();
            tracing::error!(
                %reason, error = %panicked, failures = failure.count,
                namespace = pod.metadata.namespace, object = pod.metadata.name,
                "a pod's task failed"
            );
            self.recorder
                .publish(&*pod, EventType::Warning, reason, note);
            if stop
                .run_until_cancelled(tokio::time::sleep(failure.delay))
                .await
                .is_none()
            {
                return;
            }
        }
    }
}

/// Uids become directory names.
fn is_directory_name(uid: &str) -> bool {
    !uid.is_empty()
        && uid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
