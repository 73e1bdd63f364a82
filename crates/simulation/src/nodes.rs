//! Scripted nodes: what kubelets and node agents do to pods and VMIs, with nothing behind it but
//! [`Guests`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apimachinery::meta;
use jiff::SignedDuration;
use kubevirt_api::{annotations, labels};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::cluster::{By, Change, Cluster, Deletion, Id, Kind, Patch, What};
use crate::guests::{End, Guests, Standing};
use crate::random::Random;
use crate::told::Listener;

const HEARTBEAT: Duration = Duration::from_mins(1);
const AGENT: &str = "virt-handler";
const KUBELET: &str = "kubelet";

/// How a node is, for those who switch it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    /// Cut off from the cluster; its guests go on.
    Unreachable,
    /// Without power: no guest is left.
    Off,
}

/// How quickly and how badly nodes work.
#[derive(Debug, Clone)]
pub(crate) struct Manners {
    /// Longest time for each step.
    pub(crate) step: Duration,
    /// Whether images are missing and starts fail now and then.
    pub(crate) is_bad: Arc<AtomicBool>,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) cluster: Cluster,
    pub(crate) guests: Guests,
    pub(crate) random: Random,
    pub(crate) manners: Manners,
    pub(crate) power: Listener<Power>,
    /// Of its clock.
    pub(crate) skew: SignedDuration,
}

struct Working {
    node: Node,
    seen: u64,
    pods: BTreeMap<Id, Local>,
    of_vmi: BTreeMap<Id, BTreeSet<Id>>,
    /// To be looked at.
    due: BTreeSet<Id>,
    later: BTreeSet<(Instant, Id)>,
    heartbeat: Instant,
}

/// What the node knows of a pod.
#[derive(Debug)]
struct Local {
    uid: String,
    vmi: Id,
    vmi_uid: String,
    stage: Stage,
    /// When what was begun will be done.
    ready: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Up,
    Over,
}

impl Node {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.cluster.changes();
        let mut power = self.power.clone();
        self.register();
        let mut work = Working {
            seen: 0,
            pods: BTreeMap::new(),
            of_vmi: BTreeMap::new(),
            due: BTreeSet::new(),
            later: BTreeSet::new(),
            heartbeat: Instant::now() + self.random.up_to(HEARTBEAT),
            node: self,
        };
        while !stop.is_cancelled() {
            let is_on = power.hear() == Power::On;
            if !is_on {
                work.go_down();
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = power.changed() => {}
                }
                continue;
            }
            changes.hear();
            work.take_news();
            work.tend_all();
            let next = work.later.first().map_or(work.heartbeat, |(at, _)| *at);
            let next = next.min(work.heartbeat);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = power.changed() => {}
                () = changes.changed() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn register(&self) {
        let node = json!({
            "metadata": {"name": self.name},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2.2.0"}, "allocatable": {"cpu": "64", "devices.kubevirt.io/kvm": "1k"}},
        });
        // It is there already when the node was restarted.
        let _made = self
            .cluster
            .create(Kind::Node, "", node, By::whole(KUBELET))
            .is_ok();
        self.beat();
    }

    fn beat(&self) {
        let now = self.cluster.clock().now();
        let said = now.saturating_add(self.skew).unwrap_or(now);
        let body = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {labels::SCHEDULABLE: "true"},
                "annotations": {annotations::HEARTBEAT: said.to_string()},
            },
        });
        let id = Id::new(Kind::Node, "", &self.name);
        let by = By::whole("virt-handler-node");
        let _beaten = self.cluster.patch(&id, &Patch::Apply(body), by).is_ok();
    }
}

impl Working {
    fn take_news(&mut self) {
        loop {
            let Some(news) = self.node.cluster.since(self.seen, 500) else {
                self.look_at_everything();
                return;
            };
            let Some(last) = news.last() else { return };
            self.seen = last.revision;
            for change in &news {
                self.note(change);
            }
        }
    }

    fn look_at_everything(&mut self) {
        self.seen = self.node.cluster.revision();
        self.due.extend(self.pods.keys().cloned());
        for pod in self.node.cluster.list(Kind::Pod) {
            let id = Id::new(Kind::Pod, meta::namespace(&pod), meta::name(&pod));
            self.due.insert(id);
        }
    }

