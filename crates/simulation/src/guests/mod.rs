//! The guests that actually run, whatever the objects report.
//!
//! A pod has at most one process that is or becomes a guest. While a guest is copied, the process of its new
//! pod waits; the hand-over ends the guest in one pod and continues it in the other in one step. With post-copy the
//! guest runs in the other pod while each of both has a part of its memory, and the end of either loses it.
//!
//! **Invariants**, checked here at every change: never two guests of one name; no guest is lost, unless
//! something happened to it that explains the loss; no more guests are copied at a time than may.

#[cfg(test)]
mod tests;

mod post_copy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::Id;
use crate::watch::{Watch, Watcher};

pub(crate) use post_copy::PostCopyEnd;

/// How a guest ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Shutdown,
    Crash,
}

/// The state of the process of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestState {
    NotStarted,
    /// For a guest that is copied to it.
    Waiting,
    /// All of a guest that was given up is here, but the request to run it was lost.
    Received,
    Running,
    /// Runs here, and a part of its memory is still in its old pod.
    Following,
    /// Runs in its new pod, and a part of its memory is still here.
    Switched,
    /// The guest was given up to another pod: it never runs here again.
    GivenUp,
    Ended(End),
    /// All processes of the pod ended at once.
    Killed,
}

/// What a launcher reports about a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting,
    Received,
    Copying,
    PostCopy,
    Done,
    Failed,
    Cancelled,
}

/// How a copy ends if both pods are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyEnd {
    HandOver,
    /// The guest is given up, but the request to run it does not arrive.
    RequestLost,
    Failure,
}

impl GuestState {
    /// Whether the guest executes in this pod.
    fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Following)
    }

    /// Whether a part of the guest is here and another one elsewhere.
    fn is_part(self) -> bool {
        matches!(self, Self::Following | Self::Switched)
    }
}

/// How many guests may be copied at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) per_cluster: usize,
    /// That leave one node.
    pub(crate) per_node: usize,
}

impl Default for Limits {
    /// Those of a cluster that sets none.
    fn default() -> Self {
        Self {
            per_cluster: 5,
            per_node: 2,
        }
    }
}

/// The place and the owner of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) vmi: Id,
    pub(crate) vmi_uid: String,
    pub(crate) node: String,
}

#[derive(Debug, Clone)]
struct Process {
    owner: Owner,
    state: GuestState,
    report: Option<Report>,
}

#[derive(Debug, Clone)]
struct Report {
    migration: String,
    stage: Stage,
    /// The UID of the other pod, once it is known here.
    other: Option<String>,
    /// When the copy ends.
    ends: Option<Instant>,
}

/// Clones share the guests.
#[derive(Debug, Clone)]
pub(crate) struct Guests(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes of processes that no API object reports to their node.
    news: Watch<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Processes by the UID of their pod.
    processes: BTreeMap<String, Process>,
    /// Nodes without connections to others.
    cut_off: BTreeSet<String>,
    /// UIDs of VMIs whose guest may be lost, because their node was cut off.
    excused: BTreeSet<String>,
    /// UIDs of migrations that have moved their guest.
    moved: BTreeSet<String>,
    limits: Limits,
    violations: Vec<String>,
}

impl Default for Guests {
    fn default() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            news: Watch::new(0),
        }))
    }
}

impl Guests {
    pub(crate) fn state(&self, pod_uid: &str) -> GuestState {
        let state = self.0.state.lock();
        let process = state.processes.get(pod_uid);
        process.map_or(GuestState::NotStarted, |process| process.state)
    }

    pub(crate) fn start(&self, pod_uid: &str, owner: Owner) {
        let mut state = self.0.state.lock();
        state.check_alone(&owner, None);
        let process = Process {
            owner,
            state: GuestState::Running,
            report: None,
        };
        state.processes.insert(pod_uid.to_owned(), process);
    }

    pub(crate) fn end(&self, pod_uid: &str, end: End) {
        if let Some(process) = self.0.state.lock().processes.get_mut(pod_uid)
            && process.state == GuestState::Running
        {
            process.state = GuestState::Ended(end);
        }
    }

