//! `console`: the guest's first serial port.

use kubevirt_api::VirtualMachineInstance;

use super::{StreamVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Console;

impl StreamVerb for Console {
    const NAME: &'static str = "console";

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        if vmi.spec.domain.devices.autoattach_serial_console == Some(false) {
            let message = "the VMI has no serial console: \
                           spec.domain.devices.autoattachSerialConsole is false";
            return Err(Refusal::bad_request(message));
        }
        guest::require_guest(vmi)
    }
}
