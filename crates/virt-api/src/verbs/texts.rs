//! The texts of refusals that tools compare.

use kubevirt_api::{VirtualMachine, VirtualMachineInstance, vm_status::VolumeUpdateState};
use serde_json::{Value, json};

use super::{
    Change, ObservedVm, StreamVerb, VmVerb, VmiVerb, console::Console, freeze::Freeze, guest,
    pause::Pause, port_forward, reset::Reset, restart::Restart, screenshot::Screenshot,
    softreboot::SoftReboot, start::Start, stop::Stop, unpause::Unpause, vnc::Vnc,
};
use crate::{refusal::Refusal, verbs::BytesVerb};

fn vmi(value: Value) -> VirtualMachineInstance {
    serde_json::from_value(value).unwrap()
}

fn devices(devices: &Value) -> VirtualMachineInstance {
    let spec = json!({"domain": {"devices": devices}});
    vmi(json!({"spec": spec, "status": {"phase": "Running"}}))
}

fn in_phase(phase: &str) -> VirtualMachineInstance {
    vmi(json!({"spec": {"domain": {"devices": {}}}, "status": {"phase": phase}}))
}

fn with_condition(condition: &str) -> VirtualMachineInstance {
    vmi(json!({
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "conditions": [{"type": condition, "status": "True"}]},
    }))
}

/// Checks the code, and the text up to the details that are ours.
fn check(refused: Result<(), Refusal>, code: u16, text: &str) {
    let refusal = refused.unwrap_err();
    assert_eq!(refusal.code, code, "{text}");
    let rest = refusal.message.strip_prefix(text).unwrap_or("?");
    assert!(
        rest.is_empty() || rest.starts_with(": "),
        "{text:?}: {refusal:?}"
    );
}

const NO_SCREEN: &str = "No graphics devices are present.";
const NOT_RUNNING: &str = "VMI is not running";
const NO_AGENT: &str = "VMI does not have guest agent connected";

#[test]
fn refused_streams_have_the_texts_of_kubevirt() {
    let no_console = devices(&json!({"autoattachSerialConsole": false}));
    let no_screen = devices(&json!({"autoattachGraphicsDevice": false}));
    let unstarted = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {}})).unwrap();
    let not_started =
        "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"a\": VMI is not started";
    check(
        Console::admit(&no_console),
        400,
        "No serial consoles are present.",
    );
    check(
        Console::admit(&in_phase("Failed")),
        409,
        "VMI is in failed status",
    );
    check(Console::admit(&in_phase("Pending")), 400, NOT_RUNNING);
    check(Vnc::admit(&no_screen), 400, NO_SCREEN);
    check(Vnc::admit(&in_phase("Failed")), 400, NOT_RUNNING);
    check(Screenshot::admit(&no_screen), 400, NO_SCREEN);
    check(
        port_forward::admit(&in_phase("Running")),
        400,
        "no network interfaces are present",
    );
    check(
        port_forward::admit(&with_condition("Paused")),
        409,
        "VMI is paused",
    );
    check(port_forward::require_started(&unstarted), 409, not_started);
}

#[test]
fn refused_verbs_on_a_vmi_have_the_texts_of_kubevirt() {
    let probe = vmi(json!({
        "spec": {"domain": {"devices": {}}, "livenessProbe": {"tcpSocket": {"port": 80}}},
        "status": {"phase": "Running"},
    }));
    let no_acpi = vmi(json!({
        "spec": {"domain": {"devices": {}, "features": {"acpi": {"enabled": false}}}},
        "status": {"phase": "Running"},
    }));
    check(Pause::admit(&in_phase("Scheduled")), 409, NOT_RUNNING);
    check(
        Pause::admit(&with_condition("Paused")),
        409,
        "VMI is already paused",
    );
    check(
        Pause::admit(&probe),
        403,
        "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported",
    );
    check(Unpause::admit(&in_phase("Scheduled")), 409, NOT_RUNNING);
    check(
        Unpause::admit(&in_phase("Running")),
        409,
        "VMI is not paused",
    );
    check(Freeze::admit(&in_phase("Scheduled")), 409, NOT_RUNNING);
    let no_agent =
        "Internal error occurred: command Freeze failed: QEMU guest agent is not connected";
    check(Freeze::admit(&in_phase("Running")), 500, no_agent);
    check(SoftReboot::admit(&in_phase("Succeeded")), 409, NOT_RUNNING);
    check(
        SoftReboot::admit(&with_condition("Paused")),
        409,
        "VMI is paused",
    );
    check(
        SoftReboot::admit(&no_acpi),
        409,
        "VMI neither have the agent connected nor the ACPI feature enabled",
    );
    check(
        Reset::admit(&in_phase("Succeeded")),
        400,
        "Unable to connect to VirtualMachineInstance because phase is Succeeded instead of Running \
         or Scheduled",
    );
    check(guest::require_agent(&in_phase("Running")), 500, NO_AGENT);
    check(
        guest::require_running(&in_phase("Failed")),
        409,
        NOT_RUNNING,
    );
}

