//! `restart`: a running VM is stopped and started again; and what the three verbs share.

use kubevirt_api::{
    VirtualMachine, subresource_bodies::RestartOptions, vm::VirtualMachineRunStrategy as Strategy,
};
use serde_json::{Value, json};

use super::{Change, SeenVm, VmVerb};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Restart;

impl VmVerb for Restart {
    const NAME: &'static str = "restart";
    type Body = RestartOptions;

    fn dry_run(body: &RestartOptions) -> &[String] {
        &body.dry_run
    }

    fn decide(seen: &SeenVm<'_>, body: &RestartOptions) -> Result<Vec<Change>, Refusal> {
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
        let strategy = run_strategy(seen.vm)?;
        if matches!(strategy, Strategy::Halted | Strategy::Once) {
            let strategy = strategy.as_str();
            let message =
                format!("RunStrategy {strategy} does not support manual restart requests");
            return Err(Refusal::conflict(message));
        }
        let vmi = seen
            .vmi
            .ok_or_else(|| Refusal::conflict("VM is not running"))?;
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
        changes.extend(requests(seen.vm, &pair)?);
        Ok(changes)
    }
}

/// The strategy of a VM in either spelling.
pub(super) fn run_strategy(vm: &VirtualMachine) -> Result<Strategy, Refusal> {
    match (&vm.spec.run_strategy, vm.spec.running) {
        (Some(strategy), None) => Ok(strategy.clone()),
        (None, Some(true)) => Ok(Strategy::Always),
        (None, Some(false)) => Ok(Strategy::Halted),
        (None, None) => Err(Refusal::conflict(
            "the VM has neither spec.runStrategy nor spec.running",
        )),
        (Some(_), Some(_)) => Err(Refusal::conflict(
            "the VM has both spec.runStrategy and spec.running",
        )),
    }
}

/// Sets the strategy in the spelling that the VM uses, if it is still what was seen.
pub(super) fn switch(vm: &VirtualMachine, to: &Strategy) -> Change {
    let (path, from, to) = match (&vm.spec.run_strategy, vm.spec.running) {
        (Some(strategy), _) => (
            "/spec/runStrategy",
            json!(strategy.as_str()),
            json!(to.as_str()),
        ),
        (None, running) => (
            "/spec/running",
            json!(running),
            json!(*to == Strategy::Always),
        ),
    };
    Change::Vm(json!([
        {"op": "test", "path": path, "value": from},
        {"op": "replace", "path": path, "value": to},
    ]))
}

/// Leaves requests for the controller. What is under way already is not overtaken, except by a
/// lone stop.
pub(super) fn requests(vm: &VirtualMachine, wanted: &[Value]) -> Result<Vec<Change>, Refusal> {
    let path = "/status/stateChangeRequests";
    let Some(status) = &vm.status else {
        let status = json!({"stateChangeRequests": wanted});
        return Ok(vec![Change::VmStatus(
            json!([{"op": "add", "path": "/status", "value": status}]),
        )]);
    };
    let pending = &status.state_change_requests;
    let lone_stop = matches!(wanted, [only] if only["action"] == "Stop");
    let mut patch = if pending.is_empty() {
        vec![json!({"op": "add", "path": path, "value": wanted})]
    } else if lone_stop {
        vec![
            json!({"op": "test", "path": path, "value": pending}),
            json!({"op": "replace", "path": path, "value": wanted}),
        ]
    } else {
        let message = "unable to complete request: stop/start already underway";
        return Err(Refusal::internal(message));
    };
    if status.start_failure.is_some() {
        patch.push(json!({"op": "remove", "path": "/status/startFailure"}));
    }
    Ok(vec![Change::VmStatus(patch.into())])
}

#[cfg(test)]
mod tests {
    use kubevirt_api::{
        VirtualMachineInstance,
        subresource_bodies::{StartOptions, StopOptions},
        vmi_status::{VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus},
    };

    use kubevirt_api::vm_status::VirtualMachineStatus;

    use super::*;
    use crate::verbs::{start::Start, stop::Stop};

    fn vm(strategy: Strategy) -> VirtualMachine {
        let mut vm = VirtualMachine::default();
        vm.spec.run_strategy = Some(strategy);
        vm.status = Some(VirtualMachineStatus::default());
        vm
    }

