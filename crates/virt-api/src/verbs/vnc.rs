//! `vnc`: the guest's screen, keyboard and mouse.

use kubevirt_api::VirtualMachineInstance;

use super::{
    StreamVerb,
    contract::{Answer, Contract},
    guest,
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Vnc;

impl StreamVerb for Vnc {
    const NAME: &'static str = "vnc";
    const CONTRACT: Contract =
        Contract::new(Answer::Websocket, &[400, 503]).with_query(&[("preserveSession", "boolean")]);

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        if vmi.spec.domain.devices.autoattach_graphics_device == Some(false) {
            let field = "spec.domain.devices.autoattachGraphicsDevice";
            return Err(Refusal::bad_request("No graphics devices are present.")
                .because(field, "false: leave it out and restart the guest"));
        }
        guest::require_guest(vmi)
    }
}
