//! Fields that must not change during a snapshot or restore.

use kubevirt_api::{VirtualMachine, volumes::Volume};
use validation::Violation;

use super::{input::Input, run_state::effective};

pub(super) fn snapshot(input: &Input<'_>) -> Vec<Violation> {
    let (new, Some(old)) = (input.vm, input.old) else {
        return Vec::new();
    };
    let status = new.status.as_ref();
    let Some(snapshot) = status.and_then(|status| status.snapshot_in_progress.as_ref()) else {
        return Vec::new();
    };
    let same_run_state =
        old.spec.running == new.spec.running && old.spec.run_strategy == new.spec.run_strategy;
    let mut found = Vec::new();
    if !same_run_state {
        let detail = format!("cannot change during snapshot {snapshot:?}; wait until it completes");
        found.push(Violation::not_supported("spec.runStrategy", detail));
    }
    if volumes(old) != volumes(new) {
        let detail = format!("cannot change during snapshot {snapshot:?}; wait until it completes");
        found.push(Violation::not_supported(
            "spec.template.spec.volumes",
            detail,
        ));
    }
    found
}

pub(super) fn restore(input: &Input<'_>) -> Vec<Violation> {
    let (new, Some(old)) = (input.vm, input.old) else {
        return Vec::new();
    };
    let status = new.status.as_ref();
    let restore = status.and_then(|status| status.restore_in_progress.as_ref());
    let changes = effective(&old.spec) != effective(&new.spec);
    let Some(restore) = restore.filter(|_| changes) else {
        return Vec::new();
    };
    let detail = format!("cannot change during restore {restore:?}; wait until it completes");
    vec![Violation::not_supported("spec.runStrategy", detail)]
}

fn volumes(vm: &VirtualMachine) -> &[Volume] {
    let spec = vm.spec.template.spec.as_ref();
    spec.map_or(&[], |spec| &spec.volumes)
}