    /// Ends all processes of the pod.
    pub(crate) fn kill(&self, pod_uid: &str) {
        let mut state = self.0.state.lock();
        state.break_post_copy(pod_uid);
        let Some(process) = state.processes.get_mut(pod_uid) else {
            return;
        };
        process.state = GuestState::Killed;
        let vmi = process.owner.vmi_uid.clone();
        let awaits = |one: &Process| one.owner.vmi_uid == vmi && one.state == GuestState::Received;
        // Nothing is left that proves that it was given up.
        if state.processes.values().any(awaits) {
            state.excused.insert(vmi);
        }
        drop(state);
        self.notify();
    }

    /// UIDs of the pods with processes.
    pub(crate) fn pods(&self) -> Vec<String> {
        self.0.state.lock().processes.keys().cloned().collect()
    }

    /// Removes the process without a trace.
    pub(crate) fn remove(&self, pod_uid: &str) {
        let mut state = self.0.state.lock();
        state.break_post_copy(pod_uid);
        state.processes.remove(pod_uid);
    }

    /// Removes the process of a pod whose VMI should go on: its guest must not need it.
    pub(crate) fn remove_unneeded(&self, pod_uid: &str) {
        let mut state = self.0.state.lock();
        let process = state.processes.get(pod_uid);
        let is_part = process.is_some_and(|process| process.state.is_part());
        state.break_post_copy(pod_uid);
        let Some(Process {
            owner, state: last, ..
        }) = state.processes.remove(pod_uid)
        else {
            return;
        };
        let is_guest = is_part || matches!(last, GuestState::Running | GuestState::Received);
        if is_guest && !state.excused.contains(&owner.vmi_uid) {
            let violation = format!(
                "the guest of {} ({}) is lost on {} though nothing happened to it ({last:?})",
                owner.vmi.name, owner.vmi_uid, owner.node
            );
            state.violations.push(violation);
        }
    }

    /// UIDs of the pods and the VMIs of running guests.
    pub(crate) fn running(&self) -> Vec<(String, String)> {
        let state = self.0.state.lock();
        let running = state
            .processes
            .iter()
            .filter(|(_, process)| process.state == GuestState::Running);
        running
            .map(|(pod, process)| (pod.clone(), process.owner.vmi_uid.clone()))
            .collect()
    }

    pub(crate) fn violation(&self) -> Option<String> {
        self.0.state.lock().violations.first().cloned()
    }

    /// From now on.
    pub(crate) fn limit(&self, limits: Limits) {
        self.0.state.lock().limits = limits;
    }

    /// How many migrations have moved their guest.
    pub(crate) fn count_moved(&self) -> u64 {
        u64::try_from(self.0.state.lock().moved.len()).unwrap_or(u64::MAX)
    }

    /// Whether that migration has moved its guest.
    pub(crate) fn has_moved(&self, migration: &str) -> bool {
        self.0.state.lock().moved.contains(migration)
    }

    /// Changes when a node has to look at the processes of its pods.
    pub(crate) fn news(&self) -> Watcher<u64> {
        self.0.news.watcher()
    }

    fn notify(&self) {
        self.0.news.set(self.0.news.get() + 1);
    }
}

/// Migrations.
impl Guests {
    /// What the launcher of the pod reports about the migration.
    pub(crate) fn stage(&self, pod_uid: &str, migration: &str) -> Option<Stage> {
        let state = self.0.state.lock();
        let report = state.processes.get(pod_uid)?.report.as_ref()?;
        (report.migration == migration).then_some(report.stage)
    }

    /// Whether the node of the pod may have to look at it though no object has changed.
    pub(crate) fn may_have_news(&self, pod_uid: &str) -> bool {
        let state = self.0.state.lock();
        let process = state.processes.get(pod_uid);
        process.is_some_and(|one| one.report.is_some() || one.state == GuestState::Killed)
    }

