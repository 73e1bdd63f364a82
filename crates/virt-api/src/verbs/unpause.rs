//! `unpause`: resumes a paused guest.

use kubevirt_api::{VirtualMachineInstance, subresource_bodies::UnpauseOptions};

use super::{VmiVerb, guest};
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
        guest::require_running(vmi)?;
        if guest::is_paused(vmi) {
            Ok(())
        } else {
            Err(Refusal::conflict("the VMI is not paused"))
        }
    }
}
