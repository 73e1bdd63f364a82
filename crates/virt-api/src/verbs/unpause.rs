//! `unpause`: the guest goes on where it was paused.

use kubevirt_api::{VirtualMachineInstance, subresource_bodies::UnpauseOptions};

use super::{VmiVerb, on_vmi, pause::is_paused};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Unpause;

impl VmiVerb for Unpause {
    const NAME: &'static str = "unpause";
    type Body = UnpauseOptions;

    fn dry_run(body: &UnpauseOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        on_vmi::is_running(vmi)?;
        if is_paused(vmi) {
            Ok(())
        } else {
            Err(Refusal::conflict("the VMI is not paused"))
        }
    }
}