    fn vmi(phase: Phase) -> VirtualMachineInstance {
        let mut vmi = VirtualMachineInstance::default();
        vmi.metadata.uid = Some("u1".into());
        vmi.status = Some(VirtualMachineInstanceStatus {
            phase: Some(phase),
            ..Default::default()
        });
        vmi
    }

    /// What a verb does, in a word: the actions requested, the strategy switched to, or the code
    /// of the refusal.
    fn said(decided: Result<Vec<Change>, Refusal>) -> String {
        match decided {
            Err(refusal) => refusal.code.as_u16().to_string(),
            Ok(changes) => changes.iter().map(describe).collect::<Vec<_>>().join("+"),
        }
    }

    fn describe(change: &Change) -> String {
        match change {
            Change::Vm(patch) => patch[1]["value"].as_str().unwrap_or("?").to_owned(),
            Change::Vmi(patch) => format!(
                "grace={}",
                patch[patch.as_array().unwrap().len() - 1]["value"]
            ),
            Change::VmStatus(patch) => patch[0]["value"]
                .as_array()
                .unwrap()
                .iter()
                .map(|request| request["action"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
                .join(","),
        }
    }

    #[test]
    fn every_strategy_answers_every_verb() {
        use Strategy::{Always, Halted, Manual, Once, RerunOnFailure};
        let table = [
            // strategy, phase of the VMI, start, stop, restart
            (Always, None, "409", "Halted", "409"),
            (Always, Some(Phase::Running), "409", "Halted", "Stop,Start"),
            (RerunOnFailure, None, "Start", "409", "409"),
            (
                RerunOnFailure,
                Some(Phase::Running),
                "409",
                "Stop",
                "Stop,Start",
            ),
            (
                RerunOnFailure,
                Some(Phase::Succeeded),
                "Stop,Start",
                "409",
                "Stop,Start",
            ),
            (
                RerunOnFailure,
                Some(Phase::Failed),
                "409",
                "409",
                "Stop,Start",
            ),
            (Manual, None, "Start", "409", "409"),
            (Manual, Some(Phase::Running), "409", "Stop", "Stop,Start"),
            (
                Manual,
                Some(Phase::Succeeded),
                "Stop,Start",
                "409",
                "Stop,Start",
            ),
            (
                Manual,
                Some(Phase::Failed),
                "Stop,Start",
                "409",
                "Stop,Start",
            ),
            (Halted, None, "Always", "409", "409"),
            (Halted, Some(Phase::Running), "409", "409", "409"),
            (Once, None, "409", "Halted", "409"),
            (Once, Some(Phase::Running), "409", "Halted", "409"),
        ];
        for (strategy, phase, start, stop, restart) in table {
            let (vm, vmi) = (vm(strategy.clone()), phase.clone().map(vmi));
            let seen = SeenVm {
                vm: &vm,
                vmi: vmi.as_ref(),
            };
            let case = format!("{strategy:?} {phase:?}");
            assert_eq!(
                said(Start::decide(&seen, &StartOptions::default())),
                start,
                "start {case}"
            );
            assert_eq!(
                said(Stop::decide(&seen, &StopOptions::default())),
                stop,
                "stop {case}"
            );
            let decided = Restart::decide(&seen, &RestartOptions::default());
            assert_eq!(said(decided), restart, "restart {case}");
        }
    }

    #[test]
    fn stopping_with_a_grace_changes_the_vmi_first() {
        let (vm, vmi) = (vm(Strategy::Halted), vmi(Phase::Running));
        let seen = SeenVm {
            vm: &vm,
            vmi: Some(&vmi),
        };
        let body = StopOptions {
            grace_period: Some(0),
            ..StopOptions::default()
        };
        assert_eq!(said(Stop::decide(&seen, &body)), "grace=0+Stop");
    }

    #[test]
    fn the_older_spelling_is_switched_in_its_own_words() {
        let mut vm = vm(Strategy::Halted);
        vm.spec.run_strategy = None;
        vm.spec.running = Some(false);
        let seen = SeenVm { vm: &vm, vmi: None };
        let changes = Start::decide(&seen, &StartOptions::default()).unwrap();
        assert_eq!(
            changes,
            [Change::Vm(json!([
                {"op": "test", "path": "/spec/running", "value": false},
                {"op": "replace", "path": "/spec/running", "value": true},
            ]))]
        );
    }
}
