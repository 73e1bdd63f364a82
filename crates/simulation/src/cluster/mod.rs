//! A stand-in for the API server: objects in memory, the rules that controllers lean on (resource
//! versions, server-side apply, finalizers, owners), and nothing else. No schemas are enforced and
//! nobody is refused.
//!
//! It is here because it is quick and always does the same: it answers within the call, on the
//! caller's thread. What it does must be what `embedded-api` does; that the controllers get along
//! with that one is shown by their own tests.

mod collect;
mod http;
mod kinds;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use apimachinery::apply::{self, Conflicts, Writer, managed};
use apimachinery::{Status, meta, patch};
use parking_lot::Mutex;
use reconcile::Clock;
use serde_json::{Value, json};

use crate::told::{Listener, Told};

pub(crate) use http::{Door, client, serve};
pub(crate) use kinds::Kind;

/// Changes that are remembered. A watch that fell behind further is told to list again.
const REMEMBERED: usize = 50_000;

/// What garbage collectors look for.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

#[derive(Debug, Clone)]
pub(crate) struct Cluster(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The latest revision.
    changed: Told<u64>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Id, Arc<Value>>,
    /// Owner's UID to what names it as an owner, of any sort.
    owned: BTreeMap<String, Vec<Id>>,
    revision: u64,
    /// The last revision that is forgotten.
    forgotten: u64,
    log: VecDeque<Change>,
    uids: u64,
    /// Instances that a controller deleted though they were nobody's any more.
    wronged: Vec<String>,
}

/// A change, in order of revisions.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) id: Id,
    pub(crate) what: What,
    pub(crate) object: Arc<Value>,
    /// The object as watches show it; written out once for all of them.
    text: Arc<OnceLock<String>>,
}

impl Change {
    fn text(&self) -> &str {
        self.text
            .get_or_init(|| http::shown(&self.object).to_string())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Added,
    Modified,
    Deleted,
}

impl What {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Id {
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// How an object is to change.
#[derive(Debug, Clone)]
pub(crate) enum Patch {
    Merge(Value),
    /// Server-side, by force.
    Apply(Value),
}

/// Who writes what part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) manager: &'a str,
    /// `status`, or empty.
    pub(crate) subresource: &'a str,
}

impl<'a> By<'a> {
    pub(crate) fn whole(manager: &'a str) -> Self {
        Self {
            manager,
            subresource: "",
        }
    }

    pub(crate) fn status(manager: &'a str) -> Self {
        Self {
            manager,
            subresource: "status",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Deletion {
    /// Only the object of that UID.
    pub(crate) uid: Option<String>,
    /// Only the object as it was at that revision.
    pub(crate) version: Option<String>,
    /// By a controller, which may end an instance for its owner alone.
    pub(crate) is_by_controller: bool,
    pub(crate) propagation: Propagation,
    /// No time to end: what holds a pod is gone.
    pub(crate) is_now: bool,
}

impl Cluster {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            changed: Told::new(0),
            clock,
        }))
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.clock
    }

    pub(crate) fn get(&self, id: &Id) -> Option<Arc<Value>> {
        self.0.state.lock().objects.get(id).map(Arc::clone)
    }

    pub(crate) fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        let state = self.0.state.lock();
        let of_kind = state.objects.iter().filter(|(id, _)| id.kind == kind);
        of_kind.map(|(_, object)| Arc::clone(object)).collect()
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        let state = self.0.state.lock();
        state.objects.keys().filter(|id| id.kind == kind).count()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.0.state.lock().revision
    }

    /// Tells of every change.
    pub(crate) fn changes(&self) -> Listener<u64> {
        self.0.changed.listen()
    }

    /// What happened after that revision; `None` when that is forgotten.
    pub(crate) fn since(&self, revision: u64, most: usize) -> Option<Vec<Change>> {
        let state = self.0.state.lock();
        if revision < state.forgotten {
            return None;
        }
        let from = state
            .log
            .partition_point(|change| change.revision <= revision);
        Some(state.log.iter().skip(from).take(most).cloned().collect())
    }

