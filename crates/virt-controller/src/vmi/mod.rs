//! The VMI controller: creates the pod of a VMI, takes the VMI from Pending to Scheduled, and
//! deletes the pod when the guest has ended or was never started.
//!
//! From Scheduled on virt-handler owns the phase; this controller then only reports lost pods.

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
    /// Observed before there is a pod.
    pub(crate) volumes: Volumes,
    pub(crate) launcher: launcher_pod::Settings,
    /// The administrator's configuration of pods.
    pub(crate) cluster: Configuration,
    pub(crate) namespaces: Store<Namespace>,
    pub(crate) quotas: Quotas,
    pub(crate) acceleration: AccelerationPolicy,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VmiError {
    #[error("read the pod")]
    Read(#[source] Box<kube::Error>),
    #[error("render the pod")]
    Render(#[source] PodError),
    #[error("create the pod")]
    Create(#[source] WriteError),
    #[error("create the pod: another pod has the name {pod}")]
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
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Create(_) | Self::Render(_) | Self::NameTaken { .. } => Reason::FailedCreate,
            Self::Delete(_) => Reason::FailedDelete,
            Self::Finalizer(_) => Reason::FailedUpdate,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) | Self::Render(_) | Self::NameTaken { .. } => Retry::BackOff,
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
        let observed = self.observe(vmi).await?;
        let plan = plan::plan(&observed);
        self.act(&observed, &plan).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.vmis.get(key)?.metadata.uid.clone()
    }
}
