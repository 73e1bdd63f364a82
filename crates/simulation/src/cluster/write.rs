//! Writes to the simulated API server: create, patch, delete.

use std::sync::Arc;

use apimachinery::apply::{self, Conflicts, Writer, managed};
use apimachinery::{Status, meta, patch};
use serde_json::{Value, json};

use super::{
    Author, Cluster, Deletion, EventType, FOREGROUND, Id, Kind, ORPHAN, Patch, Propagation,
};

impl Cluster {
    pub(crate) fn create(
        &self,
        kind: Kind,
        namespace: &str,
        mut object: Value,
        author: Author<'_>,
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
        if kind.has_status() && kind.is_custom() {
            object["status"] = Value::Null;
        }
        if kind == Kind::Vmi {
            admit(&mut object, &now.to_string());
        }
        managed::update(
            &self.writer(kind, author, &kind.api_version()),
            None,
            &mut object,
        );
        let stored = state.store(&id, EventType::Added, object);
        self.notify(state.revision);
        Ok(stored)
    }

    pub(crate) fn patch(
        &self,
        id: &Id,
        patch: &Patch,
        author: Author<'_>,
    ) -> Result<Arc<Value>, Status> {
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
        let writer = self.writer(kind, author, &api_version);
        let mut object = match patch {
            Patch::Merge(body) => {
                let mut merged = patch::merge::apply(&live, body);
                keep_other_part(kind, author, &live, &mut merged);
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
            state.store(id, EventType::Deleted, object)
        } else {
            state.store(id, EventType::Modified, object)
        };
        self.notify(state.revision);
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
        let has_no_owner = meta::owner_references(&live).next().is_none();
        if deletion.is_by_controller && kind == Kind::Vmi && has_no_owner {
            let uid = meta::uid(&live);
            let violation = format!(
                "VMI {} ({uid}) has no owner and a controller deleted it",
                id.name
            );
            state.violations.push(violation);
        }
        if kind == Kind::Pod && !deletion.is_by_controller && !deletion.is_now {
            state.deleted_by_others.insert(meta::uid(&live).to_owned());
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
            state.store(id, EventType::Deleted, object)
        } else if meta::is_deleting(&object) {
            return Ok(live);
        } else {
            let now = self.0.clock.now().to_string();
            meta::metadata_mut(&mut object).insert("deletionTimestamp".to_owned(), now.into());
            if kind.is_custom() {
                let next = meta::generation(&live) + 1;
                meta::metadata_mut(&mut object).insert("generation".to_owned(), next.into());
            }
            state.store(id, EventType::Modified, object)
        };
        self.notify(state.revision);
        Ok(stored)
    }

    fn writer<'a>(&self, kind: Kind, author: Author<'a>, api_version: &'a str) -> Writer<'a> {
        let reset: &[&str] = match author.subresource {
            "status" => &["spec", "metadata"],
            _ if kind.has_status() => &["status"],
            _ => &[],
        };
        Writer {
            manager: author.manager,
            api_version,
            subresource: author.subresource,
            ty: kind.shape(),
            reset,
            now: self.0.clock.now(),
        }
    }

    fn notify(&self, revision: u64) {
        self.0.changed.set(revision);
    }
}

/// A merge into one part of an object leaves the other part unchanged.
fn keep_other_part(kind: Kind, author: Author<'_>, live: &Value, merged: &mut Value) {
    if author.subresource == "status" {
        for part in ["spec", "metadata"] {
            merged[part] = live[part].clone();
        }
    } else if kind.has_status() {
        merged["status"] = live["status"].clone();
    }
}

/// The changes of the mutating webhook to a new VMI that controllers rely on.
fn admit(vmi: &mut Value, now: &str) {
    let mut finalizers: Vec<Value> = meta::finalizers(vmi).map(Value::from).collect();
    finalizers.push(kubevirt_api::finalizers::VMI.into());
    meta::metadata_mut(vmi).insert("finalizers".to_owned(), finalizers.into());
    vmi["status"]["phase"] = "Pending".into();
    vmi["status"]["phaseTransitionTimestamps"] = json!([
        {"phase": "Pending", "phaseTransitionTimestamp": now},
    ]);
    let processors = &vmi["spec"]["domain"]["cpu"];
    if processors["maxSockets"].is_number() {
        vmi["status"]["currentCPUTopology"] = json!({
            "sockets": processors["sockets"], "cores": processors["cores"],
            "threads": processors["threads"],
        });
    }
}
