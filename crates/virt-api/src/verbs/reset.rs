//! `reset`: resets the guest at once, like the reset button of a computer.

use kubevirt_api::VirtualMachineInstance;

use super::{NoOptions, VmiVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Reset;

impl VmiVerb for Reset {
    const NAME: &'static str = "reset";
    type Body = NoOptions;

    fn dry_run(body: &NoOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        guest::require_guest(vmi)
    }
}
