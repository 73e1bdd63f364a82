//! Observation: everything that one reconcile may read.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster_config::Rollout;
use error_chain::error_chain;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Api, ResourceExt as _};
use kubevirt_api::annotations;
use kubevirt_api::data_volume_status::DataVolumePhase;
use reconcile::Key;
use serde_json::{Value, json};

use super::data_volumes::{Importer, Templated, source_claim};
use super::instancetype::{self, ChoiceStep, Instance, Outdated};
use super::live::Live;
use super::suspend::SavedClaim;
use super::view::Vm;
use super::volume_moves::{self, Moving};
use super::{Controller, VmError};
use crate::view::{Claim, DataVolume, Guest};
use crate::vmi;

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) vm: Arc<Vm>,
    /// The VMI of the VM's name, whatever its owner.
    pub(super) vmi: Option<Arc<Guest>>,
    /// The existing claims of the volumes of the template.
    pub(super) claims: Vec<Arc<Claim>>,
    pub(super) data_volumes: Vec<Arc<DataVolume>>,
    /// By volume of the template that has a claim: why it cannot be copied, if it cannot.
    pub(super) copyable: BTreeMap<String, Result<(), String>>,
    /// The data volumes of the VM's templates.
    pub(super) templates: Vec<Templated>,
    pub(super) importer: Importer,
    /// The VM's spec that the VMI was started from; read only if the VM has changed since.
    pub(super) started_from: Option<Value>,
    /// The guest that follows changes of the VM, if it may and the VM has changed since.
    pub(super) live: Option<Live>,
    /// Why that guest, or the specs to compare, could not be read.
    pub(super) unread: Option<String>,
    /// The guest whose volumes change their claims, or have begun to.
    pub(super) moving: Option<Moving>,
    /// Running guests follow changes of their VMs.
    pub(super) follows_changes: bool,
    /// The next step for instance type and preference.
    pub(super) choice: ChoiceStep,
    /// Stored revisions of an older format.
    pub(super) outdated: Vec<Outdated>,
    /// Volumes can be attached to running guests.
    pub(super) has_hotplug: bool,
    /// The claims with saved states of the VM.
    pub(super) saved: Vec<SavedClaim>,
    pub(super) now: Timestamp,
}

/// The owner of the VMI of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// This VM.
    Own,
    /// No owner; the VM may adopt it.
    None,
    Foreign,
}

impl Controller {
    pub(super) async fn observe(&self, vm: Arc<Vm>) -> Result<Observed, VmError> {
        let key = Key::of(vm.as_ref());
        let mut vmi = self.vmis.get(&key);
        // The watch may lag behind a VMI we have just created. Taking it for deleted would report
        // the VM as stopped, so read it from the server.
        if vmi.is_none() && vm.status().created == Some(true) {
            let api = Api::namespaced(self.client.clone(), &key.namespace);
            let found = api.get_opt(&key.name).await;
            vmi = found
                .map_err(|error| VmError::Read(Box::new(error)))?
                .map(Arc::new);
        }
        let policy = self.cluster.now().reference_policy.clone();
        let instance = match &vmi {
            Some(_) => Instance::Exists,
            None => Instance::None,
        };
        let choice = instancetype::choice_step(&vm, instance, &policy);
        let saved = self.observe_saved(&key, &vm).await?;
        let mut observed = Observed {
            vm,
            vmi,
            claims: Vec::new(),
            data_volumes: Vec::new(),
            copyable: BTreeMap::new(),
            templates: Vec::new(),
            importer: if self.volumes.data_volumes.is_defined() {
                Importer::Installed
            } else {
                Importer::Missing
            },
            started_from: None,
            live: None,
            unread: None,
            moving: None,
            follows_changes: self.cluster.now().rollout == Rollout::LiveUpdate,
            choice,
            outdated: Vec::new(),
            has_hotplug: vmi::has_hotplug(&self.cluster.now()),
            saved,
            now: self.clock.now(),
        };
        if choice == ChoiceStep::Nothing {
            observed.outdated = self.observe_outdated(&observed.vm).await?;
        }
        if !observed.outdated.is_empty() {
            observed.choice = ChoiceStep::Upgrade;
        }
        observed.templates = self.observe_templates(&key, &observed.vm);
        self.observe_volumes(&key, &mut observed);
        observed.moving = self.observe_moving(&observed).await?;
        if let Some(data) = self.started_from(&key, &observed).await? {
            match self.observe_live(&observed, &data).await {
                Ok(live) => observed.live = live,
                // The VM can be stopped and restarted all the same.
                Err(error) => observed.unread = Some(error_chain(&error)),
            }
            observed.started_from = data.get("spec").cloned();
        }
        Ok(observed)
    }

