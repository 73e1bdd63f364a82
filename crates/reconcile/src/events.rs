//! Kubernetes events about objects, which users read with `kubectl describe`.
//!
//! Publishing never waits and never fails a reconcile; one task writes. A repeated event about the
//! same object is one Event object with a higher count.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use error_chain::error_chain;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Api, Client, Resource};
use reasons::Reason;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::apply::{WriteError, create, merge};
use crate::{Clock, Key, metrics};

/// Events that may wait to be written. A larger burst (hundreds of objects failing at the same
/// moment with a slow server) drops the newest, which are counted.
const WAITING: usize = 512;
/// Different events whose counts are remembered; beyond that, counting starts over.
const REMEMBERED: usize = 4096;
/// The namespace of events about objects without one.
const CLUSTER_SCOPED: &str = "default";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The publishing end. Clones share the task.
#[derive(Debug, Clone)]
pub struct Recorder {
    component: &'static str,
    queue: mpsc::Sender<Published>,
    clock: Clock,
    dropped: Arc<AtomicU64>,
}

/// The writing end; spawn [`RecorderTask::run`].
pub struct RecorderTask {
    client: Client,
    component: &'static str,
    queue: mpsc::Receiver<Published>,
    counts: HashMap<String, (i32, Timestamp)>,
    dropped: Arc<AtomicU64>,
    /// How many dropped events were logged so far.
    logged: u64,
}

impl fmt::Debug for RecorderTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderTask")
            .field("component", &self.component)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Published {
    object: ObjectReference,
    kind: EventType,
    reason: Reason,
    message: String,
    at: Timestamp,
}

/// A recorder for one component, such as `virtualmachine-controller`.
pub fn recorder(client: Client, component: &'static str, clock: Clock) -> (Recorder, RecorderTask) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let dropped = Arc::new(AtomicU64::new(0));
    let task = RecorderTask {
        client,
        component,
        queue: receiver,
        counts: HashMap::new(),
        dropped: Arc::clone(&dropped),
        logged: 0,
    };
    let recorder = Recorder {
        component,
        queue: sender,
        clock,
        dropped,
    };
    (recorder, task)
}

impl Recorder {
    pub fn publish<K>(
        &self,
        object: &K,
        kind: EventType,
        reason: Reason,
        message: impl Into<String>,
    ) where
        K: Resource<DynamicType = ()>,
    {
        let event = Published {
            object: object.object_ref(&()),
            kind,
            reason,
            message: message.into(),
            at: self.clock.now(),
        };
        if let Err(error) = self.queue.try_send(event) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            metrics::EVENTS.increment([self.component, "dropped"]);
            tracing::debug!(%reason, %error, "event dropped");
        }
    }

    /// How many events were dropped so far, because too many waited or the writing task ended.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl RecorderTask {
    /// Writes events until stopped and the queue is drained.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                event = self.queue.recv() => event,
                () = stop.cancelled() => None,
            };
            let Some(event) = event else { return };
            let written = self.write(&event).await;
            let result = if written.is_ok() { "written" } else { "failed" };
            metrics::EVENTS.increment([self.component, result]);
            if let Err(error) = written {
                tracing::warn!(
                    reason = %event.reason,
                    error = error_chain(&error),
                    "failed to write an event"
                );
            }
            // One line for a burst, not one for each event.
            let dropped = self.newly_dropped();
            if dropped > 0 {
                tracing::warn!(
                    dropped,
                    component = self.component,
                    "event queue is full: events dropped"
                );
            }
        }
    }

    /// How many events were dropped since the last call.
    fn newly_dropped(&mut self) -> u64 {
        let all = self.dropped.load(Ordering::Relaxed);
        let new = all - self.logged;
        self.logged = all;
        new
    }

    async fn write(&mut self, event: &Published) -> Result<(), WriteError> {
        let namespace = event.object.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| CLUSTER_SCOPED.to_owned());
        let api = Api::<Event>::namespaced(self.client.clone(), &namespace);
        let key = Key::new(namespace, event_name(event));
        if self.counts.len() > REMEMBERED {
            self.counts.clear();
        }
        if let Some((count, _)) = self.counts.get_mut(&key.name) {
            *count = count.saturating_add(1);
            let body = json!({"count": *count, "lastTimestamp": Time(event.at)});
            match merge(&api, self.component, &key, &body).await {
                // The server removes old events; then this one is created again.
                Err(WriteError::NotFound { .. }) => {}
                outcome => return outcome.map(drop),
            }
        }
        self.counts.insert(key.name.clone(), (1, event.at));
        match create(&api, self.component, &key, &self.event(&key, event)).await {
            Ok(_) => Ok(()),
            // Written by an earlier process, which knew the count.
            Err(WriteError::AlreadyExists { .. }) => {
                let body = json!({"lastTimestamp": Time(event.at)});
                merge(&api, self.component, &key, &body).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    fn event(&self, key: &Key, event: &Published) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: event.object.clone(),
            type_: Some(event.kind.as_str().to_owned()),
            reason: Some(event.reason.into()),
            message: Some(event.message.clone()),
            count: Some(1),
            first_timestamp: Some(Time(event.at)),
            last_timestamp: Some(Time(event.at)),
            source: Some(EventSource {
                component: Some(self.component.to_owned()),
                host: None,
            }),
            reporting_component: Some(self.component.to_owned()),
            ..Event::default()
        }
    }
}

/// The same name for the same event about the same object, in every process.
fn event_name(event: &Published) -> String {
    let mut hasher = DefaultHasher::new();
    (&event.object.uid, event.kind, &event.reason, &event.message).hash(&mut hasher);
    let name = event.object.name.as_deref().unwrap_or("unknown");
    // Leaves space for the hash within the 253 characters of a name.
    let name: String = name.chars().take(230).collect();
    format!("{name}.{:016x}", hasher.finish())
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    /// Events that wait to be written.
    pub(crate) struct Waiting(mpsc::Receiver<Published>);

    impl Waiting {
        pub(crate) fn try_next(&mut self) -> Option<(Reason, String)> {
            let event = self.0.try_recv().ok()?;
            Some((event.reason, event.message))
        }
    }

    /// A recorder whose events are not written, with space for that many.
    pub(crate) fn recorder(space: usize) -> (Recorder, Waiting) {
        let (queue, waiting) = mpsc::channel(space);
        let recorder = Recorder {
            component: "test",
            queue,
            clock: Clock::starting_at(Timestamp::UNIX_EPOCH),
            dropped: Arc::default(),
        };
        (recorder, Waiting(waiting))
    }

    #[test]
    fn events_beyond_the_queue_are_counted() {
        let (recorder, mut waiting) = recorder(2);
        let publish = |message: &str| {
            let clone = recorder.clone();
            clone.publish(&Pod::default(), EventType::Normal, Reason::Started, message);
        };
        for message in ["a", "b", "c", "d"] {
            publish(message);
        }
        assert_eq!(recorder.dropped(), 2);
        // The oldest stay; a slot is free once one of them is written.
        assert_eq!(waiting.try_next().unwrap().1, "a");
        publish("e");
        assert_eq!(recorder.dropped(), 2);
    }
}
