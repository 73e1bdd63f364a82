//! The columns of the table.

/// Whether the same attempt can succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Nothing failed: the reason reports progress or a state that was asked for.
    NotNeeded,
    /// A component tries again by itself, and the next attempt may succeed.
    Transient,
    /// A component keeps trying, but only a change by a user or administrator helps.
    NeedsChange,
    /// The attempt is over. A VMI with such a reason fails; a new VMI is a new attempt.
    Permanent,
}

/// Where a reason appears: a section of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    Machines,
    Starting,
    Ended,
    Paused,
    Migration,
    Volumes,
    Snapshots,
    Exports,
    Network,
    Guest,
    Pods,
    Nodes,
    Installation,
    Writes,
    Progress,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub subject: Subject,
    pub retry: Retry,
    /// What happened, in one sentence.
    pub meaning: &'static str,
    /// What to do about it; empty if there is nothing to do.
    pub remedy: &'static str,
}

impl Retry {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotNeeded => "not needed",
            Self::Transient => "transient",
            Self::NeedsChange => "needs a change",
            Self::Permanent => "permanent",
        }
    }
}

impl Subject {
    /// The heading of its section.
    pub fn title(self) -> &'static str {
        match self {
            Self::Machines => "VirtualMachines and replica sets",
            Self::Starting => "A VMI that does not start",
            Self::Ended => "A guest that failed",
            Self::Paused => "A paused guest",
            Self::Migration => "Why a guest cannot migrate",
            Self::Volumes => "Claims and data volumes",
            Self::Snapshots => "Snapshots, restores, backups and clones",
            Self::Exports => "Exports",
            Self::Network => "The pod's network",
            Self::Guest => "Calls to a running guest",
            Self::Pods => "Pods and containers",
            Self::Nodes => "Nodes",
            Self::Installation => "Ferrovirt's own components",
            Self::Writes => "Requests to the API server",
            Self::Progress => "Normal events",
        }
    }
}
