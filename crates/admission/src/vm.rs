//! Whether a `VirtualMachine` may be written.

use std::collections::BTreeMap;

use kubevirt_api::{
    VirtualMachine,
    vm::{VirtualMachineRunStrategy, VirtualMachineSpec},
};

use crate::{
    ClusterConfig, Surroundings, Violation,
    checks::{self, Input, Origin, Requester},
    defaults, unsupported,
};

/// Checks a new or changed object: its own fields, and its template as the instance it will be.
pub fn validate(
    vm: &VirtualMachine,
    old: Option<&VirtualMachine>,
    config: &ClusterConfig,
    requester: Requester,
    around: Surroundings<'_>,
) -> Vec<Violation> {
    let mut found = run_strategy(&vm.spec);
    found.extend(unsupported::in_vm(&vm.spec, "spec"));
    found.extend(template(vm, config, requester, around));
    if let Some(old) = old {
        found.extend(while_busy(old, vm));
    }
    found
}

/// What the author should know although nothing is wrong.
pub fn warnings(vm: &VirtualMachine) -> Vec<String> {
    let is_old_switch = vm.spec.running.is_some();
    is_old_switch
        .then(|| {
            "spec.running is deprecated; use spec.runStrategy: Always instead of true, Halted \
             instead of false"
                .to_owned()
        })
        .into_iter()
        .collect()
}

fn run_strategy(spec: &VirtualMachineSpec) -> Vec<Violation> {
    let strategy = spec
        .run_strategy
        .as_ref()
        .filter(|strategy| !strategy.as_str().is_empty());
    let known = VirtualMachineRunStrategy::KNOWN
        .iter()
        .filter(|word| !word.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match (spec.running, strategy) {
        (Some(_), Some(_)) => vec![Violation::invalid(
            "spec.running",
            "not together with runStrategy; remove running",
        )],
        (None, None) => vec![Violation::invalid(
            "spec.runStrategy",
            format!("missing; use one of {known}"),
        )],
        (None, Some(strategy)) if !strategy.is_known() => vec![Violation::invalid(
            "spec.runStrategy",
            format!("{:?} is unknown; use one of {known}", strategy.as_str()),
        )],
        _ => Vec::new(),
    }
}

fn template(
    vm: &VirtualMachine,
    config: &ClusterConfig,
    requester: Requester,
    around: Surroundings<'_>,
) -> Vec<Violation> {
    let template = &vm.spec.template;
    let Some(mut spec) = template.spec.clone() else {
        return vec![Violation::required(
            "spec.template.spec",
            "missing; describe the guest here, at least domain",
        )];
    };
    // Instance types and preferences would complete the template; without them its gaps are no
    // faults of the author.
    if vm.spec.instancetype.is_some() || vm.spec.preference.is_some() {
        return Vec::new();
    }
    let path = "spec.template.spec";
    if let Err(found) = defaults::vmi::set_spec(&mut spec, config, around, path) {
        return found;
    }
    let none = BTreeMap::new();
    let metadata = template.metadata.clone().unwrap_or_default();
    checks::run(&Input {
        spec: &spec,
        labels: metadata.labels.as_ref().unwrap_or(&none),
        annotations: metadata.annotations.as_ref().unwrap_or(&none),
        config,
        origin: Origin::TemplateOfVm,
        requester,
    })
}

/// What must not change under a snapshot or restore.
fn while_busy(old: &VirtualMachine, new: &VirtualMachine) -> Vec<Violation> {
    let status = new.status.clone().unwrap_or_default();
    let mut found = Vec::new();
    let same_run_state =
        old.spec.running == new.spec.running && old.spec.run_strategy == new.spec.run_strategy;
    let volumes = |vm: &VirtualMachine| {
        vm.spec
            .template
            .spec
            .as_ref()
            .map(|spec| spec.volumes.clone())
    };
    if let Some(snapshot) = &status.snapshot_in_progress
        && (!same_run_state || volumes(old) != volumes(new))
    {
        let detail = format!(
            "volumes and run state cannot change while snapshot {snapshot:?} is taken; wait for it"
        );
        found.push(Violation::not_supported("spec", detail));
    }
    if let Some(restore) = &status.restore_in_progress
        && effective(&old.spec) != effective(&new.spec)
    {
        let detail = format!(
            "the run strategy cannot change while restore {restore:?} goes on; wait for it"
        );
        found.push(Violation::not_supported("spec", detail));
    }
    found
}

/// The strategy in force, whichever way it is written.
fn effective(spec: &VirtualMachineSpec) -> VirtualMachineRunStrategy {
    match (spec.running, &spec.run_strategy) {
        (Some(true), _) => VirtualMachineRunStrategy::Always,
        (Some(false), _) => VirtualMachineRunStrategy::Halted,
        (None, Some(strategy)) => strategy.clone(),
        (None, None) => VirtualMachineRunStrategy::default(),
    }
}
