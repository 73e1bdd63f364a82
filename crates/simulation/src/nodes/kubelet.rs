//! The kubelet of a simulated node: brings pods up and down, with random delays and faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use apimachinery::meta;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{HEARTBEAT, Node, Power, status};
use crate::cluster::{Author, Change, Deletion, EventType, Id, Kind, Patch};
use crate::guests::{GuestState, Owner};

pub(super) const KUBELET: &str = "kubelet";

pub(super) struct Kubelet {
    pub(super) node: Node,
    /// The last observed revision.
    revision: u64,
    pub(super) pods: BTreeMap<Id, LocalPod>,
    of_vmi: BTreeMap<Id, BTreeSet<Id>>,
    /// Pods to reconcile now.
    pub(super) pending: BTreeSet<Id>,
    /// Pods to reconcile later.
    pub(super) later: BTreeSet<(Instant, Id)>,
    heartbeat: Instant,
}

/// The local state of a pod.
#[derive(Debug)]
pub(super) struct LocalPod {
    pub(super) uid: String,
    pub(super) owner: Owner,
    pub(super) stage: Stage,
    /// When the current step ends.
    ready: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    New,
    Up,
    Over,
}

impl Kubelet {
    pub(super) fn new(node: Node, heartbeat: Instant) -> Self {
        Self {
            node,
            revision: 0,
            pods: BTreeMap::new(),
            of_vmi: BTreeMap::new(),
            pending: BTreeSet::new(),
            later: BTreeSet::new(),
            heartbeat,
        }
    }

    /// When the next step ends or the next heartbeat is sent.
    pub(super) fn next_at(&self) -> Instant {
        let next = self.later.first().map_or(self.heartbeat, |(at, _)| *at);
        next.min(self.heartbeat)
    }

    /// Observes the changes since the last call.
    pub(super) fn observe(&mut self) {
        loop {
            let Some(changes) = self.node.cluster.since(self.revision, 500) else {
                self.observe_all();
                return;
            };
            let Some(last) = changes.last() else { return };
            self.revision = last.revision;
            for change in &changes {
                self.note(change);
            }
        }
    }

    fn observe_all(&mut self) {
        self.revision = self.node.cluster.revision();
        self.pending.extend(self.pods.keys().cloned());
        for pod in self.node.cluster.list(Kind::Pod) {
            let id = Id::new(Kind::Pod, meta::namespace(&pod), meta::name(&pod));
            self.pending.insert(id);
        }
    }

    fn note(&mut self, change: &Change) {
        match change.id.kind {
            Kind::Pod if change.event_type == EventType::Deleted => self.forget(&change.id),
            Kind::Pod if change.object["spec"]["nodeName"] == self.node.name.as_str() => {
                self.pending.insert(change.id.clone());
            }
            Kind::Vmi => {
                let pods = self.of_vmi.get(&change.id).into_iter().flatten();
                self.pending.extend(pods.cloned());
            }
            _ => {}
        }
    }

    pub(super) fn reconcile_all(&mut self) {
        let now = Instant::now();
        if now >= self.heartbeat {
            self.node.beat();
            self.heartbeat = now + HEARTBEAT;
        }
        while let Some((at, _)) = self.later.first()
            && *at <= now
        {
            if let Some((_, id)) = self.later.pop_first() {
                self.pending.insert(id);
            }
        }
        while let Some(id) = self.pending.pop_first() {
            self.reconcile(&id);
        }
    }

    /// Looks at the pods whose processes may have changed.
    pub(super) fn on_news(&mut self) {
        let guests = &self.node.guests;
        let changed = self.pods.iter();
        let changed = changed.filter(|(_, local)| guests.may_have_news(&local.uid));
        self.pending.extend(changed.map(|(id, _)| id.clone()));
    }

    /// An unreachable node does nothing; one without power loses its guests.
    pub(super) fn go_down(&mut self) {
        self.node.guests.cut_off(&self.node.name);
        if self.node.power.get() != Power::Off {
            return;
        }
        for (id, local) in &mut self.pods {
            if local.stage == Stage::Up {
                self.node.guests.remove(&local.uid);
                local.stage = Stage::Over;
                // The kubelet finds the ended containers when it comes back.
                local.ready = Some(Instant::now());
                self.pending.insert(id.clone());
            }
        }
    }

    fn forget(&mut self, id: &Id) {
        self.end_process(id);
        if let Some(local) = self.pods.remove(id)
            && let Some(pods) = self.of_vmi.get_mut(&local.owner.vmi)
        {
            pods.remove(id);
            if pods.is_empty() {
                self.of_vmi.remove(&local.owner.vmi);
            }
        }
    }

