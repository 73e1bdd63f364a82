//! The stand-in behind a `kube::Client`: requests are taken apart, answered, and on the way meet
//! whatever the caller's door has in store for them.

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

use super::{By, Change, Cluster, Deletion, Id, Kind, Patch, Propagation};
use crate::faults::Fate;
use crate::told::Listener;

/// Sent to a watch at once.
const BATCH: usize = 100;

/// What stands between a caller and the cluster.
pub(crate) trait Door: Send + Sync + 'static {
    /// Waits until the caller is let through; for ever, if it is cut off.
    fn enter(&self) -> impl Future<Output = ()> + Send;
    /// What becomes of this request.
    fn fate(&self, method: &Method, path: &str) -> Fate;
    /// For how long a watch holds, and how long its next changes are on their way.
    fn watch(&self) -> (Duration, Duration);
    /// Takes note of a request that reached the cluster.
    fn note(&self, method: &Method, path: &str, status: StatusCode);
}

/// A client of the cluster that comes by this door.
pub(crate) fn client(cluster: &Cluster, door: &Arc<impl Door>) -> kube::Client {
    let (cluster, door) = (cluster.clone(), Arc::clone(door));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (cluster, door) = (cluster.clone(), Arc::clone(&door));
        async move { serve(&cluster, &door, request).await }
    });
    kube::Client::new(service, "default")
}

/// Bodies of answers: whole, or a watch without end.
pub(crate) type Stream = UnsyncBoxBody<Bytes, Infallible>;

/// The connection broke before the answer was there.
#[derive(Debug, thiserror::Error)]
#[error("connection lost")]
pub(crate) struct Lost;

