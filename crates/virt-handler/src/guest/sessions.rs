//! The registry of launcher sessions, one per pod of a guest.

use std::{collections::HashMap, sync::Arc};

use domain_xml::Facts;
use parking_lot::Mutex;
use reconcile::Key;

use super::{
    nics::Nics, observe::Part, plan::Synced, plugged::Plugged, resize::Resizing,
    status::PreparedStatus,
};
use crate::{launcher::Session, pods_dir::PodUid};

/// The session with one pod of a guest and the steps that this process has already taken over it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) pod: PodUid,
    pub(super) part: Part,
    pub(crate) session: Arc<Session>,
    /// The last sync of the guest.
    pub(super) synced: Option<Synced>,
    /// The failed pings of the guest agent that were published. `None` before the first report.
    pub(super) failed_pings: Option<u32>,
    /// Status that was computed while the pod was prepared.
    pub(super) prepared: Option<PreparedStatus>,
    /// Facts about the pod that the domain was rendered from.
    pub(super) facts: Option<Facts>,
    /// The volumes that the guest got and lost while it ran.
    pub(super) plugged: Plugged,
    /// The interfaces that the guest gets and loses while it runs.
    pub(super) nics: Nics,
    /// Processors and memory that the guest gets while it runs.
    pub(super) resizing: Resizing,
    /// The grace period in seconds of the last shutdown request.
    pub(super) shutdown_grace: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Two for a guest that moves from one pod of this node to another.
    entries: Mutex<HashMap<Key, Vec<Entry>>>,
}

impl Sessions {
    /// The entry of the pod to which the guest belongs; that of the pod to which it is to move, if it
    /// belongs to another node.
    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        let entries = self.entries.lock();
        let all = entries.get(key)?;
        let runs = all.iter().find(|entry| entry.part == Part::Runs);
        runs.or_else(|| all.first()).cloned()
    }

    /// The entry for the pod, with its part as it is now.
    pub(super) fn get_or_open(
        &self,
        key: &Key,
        (pod, part): (&PodUid, Part),
        open: impl FnOnce() -> Session,
    ) -> Entry {
        let mut entries = self.entries.lock();
        let all = entries.entry(key.clone()).or_default();
        if let Some(entry) = all.iter_mut().find(|entry| entry.pod == *pod) {
            entry.part = part;
            return entry.clone();
        }
        let entry = Entry {
            pod: pod.clone(),
            part,
            session: Arc::new(open()),
            synced: None,
            failed_pings: None,
            prepared: None,
            facts: None,
            plugged: Plugged::default(),
            nics: Nics::default(),
            resizing: Resizing::default(),
            shutdown_grace: None,
        };
        all.push(entry.clone());
        entry
    }

    /// Changes the entry, unless the pod has none any more.
    pub(super) fn update(&self, key: &Key, pod: &PodUid, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.entries.lock();
        let mut all = entries.get_mut(key).into_iter().flatten();
        if let Some(entry) = all.find(|entry| entry.pod == *pod) {
            change(entry);
        }
    }

    /// Removes the entries of other pods; dropping a session ends its task.
    pub(super) fn keep(&self, key: &Key, pods: &[&PodUid]) {
        let mut entries = self.entries.lock();
        if let Some(all) = entries.get_mut(key) {
            all.retain(|entry| pods.contains(&&entry.pod));
            if all.is_empty() {
                entries.remove(key);
            }
        }
    }
}
