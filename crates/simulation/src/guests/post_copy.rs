//! Guests whose memory follows them.

use tokio::time::Instant;

use super::{End, GuestState, Guests, Stage, State};

/// How post-copy ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostCopyEnd {
    /// All of the memory has followed.
    Complete,
    /// The connection broke: each pod keeps a part of the guest, which is lost.
    Lost,
}

impl Guests {
    /// Has the guest of a copy go on in its new pod, before its memory is there; false if that is not possible now.
    pub(crate) fn switch(&self, pod_uid: &str, ends: Instant) -> bool {
        let mut state = self.0.state.lock();
        let Some((target, _)) = state.receiver(pod_uid) else {
            return false;
        };
        let owner = state.processes.get(&target).map(|one| one.owner.clone());
        state.enter(pod_uid, GuestState::Switched, Stage::PostCopy);
        if let Some(owner) = owner {
            state.check_alone(&owner, Some(pod_uid));
        }
        state.enter(&target, GuestState::Following, Stage::PostCopy);
        for (pod, other, ends) in [
            (pod_uid, target.as_str(), Some(ends)),
            (target.as_str(), pod_uid, None),
        ] {
            let process = state.processes.get_mut(pod);
            if let Some(report) = process.and_then(|process| process.report.as_mut()) {
                report.other = Some(other.to_owned());
                report.ends = ends;
            }
        }
        drop(state);
        self.notify();
        true
    }

    /// Ends post-copy in both pods. The pod is the old one.
    pub(crate) fn end_post_copy(&self, pod_uid: &str, end: PostCopyEnd) {
        let mut state = self.0.state.lock();
        match (end, state.follower(pod_uid)) {
            (PostCopyEnd::Complete, Some((target, migration))) => {
                state.enter(pod_uid, GuestState::GivenUp, Stage::Done);
                state.enter(&target, GuestState::Running, Stage::Done);
                state.moved.insert(migration);
            }
            _ => state.break_post_copy(pod_uid),
        }
        drop(state);
        self.notify();
    }
}

impl State {
    /// The pod in which the guest runs whose memory is in this one, and the migration.
    fn follower(&self, pod_uid: &str) -> Option<(String, String)> {
        let source = self.processes.get(pod_uid)?;
        let report = source.report.as_ref()?;
        let target = report.other.as_ref()?;
        let follows = self.processes.get(target)?.state == GuestState::Following;
        let is_source = source.state == GuestState::Switched;
        (is_source && follows).then(|| (target.clone(), report.migration.clone()))
    }

    /// A part of the guest is gone, if it has parts: the other one is of no use.
    pub(super) fn break_post_copy(&mut self, pod_uid: &str) {
        let Some(process) = self.processes.get(pod_uid) else {
            return;
        };
        if !process.state.is_part() {
            return;
        }
        let report = process.report.as_ref();
        let other = report.and_then(|report| report.other.clone());
        for pod in [Some(pod_uid.to_owned()), other].into_iter().flatten() {
            let process = self.processes.get(&pod);
            if process.is_some_and(|process| process.state.is_part()) {
                self.enter(&pod, GuestState::Ended(End::Crash), Stage::Failed);
            }
        }
    }
}
