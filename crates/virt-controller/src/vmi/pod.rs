//! A launcher pod, reduced to its state.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState as State, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::{annotations, labels};
use model::{GuestSize, VolumeMoves, paths};
use serde::Deserialize;

use super::device_info;
use crate::view::Labels;

const CONDITIONS: [&str; 2] = ["Ready", "PodScheduled"];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Raw")]
pub(crate) struct LauncherPod {
    pub(crate) metadata: ObjectMeta,
    /// The migration that it was created for.
    pub(crate) migration_uid: Option<String>,
    pub(crate) migration_name: Option<String>,
    /// The size of the guest that it was made for; only of pods that a guest moves to.
    pub(crate) size: Option<GuestSize>,
    /// The volumes that the guest leaves their claims with by moving here; `None` if that cannot be read.
    pub(crate) moves: Option<VolumeMoves>,
    /// The annotation with the devices of its networks, if it needs one that it does not have.
    pub(crate) missing_device_info: Option<String>,
    /// The annotation with the secondary networks that it names.
    pub(crate) networks: Option<String>,
    /// Its interfaces on networks, as the network plugin reports them.
    pub(crate) joined: BTreeSet<String>,
    pub(crate) node_name: Option<String>,
    /// Of the container that runs the guest.
    pub(crate) image: Option<String>,
    /// Volumes can be brought into it.
    pub(crate) takes_volumes: bool,
    pub(crate) phase: Option<String>,
    pub(crate) qos_class: Option<String>,
    pub(crate) conditions: Vec<PodCondition>,
    /// Init containers, which run before the others.
    pub(crate) init_containers: Vec<Container>,
    pub(crate) containers: Vec<Container>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct PodCondition {
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) state: ContainerState,
}

#[derive(Debug, Clone)]
pub(crate) enum ContainerState {
    Unknown,
    Waiting {
        reason: String,
        message: String,
    },
    Running,
    Terminated {
        at: Option<Timestamp>,
        /// `None` after exit code 0.
        failure: Option<Box<Failure>>,
    },
}

/// Why a container failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    /// The termination message.
    pub(crate) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Raw {
    metadata: ObjectMeta,
    spec: Spec,
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<String>,
    volumes: Vec<Named>,
    containers: Vec<Image>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Image {
    name: String,
    image: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

impl LauncherPod {
    pub(crate) fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }
}

impl From<Raw> for LauncherPod {
    fn from(raw: Raw) -> Self {
        let conditions = raw.status.conditions.unwrap_or_default().into_iter();
        let conditions = conditions
            .filter(|condition| CONDITIONS.contains(&condition.type_.as_str()))
            .map(|condition| PodCondition {
                kind: condition.type_,
                status: condition.status,
                reason: condition.reason,
                message: condition.message,
            });
        let labels = raw.metadata.labels.as_ref();
        let migration_uid = labels.and_then(|all| all.get(labels::MIGRATION_JOB_UID).cloned());
        let annotated = raw.metadata.annotations.as_ref();
        let migration_name =
            annotated.and_then(|all| all.get(annotations::MIGRATION_JOB_NAME).cloned());
        let size = annotated.and_then(|all| GuestSize::parse(all.get(annotations::GUEST_SIZE)?));
        let moves = annotated.and_then(|all| all.get(annotations::MIGRATED_VOLUMES));
        // Pods of earlier versions carry none.
        let moves = moves.map_or_else(
            || Some(VolumeMoves::new()),
            |text| model::moves_of_pod(text),
        );
        let missing_device_info = annotated.and_then(device_info::missing);
        let networks = annotated.and_then(|all| all.get(annotations::CNI_NETWORKS).cloned());
        let joined = annotated.map(device_info::interfaces).unwrap_or_default();
        let mut metadata = crate::view::slim(raw.metadata, Labels::Dropped, &[]);
        metadata.finalizers = None;
        let mut volumes = raw.spec.volumes.iter();
        let mut all = raw.spec.containers.into_iter();
        let compute = all.find(|container| container.name == launcher_pod::CONTAINER);
        Self {
            metadata,
            migration_uid,
            migration_name,
            size,
            moves,
            missing_device_info,
            networks,
            joined,
            node_name: raw.spec.node_name,
            image: compute.and_then(|container| container.image),
            takes_volumes: volumes.any(|volume| volume.name == paths::HOTPLUG_VOLUME),
            phase: raw.status.phase,
            qos_class: raw.status.qos_class,
            conditions: conditions.collect(),
            init_containers: containers(raw.status.init_container_statuses),
            containers: containers(raw.status.container_statuses),
        }
    }
}

fn containers(all: Option<Vec<ContainerStatus>>) -> Vec<Container> {
    let all = all.unwrap_or_default().into_iter();
    all.map(|container| Container {
        name: container.name,
        state: state(container.state.unwrap_or_default()),
    })
    .collect()
}

fn state(state: State) -> ContainerState {
    if let Some(terminated) = state.terminated {
        let failure = (terminated.exit_code != 0).then(|| {
            Box::new(Failure {
                exit_code: terminated.exit_code,
                reason: terminated.reason.unwrap_or_default(),
                message: terminated.message.unwrap_or_default(),
            })
        });
        return ContainerState::Terminated {
            at: terminated.finished_at.map(|at| at.0),
            failure,
        };
    }
    if state.running.is_some() {
        return ContainerState::Running;
    }
    state
        .waiting
        .map_or(ContainerState::Unknown, |waiting| ContainerState::Waiting {
            reason: waiting.reason.unwrap_or_default(),
            message: waiting.message.unwrap_or_default(),
        })
}

reconcile::resource_view!(LauncherPod, Pod, NamespaceResourceScope);
