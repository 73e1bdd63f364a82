//! `softreboot`: asks the guest to reboot, by its guest agent or the power button.

use kubevirt_api::VirtualMachineInstance;

use super::{NoOptions, VmiVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct SoftReboot;

impl VmiVerb for SoftReboot {
    const NAME: &'static str = "softreboot";
    const REFUSALS: &'static [u16] = &[409, 500];
    type Body = NoOptions;

    fn dry_run(body: &NoOptions) -> &[String] {
        &body.dry_run
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        guest::require_running(vmi)?;
        if guest::is_paused(vmi) {
            return Err(Refusal::conflict("VMI is paused"));
        }
        if guest::has_agent(vmi) || has_acpi(vmi) {
            return Ok(());
        }
        let message = "VMI neither have the agent connected nor the ACPI feature enabled";
        Err(Refusal::conflict(message).because(
            "spec.domain.features.acpi.enabled",
            "false, and no guest agent is connected",
        ))
    }
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
    fn guest_without_agent_and_acpi_is_refused() {
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
            let refusal = SoftReboot::admit(&vmi).err().map(|refusal| refusal.message);
            match message {
                None => assert_eq!(refusal, None, "{phase} {condition:?} {acpi}"),
                Some(part) => assert!(
                    refusal.unwrap().contains(part),
                    "{phase} {condition:?} {acpi}"
                ),
            }
        };
        check("Running", None, true, None);
        check("Running", Some("AgentConnected"), false, None);
        check("Running", None, false, Some("neither"));
        check("Running", Some("Paused"), true, Some("paused"));
        check("Scheduled", None, true, Some("VMI is not running"));
    }
}
