//! Writing a VMI's status, and the events that go with it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kubevirt_api::{
    VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase,
    vmi_status::VirtualMachineInstanceStatus,
};
use reasons::Reason;
use reconcile::{EventType, Fragment, Key, WriteError};

use super::{
    act::Guests,
    error::GuestError,
    fragment::{accepted_fragment, fragment},
    observe::Pair,
    outcome::failure,
    plan,
    status::StatusInput,
};

impl Guests {
    /// The newest known version of the VMI: an earlier step of this reconcile may have written one.
    pub(crate) fn latest(&self, key: &Key, pair: &Pair) -> Arc<VirtualMachineInstance> {
        let stored = self.parts.vmis.get(key);
        stored
            .filter(|vmi| vmi.metadata.uid == pair.vmi.metadata.uid)
            .unwrap_or_else(|| Arc::clone(&pair.vmi))
    }

    /// Applies the status if it differs from the VMI's; returns whether it did. Waits for virt-controller
    /// to publish the node first: until then, the API server refuses what virt-handler writes.
    pub(super) async fn write(
        &self,
        key: &Key,
        vmi: &VirtualMachineInstance,
        status: &VirtualMachineInstanceStatus,
    ) -> Result<bool, GuestError> {
        let on_node = vmi
            .status
            .as_ref()
            .is_some_and(|known| known.node_name.is_some());
        let Some(whole) = fragment(key, vmi, status).filter(|_| on_node) else {
            return Ok(false);
        };
        let rejected = match self.apply(vmi, &whole).await {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        if let WriteError::Refused { message, .. } = &rejected {
            // Otherwise the VMI would show an old state, and a paused guest could not be resumed.
            let now = Time(self.parts.clock.now());
            if let Some(accepted) = accepted_fragment(key, vmi, status, message, &now) {
                self.apply(vmi, &accepted).await?;
            }
        }
        Err(rejected.into())
    }

    async fn apply(
        &self,
        vmi: &VirtualMachineInstance,
        fragment: &Fragment<'_>,
    ) -> Result<(), WriteError> {
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::namespaced(self.parts.client.0.clone(), namespace);
        let written: VirtualMachineInstance =
            reconcile::apply_reported(&api, fragment, vmi, &self.parts.recorder).await?;
        failpoints::after("virt-handler/guest/write-status");
        self.parts.vmis.wrote(vmi, written);
        Ok(())
    }

    /// Publishes an event if the written status changed the phase of `vmi`.
    pub(super) fn publish_phase_change(
        &self,
        vmi: &VirtualMachineInstance,
        written: &VirtualMachineInstanceStatus,
        input: &StatusInput<'_>,
    ) {
        let recorder = &self.parts.recorder;
        let is_new = written.phase.as_ref() != Some(&plan::phase(vmi));
        let is_over = matches!(written.phase, Some(Phase::Succeeded | Phase::Failed));
        if is_new && is_over && vmi.metadata.deletion_timestamp.is_some() {
            recorder.publish(vmi, EventType::Normal, Reason::Deleted, "Signaled Deletion");
        }
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
                if let Some(failure) = &failure
                    && failure.reason == Reason::GuestPanicked
                {
                    recorder.publish(vmi, EventType::Warning, failure.reason, &failure.message);
                }
                let cause = failure.map_or_else(String::new, |failure| failure.message);
                let note = format!("The VirtualMachineInstance crashed: {cause}.");
                recorder.publish(vmi, EventType::Warning, Reason::Stopped, note);
            }
            _ => {}
        }
    }
}
