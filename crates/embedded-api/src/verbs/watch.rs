//! Watch: the current state, then changes, as a stream of JSON lines or protobuf frames.
//!
//! Invariants: no change between the start and the end of a stream is omitted; a watcher too slow
//! for the live feed reads the log instead, and one that is behind the log gets an ERROR event with
//! 410. The only state per watcher is its position, and what its client has not read yet of one
//! chunk: bounded in bytes, and of many watches of a user, few hold more than `SMALL_BYTES`.

use std::{collections::VecDeque, time::Duration};

use apimachinery::meta;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, header};
use serde_json::{Value, json};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{Instant, Sleep, sleep_until},
};

use super::{
    Call, partial,
    read::{self, matches},
    shown,
};
use crate::{
    api::Api,
    encode::Frames,
    error::ApiError,
    fairness::Seat,
    metrics::WATCHERS,
    request::Representation,
    store::{Bound, Event, EventKind, Notice, Position, Scope},
};

/// Objects or changes read at once.
const CHUNK: usize = 100;
/// Of what is read at once.
const BOUND: Bound = Bound {
    count: CHUNK,
    bytes: CHUNK_BYTES,
};
/// The bytes after which a chunk ends.
const CHUNK_BYTES: usize = 1 << 20;
/// Watches that hold more take a seat among those of their user.
const SMALL_BYTES: usize = 256 << 10;
/// Interval of bookmarks to an idle watcher.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// For clients without a timeout parameter.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(45);
/// The longest timeout; clients then watch again. A clock cannot hold every number of seconds.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);