    /// The own VMI with its spec, if its volumes are to move or have begun to.
    async fn observe_moving(&self, observed: &Observed) -> Result<Option<Moving>, VmError> {
        let vmi = observed.own_vmi();
        let Some(vmi) = vmi.filter(|vmi| volume_moves::concern(&observed.vm, vmi)) else {
            return Ok(None);
        };
        let Some(whole) = self.whole_vmi(vmi).await? else {
            return Ok(None);
        };
        let whole = json!(whole);
        let conditions = whole.pointer("/status/conditions").cloned();
        // Admission refuses what cannot be read.
        let typed = serde_json::from_value(whole).ok();
        Ok(typed.map(|vmi| Moving {
            vmi: Box::new(vmi),
            conditions: conditions.unwrap_or_default(),
        }))
    }

    fn observe_volumes(&self, key: &Key, observed: &mut Observed) {
        for volume in observed.vm.volumes() {
            let claim = volume.pointer("/persistentVolumeClaim/claimName");
            let data_volume = volume.pointer("/dataVolume/name");
            let Some(name) = claim.or(data_volume).and_then(Value::as_str) else {
                continue;
            };
            let named = Key::new(&key.namespace, name);
            let found = self.volumes.claims.get(&named, key);
            if let (Some(found), Some(volume)) = (&found, volume["name"].as_str()) {
                let class = self.classes.of(found).map(drop);
                observed.copyable.insert(volume.to_owned(), class);
            }
            observed.claims.extend(found);
            if data_volume.is_some() {
                observed
                    .data_volumes
                    .extend(self.volumes.data_volumes.get(&named, key));
            }
        }
    }

    fn observe_templates(&self, key: &Key, vm: &Vm) -> Vec<Templated> {
        let has_importer = self.volumes.data_volumes.is_defined();
        // The claim of a data volume that is gone is deleted next: where nothing defines data volumes,
        // none of them is gone.
        let stays = |claim: &Claim| {
            claim.metadata.deletion_timestamp.is_none()
                && !(has_importer && claim.is_of_data_volume())
        };
        let all = vm.data_volume_templates();
        all.map(|(name, template)| {
            let named = Key::new(&key.namespace, name);
            let data_volume = self.volumes.data_volumes.get(&named, key);
            let is_pending = data_volume
                .as_ref()
                .is_some_and(|there| there.phase == DataVolumePhase::Pending);
            let source = source_claim(template, &key.namespace).filter(|_| is_pending);
            Templated {
                name: name.to_owned(),
                data_volume,
                has_claim: self
                    .volumes
                    .claims
                    .get(&named, key)
                    .as_deref()
                    .is_some_and(stays),
                missing_source: source
                    .filter(|source| self.volumes.claims.get(source, key).is_none()),
            }
        })
        .collect()
    }

    async fn started_from(&self, key: &Key, observed: &Observed) -> Result<Option<Value>, VmError> {
        let Some(vmi) = observed.own_vmi().filter(|vmi| !vmi.is_deleting()) else {
            return Ok(None);
        };
        let is_current = generation(vmi) == observed.vm.metadata.generation;
        let Some(name) = vmi.status.revision.as_deref().filter(|_| !is_current) else {
            return Ok(None);
        };
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), &key.namespace);
        let revision = api.get_opt(name).await;
        let revision = revision.map_err(|error| VmError::Read(Box::new(error)))?;
        let data = revision.and_then(|revision| revision.data);
        Ok(data.map(|data| data.0))
    }
}

impl Observed {
    pub(super) fn ownership(&self) -> Option<Ownership> {
        let vmi = self.vmi.as_ref()?;
        let owners = vmi.owner_references();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        Some(match controller {
            Some(owner) if Some(&owner.uid) == self.vm.metadata.uid.as_ref() => Ownership::Own,
            Some(_) => Ownership::Foreign,
            None => Ownership::None,
        })
    }

    /// The VM's own VMI.
    pub(super) fn own_vmi(&self) -> Option<&Arc<Guest>> {
        self.vmi
            .as_ref()
            .filter(|_| self.ownership() == Some(Ownership::Own))
    }
}

/// The generation of the VM that the VMI corresponds to.
pub(super) fn generation(vmi: &Guest) -> Option<i64> {
    vmi.annotation(annotations::VM_GENERATION)?.parse().ok()
}
