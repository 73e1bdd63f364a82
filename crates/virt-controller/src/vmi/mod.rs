//! The VMI controller: makes the pod of a VMI, carries the VMI from Pending to Scheduled, and
//! removes the pod when the guest is over or was never started.
//!
//! From Scheduled on the phase belongs to the node's handler; this controller then only tells of
//! pods that are lost.

mod act;
mod observe;
mod plan;
mod rules;
mod status;
#[cfg(test)]
mod tests;
mod volumes;

use cluster_view::Configuration;
use kube::Client;
use launcher_pod::PodError;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use crate::AccelerationPolicy;
use crate::node::Heartbeats;
use crate::view::{Guest, Host, LauncherPod, Namespace, Quotas, Volumes};

pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) vmis: Store<Guest>,
    pub(crate) pods: Store<LauncherPod>,
    pub(crate) hosts: Store<Host>,
    pub(crate) heartbeats: Heartbeats,
    /// Looked at before there is a pod.
    pub(crate) volumes: Volumes,
    pub(crate) launcher: launcher_pod::Settings,
    /// What the administrator says of pods.
    pub(crate) cluster: Configuration,
    pub(crate) namespaces: Store<Namespace>,
    pub(crate) quotas: Quotas,
    pub(crate) acceleration: AccelerationPolicy,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

/// Why a pass did not get to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VmiError {
    #[error("look up the pod")]
    Look(#[source] Box<kube::Error>),
    #[error("make the pod")]
    Render(#[source] PodError),
    #[error("create the pod")]
    Create(#[source] WriteError),
    #[error("create the pod: another's has the name {pod}")]
    NameTaken { pod: String },
    #[error("delete the pod")]
    Delete(#[source] WriteError),
    #[error("remove the finalizer")]
    Finalizer(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for VmiError {
    fn reason(&self) -> Reason {
        match self {
            Self::Look(_) => Reason::ServerUnavailable,
            Self::Create(_) | Self::Render(_) | Self::NameTaken { .. } => Reason::FailedCreate,
            Self::Delete(_) => Reason::FailedDelete,
            Self::Finalizer(_) => Reason::FailedUpdate,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Look(_) | Self::Render(_) | Self::NameTaken { .. } => Retry::BackOff,
            Self::Create(source)
            | Self::Delete(source)
            | Self::Finalizer(source)
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "vmi";
    type Error = VmiError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, VmiError> {
        let Some(vmi) = self.vmis.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let seen = self.observe(vmi).await?;
        let plan = plan::plan(&seen);
        self.act(&seen, &plan).await
    }
}
