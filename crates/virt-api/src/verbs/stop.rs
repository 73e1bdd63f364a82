//! `stop`: stops a VM.

use kubevirt_api::{
    VirtualMachineInstance, subresource_bodies::StopOptions,
    vm::VirtualMachineRunStrategy as Strategy, vmi_status::VirtualMachineInstancePhase as Phase,
};
use serde_json::json;

use super::{
    Change, ObservedVm, VmVerb,
    changes::{request, run_strategy, switch},
    guest::phase,
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Stop;

impl VmVerb for Stop {
    const NAME: &'static str = "stop";
    type Body = StopOptions;

    fn dry_run(body: &StopOptions) -> &[String] {
        &body.dry_run
    }

    fn decide(observed: &ObservedVm<'_>, body: &StopOptions) -> Result<Vec<Change>, Refusal> {
        let alive = observed
            .vmi
            .filter(|vmi| !matches!(phase(vmi), Phase::Succeeded | Phase::Failed));
        let shorter = shorter_grace(alive, body)?;
        let stop = |vmi: &VirtualMachineInstance| {
            request(
                observed.vm,
                &[json!({"action": "Stop", "uid": vmi.metadata.uid})],
            )
        };
        let changes = match (run_strategy(observed.vm)?, alive) {
            (Strategy::Halted, Some(vmi)) if shorter.is_some() => stop(vmi)?,
            (Strategy::Halted, Some(_)) if body.grace_period.is_some() => {
                let message =
                    "Halted only supports manual stop requests with a shorter graceperiod";
                return Err(Refusal::conflict(message));
            }
            (Strategy::Halted, _) => return Err(Refusal::conflict("VM is not running")),
            (Strategy::Manual | Strategy::RerunOnFailure, Some(vmi)) => stop(vmi)?,
            (Strategy::Manual | Strategy::RerunOnFailure, None) => {
                return Err(Refusal::conflict("VM is not running"));
            }
            (Strategy::Always | Strategy::Once, _) => vec![switch(observed.vm, &Strategy::Halted)],
            _ => vec![],
        };
        Ok(shorter.into_iter().chain(changes).collect())
    }
}

/// The grace period of a live VMI, changed before it is stopped.
fn shorter_grace(
    alive: Option<&VirtualMachineInstance>,
    body: &StopOptions,
) -> Result<Option<Change>, Refusal> {
    let (Some(vmi), Some(wanted)) = (alive, body.grace_period) else {
        return Ok(None);
    };
    if wanted < 0 {
        let message = format!("gracePeriod: {wanted} is negative: give seconds, 0 or more");
        return Err(Refusal::bad_request(message));
    }
    let path = "/spec/terminationGracePeriodSeconds";
    let current = vmi.spec.termination_grace_period_seconds;
    if current == Some(wanted) {
        return Ok(None);
    }
    // A JSON patch cannot test for a missing member; adding it is enough.
    let mut patch = vec![];
    if let Some(current) = current {
        patch.push(json!({"op": "test", "path": path, "value": current}));
    }
    patch.push(json!({"op": "add", "path": path, "value": wanted}));
    Ok(Some(Change::Vmi(patch.into())))
}
