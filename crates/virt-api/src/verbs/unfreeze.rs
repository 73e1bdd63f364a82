//! `unfreeze`: thaws the guest's file systems.

use kubevirt_api::VirtualMachineInstance;

use super::{NoOptions, VmiVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Unfreeze;

impl VmiVerb for Unfreeze {
    const NAME: &'static str = "unfreeze";
    const REFUSALS: &'static [u16] = &[409, 500];
    type Body = NoOptions;

    fn dry_run(body: &NoOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        guest::require_running(vmi)?;
        guest::require_agent_for(vmi, "Unfreeze")
    }
}
