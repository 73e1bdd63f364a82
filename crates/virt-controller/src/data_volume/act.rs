//! Carries out a plan: the steps, then the status, then events.

use error_chain::error_chain;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Api;
use kube::{Resource, ResourceExt as _};
use kubevirt_api::annotations;
use kubevirt_api::conditions::{self, Condition};
use kubevirt_api::data_volume_status::{
    DataVolume as Whole, DataVolumeConditionType as Type, DataVolumePhase as Phase,
    DataVolumeStatus as Status,
};
use reasons::Reason;
use reconcile::{EventType, Key, Requeue, WriteError, apply_reported, create, delete, merge};
use serde_json::json;

use super::observe::{Observed, Origin, is_of};
use super::plan::{Outcome, Plan, Step, is_marked};
use super::pod::{self, Input};
use super::status::{self, Failure};
use super::transfer::Transfer;
use super::view::ImporterPod;
use super::{Controller, DataVolumeError, claim};
use crate::MANAGER;
use crate::view::{Claim, DataVolume};

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<Requeue, DataVolumeError> {
        let mut failure = None;
        let mut result = Ok(());
        for step in &plan.steps {
            result = self.step(key, observed, *step).await;
            if let Err(error) = &result {
                failure = refused(error);
                break;
            }
            failpoints::after(name(*step));
        }
        if let Some(outcome) = &plan.outcome {
            // A step that may have been carried out is no reason to claim its outcome.
            let is_certain = result.is_ok() || failure.is_some();
            if is_certain {
                self.write_status(key, observed, outcome, failure.as_ref())
                    .await?;
            }
        }
        result?;
        Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn step(
        &self,
        key: &Key,
        observed: &Observed,
        step: Step,
    ) -> Result<(), DataVolumeError> {
        let Some(whole) = observed.whole() else {
            return self.delete_pod(observed, step).await;
        };
        match step {
            Step::CreateClaim => self.create_claim(key, observed, whole).await,
            Step::AdoptClaim => self.adopt_claim(key, observed, whole).await,
            Step::OpenSource => self.open_source(key, observed, whole).await,
            Step::CloseSource => self.close_source(observed, whole).await,
            Step::CreatePod => self.create_pod(key, observed, whole).await,
            Step::MarkClaim => self.mark_claim(key, observed).await,
            Step::DeletePod => self.delete_pod(observed, step).await,
        }
    }

    async fn create_claim(
        &self,
        key: &Key,
        observed: &Observed,
        whole: &Whole,
    ) -> Result<(), DataVolumeError> {
        let Ok(request) = &observed.request else {
            return Ok(());
        };
        let (copied, named) = (observed.origin.size(), observed.named.as_ref());
        let mut body = claim::render(whole, request, copied, named);
        if let Origin::Cloned(source) = &observed.origin {
            claim::clone_by_storage(&mut body, source);
        }
        let api = self.api::<PersistentVolumeClaim>(key);
        match create(&api, MANAGER, key, &body).await {
            // Created by an earlier reconcile, or by someone else: the watch will deliver it.
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(DataVolumeError::CreateClaim(error)),
        }
    }

    async fn adopt_claim(
        &self,
        key: &Key,
        observed: &Observed,
        whole: &Whole,
    ) -> Result<(), DataVolumeError> {
        let Some(found) = observed.claim.as_deref() else {
            return Ok(());
        };
        let mut owners = json!(found.owner_references());
        if let Some(owners) = owners.as_array_mut() {
            owners.push(claim::owner(whole));
        }
        let body = json!({"metadata": {
            "resourceVersion": found.metadata.resource_version,
            "annotations": {annotations::CDI_POPULATED_FOR: key.name},
            "ownerReferences": owners,
        }});
        let written = merge(&self.api::<Claim>(key), MANAGER, key, &body).await;
        written.map(drop).map_err(DataVolumeError::MarkClaim)
    }

    /// The mark says that the claim has its data, even to a controller that does not know this one's status.
    async fn mark_claim(&self, key: &Key, observed: &Observed) -> Result<(), DataVolumeError> {
        let Some(found) = observed.claim.as_deref() else {
            return Ok(());
        };
        let body = json!({"metadata": {
            "uid": found.metadata.uid,
            "annotations": {annotations::CDI_POPULATED_FOR: key.name},
        }});
        let written = merge(&self.api::<Claim>(key), MANAGER, key, &body).await;
        written.map(drop).map_err(DataVolumeError::MarkClaim)
    }

    async fn create_pod(
        &self,
        key: &Key,
        observed: &Observed,
        whole: &Whole,
    ) -> Result<(), DataVolumeError> {
        let (Ok(request), Some(found)) = (&observed.request, observed.claim.as_deref()) else {
            return Ok(());
        };
        // The caches may lag: a claim that is populated by now must not be overwritten.
        let current = self.api::<Claim>(key).get_opt(&key.name).await;
        let current = current.map_err(DataVolumeError::read)?;
        let uid = whole.uid().unwrap_or_default();
        let is_ours = current.is_some_and(|current| {
            current.metadata.uid == found.metadata.uid
                && is_of(&current, &uid)
                && !is_marked(&current, &key.name)
        });
        if !is_ours {
            return Err(DataVolumeError::Stale);
        }
        let origin = match &observed.origin {
            Origin::Ready(claim) => Some(claim.as_ref()),
            _ => None,
        };
        let link = match &observed.transfer {
            Transfer::Ready(link) => Some(link),
            _ => None,
        };
        if let Some(link) = link {
            self.create_authority(key, whole, link).await?;
        }
        let last = whole.status.as_ref();
        let input = Input {
            whole,
            request,
            claim: found,
            source: origin,
            link,
            settings: &self.launcher,
            restarts: last.and_then(|last| last.restart_count).unwrap_or(0),
        };
        let Some(body) = pod::render(&input) else {
            return Err(DataVolumeError::NoSize);
        };
        let at = Key::new(&key.namespace, pod::name(&uid));
        match create(&self.api::<ImporterPod>(key), MANAGER, &at, &body).await {
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(DataVolumeError::CreatePod(error)),
        }
    }

    async fn delete_pod(&self, observed: &Observed, step: Step) -> Result<(), DataVolumeError> {
        let Some(found) = observed.pod.as_deref().filter(|_| step == Step::DeletePod) else {
            return Ok(());
        };
        let (at, uid) = (Key::of(found), found.uid().unwrap_or_default());
        let deleted = delete(&self.api::<ImporterPod>(&at), &at, &uid, None).await;
        deleted.map_err(DataVolumeError::DeletePod)
    }

    async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        outcome: &Outcome,
        failure: Option<&Failure>,
    ) -> Result<(), DataVolumeError> {
        let Some(whole) = observed.whole() else {
            return Ok(());
        };
        let status = status::render(observed, outcome, failure);
        let Some(fragment) = status::fragment(whole, key, &status) else {
            return Ok(());
        };
        let api = self.api::<DataVolume>(key);
        let volume = observed.volume.as_ref();
        match apply_reported(&api, &fragment, volume, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/data-volume/write-status");
                self.data_volumes.wrote(volume, written);
                self.publish(volume, whole.status.as_ref(), &status);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(DataVolumeError::Status(error)),
        }
    }

    /// Publishes an event about a new phase, and one about a new problem.
    fn publish(&self, volume: &DataVolume, old: Option<&Status>, new: &Status) {
        let running = conditions::find(&new.conditions, &Type::Running);
        let message = running.map(Condition::message).unwrap_or_default();
        let old_phase = old.and_then(|old| old.phase.as_ref());
        if old_phase != new.phase.as_ref() {
            let event = match &new.phase {
                Some(Phase::ImportScheduled | Phase::CloneScheduled) => {
                    Some((Reason::ImportScheduled, "Created the importer's pod"))
                }
                Some(
                    Phase::ImportInProgress
                    | Phase::CloneInProgress
                    | Phase::CloneFromSnapshotSourceInProgress,
                ) => Some((Reason::ImportInProgress, "The claim is being populated")),
                Some(Phase::UploadScheduled) => Some((
                    Reason::UploadScheduled,
                    "A pod is created that receives the upload",
                )),
                Some(Phase::UploadReady) => Some((Reason::UploadReady, "An upload can be sent")),
                Some(Phase::Succeeded) => Some((Reason::ImportSucceeded, "The claim is populated")),
                _ => None,
            };
            if let Some((reason, note)) = event {
                self.recorder
                    .publish(volume, EventType::Normal, reason, note.to_owned());
            }
        }
        let before = old.and_then(|old| conditions::find(&old.conditions, &Type::Running));
        let reason = running.map(Condition::reason).unwrap_or_default();
        let is_same = before.is_some_and(|one| one.reason() == reason && one.message() == message);
        let problem = reason
            .parse::<Reason>()
            .ok()
            .filter(|reason| !matches!(reason, Reason::Completed | Reason::WaitForFirstConsumer));
        if let Some(reason) = problem.filter(|_| !is_same) {
            self.recorder
                .publish(volume, EventType::Warning, reason, message.to_owned());
        }
    }

    pub(super) fn api<K>(&self, key: &Key) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

/// What the status says about a step that was refused; nothing about one that may have been carried out.
fn refused(error: &DataVolumeError) -> Option<Failure> {
    let reason = match error {
        DataVolumeError::CreateClaim(source)
        | DataVolumeError::OpenSource(source)
        | DataVolumeError::CreatePod(source) => {
            if !matches!(source, WriteError::Refused { .. }) {
                return None;
            }
            if source.to_string().contains("exceeded quota") {
                Reason::ErrExceededQuota
            } else {
                Reason::FailedCreate
            }
        }
        DataVolumeError::NoSize => Reason::ImportNotSupported,
        _ => return None,
    };
    Some(Failure {
        reason,
        message: error_chain(error),
    })
}

fn name(step: Step) -> &'static str {
    match step {
        Step::CreateClaim => "virt-controller/data-volume/create-claim",
        Step::AdoptClaim => "virt-controller/data-volume/adopt-claim",
        Step::OpenSource => "virt-controller/data-volume/open-source",
        Step::CloseSource => "virt-controller/data-volume/close-source",
        Step::CreatePod => "virt-controller/data-volume/create-pod",
        Step::MarkClaim => "virt-controller/data-volume/mark-claim",
        Step::DeletePod => "virt-controller/data-volume/delete-pod",
    }
}
