//! The guests that actually run, whatever the objects report.
//!
//! **Invariant**, checked here at every start: never two guests of one name.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cluster::Id;

/// How a guest ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Shutdown,
    Crash,
}

/// The state of the guest of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestState {
    NotStarted,
    Running,
    Ended(End),
}

#[derive(Debug, Clone)]
struct Guest {
    vmi: Id,
    vmi_uid: String,
    ended: Option<End>,
}

/// Clones share the guests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guests(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Guests by the UID of their pod.
    guests: BTreeMap<String, Guest>,
    violations: Vec<String>,
}

impl Guests {
    pub(crate) fn state(&self, pod_uid: &str) -> GuestState {
        match self.0.lock().guests.get(pod_uid).map(|guest| guest.ended) {
            None => GuestState::NotStarted,
            Some(None) => GuestState::Running,
            Some(Some(end)) => GuestState::Ended(end),
        }
    }

    pub(crate) fn start(&self, pod_uid: &str, vmi: &Id, vmi_uid: &str) {
        let mut state = self.0.lock();
        let runs = |guest: &&Guest| guest.vmi == *vmi && guest.ended.is_none();
        if let Some(other) = state.guests.values().find(runs) {
            let violation = format!(
                "two guests of {}/{}: of VMI {} and of {vmi_uid}",
                vmi.namespace, vmi.name, other.vmi_uid
            );
            state.violations.push(violation);
        }
        let guest = Guest {
            vmi: vmi.clone(),
            vmi_uid: vmi_uid.to_owned(),
            ended: None,
        };
        state.guests.insert(pod_uid.to_owned(), guest);
    }

    pub(crate) fn end(&self, pod_uid: &str, end: End) {
        if let Some(guest) = self.0.lock().guests.get_mut(pod_uid) {
            guest.ended.get_or_insert(end);
        }
    }

    /// Removes the guest without a trace.
    pub(crate) fn remove(&self, pod_uid: &str) {
        self.0.lock().guests.remove(pod_uid);
    }

    /// UIDs of the pods and the VMIs of running guests.
    pub(crate) fn running(&self) -> Vec<(String, String)> {
        let state = self.0.lock();
        let running = state
            .guests
            .iter()
            .filter(|(_, guest)| guest.ended.is_none());
        running
            .map(|(pod, guest)| (pod.clone(), guest.vmi_uid.clone()))
            .collect()
    }

    pub(crate) fn violation(&self) -> Option<String> {
        self.0.lock().violations.first().cloned()
    }
}
