//! `start`: the VM is to run.

use kubevirt_api::subresource_bodies::StartOptions;
use serde_json::json;

use super::{
    Change, SeenVm, VmVerb,
    on_vmi::phase,
    restart::{requests, run_strategy, switch},
};
use crate::refusal::Refusal;
use kubevirt_api::{
    vm::VirtualMachineRunStrategy as Strategy, vmi_status::VirtualMachineInstancePhase as Phase,
};

#[derive(Debug)]
pub(super) struct Start;

impl VmVerb for Start {
    const NAME: &'static str = "start";
    type Body = StartOptions;

    fn dry_run(body: &StartOptions) -> &[String] {
        &body.dry_run
    }

    fn decide(seen: &SeenVm<'_>, body: &StartOptions) -> Result<Vec<Change>, Refusal> {
        let phase = seen.vmi.map(phase);
        let ended = matches!(phase, Some(Phase::Succeeded | Phase::Failed));
        if !ended
            && phase
                .as_ref()
                .is_some_and(|p| !matches!(p, Phase::Unset | Phase::Unknown))
        {
            return Err(Refusal::conflict("VM is already running"));
        }
        let start = match body.paused {
            Some(true) => json!({"action": "Start", "data": {"paused": "true"}}),
            _ => json!({"action": "Start"}),
        };
        let stop_first = || {
            let uid = seen.vmi.and_then(|vmi| vmi.metadata.uid.clone());
            json!({"action": "Stop", "uid": uid})
        };
        match run_strategy(seen.vm)? {
            Strategy::Halted if body.paused == Some(true) => requests(seen.vm, &[start]),
            Strategy::Halted => Ok(vec![switch(seen.vm, &Strategy::Always)]),
            Strategy::RerunOnFailure if phase == Some(Phase::Failed) => {
                let message = "RunStrategy RerunOnFailure restarts failed guests by itself";
                Err(Refusal::conflict(message))
            }
            Strategy::RerunOnFailure | Strategy::Manual if ended => {
                requests(seen.vm, &[stop_first(), start])
            }
            Strategy::RerunOnFailure | Strategy::Manual => requests(seen.vm, &[start]),
            strategy @ (Strategy::Always | Strategy::Once) => {
                let strategy = strategy.as_str();
                let message =
                    format!("RunStrategy {strategy} does not support manual start requests");
                Err(Refusal::conflict(message))
            }
            _ => Ok(vec![]),
        }
    }
}