pub(crate) fn watch(api: &Api, call: Call) -> Result<Response, ApiError> {
    call.kind.check_fields(&call.query.fields)?;
    let live = api.store.notices();
    let phase = match call.query.resource_version {
        Some(revision) if revision > 0 && !call.query.initial_events => Phase::Replay(revision),
        _ => Phase::Initial {
            revision: None,
            after: None,
        },
    };
    let now = Instant::now();
    let frames = Frames(call.encoding);
    let resource = call.kind.resource().to_string();
    let watcher = Watcher {
        _counted: WATCHERS.hold([&resource]),
        scope: read::scope(&call),
        deadline: Box::pin(sleep_until(now + time_limit(call.query.timeout))),
        bookmark: Box::pin(sleep_until(now + BOOKMARK_PERIOD)),
        ready: VecDeque::new(),
        sent_columns: false,
        api: api.clone(),
        call,
        live,
        seat: None,
        phase,
    };
    let lines = stream::unfold(watcher, move |mut watcher| async move {
        let line = watcher.next().await?;
        let event = frames.encode(line);
        Some((Ok::<_, std::convert::Infallible>(event), watcher))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let media = HeaderValue::from_static(frames.media_type());
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

/// How long a watch stays open.
fn time_limit(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT)
}

enum Phase {
    /// Sends the current state; `revision` is that of the first chunk.
    Initial {
        revision: Option<u64>,
        after: Option<Position>,
    },
    /// Replays the log after a revision.
    Replay(u64),
    /// Everything up to a revision was sent.
    Live(u64),
    Over,
}

struct Watcher {
    api: Api,
    call: Call,
    scope: Scope,
    live: broadcast::Receiver<Notice>,
    /// Held while `ready` is large.
    seat: Option<Seat>,
    phase: Phase,
    deadline: std::pin::Pin<Box<Sleep>>,
    bookmark: std::pin::Pin<Box<Sleep>>,
    ready: VecDeque<Bytes>,
    /// Column definitions are sent once.
    sent_columns: bool,
    /// In the metric of open watches.
    _counted: metrics::Held,
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            self.seat = None;
            if matches!(self.phase, Phase::Over) {
                return None;
            }
            if let Err(error) = self.advance().await {
                self.ready.push_back(line("ERROR", &error.to_value()));
                self.phase = Phase::Over;
            }
        }
    }

    async fn advance(&mut self) -> Result<(), ApiError> {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Initial { revision, after } => self.send_state(revision, after).await,
            Phase::Replay(after) => self.replay(after).await,
            Phase::Live(sent) => self.wait(sent).await,
            Phase::Over => Ok(()),
        }
    }

    /// Waits until this watch may hold a chunk; false if it ends before.
    async fn reserve(&mut self) -> bool {
        let stop = self.api.stopping.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            seat = self.api.fairness.large(&self.call.level) => {
                self.seat = seat;
                true
            }
            () = self.deadline.as_mut() => false,
        }
    }

    /// Gives the seat back unless much was read.
    fn settle(&mut self) {
        let bytes: usize = self.ready.iter().map(Bytes::len).sum();
        if bytes <= SMALL_BYTES {
            self.seat = None;
        }
    }

    async fn send_state(
        &mut self,
        revision: Option<u64>,
        after: Option<Position>,
    ) -> Result<(), ApiError> {
        if !self.reserve().await {
            return Ok(());
        }
        let page = self.api.store.chunk(&self.scope, after, BOUND).await?;
        for stored in page.items {
            if matches(&self.api, &self.call, &stored.body, stored.revision).await? {
                self.push("ADDED", &stored.body, stored.revision).await?;
            }
        }
        self.settle();
        let revision = revision.unwrap_or(page.revision);
        if let Some(more) = page.more {
            let after = Some(more.after);
            self.phase = Phase::Initial {
                revision: Some(revision),
                after,
            };
            return Ok(());
        }
        if self.call.query.initial_events {
            self.push_bookmark(revision, &json!({"k8s.io/initial-events-end": "true"}));
        }
        self.phase = Phase::Replay(revision);
        Ok(())
    }

    async fn replay(&mut self, after: u64) -> Result<(), ApiError> {
        if !self.reserve().await {
            return Ok(());
        }
        let latest = self.api.store.revision().await?;
        let events = self
            .api
            .store
            .changes_after(&self.scope, after, BOUND)
            .await?;
        // After a full chunk there may be more; else everything up to `latest` was read.
        let last = events.last().map(|event| event.revision);
        let bytes: usize = events.iter().map(Event::bytes).sum();
        let is_full = events.len() >= BOUND.count || bytes >= BOUND.bytes;
        self.phase = match last {
            Some(last) if is_full => Phase::Replay(last),
            last => Phase::Live(last.unwrap_or(after).max(latest).max(after)),
        };
        for event in &events {
            self.push_event(event).await?;
        }
        self.settle();
        Ok(())
    }

    async fn wait(&mut self, sent: u64) -> Result<(), ApiError> {
        let stop = self.api.stopping.clone();
        let received = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            received = self.live.recv() => received,
            () = self.deadline.as_mut() => {
                if self.call.query.bookmarks {
                    self.push_bookmark(sent, &Value::Null);
                }
                return Ok(());
            }
            () = self.bookmark.as_mut() => {
                self.bookmark.as_mut().reset(Instant::now() + BOOKMARK_PERIOD);
                if self.call.query.bookmarks {
                    self.push_bookmark(sent, &Value::Null);
                }
                self.phase = Phase::Live(sent);
                return Ok(());
            }
        };
        match received {
            Ok(Notice::Change(event)) => {
                if event.revision > sent && self.scope.holds(&event.key) {
                    self.push_event(&event).await?;
                }
                self.phase = Phase::Live(sent.max(event.revision));
            }
            Ok(Notice::Large { revision, key }) => {
                self.phase = if revision > sent && self.scope.holds(&key) {
                    Phase::Replay(sent)
                } else {
                    Phase::Live(sent.max(revision))
                };
            }
            Err(RecvError::Lagged(_)) => self.phase = Phase::Replay(sent),
            Err(RecvError::Closed) => {}
        }
        Ok(())
    }

    /// The type of an event depends on whether the object matched before.
    async fn push_event(&mut self, event: &Event) -> Result<(), ApiError> {
        let now = matches(&self.api, &self.call, &event.body, event.revision).await?;
        let before = match &event.previous {
            Some(previous) => matches(&self.api, &self.call, previous, event.revision).await?,
            None => event.kind != EventKind::Added && now,
        };
        let kind = match (event.kind, before, now) {
            (EventKind::Deleted, true, _) | (_, true, false) => "DELETED",
            (EventKind::Deleted, false, _) | (_, false, false) => return Ok(()),
            (_, false, true) => "ADDED",
            (_, true, true) => "MODIFIED",
        };
        if let ("DELETED", EventKind::Modified, Some(previous)) =
            (kind, event.kind, &event.previous)
        {
            // An object that no longer matches is sent in its last matching state, with the
            // revision of the change.
            let mut last: Value = serde_json::from_slice(previous)?;
            meta::set(&mut last, "resourceVersion", event.revision.to_string());
            let last = Bytes::from(last.to_string());
            return self.push(kind, &last, event.revision).await;
        }
        self.push(kind, &event.body, event.revision).await
    }

    async fn push(&mut self, kind: &str, body: &Bytes, revision: u64) -> Result<(), ApiError> {
        let call = &self.call;
        let line = if call.representation == Representation::Object
            && call.kind.is_storage_version()
            && call.kind.later_schema(revision).is_none()
        {
            raw_line(kind, body)
        } else {
            let object = serde_json::from_slice(body)?;
            let object = shown(&self.api, &call.kind, object, revision).await?;
            let shown = match call.representation {
                Representation::Object => object,
                Representation::Metadata => partial(&object),
                Representation::Table => {
                    let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                    let mut table = read::table(&self.api, call, &[object], &meta);
                    if std::mem::replace(&mut self.sent_columns, true) {
                        table["columnDefinitions"] = Value::Null;
                    }
                    table
                }
            };
            line(kind, &shown)
        };
        self.ready.push_back(line);
        Ok(())
    }

    fn push_bookmark(&mut self, revision: u64, annotations: &Value) {
        let kind = &self.call.kind;
        let mut object = json!({
            "kind": kind.kind, "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": revision.to_string()},
        });
        if !annotations.is_null() {
            object["metadata"]["annotations"] = annotations.clone();
        }
        if kind.is("", "pods") {
            // Clients decode bookmarks as typed objects, and a pod requires these fields.
            object["spec"] = json!({"containers": null});
            object["status"] = json!({});
        }
        let shown = match self.call.representation {
            Representation::Object => object,
            Representation::Metadata => partial(&object),
            Representation::Table => read::table(&self.api, &self.call, &[], &object["metadata"]),
        };
        self.ready.push_back(line("BOOKMARK", &shown));
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    raw_line(kind, object.to_string().as_bytes())
}

fn raw_line(kind: &str, object: &[u8]) -> Bytes {
    [
        b"{\"type\":\"",
        kind.as_bytes(),
        b"\",\"object\":",
        object,
        b"}\n",
    ]
    .concat()
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn any_number_of_seconds_is_a_time_limit() {
        for (asked, expected) in [
            (None, DEFAULT_TIMEOUT),
            (Some(0), Duration::ZERO),
            (Some(60), Duration::from_mins(1)),
            (Some(i64::MAX.unsigned_abs()), MAX_TIMEOUT),
            (Some(u64::MAX), MAX_TIMEOUT),
        ] {
            let limit = time_limit(asked.map(Duration::from_secs));
            assert_eq!(limit, expected, "{asked:?}");
            assert!(Instant::now().checked_add(limit).is_some(), "{asked:?}");
        }
    }
}
