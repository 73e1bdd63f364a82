//! The table of run strategies.

use kubevirt_api::vm::VirtualMachineRunStrategy;

use crate::view::VmSpec;

/// When the guest of a VM is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    Always,
    RerunOnFailure,
    Manual,
    Halted,
    Once,
    /// Waits for a guest that migrates here from another cluster.
    WaitAsReceiver,
    /// None given, two given, or one that is not handled here: nothing is done.
    Unclear,
}

/// The VM's guest, as far as the strategies tell cases apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guest {
    Absent,
    /// On its way up, or up.
    Live,
    Succeeded,
    Failed,
    /// Being deleted.
    Ending,
}

/// The first request that still applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    /// Stop just this guest.
    Stop,
    Start,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Stay,
    /// Make the VMI, once the back-off is over.
    Start,
    /// Delete the VMI.
    Stop,
    /// Note a start request, so that the start is not forgotten when the VMI is gone.
    AskForStart,
    /// Change the strategy to Always.
    SwitchToAlways,
}

/// Whether a VM with this strategy was started under it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    New,
    Known,
}

pub(super) fn decide(strategy: Strategy, guest: Guest, asked: Asked, history: History) -> Move {
    use {Asked as A, Guest as G, Strategy as S};
    match (strategy, guest, asked) {
        (S::Always | S::Once | S::WaitAsReceiver, G::Absent, _)
        | (S::RerunOnFailure | S::Manual, G::Absent, A::Start) => Move::Start,
        (S::RerunOnFailure, G::Absent, _) if history == History::New => Move::Start,
        (S::Halted, G::Absent, A::Start) => Move::SwitchToAlways,
        (S::RerunOnFailure, G::Failed, A::Nothing) => Move::AskForStart,
        (S::Halted, G::Live | G::Succeeded | G::Failed, _)
        | (S::Always | S::RerunOnFailure, G::Succeeded | G::Failed, _)
        | (S::Always | S::RerunOnFailure, G::Live, A::Stop)
        | (S::Manual, G::Live | G::Succeeded | G::Failed, A::Stop) => Move::Stop,
        (S::Unclear, _, _)
        | (_, G::Ending, _)
        | (S::RerunOnFailure | S::Manual | S::Halted, G::Absent, _)
        | (S::Always | S::RerunOnFailure, G::Live, _)
        | (S::Manual | S::Once | S::WaitAsReceiver, G::Live | G::Succeeded | G::Failed, _) => {
            Move::Stay
        }
    }
}

impl Strategy {
    pub(super) fn of(spec: &VmSpec) -> Self {
        use VirtualMachineRunStrategy as Word;
        let word = spec
            .run_strategy
            .as_ref()
            .filter(|word| **word != Word::Unset);
        match (spec.running, word) {
            (Some(true), None) | (None, Some(Word::Always)) => Self::Always,
            (Some(false), None) | (None, Some(Word::Halted)) => Self::Halted,
            (None, Some(Word::RerunOnFailure)) => Self::RerunOnFailure,
            (None, Some(Word::Manual)) => Self::Manual,
            (None, Some(Word::Once)) => Self::Once,
            (None, Some(Word::WaitAsReceiver)) => Self::WaitAsReceiver,
            _ => Self::Unclear,
        }
    }

    /// The word for the status.
    pub(super) fn word(self) -> Option<VirtualMachineRunStrategy> {
        use VirtualMachineRunStrategy as Word;
        match self {
            Self::Always => Some(Word::Always),
            Self::RerunOnFailure => Some(Word::RerunOnFailure),
            Self::Manual => Some(Word::Manual),
            Self::Halted => Some(Word::Halted),
            Self::Once => Some(Word::Once),
            Self::WaitAsReceiver => Some(Word::WaitAsReceiver),
            Self::Unclear => None,
        }
    }

    /// Whether a request to stop changes nothing; what is to stop becomes Halted instead.
    pub(super) fn ignores_stops(self) -> bool {
        matches!(self, Self::Once | Self::WaitAsReceiver)
    }

    /// Whether starts that never got to run are counted.
    pub(super) fn counts_failures(self) -> bool {
        matches!(self, Self::Always | Self::RerunOnFailure | Self::Once)
    }

    /// Whether the next start waits because of them.
    pub(super) fn backs_off(self) -> bool {
        matches!(self, Self::Always | Self::RerunOnFailure)
    }
}
