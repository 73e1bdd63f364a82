//! Serves the simulated cluster to a `kube::Client`, with the faults of the caller's connection.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::selector::LabelSelector;
use apimachinery::{Status, meta};
use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Author, Change, Cluster, Deletion, Id, Kind, Patch, Propagation};
use crate::connection::Fault;
use crate::watch::Watcher;

/// Changes that a watch sends at once.
const BATCH: usize = 100;

/// The connection between a client and the cluster.
pub(crate) trait Connection: Send + Sync + 'static {
    /// Waits until the connection passes requests; forever, if it is closed.
    fn enter(&self) -> impl Future<Output = ()> + Send;
    /// The faults of this request.
    fn fault(&self, method: &Method, path: &str) -> Fault;
    /// The faults of a watch.
    fn watch(&self) -> WatchFault;
    /// Records a request that reached the cluster.
    fn note(&self, method: &Method, path: &str, status: StatusCode);
}

/// The faults of one watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchFault {
    /// How long the watch lasts.
    pub(crate) lasts: Duration,
    /// The delay of its next changes.
    pub(crate) lag: Duration,
}

/// A client of the cluster over this connection.
pub(crate) fn client(cluster: &Cluster, connection: &Arc<impl Connection>) -> kube::Client {
    let (cluster, connection) = (cluster.clone(), Arc::clone(connection));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (cluster, connection) = (cluster.clone(), Arc::clone(&connection));
        async move { serve(&cluster, &connection, request).await }
    });
    kube::Client::new(service, "default")
}

/// Response bodies: complete, or an endless watch.
pub(crate) type Stream = UnsyncBoxBody<Bytes, Infallible>;

/// The connection broke before the response arrived.
#[derive(Debug, thiserror::Error)]
#[error("connection lost")]
pub(crate) struct ConnectionLost;

pub(crate) async fn serve(
    cluster: &Cluster,
    connection: &Arc<impl Connection>,
    request: Request<impl hyper::body::Body>,
) -> Result<Response<Stream>, ConnectionLost> {
    connection.enter().await;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let bytes = body.collect().await.map_err(|_| ConnectionLost)?.to_bytes();
    let query = Query::read(parts.uri.query().unwrap_or_default());
    let fault = connection.fault(&parts.method, &path);
    if !fault.before.is_zero() {
        sleep(fault.before).await;
        connection.enter().await;
    }
    if let Some(refusal) = &fault.refused {
        let code = StatusCode::from_u16(refusal.code()).unwrap_or(StatusCode::BAD_REQUEST);
        connection.note(&parts.method, &path, code);
        return Ok(failed(refusal));
    }
    let response = respond_to(cluster, connection, &parts.method, &path, &query, &bytes);
    connection.note(&parts.method, &path, response.status());
    if !fault.after.is_zero() {
        sleep(fault.after).await;
    }
    // The response to an executed request may be lost.
    connection.enter().await;
    if fault.is_lost {
        Err(ConnectionLost)
    } else {
        Ok(response)
    }
}

#[derive(Debug, Default)]
struct Query(BTreeMap<String, String>);

impl Query {
    fn read(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), decode(value)))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// Decodes percent encoding.
fn decode(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let pair = [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)];
            let pair = str::from_utf8(&pair).unwrap_or_default();
            out.push(u8::from_str_radix(pair, 16).unwrap_or(b'?'));
        } else {
            out.push(if byte == b'+' { b' ' } else { byte });
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The resource that a path names.
#[derive(Debug)]
struct Target {
    kind: Kind,
    namespace: String,
    name: String,
    subresource: String,
}

fn target(path: &str) -> Option<Target> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _version, rest @ ..] => ("", rest),
        ["apis", group, _version, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    Some(Target {
        kind: Kind::find(group, rest.first()?)?,
        namespace: namespace.to_owned(),
        name: part(1),
        subresource: part(2),
    })
}

