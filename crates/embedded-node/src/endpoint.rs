//! The kubelet's HTTPS endpoint: container logs, streams and health, for the API server only.

use std::{
    collections::HashMap,
    io,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    extract::{Extension, Path, Query, Request as HttpRequest, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use bytes::Bytes;
use futures::StreamExt as _;
use http::StatusCode;
use inotify::{Inotify, WatchMask};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use pod_supervisor::{
    layout,
    status::{self as disk, ContainerStatus, State as Run},
};
use reconcile::Key;
use serving::Peer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    Endpoint,
    logs::{self, Selector, Tail},
    node::Shared,
    port_forward, streams,
    supervisor::Link,
};

/// The common name in the certificate with which the API server connects to the node.
pub const API_SERVER: &str = "kube-apiserver-kubelet-client";

/// Buffered for a slow reader.
const CHUNKS: usize = 16;
/// The largest chunk.
const CHUNK: usize = 64 << 10;
/// Past output that is read or sent at once for the pods of a namespace: up to 20 MiB each. More wait.
const READERS: usize = 8;

pub(crate) async fn serve(shared: Arc<Shared>, endpoint: Endpoint, stop: CancellationToken) {
    serving::Server::new(endpoint.listener, endpoint.tls, router(shared))
        .run(stop)
        .await;
}

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route(
            "/containerLogs/{namespace}/{pod}/{container}",
            get(container_logs),
        )
        .route("/exec/{namespace}/{pod}/{container}", any(streams::exec))
        .route(
            "/attach/{namespace}/{pod}/{container}",
            any(streams::attach),
        )
        .route(
            "/portForward/{namespace}/{pod}",
            any(port_forward::port_forward),
        )
        .layer(middleware::from_fn(require_api_server))
        .with_state(shared)
}

/// Other components have certificates of the same authority.
async fn require_api_server(
    peer: Option<Extension<Peer>>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let name = peer
        .as_ref()
        .and_then(|Extension(peer)| peer.certificate.as_ref())
        .and_then(|certificate| certificate.common_name.as_deref());
    if name == Some(API_SERVER) {
        next.run(request).await
    } else {
        let message = "the node accepts requests from the API server only";
        refuse(StatusCode::FORBIDDEN, message.to_owned())
    }
}

/// Who reads past output of containers, by namespace.
#[derive(Debug, Default)]
pub(crate) struct LogReaders(Mutex<HashMap<String, Arc<Semaphore>>>);

impl LogReaders {
    async fn enter(&self, namespace: &str) -> Option<OwnedSemaphorePermit> {
        let places = {
            let mut all = self.0.lock();
            // Those who read or wait hold the places, too.
            all.retain(|_, places| Arc::strong_count(places) > 1);
            let places = all
                .entry(namespace.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(READERS)));
            Arc::clone(places)
        };
        // The semaphore is never closed.
        places.acquire_owned().await.ok()
    }
}

async fn container_logs(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name, container)): Path<(String, String, String)>,
    Query(query): Query<logs::Query>,
) -> Response {
    let Some(pod) = shared
        .pods
        .get(&Key::new(namespace.as_str(), name.as_str()))
    else {
        return refuse(StatusCode::NOT_FOUND, format!("pod {name:?} not found"));
    };
    if !has_container(&pod, &container) {
        let message = format!("container {container} is not valid for pod {name}");
        return refuse(StatusCode::BAD_REQUEST, message);
    }
    let dir = shared.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let status = disk::read(&dir).ok().flatten();
    let status =
        status.and_then(|all| all.containers.into_iter().find(|one| one.name == container));
    let which = if query.previous {
        WhichRun::Previous
    } else {
        WhichRun::Latest
    };
    let Some(attempt) = status.and_then(|status| attempt(&status, which)) else {
        let message = match which {
            WhichRun::Previous => {
                format!("previous terminated container {container:?} in pod {name:?} not found")
            }
            WhichRun::Latest => waiting(&pod, &container),
        };
        return refuse(StatusCode::BAD_REQUEST, message);
    };
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let selector = Selector::new(&query, shared.settings.clock.now());
    let request = Request {
        dir,
        container,
        attempt,
        follow: query.follow && !query.previous,
        started: None,
    };
    let reading = Arc::clone(&shared);
    shared.children.spawn(async move {
        let place = tokio::select! {
            place = reading.log_readers.enter(&namespace) => place,
            () = sender.closed() => return,
        };
        let sent = panics::confined(send(request, selector, (&sender, place))).await;
        if let Err(error) = sent.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            tracing::debug!(%error, "log request ended early");
        }
    });
    let chunks = futures::stream::unfold(receiver, |mut receiver| async move {
        let chunk: Bytes = receiver.recv().await?;
        Some((Ok::<_, io::Error>(chunk), receiver))
    });
    Body::from_stream(chunks).into_response()
}

