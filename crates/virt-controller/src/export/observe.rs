//! Observation: everything that one step may read.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt as _};
use kubevirt_api::backup::VirtualMachineBackup;
use kubevirt_api::data_volume_status::DataVolumePhase;
use kubevirt_api::export::VirtualMachineExport;
use kubevirt_api::snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotPhase, VolumeBackup};
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use kubevirt_api::{VirtualMachine, annotations};
use reconcile::Key;
use serde_json::Value;

use super::backup::Offer;
use super::view::ExporterPod;
use super::{Controller, ExportError, ExportProxy, claims, names};
use crate::data_volume::{claim_users, copy_is_over, waits_for_consumer};
use crate::restore::copied_vm;
use crate::snapshot::claim_of;
use crate::view::{Claim, Guest};

const DISK: &str = "kubevirt";

#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) export: Arc<VirtualMachineExport>,
    pub(super) source: Source,
    pub(super) volumes: Vec<Volume>,
    pub(super) front: Front,
    pub(super) pod: Option<Arc<ExporterPod>>,
    /// Where clients that are not in a pod reach it.
    pub(super) proxy: Option<ExportProxy>,
    /// It serves a copy to another namespace, which has come to its end.
    pub(super) is_over: bool,
    pub(super) now: Timestamp,
}

/// What is exported.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Source {
    /// Of a kind that this version cannot export.
    #[default]
    Unknown,
    Missing,
    Claim,
    /// A VM, not parsed, and whether a guest of it runs.
    Machine {
        vm: Value,
        has_guest: bool,
    },
    /// A snapshot that is not usable, with the reason.
    NotReady(String),
    /// The VM in a snapshot.
    Snapshot(Value),
    /// A backup without disks for this export, with the reason.
    NotOffered(String),
    /// The disks of a running guest.
    Backup(Offer),
}

/// A volume that is exported.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(super) struct Volume {
    /// In links.
    pub(super) name: String,
    /// The name of its claim.
    pub(super) claim_name: String,
    /// The name of the claim in the VM that is exported.
    pub(super) original: String,
    pub(super) claim: Option<Arc<Claim>>,
    /// Whether the claim has its data.
    pub(super) is_populated: bool,
    /// The claim gets its volume and data when a pod uses it.
    pub(super) waits_for_consumer: bool,
    /// It was made for this export.
    pub(super) is_own: bool,
    /// What uses the claim.
    pub(super) user: Option<String>,
    pub(super) is_disk: bool,
    /// A claim to create, and whether the existing one of the name is this.
    pub(super) restored: Option<Restored>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Restored {
    pub(super) body: Value,
    pub(super) is_ours: bool,
    /// Whether the copy of the disk is there.
    pub(super) has_copy: bool,
}

/// The service in front of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Front {
    #[default]
    None,
    /// Something else has its name.
    Taken,
    Ready {
        /// The Secret with the certificate.
        certificate: String,
        /// In PEM.
        authority: String,
        /// The Secret with the token.
        token: String,
    },
}

/// The name of the claim with a memory dump.
pub(super) fn dump_of(volume: &Value) -> Option<&str> {
    volume.pointer("/memoryDump/claimName")?.as_str()
}

pub(super) fn unreadable(what: &'static str) -> impl Fn(kube::Error) -> ExportError {
    move |error| ExportError::Read {
        what,
        source: Box::new(error),
    }
}

