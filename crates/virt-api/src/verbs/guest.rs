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
        phase => Err(Refusal::bad_request(not_running(&phase))),
    }
}

/// Tools compare the beginning.
fn not_running(phase: &Phase) -> String {
    format!("VMI is not running: its phase is {:?}", phase.as_str())
}

/// For verbs.
pub(super) fn require_running(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match phase(vmi) {
        Phase::Running => Ok(()),
        phase => Err(Refusal::conflict(not_running(&phase))),
    }
}

pub(super) fn require_agent(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if has_agent(vmi) {
        return Ok(());
    }
    let message =
        "VMI does not have guest agent connected: install and start qemu-guest-agent in it";
    Err(Refusal::internal(message))
}

/// For commands of the agent. Tools look for the text up to the colon.
pub(super) fn require_agent_for(
    vmi: &VirtualMachineInstance,
    command: &str,
) -> Result<(), Refusal> {
    if has_agent(vmi) {
        return Ok(());
    }
    Err(Refusal::internal(format!(
        "Internal error occurred: command {command} failed: QEMU guest agent is not connected: \
         install and start qemu-guest-agent in the guest"
    )))
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
