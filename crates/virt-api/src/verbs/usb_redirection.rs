//! `usbredir`: a USB device of the client in the guest.

use kubevirt_api::VirtualMachineInstance;

use super::{
    StreamVerb,
    contract::{Answer, Contract},
    guest,
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct UsbRedirection;

impl StreamVerb for UsbRedirection {
    const NAME: &'static str = "usbredir";
    const CONTRACT: Contract = Contract::new(Answer::Websocket, &[400, 409, 503]);

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        if vmi.spec.domain.devices.client_passthrough.is_none() {
            let field = "spec.domain.devices.clientPassthrough";
            let advice = "not set: set it to {} and restart the guest";
            return Err(
                Refusal::conflict("Not configured with USB Redirection").because(field, advice)
            );
        }
        if vmi.spec.architecture.as_deref() == Some("s390x") {
            return Err(Refusal::conflict(
                "USB redirection is not supported on s390x",
            ));
        }
        guest::require_guest(vmi)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_running_guest_with_slots_takes_devices() {
        let with = json!({"domain": {"devices": {"clientPassthrough": {}}}});
        let mut mainframe = with.clone();
        mainframe["architecture"] = json!("s390x");
        let code = |spec: &Value, phase: &str| {
            let vmi = json!({"spec": spec, "status": {"phase": phase}});
            let vmi = serde_json::from_value(vmi).unwrap();
            let admitted = UsbRedirection::admit(&vmi);
            admitted.err().map(|refusal| refusal.code.as_u16())
        };
        assert_eq!(code(&with, "Running"), None);
        assert_eq!(code(&with, "Succeeded"), Some(400));
        assert_eq!(code(&json!({}), "Running"), Some(409));
        assert_eq!(code(&mainframe, "Running"), Some(409));
    }
}
