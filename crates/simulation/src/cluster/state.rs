//! The objects and the log of changes of the simulated API server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use apimachinery::meta;
use serde_json::Value;

use super::{Change, EventType, Id};

/// Changes in the log. A watch that is further behind has to list again.
const LOG_LIMIT: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) objects: BTreeMap<Id, Arc<Value>>,
    /// Owner's UID to the objects that refer to it.
    pub(super) owned: BTreeMap<String, Vec<Id>>,
    pub(super) revision: u64,
    /// The last revision that is no longer in the log.
    pub(super) forgotten: u64,
    pub(super) log: VecDeque<Change>,
    pub(super) uids: u64,
    /// Deletions by a controller of VMIs without an owner.
    pub(super) violations: Vec<String>,
    /// UIDs of pods that anything but a controller deleted.
    pub(super) deleted_by_others: BTreeSet<String>,
}

impl State {
    /// Stores a change under the next revision.
    pub(super) fn store(
        &mut self,
        id: &Id,
        event_type: EventType,
        mut object: Value,
    ) -> Arc<Value> {
        self.revision += 1;
        let revision = self.revision;
        meta::metadata_mut(&mut object)
            .insert("resourceVersion".to_owned(), revision.to_string().into());
        let object = Arc::new(object);
        if let Some(before) = self.objects.remove(id) {
            for owner in meta::owner_references(&before) {
                if let Some(all) = self.owned.get_mut(owner.uid) {
                    all.retain(|one| one != id);
                    if all.is_empty() {
                        self.owned.remove(owner.uid);
                    }
                }
            }
        }
        if event_type != EventType::Deleted {
            for owner in meta::owner_references(&object) {
                let all = self.owned.entry(owner.uid.to_owned()).or_default();
                all.push(id.clone());
            }
            self.objects.insert(id.clone(), Arc::clone(&object));
        }
        self.log.push_back(Change {
            revision,
            id: id.clone(),
            event_type,
            object: Arc::clone(&object),
            text: Arc::default(),
        });
        if self.log.len() > LOG_LIMIT
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = oldest.revision;
        }
        object
    }
}