    fn note(&mut self, change: &Change) {
        match change.id.kind {
            Kind::Pod if change.what == What::Deleted => self.forget(&change.id),
            Kind::Pod if change.object["spec"]["nodeName"] == self.node.name.as_str() => {
                self.due.insert(change.id.clone());
            }
            Kind::Vmi => {
                let pods = self.of_vmi.get(&change.id).into_iter().flatten();
                self.due.extend(pods.cloned());
            }
            _ => {}
        }
    }

    fn tend_all(&mut self) {
        let now = Instant::now();
        if now >= self.heartbeat {
            self.node.beat();
            self.heartbeat = now + HEARTBEAT;
        }
        while let Some((at, _)) = self.later.first()
            && *at <= now
        {
            if let Some((_, id)) = self.later.pop_first() {
                self.due.insert(id);
            }
        }
        while let Some(id) = self.due.pop_first() {
            self.tend(&id);
        }
    }

    /// Without contact nothing is done; without power nothing is left either.
    fn go_down(&mut self) {
        if self.node.power.get() != Power::Off {
            return;
        }
        for (id, local) in &mut self.pods {
            if local.stage == Stage::Up {
                self.node.guests.remove(&local.uid);
                local.stage = Stage::Over;
                // What a kubelet finds when it comes back.
                local.ready = Some(Instant::now());
                self.due.insert(id.clone());
            }
        }
    }

    fn forget(&mut self, id: &Id) {
        if let Some(local) = self.pods.remove(id) {
            self.node.guests.remove(&local.uid);
            if let Some(pods) = self.of_vmi.get_mut(&local.vmi) {
                pods.remove(id);
                if pods.is_empty() {
                    self.of_vmi.remove(&local.vmi);
                }
            }
        }
    }

