//! The guests that really run, whatever any object says.
//!
//! **Invariant**, watched here at every start: never two for one name.

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

/// How a guest stands, by the pod it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    NotStarted,
    Runs,
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
pub(crate) struct Guests(Arc<Mutex<House>>);

#[derive(Debug, Default)]
struct House {
    /// By the UID of the pod.
    guests: BTreeMap<String, Guest>,
    violations: Vec<String>,
}

impl Guests {
    pub(crate) fn standing(&self, pod_uid: &str) -> Standing {
        match self.0.lock().guests.get(pod_uid).map(|guest| guest.ended) {
            None => Standing::NotStarted,
            Some(None) => Standing::Runs,
            Some(Some(end)) => Standing::Ended(end),
        }
    }

    pub(crate) fn start(&self, pod_uid: &str, vmi: &Id, vmi_uid: &str) {
        let mut house = self.0.lock();
        let runs = |guest: &&Guest| guest.vmi == *vmi && guest.ended.is_none();
        if let Some(other) = house.guests.values().find(runs) {
            let violation = format!(
                "two guests of {}/{}: of instance {} and of {vmi_uid}",
                vmi.namespace, vmi.name, other.vmi_uid
            );
            house.violations.push(violation);
        }
        let guest = Guest {
            vmi: vmi.clone(),
            vmi_uid: vmi_uid.to_owned(),
            ended: None,
        };
        house.guests.insert(pod_uid.to_owned(), guest);
    }

    pub(crate) fn end(&self, pod_uid: &str, end: End) {
        if let Some(guest) = self.0.lock().guests.get_mut(pod_uid) {
            guest.ended.get_or_insert(end);
        }
    }

    /// Nothing is left of it.
    pub(crate) fn remove(&self, pod_uid: &str) {
        self.0.lock().guests.remove(pod_uid);
    }

    /// UIDs of pods and of VMIs of guests that run.
    pub(crate) fn running(&self) -> Vec<(String, String)> {
        let house = self.0.lock();
        let running = house
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