/// Why a container has no log yet, as a kubelet writes it.
fn waiting(pod: &Pod, container: &str) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref();
    let all = status.into_iter().flat_map(|status| {
        [&status.container_statuses, &status.init_container_statuses]
            .into_iter()
            .flatten()
            .flatten()
    });
    let reason = all
        .filter(|one| one.name == container)
        .find_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let start = format!("container {container:?} in pod {name:?} is waiting to start");
    match reason.as_deref() {
        None | Some("") => start,
        Some("ErrImagePull") => format!("{start}: trying and failing to pull image"),
        Some("ImagePullBackOff") => format!("{start}: image can't be pulled"),
        Some(reason) => format!("{start}: {reason}"),
    }
}

/// The future output of the container, without its past output.
pub(crate) async fn follow_output(
    shared: &Shared,
    uid: &str,
    container: String,
) -> io::Result<mpsc::Receiver<Bytes>> {
    let dir = shared.pod_dir(uid);
    let (_, status) = Link::open(&dir).await?;
    let mut all = status.containers.iter();
    let attempt = all
        .find(|one| one.name == container)
        .map_or(0, |one| one.attempt);
    let query = logs::Query {
        tail_lines: Some(0),
        ..logs::Query::default()
    };
    let selector = Selector::new(&query, shared.settings.clock.now());
    let (started, on_started) = oneshot::channel();
    let request = Request {
        dir,
        container,
        attempt,
        follow: true,
        started: Some(started),
    };
    let (sender, receiver) = mpsc::channel(CHUNKS);
    shared.children.spawn(async move {
        let sent = panics::confined(send(request, selector, (&sender, None))).await;
        if let Err(error) = sent.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            tracing::debug!(%error, "attached output ended early");
        }
    });
    // If the sender was dropped, the log has ended and the receiver ends as well.
    let _started = on_started.await.is_ok();
    Ok(receiver)
}

fn refuse(code: StatusCode, message: String) -> Response {
    (code, message).into_response()
}

fn has_container(pod: &Pod, name: &str) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .any(|container| container.name == name)
    })
}

/// The run whose log is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhichRun {
    Latest,
    /// The latest run that has ended.
    Previous,
}

fn attempt(status: &ContainerStatus, which: WhichRun) -> Option<u32> {
    match (&status.state, which) {
        (_, WhichRun::Latest) | (Run::BackOff { .. }, WhichRun::Previous) => Some(status.attempt),
        (_, WhichRun::Previous) => status.attempt.checked_sub(1),
    }
}

struct Request {
    dir: PathBuf,
    container: String,
    attempt: u32,
    follow: bool,
    /// Notified once the existing output has been read.
    started: Option<oneshot::Sender<()>>,
}

