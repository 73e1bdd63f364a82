//! Writes changes that a running guest follows to its VMI, and observes what it could follow.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster_config::Rollout;
use kube::ResourceExt as _;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use reasons::Reason;
use reconcile::{EventType, Key, WriteError, merge};
use serde_json::{Value, json};

use super::instancetype::{self, ChoiceStep};
use super::live::Live;
use super::observe::Observed;
use super::status::Done;
use super::view::Vm;
use super::{Controller, VmError, nics};
use crate::{MANAGER, vmi};

/// Virtual CPUs for one CPU that a pod requests, unless the administrator sets another number.
const CPU_ALLOCATION_RATIO: u64 = 10;

impl Controller {
    /// The running guest, and the specs with instance type and preference of its start and of now. `None` if
    /// changes apply at the next start, or what the guest was started with is not known any more.
    pub(super) async fn observe_live(
        &self,
        observed: &Observed,
        data: &Value,
    ) -> Result<Option<Live>, VmError> {
        let config = self.cluster.now();
        let is_wanted = config.rollout == Rollout::LiveUpdate;
        let Some(vmi) = observed
            .own_vmi()
            .filter(|vmi| is_wanted && *vmi.phase() == Phase::Running)
        else {
            return Ok(None);
        };
        if observed.choice != ChoiceStep::Nothing {
            return Ok(None);
        }
        let Some(earlier) = instancetype::earlier(&observed.vm, data) else {
            return Ok(None);
        };
        let before = self.applied_spec(&earlier).await?;
        let now = self.applied_spec(&observed.vm).await?;
        let (Some(before), Some(now)) = (before, now) else {
            return Ok(None);
        };
        let Some(whole) = self.whole_vmi(vmi).await? else {
            return Ok(None);
        };
        let Ok(vmi) = serde_json::from_value::<VirtualMachineInstance>(json!(whole)) else {
            return Ok(None);
        };
        let missing = self.missing_definitions(&now, &vmi).await?;
        let developer = config.written.developer_configuration.as_ref();
        let ratio = developer.and_then(|developer| developer.cpu_allocation_ratio);
        Ok(Some(Live {
            before,
            now,
            vmi: Box::new(vmi),
            cpu_allocation_ratio: ratio
                .and_then(|ratio| u64::try_from(ratio).ok())
                .unwrap_or(CPU_ALLOCATION_RATIO),
            missing,
        }))
    }

    /// By network that the guest would join: that its definition does not exist.
    async fn missing_definitions(
        &self,
        now: &Value,
        vmi: &VirtualMachineInstance,
    ) -> Result<BTreeMap<String, String>, VmError> {
        let own = vmi.metadata.namespace.as_deref().unwrap_or("default");
        let mut missing = BTreeMap::new();
        for (network, definition) in nics::coming(now, vmi) {
            let found = vmi::has_definition(&self.client, own, &definition).await;
            if !found.map_err(|error| VmError::Read(Box::new(error)))? {
                let why = format!(
                    "there is no NetworkAttachmentDefinition {definition}, which network {network} \
                     names"
                );
                missing.insert(network, why);
            }
        }
        Ok(missing)
    }

    /// Removes interfaces from the template that guest and pod have lost.
    pub(super) async fn drop_interfaces(
        &self,
        observed: &Observed,
        vm: &Arc<Vm>,
    ) -> Result<Arc<Vm>, VmError> {
        let spec = observed
            .own_vmi()
            .and_then(|vmi| nics::without_left_over(&vm.spec.template, vmi));
        let Some(spec) = spec else {
            return Ok(Arc::clone(vm));
        };
        let body = json!({
            "metadata": {"resourceVersion": vm.metadata.resource_version},
            "spec": {"template": {"spec": spec}},
        });
        match self.merge_vm(vm, &body).await {
            // They stay in the template, and do no harm.
            Err(VmError::UpdateVm(WriteError::Refused { message, .. })) => {
                let note = format!("Cannot remove unplugged interfaces from the VM: {message}");
                let reason = Reason::FailedUpdate;
                self.recorder
                    .publish(vm.as_ref(), EventType::Warning, reason, note);
                Ok(Arc::clone(vm))
            }
            Ok(changed) => {
                tracing::info!("unplugged interfaces removed from the template");
                Ok(changed)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn follow_template(
        &self,
        observed: &Observed,
        patch: Option<&Value>,
        done: &mut Done,
    ) -> Result<(), VmError> {
        let (Some(vmi), Some(patch)) = (observed.own_vmi(), patch) else {
            return Ok(());
        };
        let key = Key::of(vmi.as_ref());
        match merge(&self.vmi_api(&key), MANAGER, &key, patch).await {
            Ok(written) => {
                tracing::info!(vmi_uid = vmi.uid(), "the VMI follows a change of its VM");
                self.vmis.wrote(vmi, written);
                Ok(())
            }
            // Reported as a change that needs a restart.
            Err(WriteError::Refused { message, .. }) => {
                let note = format!("Cannot change the running guest: {message}");
                let (vm, reason) = (observed.vm.as_ref(), Reason::FailedUpdate);
                self.recorder.publish(vm, EventType::Warning, reason, note);
                done.not_followed = Some(message);
                Ok(())
            }
            Err(error) => Err(VmError::UpdateVmi(error)),
        }
    }
}
