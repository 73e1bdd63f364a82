//! The objects that only this controller reads: importer pods, storage classes, and pods that use a claim.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod, PodStatus};
use k8s_openapi::api::storage::v1::StorageClass as WholeStorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::annotations;
use serde::Deserialize;

use crate::view::{Labels, slim};

/// A pod that populates a claim. It has one container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "RawPod")]
pub(crate) struct ImporterPod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) phase: PodPhase,
    /// Why no node takes it.
    pub(crate) unschedulable: Option<String>,
    pub(crate) container: Container,
    /// How the container last ended.
    pub(crate) last_end: Option<End>,
    /// Of the container.
    pub(crate) restarts: i32,
    /// Why the pod has failed, without the help of its container.
    pub(crate) message: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PodPhase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Container {
    #[default]
    Unknown,
    Waiting {
        reason: String,
        message: String,
    },
    Running {
        since: Option<Timestamp>,
    },
    /// See [`ImporterPod::last_end`].
    Ended,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    /// The termination message.
    pub(crate) message: String,
    pub(crate) at: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawPod {
    metadata: ObjectMeta,
    status: PodStatus,
}

impl From<RawPod> for ImporterPod {
    fn from(raw: RawPod) -> Self {
        let status = raw.status;
        let phase = match status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            _ => PodPhase::Pending,
        };
        let mut conditions = status.conditions.into_iter().flatten();
        let unscheduled =
            conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False");
        let mut containers = status.container_statuses.into_iter().flatten();
        let found = containers.next().unwrap_or_default();
        let state = found.state.unwrap_or_default();
        let ended = state.terminated.map(End::from);
        let container = if ended.is_some() {
            Container::Ended
        } else if let Some(running) = state.running {
            Container::Running {
                since: running.started_at.map(|at| at.0),
            }
        } else if let Some(waiting) = state.waiting {
            Container::Waiting {
                reason: waiting.reason.unwrap_or_default(),
                message: waiting.message.unwrap_or_default(),
            }
        } else {
            Container::Unknown
        };
        let before = found.last_state.and_then(|last| last.terminated);
        Self {
            metadata: slim(
                raw.metadata,
                Labels::Dropped,
                &[
                    annotations::IMPORT_RESTARTS,
                    annotations::IMPORT_CLAIM,
                    annotations::COPY_LINK,
                ],
            ),
            phase,
            unschedulable: unscheduled.and_then(|one| one.message),
            container,
            last_end: ended.or_else(|| before.map(End::from)),
            restarts: found.restart_count,
            message: status.message,
        }
    }
}

impl From<ContainerStateTerminated> for End {
    fn from(ended: ContainerStateTerminated) -> Self {
        Self {
            exit_code: ended.exit_code,
            reason: ended.reason.unwrap_or_default(),
            message: ended.message.unwrap_or_default(),
            at: ended.finished_at.map(|at| at.0),
        }
    }
}

reconcile::resource_view!(ImporterPod, Pod, NamespaceResourceScope);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StorageClass {
    metadata: ObjectMeta,
    volume_binding_mode: Option<String>,
}

impl StorageClass {
    /// Whether claims are bound only once a pod uses them.
    pub(crate) fn waits_for_consumer(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }
}

reconcile::resource_view!(StorageClass, WholeStorageClass, ClusterResourceScope);

/// A pod, reduced to the claims it uses.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Pod")]
pub(crate) struct ClaimUser {
    pub(crate) metadata: ObjectMeta,
    /// Of a pod that has not ended.
    pub(crate) claims: Vec<String>,
    /// Those of them that the pod may change.
    pub(crate) written: Vec<String>,
}

impl ClaimUser {
    pub(crate) fn uses(&self, claim: &str) -> bool {
        self.claims.iter().any(|name| name == claim)
    }

    /// Whether the pod may change the claim. The server of an export, for one, only reads.
    pub(crate) fn writes(&self, claim: &str) -> bool {
        self.written.iter().any(|name| name == claim)
    }
}

impl From<Pod> for ClaimUser {
    fn from(pod: Pod) -> Self {
        let phase = pod.status.and_then(|status| status.phase);
        let has_ended = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
        let volumes = pod.spec.and_then(|spec| spec.volumes);
        let volumes = volumes.into_iter().flatten().filter(|_| !has_ended);
        let (mut claims, mut written) = (Vec::new(), Vec::new());
        for source in volumes.filter_map(|volume| volume.persistent_volume_claim) {
            if source.read_only != Some(true) {
                written.push(source.claim_name.clone());
            }
            claims.push(source.claim_name);
        }
        Self {
            metadata: slim(pod.metadata, Labels::Dropped, &[]),
            claims,
            written,
        }
    }
}

reconcile::resource_view!(ClaimUser, Pod, NamespaceResourceScope);