/// What a list or a watch is about. Controllers select by no field but the name.
#[derive(Debug)]
struct Selector {
    labels: LabelSelector,
    name: Option<String>,
}

impl Selector {
    fn matches(&self, object: &Value) -> bool {
        let is_named = |name: &String| name == meta::name(object);
        self.name.as_ref().is_none_or(is_named) && self.labels.matches(object)
    }
}

fn respond_to(
    cluster: &Cluster,
    connection: &Arc<impl Connection>,
    method: &Method,
    path: &str,
    query: &Query,
    bytes: &Bytes,
) -> Response<Stream> {
    let Some(target) = target(path) else {
        return failed(&Status::no_such_resource());
    };
    if *method == Method::GET && target.name.is_empty() {
        let selector = Selector {
            labels: LabelSelector::parse(query.get("labelSelector")).unwrap_or_default(),
            name: query
                .get("fieldSelector")
                .strip_prefix("metadata.name=")
                .map(ToOwned::to_owned),
        };
        return if query.get("watch").is_empty() {
            list(cluster, &target, &selector)
        } else {
            follow(cluster, connection, target.kind, selector, query)
        };
    }
    let outcome = match *method {
        Method::GET => read(cluster, &target),
        Method::POST => create(cluster, &target, query, bytes),
        Method::PATCH => patch(cluster, &target, query, bytes),
        Method::DELETE => delete(cluster, &target, bytes),
        _ => Err(Status::method_unknown_here()),
    };
    match outcome {
        Ok(object) => complete(&without_managed_fields(&object)),
        Err(status) => failed(&status),
    }
}

fn id(target: &Target) -> Id {
    Id::new(target.kind, &target.namespace, &target.name)
}

fn read(cluster: &Cluster, target: &Target) -> Result<Arc<Value>, Status> {
    let found = cluster.get(&id(target));
    found.ok_or_else(|| Status::not_found(target.kind.resource(), &target.name))
}

fn parsed(bytes: &Bytes) -> Result<Value, Status> {
    serde_json::from_slice(bytes).map_err(|error| Status::bad_request(error.to_string()))
}

fn create(
    cluster: &Cluster,
    target: &Target,
    query: &Query,
    bytes: &Bytes,
) -> Result<Arc<Value>, Status> {
    let object = parsed(bytes)?;
    if target.kind == Kind::Event {
        // Nothing in the simulation reads events.
        return Ok(Arc::new(object));
    }
    let author = Author::main(query.get("fieldManager"));
    cluster.create(target.kind, &target.namespace, object, author)
}

fn patch(
    cluster: &Cluster,
    target: &Target,
    query: &Query,
    bytes: &Bytes,
) -> Result<Arc<Value>, Status> {
    let body = parsed(bytes)?;
    if target.kind == Kind::Event {
        return Ok(Arc::new(body));
    }
    let author = Author {
        manager: query.get("fieldManager"),
        subresource: &target.subresource,
    };
    let patch = if query.get("force") == "true" {
        Patch::Apply(body)
    } else {
        Patch::Merge(body)
    };
    cluster.patch(&id(target), &patch, author)
}

fn delete(cluster: &Cluster, target: &Target, bytes: &Bytes) -> Result<Arc<Value>, Status> {
    let options = if bytes.is_empty() {
        Value::Null
    } else {
        parsed(bytes)?
    };
    let precondition = |name| {
        let wanted = options["preconditions"][name].as_str();
        wanted.map(ToOwned::to_owned)
    };
    let deletion = Deletion {
        uid: precondition("uid"),
        version: precondition("resourceVersion"),
        is_by_controller: true,
        propagation: match options["propagationPolicy"].as_str() {
            Some("Foreground") => Propagation::Foreground,
            Some("Orphan") => Propagation::Orphan,
            _ => Propagation::Background,
        },
        is_now: options["gracePeriodSeconds"] == 0,
    };
    cluster.delete(&id(target), &deletion)
}

