//! `suspend` and `resume`: the state of a guest is saved to a claim, and the guest goes on from it later.
//! `KubeVirt` has no such verbs.
//!
//! Both write a request into the status of the VM, which virt-controller follows.

use admission::suspend::obstacle;
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance,
    conditions::{self, Condition as _},
    vm::VirtualMachineRunStrategy as Strategy,
    vm_status::{MemoryDumpPhase, VirtualMachineConditionType, VirtualMachineStatus},
    vmi_status::{
        VirtualMachineInstanceConditionType as VmiCondition, VirtualMachineInstancePhase as Phase,
    },
};
use serde_json::json;

use super::{
    Change, NoOptions, ObservedVm, VmVerb,
    body::Options,
    changes::{request, run_strategy, switch},
    guest::phase,
};
use crate::refusal::Refusal;

const GATE: &str = "SuspendToClaim";
/// The condition of a VM, whose reason is the state.
const CONDITION: &str = "Suspended";

#[derive(Debug)]
pub(super) struct Suspend;

#[derive(Debug)]
pub(super) struct Resume;

/// Options of `resume`.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResumeOptions {
    /// Deletes the saved state: the guest starts anew, if the run strategy says so.
    pub(crate) discard_state: bool,
    pub(crate) dry_run: Vec<String>,
}

impl Options for ResumeOptions {
    const TYPE: Option<&'static str> = None;
    const FIELDS: &'static [&'static str] = &["kind", "apiVersion", "dryRun", "discardState"];
}

impl VmVerb for Suspend {
    const NAME: &'static str = "suspend";
    const REFUSALS: &'static [u16] = &[400, 404, 409];
    const GATE: Option<&'static str> = Some(GATE);
    type Body = NoOptions;

    fn dry_run(body: &NoOptions) -> &[String] {
        &body.dry_run
    }

    fn decide(observed: &ObservedVm<'_>, _body: &NoOptions) -> Result<Vec<Change>, Refusal> {
        if let Some(message) = problem(observed) {
            return Err(Refusal::conflict(message));
        }
        let uid = observed.vmi.and_then(|vmi| vmi.metadata.uid.as_deref());
        request(observed.vm, &[json!({"action": "Suspend", "uid": uid})])
    }
}

impl VmVerb for Resume {
    const NAME: &'static str = "resume";
    type Body = ResumeOptions;

    fn dry_run(body: &ResumeOptions) -> &[String] {
        &body.dry_run
    }

    fn decide(observed: &ObservedVm<'_>, body: &ResumeOptions) -> Result<Vec<Change>, Refusal> {
        let vm = observed.vm;
        if !is_suspended(vm) {
            return Err(Refusal::conflict("VM is not suspended"));
        }
        if state(vm) == Some("Resuming") {
            return Err(Refusal::conflict("VM is being resumed already"));
        }
        if body.discard_state {
            let data = json!({"discardState": "true"});
            return request(vm, &[json!({"action": "Resume", "data": data})]);
        }
        let strategy = match run_strategy(vm)? {
            Strategy::Halted => Some(switch(vm, &Strategy::Always)),
            _ => None,
        };
        let resume = request(vm, &[json!({"action": "Resume"})])?;
        Ok(strategy.into_iter().chain(resume).collect())
    }
}

/// Whether the VM has a saved state.
pub(super) fn is_suspended(vm: &VirtualMachine) -> bool {
    let kind = VirtualMachineConditionType::from(CONDITION);
    let status = vm.status.as_ref();
    status.is_some_and(|status| conditions::is_true(&status.conditions, &kind))
}

fn state(vm: &VirtualMachine) -> Option<&str> {
    let kind = VirtualMachineConditionType::from(CONDITION);
    let condition = conditions::find(&vm.status.as_ref()?.conditions, &kind)?;
    Some(condition.reason())
}

/// Why the VM cannot be suspended now.
fn problem(observed: &ObservedVm<'_>) -> Option<String> {
    if is_suspended(observed.vm) {
        return Some("VM is suspended already".to_owned());
    }
    if state(observed.vm) == Some("Suspending") {
        return Some("VM is being suspended already".to_owned());
    }
    let running = observed.vmi.filter(|vmi| phase(vmi) == Phase::Running);
    let Some(vmi) = running else {
        return Some("VM is not running".to_owned());
    };
    if vmi.metadata.deletion_timestamp.is_some() {
        return Some("VM is being stopped".to_owned());
    }
    let in_progress = observed.vm.status.as_ref().and_then(in_progress);
    in_progress
        .or_else(|| of_guest(vmi))
        .or_else(|| obstacle(vmi))
}

fn in_progress(status: &VirtualMachineStatus) -> Option<String> {
    let named = [
        ("snapshot", &status.snapshot_in_progress),
        ("restore", &status.restore_in_progress),
    ];
    for (what, name) in named {
        if let Some(name) = name {
            return Some(format!("{what} {name} is in progress: wait for its end"));
        }
    }
    // The guest could not go on from the state: neither claim would be known to have what it has written.
    if status.volume_update_state.is_some() {
        let message = "volumes move to other claims: wait for the end, or take the change back";
        return Some(message.to_owned());
    }
    if !status.volume_requests.is_empty() {
        return Some("volumes are being attached or detached: wait for the end".to_owned());
    }
    let dump = status.memory_dump_request.as_ref()?;
    let is_over = matches!(
        dump.phase,
        MemoryDumpPhase::Completed | MemoryDumpPhase::Failed
    );
    (!is_over).then(|| "a memory dump is in progress: wait for its end".to_owned())
}