/// The place among the readers is given back when the past output was sent.
async fn send(
    mut request: Request,
    mut selector: Selector,
    (sender, place): (&mpsc::Sender<Bytes>, Option<OwnedSemaphorePermit>),
) -> io::Result<()> {
    let path = request
        .dir
        .join(layout::log_file(&request.container, request.attempt));
    let rotated = request.dir.join(layout::rotated_log_file(
        &request.container,
        request.attempt,
    ));
    // Watch before the first read, so that no change is lost in between.
    let mut changes = match path.parent().filter(|_| request.follow) {
        Some(dir) => Some(Changes::of(dir)?),
        None => None,
    };
    let mut link = match &changes {
        Some(_) => Link::open(&request.dir).await.ok(),
        None => None,
    };
    let mut runs = link
        .as_ref()
        .is_some_and(|(_, status)| is_running(status, &request));
    let mut tail = Tail::new(path, rotated);
    let (bytes, mut tail) =
        tokio::task::spawn_blocking(move || panics::catch_io(|| Ok((tail.all()?, tail))))
            .await
            .map_err(io::Error::other)??;
    let first = selector.first(&bytes);
    if let Some(started) = request.started.take() {
        // The receiver may have been dropped.
        let _received = started.send(()).is_ok();
    }
    if forward(&first, sender).await.is_err() {
        return Ok(());
    }
    drop((first, place));
    while let (true, false, Some(changes), Some((link, _))) =
        (runs, selector.is_full(), &mut changes, &mut link)
    {
        tokio::select! {
            changed = changes.next() => changed?,
            status = link.next() => runs = status.is_ok_and(|status| is_running(&status, &request)),
            () = sender.closed() => return Ok(()),
        }
        let more = selector.more(&tail.next()?);
        if forward(&more, sender).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends the bytes as the reader takes them. Chunks are copies: a slow reader keeps those that wait, not all.
async fn forward(bytes: &[u8], sender: &mpsc::Sender<Bytes>) -> Result<(), ()> {
    for chunk in bytes.chunks(CHUNK) {
        sender
            .send(Bytes::copy_from_slice(chunk))
            .await
            .map_err(drop)?;
    }
    Ok(())
}

fn is_running(status: &disk::PodStatus, request: &Request) -> bool {
    let mut all = status.containers.iter();
    all.any(|one| {
        one.name == request.container
            && one.attempt == request.attempt
            && matches!(one.state, Run::Running { .. } | Run::Starting)
    })
}

/// Notifications of writes in a directory.
struct Changes {
    events: inotify::EventStream<[u8; 4096]>,
}

impl Changes {
    fn of(dir: &FilePath) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        inotify
            .watches()
            .add(dir, WatchMask::MODIFY | WatchMask::CREATE)?;
        Ok(Self {
            events: inotify.into_event_stream([0; 4096])?,
        })
    }

    async fn next(&mut self) -> io::Result<()> {
        self.events.next().await.transpose().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn readers_of_a_namespace_wait_for_each_other_only() {
        let readers = LogReaders::default();
        let mut places = Vec::new();
        for _ in 0..READERS {
            places.push(readers.enter("a").await.unwrap());
        }
        assert!(readers.enter("a").now_or_never().is_none());
        assert!(readers.enter("b").now_or_never().flatten().is_some());
        drop(places.pop());
        assert!(readers.enter("a").now_or_never().flatten().is_some());
        places.clear();
        drop(readers.enter("c").await);
        assert_eq!(readers.0.lock().len(), 1, "nothing is left behind");
    }

    #[tokio::test]
    async fn slow_reader_keeps_a_few_chunks() {
        let (sender, mut receiver) = mpsc::channel(CHUNKS);
        let length = (CHUNKS + 3) * CHUNK + 1;
        let output = vec![b'x'; length];
        let early = forward(&output, &sender).now_or_never();
        assert!(early.is_none(), "it waits for the reader");
        let mut waiting = Vec::new();
        while let Ok(chunk) = receiver.try_recv() {
            waiting.push(chunk.len());
        }
        assert_eq!(waiting, [CHUNK; CHUNKS]);
        let sending = async move {
            let sent = forward(&output, &sender).await;
            drop(sender);
            sent
        };
        let reading = async {
            let mut sum = 0;
            while let Some(chunk) = receiver.recv().await {
                assert!(chunk.len() <= CHUNK);
                sum += chunk.len();
            }
            sum
        };
        assert_eq!(tokio::join!(sending, reading), (Ok(()), length));
    }

    #[test]
    fn container_without_a_log_names_its_reason() {
        for (reason, expected) in [
            (json!("ContainerCreating"), ": ContainerCreating"),
            (json!("ErrImagePull"), ": trying and failing to pull image"),
            (json!("ImagePullBackOff"), ": image can't be pulled"),
            (json!(null), ""),
        ] {
            let state = json!({"waiting": {"reason": reason}});
            let status = json!({"name": "c", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": state});
            let pod = serde_json::from_value(json!({
                "metadata": {"name": "p"}, "status": {"containerStatuses": [status]},
            }));
            let message = waiting(&pod.unwrap(), "c");
            let start = "container \"c\" in pod \"p\" is waiting to start";
            assert_eq!(message.strip_prefix(start), Some(expected));
        }
    }
}
