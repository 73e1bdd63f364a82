//! The table of run strategies.

use kubevirt_api::vm::VirtualMachineRunStrategy;

use super::view::VmSpec;

/// When the guest of a VM should run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Always,
    RerunOnFailure,
    Manual,
    Halted,
    Once,
    /// Waits for a guest that migrates here from another cluster.
    WaitAsReceiver,
    /// None, two, or an unknown one: the controller does nothing.
    Unknown,
}

/// The state of the VM's guest, as far as strategies depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guest {
    Absent,
    /// Starting or running.
    Live,
    Succeeded,
    Failed,
    /// Being deleted.
    Ending,
}

/// The first request that still applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requested {
    Nothing,
    /// Stop just this guest.
    Stop,
    Start,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Stay,
    /// Create the VMI, once the back-off is over.
    Start,
    /// Delete the VMI.
    Stop,
    /// Record a start request, so that the start is not lost with the VMI.
    RequestStart,
    /// Change the strategy to Always.
    SwitchToAlways,
}

/// Whether the VM was started under this strategy before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    New,
    Known,
}

pub(super) fn decide(
    strategy: Strategy,
    guest: Guest,
    requested: Requested,
    history: History,
) -> Decision {
    use {Guest as G, Requested as A, Strategy as S};
    match (strategy, guest, requested) {
        (S::Always | S::Once | S::WaitAsReceiver, G::Absent, _)
        | (S::RerunOnFailure | S::Manual, G::Absent, A::Start) => Decision::Start,
        (S::RerunOnFailure, G::Absent, _) if history == History::New => Decision::Start,
        (S::Halted, G::Absent, A::Start) => Decision::SwitchToAlways,
        (S::RerunOnFailure, G::Failed, A::Nothing) => Decision::RequestStart,
        (S::Halted, G::Live | G::Succeeded | G::Failed, _)
        | (S::Always | S::RerunOnFailure, G::Succeeded | G::Failed, _)
        | (S::Always | S::RerunOnFailure, G::Live, A::Stop)
        | (S::Manual, G::Live | G::Succeeded | G::Failed, A::Stop) => Decision::Stop,
        (S::Unknown, _, _)
        | (_, G::Ending, _)
        | (S::RerunOnFailure | S::Manual | S::Halted, G::Absent, _)
        | (S::Always | S::RerunOnFailure, G::Live, _)
        | (S::Manual | S::Once | S::WaitAsReceiver, G::Live | G::Succeeded | G::Failed, _) => {
            Decision::Stay
        }
    }
}

impl Strategy {
    pub(crate) fn of(spec: &VmSpec) -> Self {
        use VirtualMachineRunStrategy as RunStrategy;
        let status_value = spec
            .run_strategy
            .as_ref()
            .filter(|status_value| **status_value != RunStrategy::Unset);
        match (spec.running, status_value) {
            (Some(true), None) | (None, Some(RunStrategy::Always)) => Self::Always,
            (Some(false), None) | (None, Some(RunStrategy::Halted)) => Self::Halted,
            (None, Some(RunStrategy::RerunOnFailure)) => Self::RerunOnFailure,
            (None, Some(RunStrategy::Manual)) => Self::Manual,
            (None, Some(RunStrategy::Once)) => Self::Once,
            (None, Some(RunStrategy::WaitAsReceiver)) => Self::WaitAsReceiver,
            _ => Self::Unknown,
        }
    }

    /// The value for the status.
    pub(super) fn status_value(self) -> Option<VirtualMachineRunStrategy> {
        use VirtualMachineRunStrategy as RunStrategy;
        match self {
            Self::Always => Some(RunStrategy::Always),
            Self::RerunOnFailure => Some(RunStrategy::RerunOnFailure),
            Self::Manual => Some(RunStrategy::Manual),
            Self::Halted => Some(RunStrategy::Halted),
            Self::Once => Some(RunStrategy::Once),
            Self::WaitAsReceiver => Some(RunStrategy::WaitAsReceiver),
            Self::Unknown => None,
        }
    }

    /// Whether stop requests have no effect; users set the strategy to Halted instead.
    pub(super) fn ignores_stops(self) -> bool {
        matches!(self, Self::Once | Self::WaitAsReceiver)
    }

    /// Whether a VM whose guest has ended starts one again without a request.
    pub(super) fn starts_again(self) -> bool {
        matches!(
            self,
            Self::Always | Self::RerunOnFailure | Self::Once | Self::WaitAsReceiver
        )
    }

    /// Whether failed starts are counted.
    pub(super) fn counts_failures(self) -> bool {
        matches!(self, Self::Always | Self::RerunOnFailure | Self::Once)
    }

    /// Whether failed starts delay the next start.
    pub(super) fn backs_off(self) -> bool {
        matches!(self, Self::Always | Self::RerunOnFailure)
    }
}