fn of_guest(vmi: &VirtualMachineInstance) -> Option<String> {
    let status = vmi.status.as_ref()?;
    if conditions::is_true(&status.conditions, &VmiCondition::Paused) {
        return Some("VM is paused: unpause it first".to_owned());
    }
    let migration = status.migration_state.as_ref()?;
    let is_over = migration.completed == Some(true) || migration.failed == Some(true);
    (!is_over).then(|| "a migration is in progress: wait for its end".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::verbs::start::Start;
    use kubevirt_api::subresource_bodies::StartOptions;

    fn vm(strategy: &str, status: &Value) -> VirtualMachine {
        let template = json!({"spec": {"domain": {"devices": {}}}});
        let spec = json!({"runStrategy": strategy, "template": template});
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    fn condition(status: &str, reason: &str) -> Value {
        json!({"conditions": [{"type": "Suspended", "status": status, "reason": reason}]})
    }

    fn vmi(status: &Value) -> VirtualMachineInstance {
        let mut vmi = json!({
            "metadata": {"name": "a", "uid": "u1"}, "spec": {"domain": {"devices": {}}},
            "status": {"phase": "Running"},
        });
        for (member, value) in status.as_object().unwrap() {
            vmi["status"][member] = value.clone();
        }
        serde_json::from_value(vmi).unwrap()
    }

    /// The patches, or the message of the refusal.
    fn shown(decided: Result<Vec<Change>, Refusal>) -> String {
        match decided {
            Err(refusal) => refusal.message,
            Ok(changes) => changes
                .iter()
                .map(|change| match change {
                    Change::Vm(patch) => patch[1]["value"].to_string(),
                    Change::VmStatus(patch) => patch[0]["value"].to_string(),
                    other => format!("{other:?}"),
                })
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    #[test]
    fn only_a_running_guest_that_nothing_else_works_on_is_suspended() {
        let none = || json!({});
        for (status, vmi_status, expected) in [
            (none(), Some(none()), r#"[{"action":"Suspend","uid":"u1"}]"#),
            (
                condition("False", "SuspendFailed"),
                Some(none()),
                r#"[{"action":"Suspend","uid":"u1"}]"#,
            ),
            (none(), None, "VM is not running"),
            (
                none(),
                Some(json!({"phase": "Scheduled"})),
                "VM is not running",
            ),
            (
                condition("True", "Suspended"),
                None,
                "VM is suspended already",
            ),
            (
                condition("False", "Suspending"),
                Some(none()),
                "VM is being suspended already",
            ),
            (
                json!({"snapshotInProgress": "s"}),
                Some(none()),
                "snapshot s is in progress: wait for its end",
            ),
            (
                json!({"memoryDumpRequest": {"claimName": "c", "phase": "InProgress"}}),
                Some(none()),
                "a memory dump is in progress: wait for its end",
            ),
            (
                json!({"volumeUpdateState": {}}),
                Some(none()),
                "volumes move to other claims: wait for the end, or take the change back",
            ),
            (
                none(),
                Some(json!({"migrationState": {"migrationUid": "m"}})),
                "a migration is in progress: wait for its end",
            ),
            (
                none(),
                Some(json!({"conditions": [{"type": "Paused", "status": "True"}]})),
                "VM is paused: unpause it first",
            ),
        ] {
            let vm = vm("Always", &status);
            let vmi = vmi_status.as_ref().map(vmi);
            let observed = ObservedVm {
                vm: &vm,
                vmi: vmi.as_ref(),
            };
            let decided = Suspend::decide(&observed, &NoOptions::default());
            assert_eq!(shown(decided), expected, "{:?}", vm.status);
        }
    }

    #[test]
    fn resume_and_start_let_a_suspended_guest_go_on() {
        let suspended = || condition("True", "Suspended");
        let resume = r#"[{"action":"Resume"}]"#;
        for (strategy, status, discard_state, expected) in [
            ("Always", suspended(), false, resume),
            ("Always", condition("True", "ResumeFailed"), false, resume),
            (
                "Halted",
                suspended(),
                false,
                r#""Always" [{"action":"Resume"}]"#,
            ),
            (
                "Halted",
                suspended(),
                true,
                r#"[{"action":"Resume","data":{"discardState":"true"}}]"#,
            ),
            (
                "Always",
                condition("True", "Resuming"),
                false,
                "VM is being resumed already",
            ),
            (
                "Always",
                condition("False", "SuspendFailed"),
                false,
                "VM is not suspended",
            ),
            ("Always", json!({}), true, "VM is not suspended"),
        ] {
            let vm = vm(strategy, &status);
            let observed = ObservedVm { vm: &vm, vmi: None };
            let options = ResumeOptions {
                discard_state,
                dry_run: Vec::new(),
            };
            let decided = Resume::decide(&observed, &options);
            assert_eq!(shown(decided), expected, "{strategy} {:?}", vm.status);
        }
        let vm = vm("Always", &suspended());
        let observed = ObservedVm { vm: &vm, vmi: None };
        let started = Start::decide(&observed, &StartOptions::default());
        assert_eq!(shown(started), resume);
        let paused = StartOptions {
            paused: Some(true),
            ..StartOptions::default()
        };
        let refused = shown(Start::decide(&observed, &paused));
        assert!(refused.starts_with("VM is suspended"), "{refused}");
    }
}
