//! `reset`: the guest starts anew at once, as by the button on the case.

use kubevirt_api::VirtualMachineInstance;

use super::{NoOptions, VmiVerb, on_vmi};
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
        on_vmi::has_guest(vmi)
    }
}
