//! Changes of the spec that a running guest does not have yet.

use kubevirt_api::vm_status::VirtualMachineStatus;
use serde_json::{Value, json};

use super::{observe, set, vm, vmi};
use crate::vm::observe::Observed;
use crate::vm::plan::{Restart, Step, plan};
use crate::vm::status::{self, Done};

/// Observes a running guest of generation 2 while the VM is at 3.
fn observe_changed(before: Value) -> Observed {
    let mut observed = observe(vm("Always"), Some(vmi("Running")));
    observed.started_from = Some(before);
    observed
}

#[test]
fn restart_is_required_while_the_guest_differs_from_the_spec() {
    let same = vm("Always")["spec"].clone();
    assert_eq!(
        plan(&observe_changed(same.clone())).steps,
        [Step::NoteGeneration(3)]
    );

    let uuid = defaults::controller::firmware_uuid("a").to_string();
    let path = "/template/spec/domain/firmware";
    let identity = set(same.clone(), path, json!({"uuid": uuid}));
    assert_eq!(
        plan(&observe_changed(identity)).restart,
        Restart::NotRequired
    );
    let foreign = set(same.clone(), path, json!({"uuid": "another"}));
    let fields = |before| match plan(&observe_changed(before)).restart {
        Restart::Required(fields) => fields.join(" "),
        other => format!("{other:?}"),
    };
    assert_eq!(fields(foreign), "template.spec.domain.firmware.uuid");
    let cores = set(
        same.clone(),
        "/template/spec/domain/cpu",
        json!({"cores": 1}),
    );
    assert_eq!(fields(cores), "template.spec.domain.cpu");
    let strategy = set(same.clone(), "/runStrategy", json!("Halted"));
    assert_eq!(fields(strategy), "NotRequired");
    let labels = set(same.clone(), "/template/metadata/labels", json!({}));
    assert_eq!(fields(labels), "NotRequired");
    // Labels never reach the running guest, so its VMI stays older than the VM.
    for part in ["labels", "annotations"] {
        let path = format!("/template/metadata/{part}");
        let changed = set(same.clone(), &path, json!({"another": "value"}));
        assert_eq!(plan(&observe_changed(changed)).steps, [], "{part}");
    }
    let sized = set(same.clone(), "/instancetype", json!({"name": "small"}));
    assert_eq!(fields(sized), "instancetype.name");
    let empty = set(same.clone(), "/template/spec/nodeSelector", Value::Null);
    assert_eq!(fields(empty), "NotRequired");
    let empty = set(same, "/template/spec/tolerations", json!([]));
    assert_eq!(fields(empty), "NotRequired");

    let mut current = observe_changed(json!({}));
    current.started_from = None;
    assert_eq!(plan(&current).restart, Restart::Unknown);
}

#[test]
fn restart_condition_names_changed_fields() {
    let before = set(
        vm("Always")["spec"].clone(),
        "/template/spec/domain/cpu",
        json!({"cores": 1}),
    );
    let observed = observe_changed(before.clone());
    let status = status::render(&observed, &plan(&observed), &Done::default());
    let find = |status: &VirtualMachineStatus| {
        let mut all = status.conditions.iter();
        let found = all.find(|condition| condition.type_.as_str() == "RestartRequired");
        found.map(|condition| condition.message.clone().unwrap())
    };
    let message = "changed since the start, restart to apply: spec.template.spec.domain.cpu";
    assert_eq!(find(&status).as_deref(), Some(message));
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!(status.desired_generation, Some(3));

    let vm = set(vm("Always"), "/status", json!(status));
    let mut unclear = observe(vm.clone(), Some(vmi("Running")));
    let kept = status::render(&unclear, &plan(&unclear), &Done::default());
    assert!(find(&kept).is_some());
    unclear.vmi = None;
    let gone = status::render(&unclear, &plan(&unclear), &Done::default());
    assert_eq!(find(&gone), None);

    let mut taken_back = observe(vm, Some(vmi("Running")));
    taken_back.started_from = Some(written_spec(&taken_back));
    let status = status::render(&taken_back, &plan(&taken_back), &Done::default());
    assert_eq!((find(&status), status.observed_generation), (None, Some(3)));
}

fn written_spec(observed: &Observed) -> Value {
    json!({"template": observed.vm.spec.template})
}