    /// Ends the process of a pod. A running guest must not be lost by that.
    pub(super) fn end_process(&self, id: &Id) {
        let Some(LocalPod { uid, owner, .. }) = self.pods.get(id) else {
            return;
        };
        let (cluster, guests) = (&self.node.cluster, &self.node.guests);
        let vmi = cluster.get(&owner.vmi);
        let is_wanted = |vmi: &Value| meta::uid(vmi) == owner.vmi_uid && !meta::is_deleting(vmi);
        // Without its old pod nothing proves that a guest was given up which its new pod does not run yet.
        let source = guests.given_up_by(uid);
        let is_removed = |pod: &str| cluster.was_deleted_by_another(pod);
        if vmi.as_deref().is_some_and(is_wanted)
            && !is_removed(uid)
            && !source.is_some_and(|source| is_removed(&source))
        {
            guests.remove_unneeded(uid);
        } else {
            guests.remove(uid);
        }
    }

    /// Begins a step of random duration, or returns `true` when it has ended; the pod is reconciled
    /// again then.
    pub(super) fn is_done(&mut self, id: &Id, most: Duration) -> bool {
        let now = Instant::now();
        let wait = self.node.random.up_to(most.max(Duration::from_millis(1)));
        let Some(local) = self.pods.get_mut(id) else {
            return false;
        };
        let at = *local.ready.get_or_insert(now + wait);
        if at <= now {
            local.ready = None;
            return true;
        }
        self.later.insert((at, id.clone()));
        false
    }

    fn reconcile(&mut self, id: &Id) {
        let Some(pod) = self.node.cluster.get(id) else {
            self.forget(id);
            return;
        };
        if pod["spec"]["nodeName"] != self.node.name.as_str() {
            return;
        }
        self.adopt(id, &pod);
        self.advance_copy(id);
        self.note_killed(id);
        let step = self.node.behaviour.step;
        if meta::is_deleting(&pod) {
            if self.is_done(id, step * 3) {
                self.end_process(id);
                let now = Deletion {
                    is_now: true,
                    ..Deletion::default()
                };
                let _gone = self.node.cluster.delete(id, &now).is_ok();
            }
            return;
        }
        match self.pods.get(id).map(|local| local.stage) {
            Some(Stage::New) if self.is_done(id, step) => self.bring_up(id),
            Some(Stage::Up) => self.handle_guest(id, &pod),
            Some(Stage::Over) => {
                let is_reported = matches!(
                    pod["status"]["phase"].as_str(),
                    Some("Succeeded" | "Failed")
                );
                if !is_reported {
                    self.write_ended(id, "Failed");
                }
            }
            _ => {}
        }
    }

    fn note_killed(&mut self, id: &Id) {
        if let Some(local) = self.pods.get_mut(id)
            && self.node.guests.state(&local.uid) == GuestState::Killed
        {
            self.node.guests.remove(&local.uid);
            local.stage = Stage::Over;
        }
    }

    fn adopt(&mut self, id: &Id, pod: &Value) {
        if self.pods.contains_key(id) {
            return;
        }
        let owner = meta::owner_references(pod).next();
        let (name, uid) = owner.map_or(("", ""), |owner| (owner.name, owner.uid));
        let vmi = Id::new(Kind::Vmi, &id.namespace, name);
        let pods = self.of_vmi.entry(vmi.clone()).or_default();
        pods.insert(id.clone());
        let local = LocalPod {
            uid: meta::uid(pod).to_owned(),
            owner: Owner {
                vmi,
                vmi_uid: uid.to_owned(),
                node: self.node.name.clone(),
            },
            stage: Stage::New,
            ready: None,
        };
        self.pods.insert(id.clone(), local);
    }

    fn bring_up(&mut self, id: &Id) {
        let has_faults = self.node.behaviour.has_faults.load(Ordering::Relaxed);
        let (status, stage) = if has_faults && self.node.random.chance(120) {
            self.later
                .insert((Instant::now() + Duration::from_secs(5), id.clone()));
            (status::waiting("ImagePullBackOff"), Stage::New)
        } else if has_faults && self.node.random.chance(80) {
            (status::ended("Failed", self.node.time()), Stage::Over)
        } else {
            (status::running(self.node.time()), Stage::Up)
        };
        if let Some(local) = self.pods.get_mut(id) {
            local.stage = stage;
        }
        self.write_status(id, &status);
    }

    pub(super) fn write_ended(&self, id: &Id, phase: &str) {
        self.write_status(id, &status::ended(phase, self.node.time()));
    }

    pub(super) fn write_status(&self, id: &Id, status: &Value) {
        let body = Patch::Merge(json!({"status": status}));
        let _written = self
            .node
            .cluster
            .patch(id, &body, Author::status(KUBELET))
            .is_ok();
    }
}
