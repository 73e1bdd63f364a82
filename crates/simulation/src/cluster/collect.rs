//! The garbage collector: deletes or orphans the dependents of deleted owners.

use std::sync::Arc;

use apimachinery::meta;
use serde_json::{Value, json};

use super::{Author, Cluster, Deletion, EventType, FOREGROUND, Id, Kind, ORPHAN, Patch};

const MANAGER: &str = "garbage-collector";

impl Cluster {
    /// Processes the changes after that revision; returns the last revision.
    pub(crate) fn collect(&self, since: u64) -> u64 {
        let Some(changes) = self.since(since, usize::MAX) else {
            return self.revision();
        };
        let mut seen = since;
        for change in changes {
            seen = change.revision;
            match change.event_type {
                EventType::Deleted => self.on_owner_deleted(&change.object),
                EventType::Added | EventType::Modified => self.collect_object(&change.id),
            }
        }
        seen
    }

    fn owned_by(&self, uid: &str) -> Vec<Id> {
        self.0
            .state
            .lock()
            .owned
            .get(uid)
            .cloned()
            .unwrap_or_default()
    }

    fn on_owner_deleted(&self, owner: &Value) {
        for id in self.owned_by(meta::uid(owner)) {
            self.delete_orphan(&id);
        }
        // Owners that waited for this dependent.
        for waited in meta::owner_references(owner) {
            if let Some(id) = find(waited.kind, meta::namespace(owner), waited.name) {
                self.collect_object(&id);
            }
        }
    }

    /// Deletes an object without any remaining owner.
    fn delete_orphan(&self, id: &Id) {
        let Some(object) = self.get(id) else { return };
        let mut owners = meta::owner_references(&object).peekable();
        let exists = |owner: meta::OwnerReference<'_>| {
            let id = find(owner.kind, &id.namespace, owner.name);
            let found = id.and_then(|id| self.get(&id));
            found.is_some_and(|found| meta::uid(&found) == owner.uid)
        };
        if owners.peek().is_some() && !owners.any(exists) && !meta::is_deleting(&object) {
            // It may be gone already.
            let _gone = self.delete(id, &Deletion::default()).is_ok();
        }
    }

    fn collect_object(&self, id: &Id) {
        let Some(object) = self.get(id) else { return };
        self.delete_orphan(id);
        if !meta::is_deleting(&object) {
            return;
        }
        let holds = |name| meta::finalizers(&object).any(|one| one == name);
        if holds(ORPHAN) {
            for owned in self.owned_by(meta::uid(&object)) {
                self.orphan(&owned, meta::uid(&object));
            }
            self.remove_finalizer(id, &object, ORPHAN);
        } else if holds(FOREGROUND) {
            let owned = self.owned_by(meta::uid(&object));
            if owned.is_empty() {
                self.remove_finalizer(id, &object, FOREGROUND);
            }
            for owned in owned {
                let _gone = self.delete(&owned, &Deletion::default()).is_ok();
            }
        }
    }

    fn orphan(&self, id: &Id, owner: &str) {
        let Some(object) = self.get(id) else { return };
        let all = object["metadata"]["ownerReferences"].as_array();
        let left: Vec<&Value> = all
            .into_iter()
            .flatten()
            .filter(|one| one["uid"] != owner)
            .collect();
        let body = json!({"metadata": {"ownerReferences": left}});
        let _written = self
            .patch(id, &Patch::Merge(body), Author::main(MANAGER))
            .is_ok();
    }

    fn remove_finalizer(&self, id: &Id, object: &Arc<Value>, finalizer: &str) {
        let left: Vec<&str> = meta::finalizers(object)
            .filter(|one| *one != finalizer)
            .collect();
        let body = json!({"metadata": {
            "resourceVersion": meta::resource_version(object), "finalizers": left,
        }});
        let _written = self
            .patch(id, &Patch::Merge(body), Author::main(MANAGER))
            .is_ok();
    }
}

fn find(kind: &str, namespace: &str, name: &str) -> Option<Id> {
    Some(Id::new(Kind::named(kind)?, namespace, name))
}