pub(crate) async fn serve(
    cluster: &Cluster,
    door: &Arc<impl Door>,
    request: Request<impl hyper::body::Body>,
) -> Result<Response<Stream>, Lost> {
    door.enter().await;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let bytes = body.collect().await.map_err(|_| Lost)?.to_bytes();
    let query = Query::read(parts.uri.query().unwrap_or_default());
    let fate = door.fate(&parts.method, &path);
    if !fate.before.is_zero() {
        sleep(fate.before).await;
        door.enter().await;
    }
    if let Some(refusal) = &fate.refused {
        let code = StatusCode::from_u16(refusal.code()).unwrap_or(StatusCode::BAD_REQUEST);
        door.note(&parts.method, &path, code);
        return Ok(failed(refusal));
    }
    let answer = answer(cluster, door, &parts.method, &path, &query, &bytes);
    door.note(&parts.method, &path, answer.status());
    if !fate.after.is_zero() {
        sleep(fate.after).await;
    }
    // Also what was carried out may go without an answer.
    door.enter().await;
    if fate.is_lost { Err(Lost) } else { Ok(answer) }
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

/// Takes `%2F` and the like for what they stand for.
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

/// Where a path leads.
#[derive(Debug)]
struct Place {
    kind: Kind,
    namespace: String,
    name: String,
    subresource: String,
}

fn place(path: &str) -> Option<Place> {
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
    Some(Place {
        kind: Kind::find(group, rest.first()?)?,
        namespace: namespace.to_owned(),
        name: part(1),
        subresource: part(2),
    })
}

fn answer(
    cluster: &Cluster,
    door: &Arc<impl Door>,
    method: &Method,
    path: &str,
    query: &Query,
    bytes: &Bytes,
) -> Response<Stream> {
    let Some(place) = place(path) else {
        return failed(&Status::no_such_resource());
    };
    if *method == Method::GET && place.name.is_empty() {
        let selector = LabelSelector::parse(query.get("labelSelector")).unwrap_or_default();
        return if query.get("watch").is_empty() {
            list(cluster, &place, &selector)
        } else {
            follow(cluster, door, place.kind, selector, query)
        };
    }
    let outcome = match *method {
        Method::GET => read(cluster, &place),
        Method::POST => create(cluster, &place, query, bytes),
        Method::PATCH => patch(cluster, &place, query, bytes),
        Method::DELETE => delete(cluster, &place, bytes),
        _ => Err(Status::method_unknown_here()),
    };
    match outcome {
        Ok(object) => whole(&shown(&object)),
        Err(status) => failed(&status),
    }
}

fn id(place: &Place) -> Id {
    Id::new(place.kind, &place.namespace, &place.name)
}

fn read(cluster: &Cluster, place: &Place) -> Result<Arc<Value>, Status> {
    let found = cluster.get(&id(place));
    found.ok_or_else(|| Status::not_found(place.kind.resource(), &place.name))
}

fn parsed(bytes: &Bytes) -> Result<Value, Status> {
    serde_json::from_slice(bytes).map_err(|error| Status::bad_request(error.to_string()))
}

fn create(
    cluster: &Cluster,
    place: &Place,
    query: &Query,
    bytes: &Bytes,
) -> Result<Arc<Value>, Status> {
    let object = parsed(bytes)?;
    if place.kind == Kind::Event {
        // For people, of whom there are none here.
        return Ok(Arc::new(object));
    }
    let by = By::whole(query.get("fieldManager"));
    cluster.create(place.kind, &place.namespace, object, by)
}

fn patch(
    cluster: &Cluster,
    place: &Place,
    query: &Query,
    bytes: &Bytes,
) -> Result<Arc<Value>, Status> {
    let body = parsed(bytes)?;
    if place.kind == Kind::Event {
        return Ok(Arc::new(body));
    }
    let by = By {
        manager: query.get("fieldManager"),
        subresource: &place.subresource,
    };
    let patch = if query.get("force") == "true" {
        Patch::Apply(body)
    } else {
        Patch::Merge(body)
    };
    cluster.patch(&id(place), &patch, by)
}

fn delete(cluster: &Cluster, place: &Place, bytes: &Bytes) -> Result<Arc<Value>, Status> {
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
    cluster.delete(&id(place), &deletion)
}

/// Nobody here reads managed fields, and they are long.
pub(super) fn shown(object: &Value) -> Value {
    let mut object = object.clone();
    meta::metadata_mut(&mut object).shift_remove("managedFields");
    object
}

fn whole(value: &Value) -> Response<Stream> {
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

fn list(cluster: &Cluster, place: &Place, selector: &LabelSelector) -> Response<Stream> {
    let all = cluster.list(place.kind);
    let is_wanted = |object: &&Arc<Value>| {
        selector.matches(object)
            && (place.namespace.is_empty() || meta::namespace(object) == place.namespace)
    };
    let items: Vec<Value> = all.iter().filter(is_wanted).map(|one| shown(one)).collect();
    whole(&json!({
        "apiVersion": place.kind.api_version(),
        "kind": format!("{}List", place.kind.facts().kind),
        "metadata": {"resourceVersion": cluster.revision().to_string()},
        "items": items,
    }))
}

/// Where a watch is.
struct Following<D> {
    cluster: Cluster,
    door: Arc<D>,
    kind: Kind,
    selector: LabelSelector,
    changes: Listener<u64>,
    revision: u64,
    until: Instant,
    waiting: VecDeque<Bytes>,
    is_over: bool,
}

fn follow<D: Door>(
    cluster: &Cluster,
    door: &Arc<D>,
    kind: Kind,
    selector: LabelSelector,
    query: &Query,
) -> Response<Stream> {
    let (held, _) = door.watch();
    let timeout = query.get("timeoutSeconds").parse().unwrap_or(290);
    let following = Following {
        changes: cluster.changes(),
        cluster: cluster.clone(),
        door: Arc::clone(door),
        kind,
        selector,
        revision: query.get("resourceVersion").parse().unwrap_or(0),
        until: Instant::now() + held.min(Duration::from_secs(timeout)),
        waiting: VecDeque::new(),
        is_over: false,
    };
    let frames = stream::unfold(following, |mut following| async move {
        let line = following.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(line)), following))
    });
    respond(StatusCode::OK, StreamBody::new(frames).boxed_unsync())
}

impl<D: Door> Following<D> {
    /// The next line, or nothing when the watch ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                return Some(line);
            }
            if self.is_over || Instant::now() >= self.until {
                return None;
            }
            self.changes.hear();
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
                    let (_, lag) = self.door.watch();
                    if !lag.is_zero() {
                        sleep(lag).await;
                    }
                    self.door.enter().await;
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
        Some(line(change.what.word(), change.text()))
    }
}

fn line(word: &str, object: &str) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{word}\",\"object\":{object}}}\n"))
}