/// Whether a guest that has no pod yet will use the claim.
pub(super) fn starts_with(guest: &Guest, claim: &str) -> bool {
    let volumes = guest
        .whole()
        .map_or(&[][..], |vmi| vmi.spec.volumes.as_slice());
    volumes.iter().any(|volume| {
        let named = volume.persistent_volume_claim.as_ref();
        let named = named.map(|source| source.claim_name.as_str());
        let made = volume
            .data_volume
            .as_ref()
            .map(|source| source.name.as_str());
        named.or(made) == Some(claim)
    })
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        export: Arc<VirtualMachineExport>,
    ) -> Result<Observed, ExportError> {
        let server = Key::new(&key.namespace, names::server(&export));
        let pod = self.pods.get(&server);
        let mut observed = Observed {
            pod: pod.filter(|pod| names::is_of(pod.as_ref(), &export)),
            is_over: copy_is_over(&export, |volume| self.volumes.data_volumes.get(volume, key)),
            now: self.clock.now(),
            export,
            ..Observed::default()
        };
        let has_expired =
            super::plan::expiry(&observed.export).is_some_and(|at| at <= observed.now);
        let is_deleting = observed.export.metadata.deletion_timestamp.is_some();
        if is_deleting || observed.is_over || has_expired {
            return Ok(observed);
        }
        observed.proxy = self.proxy().await?;
        observed.front = self.front(&server, &observed.export).await?;
        self.observe_source(key, &mut observed).await?;
        self.observe_users(key, &mut observed).await?;
        Ok(observed)
    }

    async fn front(
        &self,
        server: &Key,
        export: &VirtualMachineExport,
    ) -> Result<Front, ExportError> {
        let services = Api::<Service>::namespaced(self.client.clone(), &server.namespace);
        let service = services.get_opt(&server.name).await;
        let Some(service) = service.map_err(unreadable("the service"))? else {
            return Ok(Front::None);
        };
        let note = |name: &str| service.annotations().get(name).cloned();
        let notes = (
            note(annotations::EXPORT_CERTIFICATE),
            note(annotations::EXPORT_AUTHORITY),
            note(annotations::EXPORT_TOKEN),
        );
        Ok(match notes {
            (Some(certificate), Some(authority), Some(token)) if names::is_of(&service, export) => {
                Front::Ready {
                    certificate,
                    authority,
                    token,
                }
            }
            _ => Front::Taken,
        })
    }

    async fn observe_source(&self, key: &Key, observed: &mut Observed) -> Result<(), ExportError> {
        let source = &observed.export.spec.source;
        let named = Key::new(&key.namespace, &source.name);
        match source.kind.as_str() {
            "PersistentVolumeClaim" => {
                let mut volume = self.volume(key, &named.name).await?;
                volume.is_own = volume
                    .claim
                    .as_deref()
                    .is_some_and(|claim| names::is_of(claim, &observed.export));
                observed.source = match &volume.claim {
                    Some(_) => Source::Claim,
                    None => Source::Missing,
                };
                observed.volumes.push(volume);
            }
            VirtualMachine::KIND => self.observe_vm(key, &named, observed).await?,
            VirtualMachineSnapshot::KIND => {
                self.observe_snapshot(key, &named, observed).await?;
            }
            VirtualMachineBackup::KIND => {
                let found = self.observe_backup(key, &named.name, &observed.export);
                observed.source = found.await?;
            }
            _ => observed.source = Source::Unknown,
        }
        Ok(())
    }

    async fn observe_vm(
        &self,
        key: &Key,
        named: &Key,
        observed: &mut Observed,
    ) -> Result<(), ExportError> {
        let kind = ApiResource::erase::<VirtualMachine>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &key.namespace, &kind);
        let vm = api
            .get_opt(&named.name)
            .await
            .map_err(unreadable("the VM"))?;
        let Some(vm) = vm else {
            observed.source = Source::Missing;
            return Ok(());
        };
        let vm = serde_json::to_value(vm).unwrap_or_default();
        let volumes = vm.pointer("/spec/template/spec/volumes");
        let volumes = volumes
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let disks: BTreeSet<&str> = volumes.iter().filter_map(claim_of).collect();
        let dumps: BTreeSet<&str> = volumes.iter().filter_map(dump_of).collect();
        for claim in disks.union(&dumps) {
            let mut volume = self.volume(key, claim).await?;
            volume.is_disk = disks.contains(claim);
            observed.volumes.push(volume);
        }
        let guest = self.guests.get(named);
        observed.source = Source::Machine {
            vm,
            has_guest: guest.is_some_and(|guest| !guest.is_final()),
        };
        Ok(())
    }

    async fn observe_snapshot(
        &self,
        key: &Key,
        named: &Key,
        observed: &mut Observed,
    ) -> Result<(), ExportError> {
        let api = Api::<VirtualMachineSnapshot>::namespaced(self.client.clone(), &key.namespace);
        let snapshot = api.get_opt(&named.name).await;
        let Some(snapshot) = snapshot.map_err(unreadable("the snapshot"))? else {
            observed.source = Source::Missing;
            return Ok(());
        };
        let name = &named.name;
        let status = snapshot.status.unwrap_or_default();
        if status.phase == Some(VirtualMachineSnapshotPhase::Failed) {
            let why = format!("VirtualMachineSnapshot {name} has failed");
            observed.source = Source::NotReady(why);
            return Ok(());
        }
        let ready = status.ready_to_use == Some(true);
        let content = status.virtual_machine_snapshot_content_name;
        let Some(content) = content.filter(|_| ready) else {
            let why = format!("VirtualMachineSnapshot {name} is not ready yet");
            observed.source = Source::NotReady(why);
            return Ok(());
        };
        let copied = copied_vm(&self.client, &key.namespace, &content).await;
        let Some((vm, backups)) = copied.map_err(unreadable("the content of the snapshot"))? else {
            let why = format!("the content of VirtualMachineSnapshot {name} is gone");
            observed.source = Source::NotReady(why);
            return Ok(());
        };
        for backup in backups {
            let volume = self.restored(key, &observed.export, backup).await?;
            observed.volumes.push(volume);
        }
        observed.source = Source::Snapshot(vm);
        Ok(())
    }

    /// The volume of a copy, with the claim that gets it.
    async fn restored(
        &self,
        key: &Key,
        export: &VirtualMachineExport,
        backup: VolumeBackup,
    ) -> Result<Volume, ExportError> {
        let copies = Api::<VolumeSnapshot>::namespaced(self.client.clone(), &key.namespace);
        let copy = match backup.volume_snapshot_name.as_deref() {
            Some(name) => copies.get_opt(name).await,
            None => Ok(None),
        };
        let copy = copy.map_err(unreadable("a volume snapshot"))?;
        let name = claims::name(export, &backup);
        let body = claims::body(export, &name, &backup, copy.as_ref());
        let mut volume = self.volume(key, &name).await?;
        let claim = volume.claim.as_deref();
        volume.restored = Some(Restored {
            is_ours: claim.is_some_and(|claim| names::is_of(claim, export)),
            has_copy: copy.is_some_and(|copy| copy.metadata.deletion_timestamp.is_none()),
            body,
        });
        volume.name.clone_from(&backup.volume_name);
        claims::original(&backup).clone_into(&mut volume.original);
        volume.is_disk = true;
        Ok(volume)
    }

    async fn volume(&self, key: &Key, claim_name: &str) -> Result<Volume, ExportError> {
        let named = Key::new(&key.namespace, claim_name);
        let claim = self.volumes.claims.get(&named, key);
        let data_volume = self.volumes.data_volumes.get(&named, key);
        let mut volume = Volume {
            name: claim_name.to_owned(),
            claim_name: claim_name.to_owned(),
            original: claim_name.to_owned(),
            ..Volume::default()
        };
        let Some(claim) = claim else {
            return Ok(volume);
        };
        let is_of_data_volume = claim.is_of_data_volume();
        let has_data = data_volume.is_none_or(|one| one.phase == DataVolumePhase::Succeeded);
        volume.is_populated = claim.is_bound
            && !claim.is_lost
            && !claim.receives_upload()
            && claim.open_restore().is_none()
            && (has_data || !is_of_data_volume);
        let content = claim.annotation(annotations::CDI_CONTENT_TYPE);
        volume.is_disk = match content {
            Some(content) => content.is_empty() || content == DISK,
            None => is_of_data_volume || crate::data_volume::is_block(&claim),
        };
        if !claim.is_bound {
            let waits = waits_for_consumer(&self.client, &claim).await;
            volume.waits_for_consumer = waits.map_err(unreadable("the storage class"))?;
        }
        volume.claim = Some(claim);
        Ok(volume)
    }

    /// The pods and guests that may change the claims. A guest counts before it has a pod.
    async fn observe_users(&self, key: &Key, observed: &mut Observed) -> Result<(), ExportError> {
        if observed.volumes.is_empty() {
            return Ok(());
        }
        let pods = claim_users(&self.client, &key.namespace).await;
        let pods = pods.map_err(unreadable("the pods"))?;
        let guests = self.guests.in_namespace(&key.namespace);
        for volume in &mut observed.volumes {
            let pod = pods.iter().find(|pod| pod.writes(&volume.claim_name));
            let mut starting = guests
                .iter()
                .filter(|one| starts_with(one, &volume.claim_name));
            let guest = starting.next();
            let pod = pod.map(|pod| format!("pod {}", pod.name_any()));
            let guest = guest.map(|guest| format!("VirtualMachineInstance {}", guest.name_any()));
            volume.user = pod.or(guest);
        }
        Ok(())
    }
}