    pub(crate) fn create(
        &self,
        kind: Kind,
        namespace: &str,
        mut object: Value,
        by: By<'_>,
    ) -> Result<Arc<Value>, Status> {
        let name = meta::name(&object).to_owned();
        let id = Id::new(kind, namespace, &name);
        let mut state = self.0.state.lock();
        if state.objects.contains_key(&id) {
            return Err(Status::already_exists(kind.resource(), &name));
        }
        state.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012}", state.uids);
        let now = self.0.clock.now();
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.facts().kind.into();
        let metadata = meta::metadata_mut(&mut object);
        if !namespace.is_empty() {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), now.to_string().into());
        metadata.insert("generation".to_owned(), 1.into());
        if kind.facts().has_status && kind.is_custom() {
            object["status"] = Value::Null;
        }
        if kind == Kind::Vmi {
            admit(&mut object, &now.to_string());
        }
        managed::update(
            &self.writer(kind, by, &kind.api_version()),
            None,
            &mut object,
        );
        let stored = state.keep(&id, What::Added, object);
        self.tell(state.revision);
        Ok(stored)
    }

    pub(crate) fn patch(&self, id: &Id, patch: &Patch, by: By<'_>) -> Result<Arc<Value>, Status> {
        let mut state = self.0.state.lock();
        let kind = id.kind;
        let Some(live) = state.objects.get(id).map(Arc::clone) else {
            return Err(Status::not_found(kind.resource(), &id.name));
        };
        let (Patch::Merge(body) | Patch::Apply(body)) = patch;
        let wanted = &body["metadata"]["resourceVersion"];
        if wanted
            .as_str()
            .is_some_and(|wanted| wanted != meta::resource_version(&live))
        {
            return Err(Status::conflict(kind.resource(), &id.name));
        }
        let api_version = kind.api_version();
        let writer = self.writer(kind, by, &api_version);
        let mut object = match patch {
            Patch::Merge(body) => {
                let mut merged = patch::merge::apply(&live, body);
                keep_apart(kind, by, &live, &mut merged);
                managed::update(&writer, Some(&live), &mut merged);
                merged
            }
            Patch::Apply(body) => apply::apply(&writer, Some(&live), body, Conflicts::TakeOver)?,
        };
        meta::metadata_mut(&mut object).insert(
            "resourceVersion".to_owned(),
            live["metadata"]["resourceVersion"].clone(),
        );
        if !meta::differs(&live, &object) {
            return Ok(live);
        }
        if kind.is_custom() && live["spec"] != object["spec"] {
            let next = meta::generation(&live) + 1;
            meta::metadata_mut(&mut object).insert("generation".to_owned(), next.into());
        }
        let is_done = meta::is_deleting(&object) && meta::finalizers(&object).next().is_none();
        let stored = if is_done && kind != Kind::Pod {
            state.keep(id, What::Deleted, object)
        } else {
            state.keep(id, What::Modified, object)
        };
        self.tell(state.revision);
        Ok(stored)
    }

    pub(crate) fn delete(&self, id: &Id, deletion: &Deletion) -> Result<Arc<Value>, Status> {
        let mut state = self.0.state.lock();
        let kind = id.kind;
        let Some(live) = state.objects.get(id).map(Arc::clone) else {
            return Err(Status::not_found(kind.resource(), &id.name));
        };
        if let Some(wanted) = deletion
            .uid
            .as_deref()
            .filter(|uid| *uid != meta::uid(&live))
        {
            let group_kind = kind.group_kind();
            return Err(Status::uid_precondition(
                group_kind,
                &id.name,
                wanted,
                meta::uid(&live),
            ));
        }
        let version = meta::resource_version(&live);
        if let Some(wanted) = deletion.version.as_deref().filter(|one| *one != version) {
            let group_kind = kind.group_kind();
            return Err(Status::version_precondition(
                group_kind, &id.name, wanted, version,
            ));
        }
        let is_nobodys = meta::owner_references(&live).next().is_none();
        if deletion.is_by_controller && kind == Kind::Vmi && is_nobodys {
            let uid = meta::uid(&live);
            let wrong = format!("instance {} ({uid}) was left behind and deleted", id.name);
            state.wronged.push(wrong);
        }
        let mut object = live.as_ref().clone();
        let finalizer = match deletion.propagation {
            Propagation::Background => None,
            Propagation::Foreground => Some(FOREGROUND),
            Propagation::Orphan => Some(ORPHAN),
        };
        if let Some(finalizer) = finalizer
            && !meta::finalizers(&object).any(|one| one == finalizer)
        {
            let mut all: Vec<Value> = meta::finalizers(&object).map(Value::from).collect();
            all.push(finalizer.into());
            meta::metadata_mut(&mut object).insert("finalizers".to_owned(), all.into());
        }
        let runs = kind == Kind::Pod
            && object["spec"]["nodeName"].is_string()
            && !matches!(
                object["status"]["phase"].as_str(),
                Some("Succeeded" | "Failed")
            );
        let is_held = meta::finalizers(&object).next().is_some();
        let stored = if !is_held && (deletion.is_now || !runs) {
            state.keep(id, What::Deleted, object)
        } else if meta::is_deleting(&object) {
            return Ok(live);
        } else {
            let now = self.0.clock.now().to_string();
            meta::metadata_mut(&mut object).insert("deletionTimestamp".to_owned(), now.into());
            if kind.is_custom() {
                let next = meta::generation(&live) + 1;
                meta::metadata_mut(&mut object).insert("generation".to_owned(), next.into());
            }
            state.keep(id, What::Modified, object)
        };
        self.tell(state.revision);
        Ok(stored)
    }

    /// The first instance that was deleted though it was nobody's.
    pub(crate) fn wronged(&self) -> Option<String> {
        self.0.state.lock().wronged.first().cloned()
    }

    fn writer<'a>(&self, kind: Kind, by: By<'a>, api_version: &'a str) -> Writer<'a> {
        let reset: &[&str] = match by.subresource {
            "status" => &["spec", "metadata"],
            _ if kind.facts().has_status => &["status"],
            _ => &[],
        };
        Writer {
            manager: by.manager,
            api_version,
            subresource: by.subresource,
            ty: kind.shape(),
            reset,
            now: self.0.clock.now(),
        }
    }

    fn tell(&self, revision: u64) {
        self.0.changed.set(revision);
    }
}

