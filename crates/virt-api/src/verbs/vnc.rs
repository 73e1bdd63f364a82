//! `vnc`: the guest's screen, keyboard and mouse.

use kubevirt_api::VirtualMachineInstance;

use super::{StreamVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Vnc;

impl StreamVerb for Vnc {
    const NAME: &'static str = "vnc";

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        if vmi.spec.domain.devices.autoattach_graphics_device == Some(false) {
            let message = "the VMI has no screen: \
                           spec.domain.devices.autoattachGraphicsDevice is false";
            return Err(Refusal::bad_request(message));
        }
        guest::require_guest(vmi)
    }
}
