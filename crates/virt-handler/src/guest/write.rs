//! Writing a VMI's status, and the events that go with it.

use std::sync::Arc;

use kube::Api;
use kubevirt_api::{
    VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase,
    vmi_status::VirtualMachineInstanceStatus,
};
use reasons::Reason;
use reconcile::{EventType, Fragment, Key, WriteError};

use super::{
    act::Guests, error::GuestError, fragment::fragment, observe::Pair, outcome::failure, plan,
    status::StatusInput,
};
use crate::metrics;

/// The field manager of the VMI's status.
const MANAGER: &str = "virt-handler";

impl Guests {
    /// The newest known version of the VMI: an earlier step of this reconcile may have written one.
    pub(super) fn latest(&self, key: &Key, pair: &Pair) -> Arc<VirtualMachineInstance> {
        let stored = self.parts.vmis.get(key);
        stored
            .filter(|vmi| vmi.metadata.uid == pair.vmi.metadata.uid)
            .unwrap_or_else(|| Arc::clone(&pair.vmi))
    }

    /// Applies the status if it differs from the VMI's; returns whether it did.
    pub(super) async fn write(
        &self,
        key: &Key,
        vmi: &VirtualMachineInstance,
        status: &VirtualMachineInstanceStatus,
    ) -> Result<bool, GuestError> {
        let Some(body) = fragment(vmi, status) else {
            return Ok(false);
        };
        let api = Api::namespaced(self.parts.client.0.clone(), &key.namespace);
        let apply = Fragment {
            manager: MANAGER,
            key,
            subresource: None,
            body,
        };
        let written: VirtualMachineInstance = reconcile::apply(&api, &apply)
            .await
            .inspect_err(|error| self.report_rejection(vmi, error))?;
        failpoints::after("virt-handler/guest/write-status");
        self.parts.vmis.wrote(vmi, written);
        Ok(true)
    }

    /// A rejected status would otherwise stay unnoticed: the VMI just stops changing.
    fn report_rejection(&self, vmi: &VirtualMachineInstance, error: &WriteError) {
        metrics::REJECTED_STATUS_WRITES.increment([error.reason().as_str()]);
        let WriteError::Refused { message, .. } = error else {
            return;
        };
        tracing::warn!(error = %message, "the API server rejected the status of a VMI");
        let recorder = &self.parts.recorder;
        let note = format!("the API server rejected the status of this VMI: {message}");
        recorder.publish(vmi, EventType::Warning, Reason::SyncFailed, note);
    }

    /// Publishes an event if the written status changed the phase of `vmi`.
    pub(super) fn publish_phase_change(
        &self,
        vmi: &VirtualMachineInstance,
        written: &VirtualMachineInstanceStatus,
        input: &StatusInput<'_>,
    ) {
        let recorder = &self.parts.recorder;
        match &written.phase {
            Some(phase) if *phase == plan::phase(vmi) => {}
            Some(Phase::Running) => {
                let note = "VirtualMachineInstance started.";
                recorder.publish(vmi, EventType::Normal, Reason::Started, note);
            }
            Some(Phase::Succeeded) => {
                let note = "The VirtualMachineInstance was shut down.";
                recorder.publish(vmi, EventType::Normal, Reason::Stopped, note);
            }
            Some(Phase::Failed) => {
                let failure = failure(&Phase::Failed, input.state, input.memory);
                let cause = failure.map_or_else(String::new, |failure| failure.message);
                let note = format!("The VirtualMachineInstance crashed: {cause}.");
                recorder.publish(vmi, EventType::Warning, Reason::Stopped, note);
            }
            _ => {}
        }
    }
}
