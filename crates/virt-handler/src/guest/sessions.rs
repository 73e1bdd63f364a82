//! The registry of launcher sessions, one per guest.

use std::{collections::HashMap, sync::Arc};

use domain_xml::Facts;
use parking_lot::Mutex;
use reconcile::Key;

use super::{plan::Synced, plugged::Plugged, status::PreparedStatus};
use crate::{launcher::Session, pods_dir::PodUid};

/// One guest's session and the steps that this process has already taken over it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) pod: PodUid,
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
    /// The grace period in seconds of the last shutdown request.
    pub(super) shutdown_grace: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    entries: Mutex<HashMap<Key, Entry>>,
}

impl Sessions {
    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        self.entries.lock().get(key).cloned()
    }

    /// The entry for the pod. A new pod replaces the entry of the previous one.
    pub(super) fn get_or_open(
        &self,
        key: &Key,
        pod: &PodUid,
        open: impl FnOnce() -> Session,
    ) -> Entry {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(key).filter(|entry| entry.pod == *pod) {
            return entry.clone();
        }
        let entry = Entry {
            pod: pod.clone(),
            session: Arc::new(open()),
            synced: None,
            failed_pings: None,
            prepared: None,
            facts: None,
            plugged: Plugged::default(),
            shutdown_grace: None,
        };
        entries.insert(key.clone(), entry.clone());
        entry
    }

    /// Changes the entry, unless another pod has replaced it.
    pub(super) fn update(&self, key: &Key, pod: &PodUid, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self
            .entries
            .lock()
            .get_mut(key)
            .filter(|entry| entry.pod == *pod)
        {
            change(entry);
        }
    }

    /// Removes the entry; dropping the session ends its task.
    pub(super) fn remove(&self, key: &Key) {
        self.entries.lock().remove(key);
    }
}