/// Managed fields are long, and nothing in the simulation reads them.
pub(super) fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    meta::metadata_mut(&mut object).shift_remove("managedFields");
    object
}

fn complete(value: &Value) -> Response<Stream> {
    respond(StatusCode::OK, Full::from(value.to_string()).boxed_unsync())
}

fn failed(status: &Status) -> Response<Stream> {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::BAD_REQUEST);
    respond(
        code,
        Full::from(status.to_value().to_string()).boxed_unsync(),
    )
}

fn respond(code: StatusCode, body: Stream) -> Response<Stream> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}

fn list(cluster: &Cluster, target: &Target, selector: &Selector) -> Response<Stream> {
    let all = cluster.list(target.kind);
    let is_wanted = |object: &&Arc<Value>| {
        selector.matches(object)
            && (target.namespace.is_empty() || meta::namespace(object) == target.namespace)
    };
    let items: Vec<Value> = all
        .iter()
        .filter(is_wanted)
        .map(|one| without_managed_fields(one))
        .collect();
    complete(&json!({
        "apiVersion": target.kind.api_version(),
        "kind": format!("{}List", target.kind.facts().kind),
        "metadata": {"resourceVersion": cluster.revision().to_string()},
        "items": items,
    }))
}

/// The state of a watch.
struct WatchStream<D> {
    cluster: Cluster,
    connection: Arc<D>,
    kind: Kind,
    selector: Selector,
    changes: Watcher<u64>,
    revision: u64,
    until: Instant,
    waiting: VecDeque<Bytes>,
    is_over: bool,
}

fn follow<D: Connection>(
    cluster: &Cluster,
    connection: &Arc<D>,
    kind: Kind,
    selector: Selector,
    query: &Query,
) -> Response<Stream> {
    let WatchFault { lasts, .. } = connection.watch();
    let timeout = query.get("timeoutSeconds").parse().unwrap_or(290);
    let following = WatchStream {
        changes: cluster.changes(),
        cluster: cluster.clone(),
        connection: Arc::clone(connection),
        kind,
        selector,
        revision: query.get("resourceVersion").parse().unwrap_or(0),
        until: Instant::now() + lasts.min(Duration::from_secs(timeout)),
        waiting: VecDeque::new(),
        is_over: false,
    };
    let frames = stream::unfold(following, |mut following| async move {
        let line = following.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(line)), following))
    });
    respond(StatusCode::OK, StreamBody::new(frames).boxed_unsync())
}

impl<D: Connection> WatchStream<D> {
    /// The next line, or nothing when the watch ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                return Some(line);
            }
            if self.is_over || Instant::now() >= self.until {
                return None;
            }
            self.changes.observe();
            let Some(news) = self.cluster.since(self.revision, BATCH) else {
                self.is_over = true;
                let status = Status::gone("too old resource version").to_value();
                return Some(line("ERROR", &status.to_string()));
            };
            if let Some(last) = news.last() {
                self.revision = last.revision;
                let lines = news.iter().filter_map(|change| self.line(change));
                self.waiting = lines.collect();
                if !self.waiting.is_empty() {
                    let WatchFault { lag, .. } = self.connection.watch();
                    if !lag.is_zero() {
                        sleep(lag).await;
                    }
                    self.connection.enter().await;
                }
                continue;
            }
            tokio::select! {
                biased;
                () = self.changes.changed() => {}
                () = sleep_until(self.until) => return None,
            }
        }
    }

    fn line(&self, change: &Change) -> Option<Bytes> {
        if change.id.kind != self.kind || !self.selector.matches(&change.object) {
            return None;
        }
        Some(line(change.event_type.name(), change.text()))
    }
}

fn line(event_type: &str, object: &str) -> Bytes {
    Bytes::from(format!(
        "{{\"type\":\"{event_type}\",\"object\":{object}}}\n"
    ))
}
