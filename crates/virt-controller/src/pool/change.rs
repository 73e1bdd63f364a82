//! Has VMs and guests follow the template, by its revisions.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Api, ResourceExt as _};
use kubevirt_api::labels;
use reasons::Reason;
use reconcile::{
    EventType, Key, WriteError, create, delete, delete_in_foreground, merge, merge_status,
};
use serde_json::json;

use super::act::lasting;
use super::observe::{Member, Observed};
use super::view::{Pool, Revision};
use super::{Controller, KIND, PoolError, template};
use crate::MANAGER;
use crate::view::Guest;
use crate::vm::Vm;

impl Controller {
    /// The new VM gets new disks, so those of the old one are deleted first.
    pub(super) async fn recreate(&self, key: &Key, pool: &Pool, vm: &Vm) -> Result<(), PoolError> {
        let member = Key::of(vm);
        let gone = delete_in_foreground(&self.vms_of(key), &member, &vm.metadata).await;
        let gone = gone.map_err(PoolError::Delete);
        self.report_update(pool, &member, Reason::SuccessfulDelete, gone)?;
        let uid = self.note_deleted(key, vm);
        tracing::info!(vm = member.name, vm_uid = uid, "VM deleted for other disks");
        Ok(())
    }

    pub(super) async fn update(
        &self,
        observed: &Observed,
        member: &Member,
    ) -> Result<(), PoolError> {
        let (pool, vm) = (observed.pool.as_ref(), &member.vm);
        let key = Key::of(vm.as_ref());
        let before = self.revision_of(observed, member).await?;
        if before.is_none() {
            let name = member.revision().unwrap_or("(none)");
            let note = format!(
                "Revision {name} of VM {key} does not exist: the VM gets the whole template, without volumes that \
                 were attached or restored, and fields that the template does not set any more stay: check both"
            );
            let reason = Reason::FailedUpdate;
            self.recorder
                .publish(pool, EventType::Warning, reason, note);
        }
        let body = template::change(pool, vm, before.as_deref(), member.ordinal);
        let written = merge(&self.vms_of(&key), MANAGER, &key, &body).await;
        let written = self.report(pool, written.map_err(PoolError::Update), |error| {
            format!("Error updating virtual machine {key}: {error}")
        })?;
        self.vms.wrote(vm, written);
        let note = format!("Updated VM {key}");
        let reason = Reason::SuccessfulUpdate;
        self.recorder.publish(pool, EventType::Normal, reason, note);
        Ok(())
    }

    /// The revision that the VM is like. The cache has only those with our label.
    async fn revision_of(
        &self,
        observed: &Observed,
        member: &Member,
    ) -> Result<Option<Arc<Revision>>, PoolError> {
        let Some(name) = member.revision().filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        if let Some(known) = observed.revisions.get(name) {
            return Ok(Some(Arc::clone(known)));
        }
        let key = Key::of(member.vm.as_ref());
        let found = self.revisions_of(&key).get_opt(name).await;
        let found = found.map_err(|error| PoolError::Read(Box::new(error)))?;
        let own = found.filter(|found| is_own(&observed.pool, found));
        Ok(own.map(Arc::new))
    }

    /// As a user does: a VM that starts its guests on request would stay off if the guest was deleted.
    pub(super) async fn restart(
        &self,
        key: &Key,
        pool: &Pool,
        member: &Member,
    ) -> Result<(), PoolError> {
        let Some(guest) = &member.guest else {
            return Ok(());
        };
        let (vm, at) = (&member.vm, Key::of(guest.as_ref()));
        let uid = guest.metadata.uid.as_deref().unwrap_or_default();
        if member.starts_on_request() {
            let requests = json!([{"action": "Stop", "uid": uid}, {"action": "Start"}]);
            let body = json!({
                "metadata": {"resourceVersion": vm.metadata.resource_version},
                "status": {"stateChangeRequests": requests},
            });
            let written = merge_status(&self.vms_of(&at), MANAGER, &at, &body).await;
            let written = written.map_err(PoolError::UpdateGuest);
            let written = self.report_update(pool, &at, Reason::SuccessfulUpdate, written)?;
            self.vms.wrote(vm, written);
            return Ok(());
        }
        let gone = delete(&self.vmis_of(&at), &at, uid, None).await;
        let gone = gone.map_err(PoolError::UpdateGuest);
        self.report_update(pool, &at, Reason::SuccessfulDelete, gone)?;
        self.note(key, |expected| {
            expected.restarted.insert(at.name.clone(), uid.to_owned())
        });
        Ok(())
    }

    pub(super) async fn relabel(
        &self,
        pool: &Pool,
        guest: &Guest,
        revision: &str,
    ) -> Result<(), PoolError> {
        let key = Key::of(guest);
        let body = json!({"metadata": {
            "resourceVersion": guest.metadata.resource_version,
            "labels": {labels::POOL_REVISION_NAME: revision},
        }});
        let written = merge(&self.vmis_of(&key), MANAGER, &key, &body).await;
        let written = written.map_err(PoolError::UpdateGuest);
        let written = self.report_update(pool, &key, Reason::SuccessfulUpdate, written)?;
        self.vmis.wrote(guest, written);
        Ok(())
    }

    pub(super) async fn keep_revision(
        &self,
        key: &Key,
        observed: &Observed,
    ) -> Result<(), PoolError> {
        let pool = observed.pool.as_ref();
        let name = template::revision_name(pool);
        if observed.revisions.contains_key(&name) {
            return Ok(());
        }
        let api = self.revisions_of(key);
        let named = Key::new(&key.namespace, &name);
        let created = create(&api, MANAGER, &named, &template::revision(pool)).await;
        let Err(error) = created else {
            return Ok(());
        };
        if matches!(error, WriteError::AlreadyExists { .. }) {
            let there = api.get_opt(&name).await;
            let there = there.map_err(|error| PoolError::Read(Box::new(error)))?;
            if there.as_ref().is_some_and(|there| is_own(pool, there)) {
                return Ok(());
            }
            // That of an older pool of this name goes with that pool.
            let stays = |there: &Revision| {
                there.metadata.deletion_timestamp.is_none()
                    && Key::of_controller(there, KIND).as_ref() != Some(key)
            };
            if there.as_ref().is_some_and(stays) {
                return Err(PoolError::RevisionTaken { name });
            }
        }
        Err(PoolError::KeepRevision(error))
    }

    pub(super) async fn prune(&self, revision: &Revision) -> Result<(), PoolError> {
        let key = Key::of(revision);
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), &key.namespace);
        let uid = revision.metadata.uid.as_deref().unwrap_or_default();
        let gone = delete(&api, &key, uid, None).await;
        gone.map_err(PoolError::Prune)
    }

    /// Publishes an event about a VM or guest that follows, or about why it does not.
    fn report_update<T>(
        &self,
        pool: &Pool,
        key: &Key,
        success: Reason,
        outcome: Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let (kind, reason, note) = match &outcome {
            Ok(_) => {
                let note = format!("Successfully updated resource {key}");
                (EventType::Normal, success, note)
            }
            Err(error) => {
                let Some(text) = lasting(error) else {
                    return outcome;
                };
                let note = format!("Error updating resource {key}: {text}");
                (EventType::Warning, Reason::FailedUpdate, note)
            }
        };
        self.recorder.publish(pool, kind, reason, note);
        outcome
    }

    fn revisions_of(&self, key: &Key) -> Api<Revision> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn is_own(pool: &Pool, revision: &Revision) -> bool {
    let mut owners = revision.owner_references().iter();
    owners.any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref())
}
