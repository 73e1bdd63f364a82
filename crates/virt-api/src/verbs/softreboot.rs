//! `softreboot`: the guest is asked to start anew, by its agent or by the power button.

use kubevirt_api::{
    VirtualMachineInstance, conditions,
    vmi_status::VirtualMachineInstanceConditionType as Condition,
};

use super::{NoOptions, VmiVerb, on_vmi, pause::is_paused};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct SoftReboot;

impl VmiVerb for SoftReboot {
    const NAME: &'static str = "softreboot";
    type Body = NoOptions;

    fn dry_run(body: &NoOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        on_vmi::is_running(vmi)?;
        if is_paused(vmi) {
            return Err(Refusal::conflict("the VMI is paused"));
        }
        if has_agent(vmi) || has_acpi(vmi) {
            return Ok(());
        }
        let message = "the VMI has neither a guest agent nor ACPI: nobody would hear the request";
        Err(Refusal::conflict(message))
    }
}

pub(super) fn has_agent(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    status.is_some_and(|status| conditions::is_true(&status.conditions, &Condition::AgentConnected))
}

fn has_acpi(vmi: &VirtualMachineInstance) -> bool {
    let features = vmi.spec.domain.features.as_ref();
    let acpi = features.and_then(|features| features.acpi.as_ref());
    acpi.and_then(|acpi| acpi.enabled).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guest_that_cannot_hear_is_not_asked() {
        let check = |phase: &str, condition: Option<&str>, acpi: bool, message: Option<&str>| {
            let conditions: Vec<_> = condition
                .map(|kind| json!({"type": kind, "status": "True"}))
                .into_iter()
                .collect();
            let vmi = serde_json::from_value(json!({
                "spec": {"domain": {"features": {"acpi": {"enabled": acpi}}}},
                "status": {"phase": phase, "conditions": conditions},
            }))
            .unwrap();
            let said = SoftReboot::admit(&vmi).err().map(|refusal| refusal.message);
            match message {
                None => assert_eq!(said, None, "{phase} {condition:?} {acpi}"),
                Some(part) => assert!(said.unwrap().contains(part), "{phase} {condition:?} {acpi}"),
            }
        };
        check("Running", None, true, None);
        check("Running", Some("AgentConnected"), false, None);
        check("Running", None, false, Some("neither"));
        check("Running", Some("Paused"), true, Some("paused"));
        check("Scheduled", None, true, Some("not running"));
    }
}
