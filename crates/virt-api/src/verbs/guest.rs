//! The state of a guest, as its VMI reports it, and the conditions of verbs on it.

use kubevirt_api::{
    VirtualMachineInstance, conditions,
    vmi_status::{
        VirtualMachineInstanceConditionType as Condition, VirtualMachineInstancePhase as Phase,
    },
};

use crate::refusal::Refusal;

pub(super) fn phase(vmi: &VirtualMachineInstance) -> Phase {
    vmi.status
        .as_ref()
        .and_then(|status| status.phase.clone())
        .unwrap_or_default()
}

/// For streams: the guest runs or is about to run.
pub(super) fn require_guest(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match phase(vmi) {
        Phase::Running | Phase::Scheduled => Ok(()),
        Phase::Failed => Err(Refusal::conflict("the VMI has failed: its guest has ended")),
        phase => {
            let phase = phase.as_str();
            Err(Refusal::bad_request(format!(
                "the VMI is not running: its phase is {phase:?}"
            )))
        }
    }
}

/// For verbs.
pub(super) fn require_running(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match phase(vmi) {
        Phase::Running => Ok(()),
        phase => {
            let phase = phase.as_str();
            Err(Refusal::conflict(format!(
                "the VMI is not running: its phase is {phase:?}"
            )))
        }
    }
}

pub(super) fn require_agent(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if has_agent(vmi) {
        return Ok(());
    }
    let message = "the VMI has no guest agent connected: install and start qemu-guest-agent in it";
    Err(Refusal::internal(message))
}

pub(super) fn has_agent(vmi: &VirtualMachineInstance) -> bool {
    has(vmi, &Condition::AgentConnected)
}

pub(super) fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    has(vmi, &Condition::Paused)
}

fn has(vmi: &VirtualMachineInstance, condition: &Condition) -> bool {
    let status = vmi.status.as_ref();
    status.is_some_and(|status| conditions::is_true(&status.conditions, condition))
}
