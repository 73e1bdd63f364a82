//! The VM controller: a VM's run strategy and requests decide when its VMI is made and removed.
//!
//! The VMI has the VM's name, the VM as its controlling owner, and a finalizer of this
//! controller, so that its last state is seen and counted before it goes.

mod act;
mod data_volumes;
mod instancetype;
mod observe;
mod plan;
mod printable;
mod revision;
mod status;
mod strategy;
mod template;
#[cfg(test)]
mod tests;

use cluster_view::Configuration;
use kube::Client;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use crate::view::{Guest, Vm, Volumes};

pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) vms: Store<Vm>,
    pub(crate) vmis: Store<Guest>,
    /// Looked at for the printable status.
    pub(crate) volumes: Volumes,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
    pub(crate) cluster: Configuration,
}

/// Why a pass did not get to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VmError {
    #[error("look up the instance")]
    Look(#[source] Box<kube::Error>),
    #[error("keep a copy of the spec")]
    KeepRevision(#[source] WriteError),
    #[error(transparent)]
    Choice(#[from] instancetype::ChoiceError),
    #[error(transparent)]
    DataVolume(#[from] data_volumes::DataVolumeError),
    #[error("create the instance")]
    Create(#[source] WriteError),
    #[error("delete the instance")]
    Delete(#[source] WriteError),
    #[error("update the instance")]
    UpdateVmi(#[source] WriteError),
    #[error("update the virtual machine")]
    UpdateVm(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for VmError {
    fn reason(&self) -> Reason {
        match self {
            Self::Look(_) => Reason::ServerUnavailable,
            Self::Choice(error) => error.reason(),
            Self::DataVolume(error) => error.reason(),
            Self::KeepRevision(_) | Self::Create(_) => Reason::FailedCreate,
            Self::Delete(_) => Reason::FailedDelete,
            Self::UpdateVmi(_) | Self::UpdateVm(_) => Reason::FailedUpdate,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Look(_) => Retry::BackOff,
            Self::Choice(error) => error.retry(),
            Self::DataVolume(error) => error.retry(),
            Self::KeepRevision(source)
            | Self::Create(source)
            | Self::Delete(source)
            | Self::UpdateVmi(source)
            | Self::UpdateVm(source)
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "vm";
    type Error = VmError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, VmError> {
        let Some(vm) = self.vms.get(key) else {
            return self.release_orphan(key).await;
        };
        let seen = self.observe(vm).await?;
        let plan = plan::plan(&seen);
        self.act(&seen, &plan).await
    }
}
