//! Warning events about missing requirements of the node.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use reconcile::{EventType, Recorder};
use tokio::time::Instant;

use super::requirements::MissingRequirement;

/// API servers delete events after an hour, so they are published again before.
const REPEAT_AFTER: Duration = Duration::from_mins(30);
/// The namespace of events about nodes, which have no namespace themselves.
pub(super) const EVENT_NAMESPACE: &str = "default";

/// The published warnings, with the time of their last event.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    published: Mutex<HashMap<MissingRequirement, Instant>>,
}

impl Warnings {
    /// Publishes events for new requirements, and repeats those that are about to expire.
    pub(super) fn publish(
        &self,
        recorder: &Recorder,
        node: &Node,
        missing: Vec<MissingRequirement>,
    ) {
        let mut published = self.published.lock();
        published.retain(|one, at| missing.contains(one) && at.elapsed() < REPEAT_AFTER);
        let mut node = node.clone();
        node.metadata.namespace = Some(EVENT_NAMESPACE.to_owned());
        for requirement in missing {
            if published.contains_key(&requirement) {
                continue;
            }
            let MissingRequirement { reason, message } = &requirement;
            recorder.publish(&node, EventType::Warning, *reason, message.as_str());
            published.insert(requirement, Instant::now());
        }
    }
}
