//! Changes of a VM that `start`, `stop` and `restart` make.

use kubevirt_api::{VirtualMachine, vm::VirtualMachineRunStrategy as Strategy};
use serde_json::{Value, json};

use super::Change;
use crate::refusal::Refusal;

/// The strategy of a VM, from `spec.runStrategy` or `spec.running`.
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

/// Sets the strategy in the field that the VM uses, if the strategy is still the observed one.
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

/// Adds requests for virt-controller. Only a single stop replaces requests that are pending.
pub(super) fn request(vm: &VirtualMachine, wanted: &[Value]) -> Result<Vec<Change>, Refusal> {
    let path = "/status/stateChangeRequests";
    let Some(status) = &vm.status else {
        let status = json!({"stateChangeRequests": wanted});
        return Ok(vec![Change::VmStatus(
            json!([{"op": "add", "path": "/status", "value": status}]),
        )]);
    };
    let pending = &status.state_change_requests;
    let is_single_stop = matches!(wanted, [only] if only["action"] == "Stop");
    let mut patch = if pending.is_empty() {
        vec![json!({"op": "add", "path": path, "value": wanted})]
    } else if is_single_stop {
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
        subresource_bodies::{RestartOptions, StartOptions, StopOptions},
        vmi_status::{VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus},
    };

    use kubevirt_api::vm_status::VirtualMachineStatus;

    use super::*;
    use crate::verbs::{ObservedVm, VmVerb, restart::Restart, start::Start, stop::Stop};

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

    /// The decision as text: the requested actions, the new strategy, or the code of the refusal.
    fn shown(decided: Result<Vec<Change>, Refusal>) -> String {
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
            Change::Migrate(_) => "migration".to_owned(),
        }
    }

    #[test]
    fn every_strategy_has_a_result_for_every_verb() {
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
            let observed = ObservedVm {
                vm: &vm,
                vmi: vmi.as_ref(),
            };
            let case = format!("{strategy:?} {phase:?}");
            assert_eq!(
                shown(Start::decide(&observed, &StartOptions::default())),
                start,
                "start {case}"
            );
            assert_eq!(
                shown(Stop::decide(&observed, &StopOptions::default())),
                stop,
                "stop {case}"
            );
            let decided = Restart::decide(&observed, &RestartOptions::default());
            assert_eq!(shown(decided), restart, "restart {case}");
        }
    }

    #[test]
    fn stop_with_a_grace_period_changes_the_vmi_first() {
        let (vm, vmi) = (vm(Strategy::Halted), vmi(Phase::Running));
        let observed = ObservedVm {
            vm: &vm,
            vmi: Some(&vmi),
        };
        let body = StopOptions {
            grace_period: Some(0),
            ..StopOptions::default()
        };
        assert_eq!(shown(Stop::decide(&observed, &body)), "grace=0+Stop");
    }

    #[test]
    fn vm_with_spec_running_is_switched_by_that_field() {
        let mut vm = vm(Strategy::Halted);
        vm.spec.run_strategy = None;
        vm.spec.running = Some(false);
        let observed = ObservedVm { vm: &vm, vmi: None };
        let changes = Start::decide(&observed, &StartOptions::default()).unwrap();
        assert_eq!(
            changes,
            [Change::Vm(json!([
                {"op": "test", "path": "/spec/running", "value": false},
                {"op": "replace", "path": "/spec/running", "value": true},
            ]))]
        );
    }
}
