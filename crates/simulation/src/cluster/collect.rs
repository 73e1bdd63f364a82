//! The garbage collector: owners that go take along what they own, or let it go.

use std::sync::Arc;

use apimachinery::meta;
use serde_json::{Value, json};

use super::{By, Cluster, Deletion, FOREGROUND, Id, Kind, ORPHAN, Patch, What};

const MANAGER: &str = "garbage-collector";

impl Cluster {
    /// Looks at what has changed after that revision; answers how far it got.
    pub(crate) fn collect(&self, since: u64) -> u64 {
        let Some(changes) = self.since(since, usize::MAX) else {
            return self.revision();
        };
        let mut seen = since;
        for change in changes {
            seen = change.revision;
            match change.what {
                What::Deleted => self.owner_is_gone(&change.object),
                What::Added | What::Modified => self.look_at(&change.id),
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

    fn owner_is_gone(&self, owner: &Value) {
        for id in self.owned_by(meta::uid(owner)) {
            self.delete_orphan(&id);
        }
        // Those that waited for this one.
        for waited in meta::owner_references(owner) {
            if let Some(id) = find(waited.kind, meta::namespace(owner), waited.name) {
                self.look_at(&id);
            }
        }
    }

    /// Deletes what none of its owners is left of.
    fn delete_orphan(&self, id: &Id) {
        let Some(object) = self.get(id) else { return };
        let mut owners = meta::owner_references(&object).peekable();
        let exists = |owner: meta::OwnerReference<'_>| {
            let id = find(owner.kind, &id.namespace, owner.name);
            let found = id.and_then(|id| self.get(&id));
            found.is_some_and(|found| meta::uid(&found) == owner.uid)
        };
        if owners.peek().is_some() && !owners.any(exists) && !meta::is_deleting(&object) {
            // It may be gone by now, which is as well.
            let _gone = self.delete(id, &Deletion::default()).is_ok();
        }
    }

    fn look_at(&self, id: &Id) {
        let Some(object) = self.get(id) else { return };
        self.delete_orphan(id);
        if !meta::is_deleting(&object) {
            return;
        }
        let holds = |name| meta::finalizers(&object).any(|one| one == name);
        if holds(ORPHAN) {
            for owned in self.owned_by(meta::uid(&object)) {
                self.let_go(&owned, meta::uid(&object));
            }
            self.take_off(id, &object, ORPHAN);
        } else if holds(FOREGROUND) {
            let owned = self.owned_by(meta::uid(&object));
            if owned.is_empty() {
                self.take_off(id, &object, FOREGROUND);
            }
            for owned in owned {
                let _gone = self.delete(&owned, &Deletion::default()).is_ok();
            }
        }
    }

    fn let_go(&self, id: &Id, owner: &str) {
        let Some(object) = self.get(id) else { return };
        let all = object["metadata"]["ownerReferences"].as_array();
        let left: Vec<&Value> = all
            .into_iter()
            .flatten()
            .filter(|one| one["uid"] != owner)
            .collect();
        let body = json!({"metadata": {"ownerReferences": left}});
        let _written = self
            .patch(id, &Patch::Merge(body), By::whole(MANAGER))
            .is_ok();
    }

    fn take_off(&self, id: &Id, object: &Arc<Value>, finalizer: &str) {
        let left: Vec<&str> = meta::finalizers(object)
            .filter(|one| *one != finalizer)
            .collect();
        let body = json!({"metadata": {
            "resourceVersion": meta::resource_version(object), "finalizers": left,
        }});
        let _written = self
            .patch(id, &Patch::Merge(body), By::whole(MANAGER))
            .is_ok();
    }
}

fn find(kind: &str, namespace: &str, name: &str) -> Option<Id> {
    let kind = Kind::ALL.into_iter().find(|one| one.facts().kind == kind)?;
    Some(Id::new(kind, namespace, name))
}
