//! `unfreeze`: file systems that were held still are let go.

use kubevirt_api::VirtualMachineInstance;

use super::{NoOptions, VmiVerb, on_vmi};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Unfreeze;

impl VmiVerb for Unfreeze {
    const NAME: &'static str = "unfreeze";
    type Body = NoOptions;

    fn dry_run(body: &NoOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        on_vmi::is_running(vmi)?;
        on_vmi::hears(vmi)
    }
}
