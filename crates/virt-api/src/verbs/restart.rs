//! `restart`: stops a running VM and starts it again.

use kubevirt_api::{
    conditions, subresource_bodies::RestartOptions, vm::VirtualMachineRunStrategy as Strategy,
    vmi_status::VirtualMachineInstanceConditionType,
};
use serde_json::json;

use super::{
    Change, ObservedVm, VmVerb,
    changes::{request, run_strategy},
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Restart;

impl VmVerb for Restart {
    const NAME: &'static str = "restart";
    const REFUSALS: &'static [u16] = &[400, 404, 409];
    type Body = RestartOptions;

    fn dry_run(body: &RestartOptions) -> &[String] {
        &body.dry_run
    }

    fn decide(observed: &ObservedVm<'_>, body: &RestartOptions) -> Result<Vec<Change>, Refusal> {
        let force = match body.grace_period_seconds {
            None => false,
            Some(0) => true,
            Some(other) => {
                let message = format!(
                    "gracePeriodSeconds: {other} is not possible: 0 restarts at once, \
                     leave it out for the VMI's own grace period"
                );
                return Err(Refusal::bad_request(message));
            }
        };
        let strategy = run_strategy(observed.vm)?;
        if matches!(strategy, Strategy::Halted | Strategy::Once) {
            let strategy = strategy.as_str();
            // The spelling is KubeVirt's.
            let message = format!("RunStategy {strategy} does not support manual restart requests");
            return Err(Refusal::conflict(message));
        }
        let vmi = observed
            .vmi
            .ok_or_else(|| Refusal::conflict("VM is not running"))?;
        let moves = VirtualMachineInstanceConditionType::VolumesChange;
        let status = vmi.status.as_ref();
        let moves = status.is_some_and(|status| conditions::is_true(&status.conditions, &moves));
        // They may have to wait yet: the VM would not start by itself.
        let of_vm = observed.vm.status.as_ref();
        let are_to_move = of_vm.is_some_and(|status| status.volume_update_state.is_some());
        if moves || are_to_move {
            let message = "VM cannot be restarted while its volumes move to other claims: wait, or take the change back";
            return Err(Refusal::conflict(message));
        }
        let mut changes = vec![];
        if force {
            let path = "/spec/terminationGracePeriodSeconds";
            changes.push(Change::Vmi(
                json!([{"op": "add", "path": path, "value": 1}]),
            ));
        }
        let uid = &vmi.metadata.uid;
        let pair = vec![
            json!({"action": "Stop", "uid": uid}),
            json!({"action": "Start"}),
        ];
        changes.extend(request(observed.vm, &pair)?);
        Ok(changes)
    }
}
