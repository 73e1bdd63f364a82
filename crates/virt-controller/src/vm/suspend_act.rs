//! The steps of suspending and resuming: claims, and the VMI that has gone on.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, ListParams};
use kubevirt_api::{annotations, labels};
use reconcile::{EventType, Key, WriteError, create, delete_named, merge};
use serde_json::json;

use super::observe::Observed;
use super::plan::Plan;
use super::status::Done;
use super::suspend::{self, Change, Next, SavedClaim, State};
use super::view::Vm;
use super::{Controller, VmError};
use crate::MANAGER;

impl Controller {
    /// The claims with saved states of the VM, from the server: a cache may not show the newest.
    pub(super) async fn observe_saved(
        &self,
        key: &Key,
        vm: &Vm,
    ) -> Result<Vec<SavedClaim>, VmError> {
        let (Some(_), Some(uid)) = (State::of(vm), &vm.metadata.uid) else {
            return Ok(Vec::new());
        };
        let api = self.claim_api(key);
        let own = ListParams::default().labels(&format!("{}={uid}", labels::SUSPENDED_VM));
        let found = api.list(&own).await;
        let found = found.map_err(|error| VmError::Read(Box::new(error)))?;
        let is_owned = |claim: &PersistentVolumeClaim| {
            let mut owners = claim.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.uid == *uid)
        };
        let saved = |claim: PersistentVolumeClaim| SavedClaim {
            name: claim.metadata.name.unwrap_or_default(),
            is_deleting: claim.metadata.deletion_timestamp.is_some(),
            guest: claim
                .metadata
                .annotations
                .and_then(|mut all| all.remove(annotations::SUSPENDED_GUEST)),
        };
        Ok(found.into_iter().filter(is_owned).map(saved).collect())
    }

    pub(super) async fn follow_suspend(
        &self,
        observed: &Observed,
        plan: &Plan,
        done: &mut Done,
    ) -> Result<(), VmError> {
        done.suspend = plan.suspend.next.clone();
        match plan.suspend.change {
            None => {}
            Some(Change::CreateClaim) => self.create_saved_claim(observed, done).await?,
            Some(Change::DropClaims) => self.drop_saved_claims(observed).await?,
            Some(Change::Forget) => {
                self.drop_saved_volume(observed).await?;
                self.drop_saved_claims(observed).await?;
            }
        }
        if let Next::Is(state, message) = &done.suspend {
            let kind = match state {
                State::SuspendFailed | State::ResumeFailed => EventType::Warning,
                State::Suspending | State::Suspended | State::Resuming => EventType::Normal,
            };
            let vm = observed.vm.as_ref();
            self.recorder
                .publish(vm, kind, state.reason(), message.clone());
        }
        Ok(())
    }

    async fn create_saved_claim(
        &self,
        observed: &Observed,
        done: &mut Done,
    ) -> Result<(), VmError> {
        let Some(vmi) = observed.own_vmi() else {
            return Ok(());
        };
        let Some(whole) = self.whole_vmi(vmi).await? else {
            return Ok(());
        };
        let config = self.cluster.now();
        let class = config.written.vm_state_storage_class.as_deref();
        let claim = suspend::claim(&observed.vm, vmi, &json!(whole), class);
        let key = Key::of(&claim);
        match create(&self.claim_api(&key), MANAGER, &key, &claim).await {
            Ok(_) => {
                tracing::info!(claim = key.name, "claim for the state of the guest created");
                failpoints::after("virt-controller/vm/create-saved-claim");
                Ok(())
            }
            Err(error @ (WriteError::AlreadyExists { .. } | WriteError::Refused { .. })) => {
                let message = format!("claim {}: {error}", key.name);
                done.suspend = Next::Is(State::SuspendFailed, message);
                Ok(())
            }
            Err(error) => Err(VmError::SavedClaim(error)),
        }
    }

    async fn drop_saved_claims(&self, observed: &Observed) -> Result<(), VmError> {
        let own = Key::of(observed.vm.as_ref());
        for claim in observed.saved.iter().filter(|claim| !claim.is_deleting) {
            let key = Key::new(&own.namespace, &claim.name);
            let gone = delete_named(&self.claim_api(&own), &key).await;
            gone.map_err(VmError::SavedClaim)?;
            failpoints::after("virt-controller/vm/drop-saved-claim");
        }
        Ok(())
    }

    async fn drop_saved_volume(&self, observed: &Observed) -> Result<(), VmError> {
        let Some(vmi) = observed.own_vmi() else {
            return Ok(());
        };
        let whole = self.whole_vmi(vmi).await?;
        let patch = whole.and_then(|whole| suspend::forget_patch(&json!(whole)));
        let Some(patch) = patch else {
            return Ok(());
        };
        let key = Key::of(vmi.as_ref());
        match merge(&self.vmi_api(&key), MANAGER, &key, &patch).await {
            Ok(written) => {
                self.vmis.wrote(vmi, written);
                failpoints::after("virt-controller/vm/drop-saved-volume");
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(VmError::UpdateVmi(error)),
        }
    }

    fn claim_api(&self, key: &Key) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}
