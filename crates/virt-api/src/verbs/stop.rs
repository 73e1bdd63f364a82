//! `stop`: the VM is to be off.

use kubevirt_api::{
    VirtualMachineInstance, subresource_bodies::StopOptions,
    vm::VirtualMachineRunStrategy as Strategy, vmi_status::VirtualMachineInstancePhase as Phase,
};
use serde_json::json;

use super::{
    Change, SeenVm, VmVerb,
    on_vmi::phase,
    restart::{requests, run_strategy, switch},
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

    fn decide(seen: &SeenVm<'_>, body: &StopOptions) -> Result<Vec<Change>, Refusal> {
        let alive = seen
            .vmi
            .filter(|vmi| !matches!(phase(vmi), Phase::Succeeded | Phase::Failed));
        let shorter = shorter_grace(alive, body)?;
        let request = |vmi: &VirtualMachineInstance| {
            requests(
                seen.vm,
                &[json!({"action": "Stop", "uid": vmi.metadata.uid})],
            )
        };
        let changes = match (run_strategy(seen.vm)?, alive) {
            (Strategy::Halted, Some(vmi)) if shorter.is_some() => request(vmi)?,
            (Strategy::Halted, _) => return Err(Refusal::conflict("VM is not running")),
            (Strategy::Manual | Strategy::RerunOnFailure, Some(vmi)) => request(vmi)?,
            (Strategy::Manual | Strategy::RerunOnFailure, None) => {
                return Err(Refusal::conflict("VM is not running"));
            }
            (Strategy::Always | Strategy::Once, _) => vec![switch(seen.vm, &Strategy::Halted)],
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
    // A test against a missing member is not part of the standard; adding says it all.
    let mut patch = vec![];
    if let Some(current) = current {
        patch.push(json!({"op": "test", "path": path, "value": current}));
    }
    patch.push(json!({"op": "add", "path": path, "value": wanted}));
    Ok(Some(Change::Vmi(patch.into())))
}
