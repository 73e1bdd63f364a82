//! A VMI. The cache keeps its spec only until its pod is created.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::migration::VirtualMachineInstanceMigrationState;
use kubevirt_api::vmi::{EvictionStrategy, UtilityVolume, UtilityVolumeType};
use kubevirt_api::vmi_status::{
    StorageMigratedVolumeInfo, VirtualMachineInstanceBackupStatus, VirtualMachineInstanceCondition,
    VirtualMachineInstanceConditionType, VirtualMachineInstanceMigrationTransport,
    VirtualMachineInstancePhase as Phase,
    VirtualMachineInstancePhaseTransitionTimestamp as Transition, VirtualMachineInstanceStatus,
    VolumeStatus,
};
use kubevirt_api::{VirtualMachineInstance, annotations, labels};
use model::{Growth, GuestSize, LinkState, Storage, VolumeMoves};
use reasons::Reason;
use serde::Deserialize;

use super::Labels;
use super::nic::{Nic, nics};

const ANNOTATIONS: [&str; 3] = [
    annotations::VM_GENERATION,
    annotations::CREATE_MIGRATION_TARGET,
    annotations::VOLUMES_CARRIED_BY,
];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "VirtualMachineInstance")]
pub(crate) struct Guest {
    pub(crate) metadata: ObjectMeta,
    pub(crate) status: GuestStatus,
    /// The grace period of a shutdown.
    pub(crate) grace_seconds: Option<i64>,
    /// Dedicated CPUs require a pod of the class Guaranteed.
    pub(crate) needs_guarantee: bool,
    pub(crate) has_data_volumes: bool,
    pub(crate) has_vsock: bool,
    pub(crate) eviction_strategy: Option<EvictionStrategy>,
    /// Volumes that the guest may get and lose while it runs.
    pub(crate) plugs: Vec<Plug>,
    /// The claims of the volumes that it has had since its start, by volume.
    pub(crate) claims: BTreeMap<String, String>,
    /// Volumes that components attach for their own work.
    pub(crate) utility_volumes: Vec<UtilityVolume>,
    /// The links of interfaces, by their names.
    pub(crate) links: BTreeMap<String, LinkState>,
    /// Interfaces that come and go while the guest runs.
    pub(crate) nics: Vec<Nic>,
    /// Kept for the pod that brings them.
    pub(crate) tolerations: Vec<Toleration>,
    /// The processors and the memory of the spec.
    pub(crate) size: GuestSize,
    pub(crate) growth: Growth,
    whole: Option<Box<VirtualMachineInstance>>,
}

/// A hot-pluggable volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plug {
    pub(crate) volume: String,
    pub(crate) claim: String,
    pub(crate) purpose: Purpose,
}

/// What a hot-pluggable volume is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The guest has a disk of it.
    Disk,
    /// It receives the guest's memory; the guest does not see it.
    MemoryDump,
    /// It receives copies of the guest's disks; the guest does not see it.
    Backup,
}

/// The part of the status that the controllers read or own.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GuestStatus {
    pub(crate) phase: Phase,
    pub(crate) reason: Option<String>,
    pub(crate) node_name: Option<String>,
    pub(crate) conditions: Vec<VirtualMachineInstanceCondition>,
    /// When each phase was entered.
    pub(crate) changes: Vec<Transition>,
    pub(crate) is_migrating: bool,
    /// The last migration.
    pub(crate) migration: Option<Box<VirtualMachineInstanceMigrationState>>,
    /// The node that an eviction wants the guest to leave.
    pub(crate) evacuation_node: Option<String>,
    pub(crate) active_pods: BTreeMap<String, String>,
    pub(crate) qos_class: Option<String>,
    pub(crate) runtime_user: Option<u64>,
    pub(crate) launcher_image: Option<String>,
    /// Its pod has an older launcher than new pods get. A label of the VMI, not a part of its status.
    pub(crate) is_outdated: bool,
    pub(crate) migration_transport: Option<VirtualMachineInstanceMigrationTransport>,
    pub(crate) memory_overhead: Option<Quantity>,
    /// The revision of the VM's spec that it was started from.
    pub(crate) revision: Option<String>,
    /// The guest's address on the vsock.
    pub(crate) vsock: Option<u32>,
    /// The frequency of the guest's time stamp counter, if it relies on a fixed one.
    pub(crate) tsc_frequency: Option<i64>,
    /// Volumes that the guest is to leave for other claims.
    pub(crate) migrated_volumes: Vec<StorageMigratedVolumeInfo>,
    /// Of all volumes, if the guest has hot-plugged ones.
    pub(crate) volumes: Vec<VolumeStatus>,
    /// Whether changed blocks of the disks are tracked, as the VMI has it.
    pub(crate) tracking: String,
    /// The backup under way, or the last one.
    pub(crate) backup: Option<Box<VirtualMachineInstanceBackupStatus>>,
}

impl Guest {
    /// The whole VMI, as long as there is no pod.
    pub(crate) fn whole(&self) -> Option<&VirtualMachineInstance> {
        self.whole.as_deref()
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.status.phase
    }