/// The client's own test compares the whole message; the remedy is in the details.
#[test]
fn missing_console_is_refused_by_one_exact_text() {
    let refusal = Console::admit(&devices(&json!({"autoattachSerialConsole": false}))).unwrap_err();
    assert_eq!(refusal.message, "No serial consoles are present.");
    let causes = &refusal.status()["details"]["causes"];
    assert_eq!(
        causes[0]["field"],
        "spec.domain.devices.autoattachSerialConsole"
    );
}

#[test]
fn refusals_on_a_vm_have_the_texts_of_kubevirt() {
    type Decide = fn(&ObservedVm<'_>, Value) -> Result<Vec<Change>, Refusal>;
    fn decide<V: VmVerb>(observed: &ObservedVm<'_>, body: Value) -> Result<Vec<Change>, Refusal>
    where
        V::Body: serde::de::DeserializeOwned,
    {
        V::decide(observed, &serde_json::from_value(body).unwrap())
    }
    let (start, stop, restart): (Decide, Decide, Decide) =
        (decide::<Start>, decide::<Stop>, decide::<Restart>);
    let table = [
        (
            start,
            "Always",
            Some("Running"),
            json!({}),
            "VM is already running",
        ),
        (
            start,
            "Always",
            None,
            json!({}),
            "Always does not support manual start requests",
        ),
        (
            start,
            "Once",
            None,
            json!({}),
            "Once does not support manual start requests",
        ),
        (
            start,
            "RerunOnFailure",
            Some("Failed"),
            json!({}),
            "RerunOnFailure does not support starting VM from failed state",
        ),
        (stop, "Halted", None, json!({}), "VM is not running"),
        (stop, "Manual", None, json!({}), "VM is not running"),
        (
            stop,
            "Halted",
            Some("Running"),
            json!({"gracePeriod": 30}),
            "Halted only supports manual stop requests with a shorter graceperiod",
        ),
        (
            restart,
            "Halted",
            None,
            json!({}),
            "RunStategy Halted does not support manual restart requests",
        ),
        (restart, "Always", None, json!({}), "VM is not running"),
    ];
    for (decide, strategy, phase, body, text) in table {
        let vm: VirtualMachine = serde_json::from_value(json!({
            "spec": {"runStrategy": strategy, "template": {"spec": {"domain": {"devices": {}}}}},
            "status": {},
        }))
        .unwrap();
        let vmi = phase.map(|phase| {
            vmi(json!({
                "spec": {"domain": {"devices": {}}, "terminationGracePeriodSeconds": 30},
                "status": {"phase": phase},
            }))
        });
        let observed = ObservedVm {
            vm: &vm,
            vmi: vmi.as_ref(),
        };
        let refusal = decide(&observed, body).unwrap_err();
        assert_eq!(
            (refusal.code.as_u16(), &*refusal.message),
            (409, text),
            "{strategy}"
        );
    }
}

/// Volumes that move to other claims.
#[test]
fn vm_is_not_started_or_restarted_between_two_sets_of_claims() {
    let condition = |kind: &str, status: &str| json!([{"type": kind, "status": status, "message": "root from old to new"}]);
    for (status, is_refused) in [("True", true), ("False", false)] {
        let vm = |conditions: Value| -> VirtualMachine {
            let spec =
                json!({"runStrategy": "Manual", "template": {"spec": {"domain": {"devices": {}}}}});
            let vm = json!({"spec": spec, "status": {"conditions": conditions}});
            serde_json::from_value(vm).unwrap()
        };
        let recovering = vm(condition("ManualRecoveryRequired", status));
        let observed = ObservedVm {
            vm: &recovering,
            vmi: None,
        };
        let started = Start::decide(&observed, &serde_json::from_value(json!({})).unwrap());
        assert_eq!(started.is_err(), is_refused, "{status}");
        let vmi = vmi(json!({
            "spec": {"domain": {"devices": {}}},
            "status": {"phase": "Running", "conditions": condition("VolumesChange", status)},
        }));
        let observed = ObservedVm {
            vm: &vm(json!([])),
            vmi: Some(&vmi),
        };
        let restarted = Restart::decide(&observed, &serde_json::from_value(json!({})).unwrap());
        assert_eq!(restarted.is_err(), is_refused, "{status}");
        // The VM has recorded a move that has to wait yet.
        let mut waiting = vm(json!([]));
        let of_vm = waiting.status.as_mut().unwrap();
        of_vm.volume_update_state = Some(VolumeUpdateState::default());
        let observed = ObservedVm {
            vm: &waiting,
            ..observed
        };
        let restarted = Restart::decide(&observed, &serde_json::from_value(json!({})).unwrap());
        assert!(restarted.is_err(), "{status}");
    }
}
