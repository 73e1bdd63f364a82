//! `reset`: resets the guest at once, like the reset button of a computer.

use kubevirt_api::VirtualMachineInstance;

use super::{NoOptions, VmiVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Reset;

impl VmiVerb for Reset {
    const NAME: &'static str = "reset";
    const REFUSALS: &'static [u16] = &[400, 500];
    type Body = NoOptions;

    fn dry_run(body: &NoOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        guest::require_guest(vmi).map_err(|_not_running| {
            let phase = guest::phase(vmi);
            Refusal::bad_request(format!(
                "Unable to connect to VirtualMachineInstance because phase is {} instead of Running or \
                 Scheduled",
                phase.as_str()
            ))
        })
    }
}
