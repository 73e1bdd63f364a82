//! Pure planning: what the status of a data source says about the data behind it.

use std::time::Duration;

use kubevirt_api::data_source::DataSourceSource;
use kubevirt_api::data_volume_status::DataVolumePhase;
use reasons::Reason;

use super::resolve::{Target, Unresolved};

/// How often to ask again for a permission, which no watch reports.
const PERMISSION_PAUSE: Duration = Duration::from_mins(1);
/// The message and the reason of a data source that can be used. Clients of CDI know them.
const READY: (&str, &str) = ("Ready", "DataSource is ready to be consumed");

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) target: Result<Target, Unresolved>,
    pub(super) state: State,
}

/// The data behind a data source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// There is none, or nobody may look at it.
    Unknown,
    /// It is in another namespace, which the account must not copy from.
    NotPermitted {
        account: String,
    },
    Missing,
    /// The phase of the data volume that populates it.
    Importing(DataVolumePhase),
    /// A claim without a data volume, whose upload is not complete.
    AwaitsUpload,
    /// A snapshot, with its problem if one is known.
    Incomplete(Option<String>),
    Complete,
}

#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// `None` if the data source stands for nothing.
    pub(super) source: Option<DataSourceSource>,
    pub(super) is_ready: bool,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) requeue_in: Option<Duration>,
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let target = match &observed.target {
        Ok(target) => target,
        Err(problem) => return not_ready(None, reason(problem), problem.to_string()),
    };
    let (reason, message) = match &observed.state {
        State::Unknown => (Reason::NotFound.as_str(), format!("{target} is unknown")),
        State::NotPermitted { account } => {
            let message = format!(
                "account {account} must not copy from namespace {}",
                target.key().namespace
            );
            let reason = Reason::SourceNotPermitted;
            let mut plan = not_ready(Some(target), reason.as_str(), reason.advise(&message));
            plan.requeue_in = Some(PERMISSION_PAUSE);
            return plan;
        }
        State::Missing => (
            Reason::NotFound.as_str(),
            format!("{target} does not exist"),
        ),
        State::Importing(phase) => {
            let phase = match phase.as_str() {
                "" => "Pending",
                phase => phase,
            };
            (phase, format!("Import DataVolume phase {phase}"))
        }
        State::AwaitsUpload => (
            Reason::ClaimAwaitsUpload.as_str(),
            format!("the upload to {target} is not complete"),
        ),
        State::Incomplete(problem) => {
            let message = format!("{target} is not ready");
            let message = match problem {
                Some(problem) => format!("{message}: {problem}"),
                None => message,
            };
            ("SnapshotNotReady", message)
        }
        State::Complete => {
            let (reason, message) = READY;
            return Plan {
                is_ready: true,
                ..not_ready(Some(target), reason, message.to_owned())
            };
        }
    };
    not_ready(Some(target), reason, message)
}

fn not_ready(target: Option<&Target>, reason: &str, message: String) -> Plan {
    Plan {
        source: target.map(Target::source),
        is_ready: false,
        reason: reason.to_owned(),
        message,
        requeue_in: None,
    }
}

/// The words of CDI.
fn reason(problem: &Unresolved) -> &'static str {
    match problem {
        Unresolved::NoSource | Unresolved::SeveralSources => "NoSource",
        Unresolved::SelfReference => "SelfReference",
        Unresolved::NotFound(_) => Reason::NotFound.as_str(),
        Unresolved::TooDeep(_) => "MaxReferenceDepthReached",
        Unresolved::OtherNamespace(_) => Reason::SourceNotPermitted.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use reconcile::Key;

    use super::*;

    #[test]
    fn only_complete_data_is_ready() {
        let claim = || Ok(Target::Claim(Key::new("n", "a")));
        let snapshot = || Ok(Target::Snapshot(Key::new("n", "b")));
        let nothing = || Err(Unresolved::NoSource);
        let account = "system:serviceaccount:n:default".to_owned();
        for (target, state, reason, part) in [
            (claim(), State::Complete, "Ready", "ready to be consumed"),
            (snapshot(), State::Complete, "Ready", "ready to be consumed"),
            (claim(), State::Missing, "NotFound", "n/a does not exist"),
            (
                claim(),
                State::Importing(DataVolumePhase::ImportInProgress),
                "ImportInProgress",
                "Import DataVolume phase ImportInProgress",
            ),
            (
                claim(),
                State::Importing(DataVolumePhase::Unset),
                "Pending",
                "Import DataVolume phase Pending",
            ),
            (
                claim(),
                State::AwaitsUpload,
                "ClaimAwaitsUpload",
                "n/a is not complete",
            ),
            (
                snapshot(),
                State::Incomplete(None),
                "SnapshotNotReady",
                "volumesnapshot n/b is not ready",
            ),
            (
                snapshot(),
                State::Incomplete(Some("full".to_owned())),
                "SnapshotNotReady",
                "is not ready: full",
            ),
            (
                claim(),
                State::NotPermitted { account },
                "SourceNotPermitted",
                "must not copy from namespace n. Allow",
            ),
            (nothing(), State::Unknown, "NoSource", "no source is set"),
            (
                Err(Unresolved::SelfReference),
                State::Unknown,
                "SelfReference",
                "itself",
            ),
            (
                Err(Unresolved::TooDeep(Key::new("n", "c"))),
                State::Unknown,
                "MaxReferenceDepthReached",
                "n/c",
            ),
        ] {
            let is_resolved = target.is_ok();
            let is_complete = state == State::Complete;
            let waits = matches!(state, State::NotPermitted { .. });
            let found = plan(&Observed { target, state });
            assert_eq!(found.reason, reason);
            assert!(found.message.contains(part), "{found:?}");
            assert_eq!(found.is_ready, is_complete, "{found:?}");
            assert_eq!(found.source.is_some(), is_resolved, "{found:?}");
            assert_eq!(found.requeue_in.is_some(), waits, "{found:?}");
        }
    }
}
