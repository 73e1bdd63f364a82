//! `start`: starts a VM.

use kubevirt_api::{
    conditions::{self, Condition as _},
    subresource_bodies::StartOptions,
    vm::VirtualMachineRunStrategy as Strategy,
    vm_status::VirtualMachineConditionType,
    vmi_status::VirtualMachineInstancePhase as Phase,
};
use serde_json::json;

use super::{
    Change, ObservedVm, VmVerb,
    changes::{request, run_strategy, switch},
    guest::phase,
    suspend::{Resume, ResumeOptions, is_suspended},
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Start;

impl VmVerb for Start {
    const NAME: &'static str = "start";
    type Body = StartOptions;

    fn dry_run(body: &StartOptions) -> &[String] {
        &body.dry_run
    }

    fn decide(observed: &ObservedVm<'_>, body: &StartOptions) -> Result<Vec<Change>, Refusal> {
        if is_suspended(observed.vm) {
            if body.paused == Some(true) {
                let message =
                    "VM is suspended: start it without paused, or discard its state first";
                return Err(Refusal::conflict(message));
            }
            return Resume::decide(observed, &ResumeOptions::default());
        }
        let phase = observed.vmi.map(phase);
        let ended = matches!(phase, Some(Phase::Succeeded | Phase::Failed));
        if !ended
            && phase
                .as_ref()
                .is_some_and(|p| !matches!(p, Phase::Unset | Phase::Unknown))
        {
            return Err(Refusal::conflict("VM is already running"));
        }
        let recovery = VirtualMachineConditionType::ManualRecoveryRequired;
        let status = observed.vm.status.as_ref();
        let found = status.and_then(|status| conditions::find(&status.conditions, &recovery));
        if let Some(found) = found.filter(|found| found.status() == conditions::TRUE) {
            let message = format!("VM requires manual recovery: {}", found.message());
            return Err(Refusal::conflict(message));
        }
        let start = match body.paused {
            Some(true) => json!({"action": "Start", "data": {"paused": "true"}}),
            _ => json!({"action": "Start"}),
        };
        let stop_first = || {
            let uid = observed.vmi.and_then(|vmi| vmi.metadata.uid.clone());
            json!({"action": "Stop", "uid": uid})
        };
        match run_strategy(observed.vm)? {
            Strategy::Halted if body.paused == Some(true) => request(observed.vm, &[start]),
            Strategy::Halted => Ok(vec![switch(observed.vm, &Strategy::Always)]),
            Strategy::RerunOnFailure if phase == Some(Phase::Failed) => {
                let message = "RerunOnFailure does not support starting VM from failed state";
                Err(Refusal::conflict(message))
            }
            Strategy::RerunOnFailure | Strategy::Manual if ended => {
                request(observed.vm, &[stop_first(), start])
            }
            Strategy::RerunOnFailure | Strategy::Manual => request(observed.vm, &[start]),
            strategy @ (Strategy::Always | Strategy::Once) => {
                let strategy = strategy.as_str();
                let message = format!("{strategy} does not support manual start requests");
                Err(Refusal::conflict(message))
            }
            _ => Ok(vec![]),
        }
    }
}
