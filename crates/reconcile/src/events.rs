//! Events on objects: what users read with `kubectl describe`.
//!
//! Publishing never waits and never fails a reconcile; one task writes. The same event on the
//! same object again is one Event object with a higher count.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Api, Client, Resource};
use reasons::Reason;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::apply::{WriteError, create, merge};
use crate::chain::error_chain;
use crate::{Clock, Key};

/// Events that may wait to be written. A burst beyond it (hundreds of objects failing at the same
/// moment with a server that answers slowly) loses the newest, which are counted.
const WAITING: usize = 512;
/// Different events whose counts are remembered; past it, counting starts over.
const REMEMBERED: usize = 4096;

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

/// The end that publishes. Clones share the task.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Noted>,
    clock: Clock,
    lost: Arc<AtomicU64>,
}

/// The end that writes; spawn [`RecorderTask::run`].
pub struct RecorderTask {
    client: Client,
    component: &'static str,
    queue: mpsc::Receiver<Noted>,
    counts: HashMap<String, (i32, Timestamp)>,
    lost: Arc<AtomicU64>,
    /// Of those that were lost.
    told: u64,
}

impl fmt::Debug for RecorderTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderTask")
            .field("component", &self.component)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Noted {
    on: ObjectReference,
    kind: EventType,
    reason: Reason,
    note: String,
    at: Timestamp,
}

/// A recorder for one component, such as `virtualmachine-controller`.
pub fn recorder(client: Client, component: &'static str, clock: Clock) -> (Recorder, RecorderTask) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let lost = Arc::new(AtomicU64::new(0));
    let task = RecorderTask {
        client,
        component,
        queue: receiver,
        counts: HashMap::new(),
        lost: Arc::clone(&lost),
        told: 0,
    };
    let queue = sender;
    let recorder = Recorder { queue, clock, lost };
    (recorder, task)
}

impl Recorder {
    pub fn publish<K>(&self, on: &K, kind: EventType, reason: Reason, note: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        let noted = Noted {
            on: on.object_ref(&()),
            kind,
            reason,
            note: note.into(),
            at: self.clock.now(),
        };
        if let Err(lost) = self.queue.try_send(noted) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%reason, error = %lost, "event is lost");
        }
    }

    /// How many events were lost so far, because too many waited or nobody writes any more.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl RecorderTask {
    /// Writes events until stopped and the queue is drained.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let noted = tokio::select! {
                biased;
                noted = self.queue.recv() => noted,
                () = stop.cancelled() => None,
            };
            let Some(noted) = noted else { return };
            if let Err(error) = self.write(&noted).await {
                tracing::warn!(
                    reason = %noted.reason,
                    error = error_chain(&error),
                    "event cannot be written"
                );
            }
            // Once for a burst: as many lines as events would be no help.
            let lost = self.newly_lost();
            if lost > 0 {
                tracing::warn!(
                    lost,
                    component = self.component,
                    "events were lost: too many came at once"
                );
            }
        }
    }

    /// How many were lost since this was last asked.
    fn newly_lost(&mut self) -> u64 {
        let all = self.lost.load(Ordering::Relaxed);
        let fresh = all - self.told;
        self.told = all;
        fresh
    }

    async fn write(&mut self, noted: &Noted) -> Result<(), WriteError> {
        let namespace = noted.on.namespace.clone().unwrap_or_default();
        let api = Api::<Event>::namespaced(self.client.clone(), &namespace);
        let key = Key::new(namespace, event_name(noted));
        if self.counts.len() > REMEMBERED {
            self.counts.clear();
        }
        if let Some((count, _)) = self.counts.get_mut(&key.name) {
            *count = count.saturating_add(1);
            let body = json!({"count": *count, "lastTimestamp": Time(noted.at)});
            match merge(&api, self.component, &key, &body).await {
                // Events are removed after a while; then this one starts anew.
                Err(WriteError::NotFound { .. }) => {}
                outcome => return outcome.map(drop),
            }
        }
        self.counts.insert(key.name.clone(), (1, noted.at));
        match create(&api, self.component, &key, &self.event(&key, noted)).await {
            Ok(_) => Ok(()),
            // Written by an earlier life of this process, which knew the count.
            Err(WriteError::AlreadyExists { .. }) => {
                let body = json!({"lastTimestamp": Time(noted.at)});
                merge(&api, self.component, &key, &body).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    fn event(&self, key: &Key, noted: &Noted) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: noted.on.clone(),
            type_: Some(noted.kind.as_str().to_owned()),
            reason: Some(noted.reason.into()),
            message: Some(noted.note.clone()),
            count: Some(1),
            first_timestamp: Some(Time(noted.at)),
            last_timestamp: Some(Time(noted.at)),
            source: Some(EventSource {
                component: Some(self.component.to_owned()),
                host: None,
            }),
            reporting_component: Some(self.component.to_owned()),
            ..Event::default()
        }
    }
}

/// The same for the same thing said about the same object, in any life of the process.
fn event_name(noted: &Noted) -> String {
    let mut hasher = DefaultHasher::new();
    (&noted.on.uid, noted.kind, &noted.reason, &noted.note).hash(&mut hasher);
    let name = noted.on.name.as_deref().unwrap_or("unknown");
    // Room for the hash within the 253 characters of a name.
    let name: String = name.chars().take(230).collect();
    format!("{name}.{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let (queue, mut waiting) = mpsc::channel(2);
        let recorder = Recorder {
            queue,
            clock: Clock::starting_at(Timestamp::UNIX_EPOCH),
            lost: Arc::default(),
        };
        let publish = |note: &str| {
            let clone = recorder.clone();
            clone.publish(&Pod::default(), EventType::Normal, Reason::Started, note);
        };
        for note in ["a", "b", "c", "d"] {
            publish(note);
        }
        assert_eq!(recorder.lost(), 2);
        // The oldest stay, and there is room again once they are written.
        assert_eq!(waiting.try_recv().unwrap().note, "a");
        publish("e");
        assert_eq!(recorder.lost(), 2);
    }
}
