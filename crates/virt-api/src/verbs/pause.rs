//! `pause`: the guest stops in the middle of whatever it does, and stays in memory.

use kubevirt_api::{
    VirtualMachineInstance, conditions, subresource_bodies::PauseOptions,
    vmi_status::VirtualMachineInstanceConditionType as Condition,
};

use super::{VmiVerb, on_vmi};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Pause;

impl VmiVerb for Pause {
    const NAME: &'static str = "pause";
    type Body = PauseOptions;

    fn dry_run(body: &PauseOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        on_vmi::is_running(vmi)?;
        let probe = vmi.spec.liveness_probe.as_ref();
        if probe.is_some_and(|probe| probe.guest_agent_ping.is_none()) {
            let message = "a VMI with a liveness probe cannot be paused: the probe would fail";
            return Err(Refusal::forbidden(message));
        }
        if is_paused(vmi) {
            return Err(Refusal::conflict("the VMI is already paused"));
        }
        Ok(())
    }
}

pub(super) fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    status.is_some_and(|status| conditions::is_true(&status.conditions, &Condition::Paused))
}
