//! Run strategy and memory hot-plug.

use cluster_config::Rollout;
use defaults::growth;
use kubevirt_api::vm::{VirtualMachineRunStrategy, VirtualMachineSpec};
use validation::Violation;

use super::input::Input;
use crate::checks::gate_is_off;

pub(super) fn strategy(input: &Input<'_>) -> Vec<Violation> {
    let spec = &input.vm.spec;
    let known = VirtualMachineRunStrategy::KNOWN
        .iter()
        .filter(|name| !name.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match (spec.running, written(spec)) {
        (Some(_), Some(strategy)) => {
            let detail = format!(
                "runStrategy ({}) is set, too; remove one of them: running: true means Always, \
                 false means Halted",
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
    let is_receiver = written(&input.vm.spec) == Some(&VirtualMachineRunStrategy::WaitAsReceiver);
    if !is_receiver || input.config.has_gate(gate) {
        return Vec::new();
    }
    let detail = format!("WaitAsReceiver {}", gate_is_off(gate));
    vec![Violation::invalid("spec.runStrategy", detail)]
}

/// An explicit maximum of memory must be possible; defaults set none otherwise. The check of the
/// template reports sockets above their maximum.
pub(super) fn max_guest(input: &Input<'_>) -> Vec<Violation> {
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
    growth::problem(&spec.domain, architecture, guest, max)
        .map(|detail| Violation::invalid("spec.template.spec.domain.memory.maxGuest", detail))
        .into_iter()
        .collect()
}

/// The run strategy that is set explicitly.
fn written(spec: &VirtualMachineSpec) -> Option<&VirtualMachineRunStrategy> {
    let strategy = spec.run_strategy.as_ref();
    strategy.filter(|strategy| !strategy.as_str().is_empty())
}

/// The effective strategy, from runStrategy or running.
pub(super) fn effective(spec: &VirtualMachineSpec) -> VirtualMachineRunStrategy {
    match (spec.running, written(spec)) {
        (Some(true), _) => VirtualMachineRunStrategy::Always,
        (Some(false), _) => VirtualMachineRunStrategy::Halted,
        (None, Some(strategy)) => strategy.clone(),
        (None, None) => VirtualMachineRunStrategy::default(),
    }
}