    /// Has the launcher wait for the guest of a migration.
    pub(crate) fn wait(&self, pod_uid: &str, owner: Owner, migration: &str) {
        let mut state = self.0.state.lock();
        let process = Process {
            owner,
            state: GuestState::Waiting,
            report: Some(Report {
                migration: migration.to_owned(),
                stage: Stage::Waiting,
                other: None,
                ends: None,
            }),
        };
        state.processes.entry(pod_uid.to_owned()).or_insert(process);
    }

    /// Has the launcher copy its guest to the other pod; it refuses unless the guest runs.
    pub(crate) fn copy(&self, pod_uid: &str, migration: &str, target: &str, ends: Instant) {
        let mut state = self.0.state.lock();
        let Some(process) = state.processes.get_mut(pod_uid) else {
            return;
        };
        let is_known = process
            .report
            .as_ref()
            .is_some_and(|report| report.migration == migration);
        if is_known || process.state != GuestState::Running {
            return;
        }
        process.report = Some(Report {
            migration: migration.to_owned(),
            stage: Stage::Copying,
            other: Some(target.to_owned()),
            ends: Some(ends),
        });
        state.check_limits();
    }

    /// When the copy ends, or what follows it, if there is one.
    pub(crate) fn copies_until(&self, pod_uid: &str) -> Option<Instant> {
        let state = self.0.state.lock();
        let report = state.processes.get(pod_uid)?.report.as_ref()?;
        let goes_on = matches!(report.stage, Stage::Copying | Stage::PostCopy);
        report.ends.filter(|_| goes_on)
    }

    pub(crate) fn cancel(&self, pod_uid: &str) {
        self.0.state.lock().end_report(pod_uid, Stage::Cancelled);
        self.notify();
    }

    /// Ends the copy: the guest goes on in exactly one of the pods. Returns how it ended.
    pub(crate) fn end_copy(&self, pod_uid: &str, end: CopyEnd) -> CopyEnd {
        let mut state = self.0.state.lock();
        let done = match state.receiver(pod_uid) {
            Some((target, migration)) if end != CopyEnd::Failure => {
                state.hand_over(pod_uid, &target, end);
                state.moved.insert(migration);
                end
            }
            _ => {
                state.end_report(pod_uid, Stage::Failed);
                CopyEnd::Failure
            }
        };
        drop(state);
        self.notify();
        done
    }

    /// Has the launcher run the guest that was given up to it.
    pub(crate) fn take_over(&self, pod_uid: &str) {
        let mut state = self.0.state.lock();
        let Some(process) = state.processes.get(pod_uid).cloned() else {
            return;
        };
        if process.state == GuestState::Received {
            state.check_alone(&process.owner, None);
            state.enter(pod_uid, GuestState::Running, Stage::Done);
        }
    }

    /// The node loses its connections: no copy to or from it goes on, and its guests may be lost.
    pub(crate) fn cut_off(&self, node: &str) {
        let mut state = self.0.state.lock();
        if !state.cut_off.insert(node.to_owned()) {
            return;
        }
        let is_here = |process: &Process| process.owner.node == node;
        let here = state.processes.values().filter(|process| is_here(process));
        let excused: Vec<String> = here.map(|process| process.owner.vmi_uid.clone()).collect();
        state.excused.extend(excused);
        let is_broken = |process: &Process| {
            let report = process.report.as_ref();
            let target = report.and_then(|report| report.other.as_ref());
            let target = target.and_then(|target| state.processes.get(target));
            is_here(process) || target.is_some_and(is_here)
        };
        let broken = state.processes.iter().filter(|(_, one)| is_broken(one));
        let broken: Vec<String> = broken.map(|(pod, _)| pod.clone()).collect();
        for pod in broken {
            state.end_report(&pod, Stage::Failed);
            state.break_post_copy(&pod);
        }
    }

    pub(crate) fn connect(&self, node: &str) {
        self.0.state.lock().cut_off.remove(node);
    }

    /// The guest runs where its VMI says: what happened before explains no later loss.
    pub(crate) fn settle(&self, vmi_uid: &str) {
        self.0.state.lock().excused.remove(vmi_uid);
    }