    /// Looks at the pod again once what is begun now will be done. `true` when it is.
    fn is_done(&mut self, id: &Id, most: Duration) -> bool {
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

    fn tend(&mut self, id: &Id) {
        let Some(pod) = self.node.cluster.get(id) else {
            self.forget(id);
            return;
        };
        if pod["spec"]["nodeName"] != self.node.name.as_str() {
            return;
        }
        self.adopt(id, &pod);
        let step = self.node.manners.step;
        if meta::is_deleting(&pod) {
            if self.is_done(id, step * 3) {
                self.node.guests.remove(meta::uid(&pod));
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
            Some(Stage::Up) => self.tend_guest(id),
            Some(Stage::Over) => {
                let is_said = matches!(
                    pod["status"]["phase"].as_str(),
                    Some("Succeeded" | "Failed")
                );
                if !is_said {
                    self.say(id, &status_of("Failed"));
                }
            }
            _ => {}
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
        let local = Local {
            uid: meta::uid(pod).to_owned(),
            vmi,
            vmi_uid: uid.to_owned(),
            stage: Stage::New,
            ready: None,
        };
        self.pods.insert(id.clone(), local);
    }

    fn bring_up(&mut self, id: &Id) {
        let is_bad = self.node.manners.is_bad.load(Ordering::Relaxed);
        let (status, stage) = if is_bad && self.node.random.chance(120) {
            self.later
                .insert((Instant::now() + Duration::from_secs(5), id.clone()));
            (waiting("ImagePullBackOff"), Stage::New)
        } else if is_bad && self.node.random.chance(80) {
            (status_of("Failed"), Stage::Over)
        } else {
            (status_of("Running"), Stage::Up)
        };
        if let Some(local) = self.pods.get_mut(id) {
            local.stage = stage;
        }
        self.say(id, &status);
    }

    fn say(&self, id: &Id, status: &Value) {
        let body = Patch::Merge(json!({"status": status}));
        let _said = self
            .node
            .cluster
            .patch(id, &body, By::status(KUBELET))
            .is_ok();
    }

    /// What the node's agent does.
    fn tend_guest(&mut self, id: &Id) {
        let Some(local) = self.pods.get(id) else {
            return;
        };
        let (uid, vmi_id, vmi_uid) = (local.uid.clone(), local.vmi.clone(), local.vmi_uid.clone());
        let Some(vmi) = self.node.cluster.get(&vmi_id) else {
            return;
        };
        if meta::uid(&vmi) != vmi_uid {
            return;
        }
        let step = self.node.manners.step;
        let phase = vmi["status"]["phase"].as_str().unwrap_or_default();
        let is_ours = matches!(phase, "Scheduled" | "Running");
        let is_deleting = meta::is_deleting(&vmi);
        match (phase, self.node.guests.standing(&uid)) {
            ("Succeeded" | "Failed", _) => {
                if self.is_done(id, step) {
                    if let Some(local) = self.pods.get_mut(id) {
                        local.stage = Stage::Over;
                    }
                    self.node.guests.remove(&uid);
                    self.say(id, &status_of(phase));
                }
            }
            (_, Standing::NotStarted) if is_deleting => {
                if is_ours && self.is_done(id, step) {
                    self.report(id, &vmi, "Failed");
                }
            }
            (_, Standing::NotStarted) => {
                if self.is_done(id, step) {
                    self.node.guests.start(&uid, &vmi_id, &vmi_uid);
                    self.due.insert(id.clone());
                }
            }
            (_, Standing::Runs) if is_deleting => {
                if self.is_done(id, step * 2) {
                    self.node.guests.end(&uid, End::Shutdown);
                    self.due.insert(id.clone());
                }
            }
            ("Scheduled", Standing::Runs) => {
                if self.is_done(id, step) {
                    self.report(id, &vmi, "Running");
                }
            }
            (_, Standing::Runs) => {}
            (_, Standing::Ended(end)) => {
                // Before the handover only the pod can tell.
                if self.is_done(id, step) {
                    let word = match end {
                        End::Shutdown => "Succeeded",
                        End::Crash => "Failed",
                    };
                    self.report(id, &vmi, word);
                }
            }
        }
    }

    /// As the agent writes: an apply of what it owns, conditional on what it saw.
    fn report(&mut self, id: &Id, vmi: &Value, phase: &str) {
        let status = &vmi["status"];
        let now = self.node.cluster.clock().now().to_string();
        let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
        let mut changes = list("phaseTransitionTimestamps");
        changes.push(json!({"phase": phase, "phaseTransitionTimestamp": now}));
        let mut conditions = list("conditions");
        conditions.retain(|condition| condition["type"] != "Ready");
        let (ready, reason) = match phase {
            "Running" => ("True", None),
            _ => ("False", Some("GuestNotRunning")),
        };
        conditions.push(json!({
            "type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": now,
        }));
        let body = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {
                "name": meta::name(vmi), "namespace": meta::namespace(vmi),
                "resourceVersion": meta::resource_version(vmi),
            },
            "status": {
                "phase": phase, "phaseTransitionTimestamps": changes, "conditions": conditions,
            },
        });
        let vmi = Id::new(Kind::Vmi, meta::namespace(vmi), meta::name(vmi));
        let by = By::whole(AGENT);
        let is_written = self
            .node
            .cluster
            .patch(&vmi, &Patch::Apply(body), by)
            .is_ok();
        if !is_written {
            self.later
                .insert((Instant::now() + Duration::from_millis(200), id.clone()));
        }
    }
}

pub(crate) fn status_of(phase: &str) -> Value {
    const AT: &str = "2026-11-21T12:00:00Z";
    let is_up = phase == "Running";
    let state = if is_up {
        json!({"running": {"startedAt": AT}})
    } else {
        json!({"terminated": {"exitCode": 1, "finishedAt": AT}})
    };
    json!({
        "phase": phase, "qosClass": "Burstable", "podIP": "10.0.0.2",
        "conditions": [{"type": "Ready", "status": if is_up { "True" } else { "False" }}],
        "containerStatuses": [{"name": "compute", "ready": is_up, "image": "launcher:1",
                               "imageID": "", "restartCount": 0, "state": state}],
    })
}

fn waiting(reason: &str) -> Value {
    json!({
        "phase": "Pending", "qosClass": "Burstable",
        "containerStatuses": [{"name": "compute", "ready": false, "image": "launcher:1",
                               "imageID": "", "restartCount": 0,
                               "state": {"waiting": {"reason": reason, "message": "later"}}}],
    })
}
