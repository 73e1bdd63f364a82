//! A migration, as far as this controller reads it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::migration_request::{
    VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationConditionType as Type,
    VirtualMachineInstanceMigrationPhase as Phase, VirtualMachineInstanceMigrationSpec,
    VirtualMachineInstanceMigrationStatus,
};
use kubevirt_api::{annotations, conditions, finalizers};
use model::MigrationEnd;
use reconcile::Key;
use serde::Deserialize;

use crate::view::Labels;

const ANNOTATIONS: [&str; 4] = [
    annotations::EVACUATION_MIGRATION,
    annotations::WORKLOAD_UPDATE_MIGRATION,
    annotations::MIGRATION_UNSCHEDULABLE_POD_TIMEOUT_SECONDS,
    annotations::MIGRATION_PENDING_POD_TIMEOUT_SECONDS,
];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "VirtualMachineInstanceMigration")]
pub(super) struct Migration {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: VirtualMachineInstanceMigrationSpec,
    pub(super) status: VirtualMachineInstanceMigrationStatus,
}

impl From<VirtualMachineInstanceMigration> for Migration {
    fn from(whole: VirtualMachineInstanceMigration) -> Self {
        Self {
            metadata: crate::view::slim(whole.metadata, Labels::Dropped, &ANNOTATIONS),
            spec: whole.spec,
            status: whole.status.unwrap_or_default(),
        }
    }
}

impl Migration {
    /// The VMI to move.
    pub(super) fn guest(&self) -> Key {
        let namespace = self.metadata.namespace.clone().unwrap_or_default();
        Key::new(namespace, self.spec.vmi_name.clone().unwrap_or_default())
    }

    /// The end that its VMI is of a migration between two VMIs.
    pub(super) fn end(&self) -> Option<MigrationEnd> {
        match (&self.spec.send_to, &self.spec.receive) {
            (Some(_), None) => Some(MigrationEnd::Source),
            (None, Some(_)) => Some(MigrationEnd::Target),
            // Neither moves the guest within its VMI; admission refuses both together.
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    /// What both ends of a migration between two VMIs have in common.
    pub(super) fn migration_id(&self) -> Option<&str> {
        let sent = self.spec.send_to.as_ref().map(|one| &one.migration_id);
        let received = self.spec.receive.as_ref().map(|one| &one.migration_id);
        sent.or(received).map(String::as_str)
    }

    pub(super) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn phase(&self) -> Phase {
        self.status.phase.clone().unwrap_or_default()
    }

    pub(super) fn is_final(&self) -> bool {
        matches!(self.phase(), Phase::Succeeded | Phase::Failed)
    }

    /// Whether it waits for its turn.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(
            self.phase(),
            Phase::Unset | Phase::Pending | Phase::WaitingForSync | Phase::Synchronizing
        )
    }

    /// Whether a pod may exist for it that is not in the cache yet.
    pub(super) fn may_have_unseen_pod(&self) -> bool {
        !self.is_waiting() && (!self.is_final() || self.has_finalizer())
    }

    /// Whether its pod was refused: it tries again, but others need not wait for it.
    pub(super) fn is_rejected(&self) -> bool {
        conditions::is_true(&self.status.conditions, &Type::RejectedByResourceQuota)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let all = self.metadata.annotations.as_ref()?;
        all.get(key).map(String::as_str)
    }

    pub(super) fn has_finalizer(&self) -> bool {
        let mut all = self.metadata.finalizers.iter().flatten();
        all.any(|name| name == finalizers::MIGRATION)
    }

    pub(super) fn created(&self) -> Option<Timestamp> {
        let at = self.metadata.creation_timestamp.as_ref()?;
        Some(at.0)
    }

    /// When it entered its phase.
    pub(super) fn since(&self) -> Option<Timestamp> {
        let last = self.status.phase_transition_timestamps.last()?;
        Some(last.phase_transition_timestamp.as_ref()?.0)
    }

    /// Whether a component created it, and creates another one after a failure.
    pub(super) fn is_repeated(&self) -> bool {
        self.annotation(annotations::EVACUATION_MIGRATION).is_some()
            || self
                .annotation(annotations::WORKLOAD_UPDATE_MIGRATION)
                .is_some()
    }
}

reconcile::resource_view!(
    Migration,
    VirtualMachineInstanceMigration,
    NamespaceResourceScope
);