    /// The pod that has given the guest up that waits in this pod to be run.
    pub(crate) fn given_up_by(&self, pod_uid: &str) -> Option<String> {
        let state = self.0.state.lock();
        let process = state.processes.get(pod_uid)?;
        let source = process.report.as_ref()?.other.clone()?;
        (process.state == GuestState::Received).then_some(source)
    }
}

impl State {
    /// No other guest of this name may run when one begins to; `leaves` is the pod that it leaves.
    fn check_alone(&mut self, owner: &Owner, leaves: Option<&str>) {
        let is_other = |pod: &str, process: &Process| {
            process.state.is_active() && process.owner.vmi == owner.vmi && leaves != Some(pod)
        };
        let mut others = self.processes.iter();
        if let Some((_, other)) = others.find(|(pod, process)| is_other(pod, process)) {
            let violation = format!(
                "two guests of {}/{}: of VMI {} on {} and of {} on {}",
                owner.vmi.namespace,
                owner.vmi.name,
                other.owner.vmi_uid,
                other.owner.node,
                owner.vmi_uid,
                owner.node,
            );
            self.violations.push(violation);
        }
    }

    /// When a copy begins.
    fn check_limits(&mut self) {
        let is_copied = |process: &&Process| {
            let report = process.report.as_ref();
            let is_moving =
                report.is_some_and(|one| matches!(one.stage, Stage::Copying | Stage::PostCopy));
            is_moving && matches!(process.state, GuestState::Running | GuestState::Switched)
        };
        let mut per_node: BTreeMap<&str, usize> = BTreeMap::new();
        for process in self.processes.values().filter(is_copied) {
            *per_node.entry(&process.owner.node).or_default() += 1;
        }
        let Limits {
            per_cluster,
            per_node: of_node,
        } = self.limits;
        let all: usize = per_node.values().sum();
        if all > per_cluster || per_node.values().any(|count| *count > of_node) {
            let violation = format!("more guests are copied at a time than may: {per_node:?}");
            self.violations.push(violation);
        }
    }

    /// The pod that can get the guest of the copy now, and the migration.
    fn receiver(&self, pod_uid: &str) -> Option<(String, String)> {
        let source = self.processes.get(pod_uid)?;
        let report = source.report.as_ref()?;
        let target = report.other.as_ref()?;
        let other = self.processes.get(target)?;
        let is_same = other.report.as_ref()?.migration == report.migration;
        let is_connected = |process: &Process| !self.cut_off.contains(&process.owner.node);
        let is_possible = is_same
            && report.stage == Stage::Copying
            && source.state == GuestState::Running
            && other.state == GuestState::Waiting
            && is_connected(source)
            && is_connected(other);
        is_possible.then(|| (target.clone(), report.migration.clone()))
    }

    fn hand_over(&mut self, source: &str, target: &str, end: CopyEnd) {
        let Some(owner) = self
            .processes
            .get(target)
            .map(|process| process.owner.clone())
        else {
            return;
        };
        self.enter(source, GuestState::GivenUp, Stage::Done);
        if end == CopyEnd::HandOver {
            self.check_alone(&owner, Some(source));
            self.enter(target, GuestState::Running, Stage::Done);
        } else {
            self.enter(target, GuestState::Received, Stage::Received);
        }
        if let Some(process) = self.processes.get_mut(target)
            && let Some(report) = &mut process.report
        {
            report.other = Some(source.to_owned());
        }
    }

    fn enter(&mut self, pod_uid: &str, guest: GuestState, stage: Stage) {
        if let Some(process) = self.processes.get_mut(pod_uid) {
            process.state = guest;
            if let Some(report) = &mut process.report {
                report.stage = stage;
            }
        }
    }

    /// Ends a copy: the guest stays.
    fn end_report(&mut self, pod_uid: &str, stage: Stage) {
        let process = self.processes.get_mut(pod_uid);
        if let Some(report) = process.and_then(|process| process.report.as_mut())
            && report.stage == Stage::Copying
        {
            report.stage = stage;
        }
    }
}