impl State {
    fn keep(&mut self, id: &Id, what: What, mut object: Value) -> Arc<Value> {
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
        if what != What::Deleted {
            for owner in meta::owner_references(&object) {
                let all = self.owned.entry(owner.uid.to_owned()).or_default();
                all.push(id.clone());
            }
            self.objects.insert(id.clone(), Arc::clone(&object));
        }
        self.log.push_back(Change {
            revision,
            id: id.clone(),
            what,
            object: Arc::clone(&object),
            text: Arc::default(),
        });
        if self.log.len() > REMEMBERED
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = oldest.revision;
        }
        object
    }
}

/// A merge into one half of an object leaves the other alone.
fn keep_apart(kind: Kind, by: By<'_>, live: &Value, merged: &mut Value) {
    if by.subresource == "status" {
        for part in ["spec", "metadata"] {
            merged[part] = live[part].clone();
        }
    } else if kind.facts().has_status {
        merged["status"] = live["status"].clone();
    }
}

/// What the webhook does to a new VMI, as far as controllers lean on it.
fn admit(vmi: &mut Value, now: &str) {
    let mut finalizers: Vec<Value> = meta::finalizers(vmi).map(Value::from).collect();
    finalizers.push(kubevirt_api::finalizers::VMI.into());
    meta::metadata_mut(vmi).insert("finalizers".to_owned(), finalizers.into());
    vmi["status"]["phase"] = "Pending".into();
    vmi["status"]["phaseTransitionTimestamps"] = json!([
        {"phase": "Pending", "phaseTransitionTimestamp": now},
    ]);
}
