//! `console`: the guest's first serial port.

use kubevirt_api::{VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase};

use super::{
    StreamVerb,
    contract::{Answer, Contract},
    guest,
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Console;

impl StreamVerb for Console {
    const NAME: &'static str = "console";
    const CONTRACT: Contract = Contract::new(Answer::Websocket, &[400, 404, 409]);

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        if vmi.spec.domain.devices.autoattach_serial_console == Some(false) {
            let field = "spec.domain.devices.autoattachSerialConsole";
            return Err(Refusal::bad_request("No serial consoles are present.")
                .because(field, "false: leave it out and restart the guest"));
        }
        if guest::phase(vmi) == Phase::Failed {
            return Err(Refusal::conflict("VMI is in failed status"));
        }
        guest::require_guest(vmi)
    }
}