    pub(crate) fn is_final(&self) -> bool {
        matches!(self.status.phase, Phase::Succeeded | Phase::Failed)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The part of the VMI that determines the names of its pods, and the claims that its guest moves to.
    pub(crate) fn identity(&self) -> VirtualMachineInstance {
        let metadata = ObjectMeta {
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            annotations: self.metadata.annotations.clone(),
            ..ObjectMeta::default()
        };
        let status = VirtualMachineInstanceStatus {
            phase: Some(self.status.phase.clone()),
            conditions: self.status.conditions.clone(),
            node_name: self.status.node_name.clone(),
            migration_state: self.status.migration.as_deref().cloned(),
            migrated_volumes: self.status.migrated_volumes.clone(),
            ..VirtualMachineInstanceStatus::default()
        };
        VirtualMachineInstance {
            metadata,
            status: Some(status),
            ..VirtualMachineInstance::default()
        }
    }

    /// Whether the guest can migrate, but only to another pod of its node.
    pub(crate) fn stays_on_node(&self) -> bool {
        let kind = VirtualMachineInstanceConditionType::LiveMigratable;
        let condition = conditions::find(&self.status.conditions, &kind);
        condition.is_some_and(|condition| {
            condition.status == conditions::TRUE && condition.reason() == Reason::OnlyWithinNode
        })
    }

    /// Whether processors or memory are to be plugged into the running guest, in a pod that has room for them.
    pub(crate) fn awaits_size(&self) -> bool {
        use VirtualMachineInstanceConditionType as Kind;
        let holds = |kind: &Kind| conditions::is_true(&self.status.conditions, kind);
        let is_awaited = holds(&Kind::HotVCPUChange) || holds(&Kind::HotMemoryChange);
        is_awaited && self.status.phase == Phase::Running
    }

    /// Whether the guest waits for a network that its pod does not join.
    pub(crate) fn awaits_network(&self) -> bool {
        let kind = VirtualMachineInstanceConditionType::MigrationRequired;
        let is_awaited = conditions::is_true(&self.status.conditions, &kind);
        is_awaited && self.status.phase == Phase::Running
    }

    /// The volumes that the next migration has to carry to other claims.
    pub(crate) fn volume_moves(&self) -> VolumeMoves {
        if self.status.migrated_volumes.is_empty() {
            return VolumeMoves::new();
        }
        model::volume_moves(&self.identity())
    }

    /// Whether the guest has new claims that the spec of its VMI does not name yet.
    pub(crate) fn volumes_arrived(&self) -> bool {
        !self.status.migrated_volumes.is_empty() && model::volumes_arrived(&self.identity())
    }

    /// Whether this migration carries volumes to claims that are not wanted any more.
    pub(crate) fn carries_unwanted_volumes(&self, uid: &str) -> bool {
        let wanted = conditions::is_true(
            &self.status.conditions,
            &VirtualMachineInstanceConditionType::VolumesChange,
        );
        let carrier = self.annotation(annotations::VOLUMES_CARRIED_BY);
        !wanted && carrier == Some(uid) && !self.status.migrated_volumes.is_empty()
    }

    /// The state of the last migration, if it is the one with this UID.
    pub(crate) fn migration(&self, uid: &str) -> Option<&VirtualMachineInstanceMigrationState> {
        let state = self.status.migration.as_deref()?;
        (state.migration_uid.as_deref() == Some(uid)).then_some(state)
    }

    /// Whether its last migration was one between two VMIs.
    pub(crate) fn is_of_two(&self) -> bool {
        let state = self.status.migration.as_deref();
        state.is_some_and(model::is_decentralized)
    }

    /// Whether the guest ran at any time.
    pub(crate) fn has_run(&self) -> bool {
        let mut changes = self.status.changes.iter();
        self.status.phase == Phase::Running
            || changes.any(|change| change.phase == Some(Phase::Running))
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        let all = self.metadata.annotations.as_ref()?;
        all.get(key).map(String::as_str)
    }
}

impl From<VirtualMachineInstance> for Guest {
    fn from(mut vmi: VirtualMachineInstance) -> Self {
        vmi.metadata.managed_fields = None;
        let status = GuestStatus::from(vmi.status.clone().unwrap_or_default());
        let cpu = vmi.spec.domain.cpu.as_ref();
        let metadata = super::slim(vmi.metadata.clone(), Labels::Kept, &ANNOTATIONS);
        let plugs = plugs(&vmi);
        let mut status = status;
        let labels = metadata.labels.as_ref();
        status.is_outdated =
            labels.is_some_and(|all| all.contains_key(labels::OUTDATED_LAUNCHER_IMAGE));
        let mut known = vmi.status.iter().flat_map(|status| &status.volume_status);
        if !plugs.is_empty() || known.any(|volume| volume.hotplug_volume.is_some()) {
            let whole = vmi.status.as_ref();
            status.volumes = whole.map_or_else(Vec::new, |whole| whole.volume_status.clone());
        }
        let tolerations = if plugs.is_empty() {
            Vec::new()
        } else {
            vmi.spec.tolerations.clone()
        };
        let is_without_pod = matches!(
            status.phase,
            Phase::Unset | Phase::Pending | Phase::WaitingForSync
        );
        Self {
            metadata,
            status,
            grace_seconds: vmi.spec.termination_grace_period_seconds,
            needs_guarantee: cpu.and_then(|cpu| cpu.dedicated_cpu_placement) == Some(true),
            has_vsock: vmi.spec.domain.devices.autoattach_vsock == Some(true),
            eviction_strategy: vmi.spec.eviction_strategy.clone(),
            has_data_volumes: vmi
                .spec
                .volumes
                .iter()
                .any(|volume| volume.data_volume.is_some()),
            claims: permanent_claims(&vmi),
            plugs,
            utility_volumes: vmi.spec.utility_volumes.clone(),
            links: links(&vmi),
            nics: nics(&vmi),
            size: GuestSize::wanted(&vmi),
            growth: Growth::of(&vmi),
            tolerations,
            whole: is_without_pod.then(|| Box::new(vmi)),
        }
    }
}

/// The claims of volumes that are no hot-pluggable ones, by volume.
pub(crate) fn permanent_claims(vmi: &VirtualMachineInstance) -> BTreeMap<String, String> {
    let guest = model::Guest::of(vmi);
    let volumes = guest.volumes.iter();
    let permanent = volumes.filter(|volume| !guest.is_hotplugged(volume));
    let claims = permanent.filter_map(|volume| match volume.source.storage() {
        Storage::Claim(claim) => Some((volume.name.to_owned(), claim.name.to_owned())),
        Storage::OverlaidClaim(_) | Storage::Host(_) | Storage::Pod => None,
    });
    claims.collect()
}

fn links(vmi: &VirtualMachineInstance) -> BTreeMap<String, LinkState> {
    let guest = model::Guest::of(vmi);
    let interfaces = guest.interfaces.iter();
    let links = interfaces.map(|interface| (interface.name().to_owned(), interface.link));
    links.collect()
}

/// The hot-pluggable volumes of a VMI, or of the template of one.
pub(crate) fn plugs(vmi: &VirtualMachineInstance) -> Vec<Plug> {
    let guest = model::Guest::of(vmi);
    let volumes = guest.volumes.iter();
    let plugged = volumes.filter(|volume| guest.is_hotplugged(volume));
    let targets = vmi.spec.utility_volumes.iter();
    let targets = targets.filter(|one| one.type_ == Some(UtilityVolumeType::Backup));
    let targets = targets.map(|one| Plug {
        volume: one.name.clone(),
        claim: one.claim_name.clone(),
        purpose: Purpose::Backup,
    });
    plugged
        .filter_map(|volume| {
            Some(Plug {
                volume: volume.name.to_owned(),
                claim: volume.source.plugged_claim()?.to_owned(),
                purpose: if volume.source.is_memory_dump() {
                    Purpose::MemoryDump
                } else {
                    Purpose::Disk
                },
            })
        })
        .chain(targets)
        .collect()
}

impl GuestStatus {
    /// Whether the guest runs in a pod with another launcher than new pods get.
    pub(crate) fn runs_in_other_than(&self, launcher_image: &str) -> bool {
        let image = self.launcher_image.as_deref();
        self.phase == Phase::Running && image.is_some_and(|image| image != launcher_image)
    }
}

impl From<VirtualMachineInstanceStatus> for GuestStatus {
    fn from(status: VirtualMachineInstanceStatus) -> Self {
        let is_migrating = status.migration_state.as_ref().is_some_and(|state| {
            state.start_timestamp.is_some()
                && state.completed != Some(true)
                && state.failed != Some(true)
        });
        let tracking = status.changed_block_tracking.unwrap_or_default();
        Self {
            phase: status.phase.unwrap_or_default(),
            reason: status.reason,
            node_name: status.node_name,
            conditions: status.conditions,
            changes: status.phase_transition_timestamps,
            is_migrating,
            migration: status.migration_state.map(Box::new),
            evacuation_node: status.evacuation_node_name,
            active_pods: status.active_pods,
            qos_class: status.qos_class,
            runtime_user: status.runtime_user,
            launcher_image: status.launcher_container_image_version,
            is_outdated: false,
            migration_transport: status.migration_transport,
            memory_overhead: status.memory.and_then(|memory| memory.memory_overhead),
            revision: status.virtual_machine_revision_name,
            vsock: status.vsock_cid,
            tsc_frequency: status.topology_hints.and_then(|hints| hints.tsc_frequency),
            migrated_volumes: status.migrated_volumes,
            volumes: Vec::new(),
            tracking: tracking.state.as_str().to_owned(),
            backup: tracking.backup_status.map(Box::new),
        }
    }
}

reconcile::resource_view!(Guest, VirtualMachineInstance, NamespaceResourceScope);
