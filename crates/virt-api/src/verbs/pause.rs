//! `pause`: pauses the guest, which stays in memory.

use kubevirt_api::{VirtualMachineInstance, subresource_bodies::PauseOptions};

use super::{VmiVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Pause;

impl VmiVerb for Pause {
    const NAME: &'static str = "pause";
    const REFUSALS: &'static [u16] = &[403, 404, 409];
    type Body = PauseOptions;

    fn dry_run(body: &PauseOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        guest::require_running(vmi)?;
        let probe = vmi.spec.liveness_probe.as_ref();
        if probe.is_some_and(|probe| probe.guest_agent_ping.is_none()) {
            let message = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported";
            return Err(Refusal::forbidden(message));
        }
        if guest::is_paused(vmi) {
            return Err(Refusal::conflict("VMI is already paused"));
        }
        Ok(())
    }
}
