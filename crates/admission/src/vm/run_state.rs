//! When the guest is to run, and how far it may grow meanwhile.

use kubevirt_api::vm::{VirtualMachineRunStrategy, VirtualMachineSpec};

use super::Input;
use crate::{Violation, checks::gate_is_off, cluster_config::Rollout, defaults::growth};

pub(super) fn strategy(input: &Input<'_>) -> Vec<Violation> {
    let spec = &input.vm.spec;
    let known = VirtualMachineRunStrategy::KNOWN
        .iter()
        .filter(|word| !word.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match (spec.running, written(spec)) {
        (Some(_), Some(strategy)) => {
            let detail = format!(
                "not together with runStrategy ({}); remove one of them: running: true means \
                 Always, false means Halted",
                strategy.as_str()
            );
            vec![Violation::invalid("spec.running", detail)]
        }
        (None, None) => {
            let detail = format!("missing; use one of {known}");
            vec![Violation::invalid("spec.runStrategy", detail)]
        }
        (None, Some(strategy)) if !strategy.is_known() => {
            let detail = format!("{:?} is unknown; use one of {known}", strategy.as_str());
            vec![Violation::invalid("spec.runStrategy", detail)]
        }
        _ => Vec::new(),
    }
}

pub(super) fn receiver(input: &Input<'_>) -> Vec<Violation> {
    let gate = "DecentralizedLiveMigration";
    let waits = written(&input.vm.spec) == Some(&VirtualMachineRunStrategy::WaitAsReceiver);
    if !waits || input.config.has_gate(gate) {
        return Vec::new();
    }
    let detail = format!("WaitAsReceiver {}", gate_is_off(gate));
    vec![Violation::invalid("spec.runStrategy", detail)]
}

/// What the author wrote about head room must be possible; defaults leave it out when not.
/// Sockets above their maximum are found by the check of the template.
pub(super) fn head_room(input: &Input<'_>) -> Vec<Violation> {
    let Some(spec) = input.template() else {
        return Vec::new();
    };
    let memory = spec.domain.memory.as_ref();
    let max = memory.and_then(|memory| memory.max_guest.as_ref());
    let Some(max) = max.filter(|_| input.config.rollout == Rollout::LiveUpdate) else {
        return Vec::new();
    };
    let resources = spec.domain.resources.as_ref();
    let guest = memory
        .and_then(|memory| memory.guest.as_ref())
        .or_else(|| resources?.requests.get("memory"))
        .or_else(|| resources?.limits.get("memory"));
    let architecture = spec.architecture.as_deref().unwrap_or_default();
    let architecture = match architecture {
        "" => &input.config.default_architecture,
        given => given,
    };
    growth::fault(&spec.domain, architecture, guest, max)
        .map(|detail| Violation::invalid("spec.template.spec.domain.memory.maxGuest", detail))
        .into_iter()
        .collect()
}

/// The strategy written, if any.
fn written(spec: &VirtualMachineSpec) -> Option<&VirtualMachineRunStrategy> {
    let strategy = spec.run_strategy.as_ref();
    strategy.filter(|strategy| !strategy.as_str().is_empty())
}

/// The strategy in force, whichever way it is written.
pub(super) fn effective(spec: &VirtualMachineSpec) -> VirtualMachineRunStrategy {
    match (spec.running, written(spec)) {
        (Some(true), _) => VirtualMachineRunStrategy::Always,
        (Some(false), _) => VirtualMachineRunStrategy::Halted,
        (None, Some(strategy)) => strategy.clone(),
        (None, None) => VirtualMachineRunStrategy::default(),
    }
}
