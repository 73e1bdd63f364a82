//! virt-handler of a simulated node: starts, stops, moves and reports guests.

use std::sync::atomic::Ordering;
use std::time::Duration;

use apimachinery::meta;
use kubevirt_api::annotations;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kubelet::{Kubelet, Stage};
use super::moves::{Outcome, Part, Step, next_step, part_of};
use crate::cluster::{Author, Id, Kind, Patch};
use crate::guests::{CopyEnd, End, GuestState, PostCopyEnd};

const HANDLER: &str = "virt-handler";
/// The longest copy, in steps of the node.
const COPY_STEPS: u32 = 30;
/// A slow step of a migration, in steps of the node.
const SLOW_STEPS: u32 = 20;
const AGAIN: Duration = Duration::from_millis(200);

/// What virt-handler does next with a guest, apart from its migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuestStep {
    Start,
    ShutDown,
    Report(&'static str),
    /// Give the guest that many sockets.
    Plug(u64),
    /// The end is recorded: the launcher may end.
    Release,
}

fn guest_step(vmi: &Value, guest: GuestState) -> Option<GuestStep> {
    let phase = vmi["status"]["phase"].as_str().unwrap_or_default();
    let is_deleting = meta::is_deleting(vmi);
    match (phase, guest) {
        ("Succeeded" | "Failed", _) => Some(GuestStep::Release),
        (_, GuestState::NotStarted) if is_deleting => {
            matches!(phase, "Scheduled" | "Running").then_some(GuestStep::Report("Failed"))
        }
        (_, GuestState::NotStarted) => Some(GuestStep::Start),
        (_, GuestState::Running) if is_deleting => Some(GuestStep::ShutDown),
        ("Scheduled", GuestState::Running) => Some(GuestStep::Report("Running")),
        // virt-controller has reported that the pod was not ready which the guest has left.
        ("Running", GuestState::Running) if !is_ready(vmi) => Some(GuestStep::Report("Running")),
        (
            _,
            GuestState::Running
            | GuestState::Waiting
            | GuestState::Received
            // It ends in its new pod, once its memory is there.
            | GuestState::Following
            | GuestState::Switched
            | GuestState::GivenUp
            | GuestState::Killed,
        ) => None,
        // Before the handover only the pod reports it.
        (_, GuestState::Ended(End::Shutdown)) => Some(GuestStep::Report("Succeeded")),
        (_, GuestState::Ended(End::Crash)) => Some(GuestStep::Report("Failed")),
    }
}

/// A running guest gets the processors of its spec in a pod that was made for as many. Each socket has one.
fn plug_step(pod: &Value, vmi: &Value, guest: GuestState) -> Option<GuestStep> {
    let is_running = vmi["status"]["phase"] == "Running" && guest == GuestState::Running;
    let wanted = vmi["spec"]["domain"]["cpu"]["sockets"].as_u64()?;
    let current = vmi["status"]["currentCPUTopology"]["sockets"].as_u64()?;
    let made_for = pod["metadata"]["annotations"][annotations::GUEST_SIZE].as_str()?;
    let (processors, _memory) = made_for.strip_prefix("vcpus=")?.split_once(',')?;
    let has_room = processors.parse::<u64>().is_ok_and(|room| room >= wanted);
    let is_wanted = is_running && !meta::is_deleting(vmi) && wanted > current;
    (is_wanted && has_room).then_some(GuestStep::Plug(wanted))
}

fn is_ready(vmi: &Value) -> bool {
    let conditions = vmi["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

impl Kubelet {
    /// Starts, stops, moves and reports the guest of a pod, as virt-handler does.
    pub(super) fn handle_guest(&mut self, id: &Id, pod: &Value) {
        let Some(local) = self.pods.get(id) else {
            return;
        };
        let Some(vmi) = self.node.cluster.get(&local.owner.vmi) else {
            return;
        };
        if meta::uid(&vmi) != local.owner.vmi_uid {
            return;
        }
        let Some(part) = part_of(pod, &vmi, &self.node.name) else {
            return;
        };
        let uid = meta::uid(pod);
        let guests = &self.node.guests;
        let guest = guests.state(uid);
        let step = match part {
            Part::Runs => guest_step(&vmi, guest).or_else(|| plug_step(pod, &vmi, guest)),
            Part::Arrives => None,
        };
        let migration = vmi["status"]["migrationState"]["migrationUid"].as_str();
        let stage = migration.and_then(|migration| guests.stage(uid, migration));
        let is_over = step == Some(GuestStep::Release);
        let moving = next_step(part, &vmi, &self.node.name, stage).filter(|_| !is_over);
        if step.is_none() && moving.is_none() {
            if part == Part::Runs && guest == GuestState::Running {
                guests.settle(&local.owner.vmi_uid);
            }
            return;
        }
        let factor = match step {
            Some(GuestStep::ShutDown) => 2,
            // Slow, but quicker than virt-controller's patience.
            None if self.fails(100) => SLOW_STEPS,
            _ => 1,
        };
        if !self.is_done(id, self.node.behaviour.step * factor) {
            return;
        }
        match step {
            Some(step) => self.execute(id, &vmi, step),
            None => self.follow(id, &vmi, moving),
        }
    }

    fn execute(&mut self, id: &Id, vmi: &Value, step: GuestStep) {
        let Some(local) = self.pods.get_mut(id) else {
            return;
        };
        match step {
            GuestStep::Start => {
                self.node.guests.start(&local.uid, local.owner.clone());
                self.pending.insert(id.clone());
            }
            GuestStep::ShutDown => {
                self.node.guests.end(&local.uid, End::Shutdown);
                self.pending.insert(id.clone());
            }
            GuestStep::Report(phase) => self.report(id, vmi, phase),
            GuestStep::Plug(sockets) => self.plug(id, vmi, sockets),
            GuestStep::Release => {
                local.stage = Stage::Over;
                let phase = vmi["status"]["phase"].as_str().unwrap_or_default();
                self.end_process(id);
                self.write_ended(id, phase);
            }
        }
    }

    /// The next step of a migration.
    fn follow(&mut self, id: &Id, vmi: &Value, step: Option<Step>) {
        let state = &vmi["status"]["migrationState"];
        let migration = state["migrationUid"].as_str().unwrap_or_default();
        let (Some(step), Some(local)) = (step, self.pods.get(id)) else {
            return;
        };
        let (uid, owner) = (local.uid.clone(), local.owner.clone());
        let now = self.node.cluster.clock().now().to_string();
        let node = &self.node.name;
        let what = format!("{node}: {step:?} in the migration of {}", owner.vmi.name);
        self.node.record.event(&what);
        match step {
            Step::Receive if self.fails(50) => {
                let failure = Outcome::Failed("the new pod was not prepared");
                self.publish(id, vmi, &end(failure, state, &now));
            }
            Step::Receive => self.node.guests.wait(&uid, owner, migration),
            Step::PublishAddress => {
                let ports = json!({"8186": 0});
                let members = json!({"targetNodeAddress": "10.0.0.2", "targetDirectMigrationNodePorts": ports});
                self.publish(id, vmi, &members);
            }
            Step::PublishArrival => {
                let members = json!({
                    "targetNodeDomainDetected": true, "targetNodeDomainReadyTimestamp": now,
                });
                self.publish(id, vmi, &members);
            }
            Step::TakeOver => self.node.guests.take_over(&uid),
            Step::Begin => {
                let members = json!({"startTimestamp": now, "mode": "PreCopy"});
                // virt-handler may restart before it asks the launcher.
                if self.publish(id, vmi, &members) && !self.fails(50) {
                    let target = state["targetPod"].as_str().unwrap_or_default();
                    let target = Id::new(Kind::Pod, &id.namespace, target);
                    let target = self.node.cluster.get(&target);
                    let target = target.as_deref().map_or("", meta::uid);
                    let most = self.node.behaviour.step * COPY_STEPS;
                    let ends = Instant::now() + self.node.random.up_to(most);
                    self.node.guests.copy(&uid, migration, target, ends);
                }
            }
            Step::PublishPostCopy => {
                self.publish(id, vmi, &json!({"mode": "PostCopy"}));
            }
            Step::Cancel => self.node.guests.cancel(&uid),
            Step::End(outcome) => {
                self.publish(id, vmi, &end(outcome, state, &now));
            }
        }
        // No change of the VMI announces these.
        if matches!(
            step,
            Step::Receive | Step::TakeOver | Step::Begin | Step::Cancel
        ) {
            self.pending.insert(id.clone());
        }
    }

    /// Ends the copy of a guest that leaves this node, at its time. The launchers do that: it needs no
    /// virt-handler.
    pub(super) fn advance_copy(&mut self, id: &Id) {
        let Some(local) = self.pods.get(id) else {
            return;
        };
        let (uid, vmi) = (local.uid.clone(), local.owner.vmi.name.clone());
        let Some(ends) = self.node.guests.copies_until(&uid) else {
            return;
        };
        if ends > Instant::now() {
            self.later.insert((ends, id.clone()));
            return;
        }
        if self.node.guests.state(&uid) == GuestState::Switched {
            let end = if self.fails(100) {
                PostCopyEnd::Lost
            } else {
                PostCopyEnd::Complete
            };
            self.node.guests.end_post_copy(&uid, end);
            self.note_copy(&vmi, &format!("post-copy ends: {end:?}"));
            return;
        }
        if self.switches(id) {
            let most = self.node.behaviour.step * COPY_STEPS;
            let ends = Instant::now() + self.node.random.up_to(most);
            if self.node.guests.switch(&uid, ends) {
                self.later.insert((ends, id.clone()));
                self.note_copy(&vmi, "post-copy begins");
                return;
            }
        }
        let end = if self.fails(150) {
            CopyEnd::Failure
        } else if self.fails(100) {
            CopyEnd::RequestLost
        } else {
            CopyEnd::HandOver
        };
        let moved = self.node.guests.end_copy(&uid, end);
        self.note_copy(&vmi, &format!("ends: {moved:?}"));
    }

    fn note_copy(&self, vmi: &str, what: &str) {
        let node = &self.node.name;
        self.node
            .record
            .event(&format!("{node}: the copy of {vmi} {what}"));
    }

    /// Whether the copy goes on as post-copy, which its migration must allow.
    fn switches(&mut self, id: &Id) -> bool {
        let vmi = self.pods.get(id).map(|local| local.owner.vmi.clone());
        let vmi = vmi.and_then(|vmi| self.node.cluster.get(&vmi));
        let allows = vmi.is_some_and(|vmi| {
            let settings = &vmi["status"]["migrationState"]["migrationConfiguration"];
            settings["allowPostCopy"] == true && settings["allowWorkloadDisruption"] == true
        });
        allows && self.node.random.chance(500)
    }

    /// A random fault, in so many of a thousand cases.
    fn fails(&mut self, permille: u64) -> bool {
        self.node.behaviour.has_faults.load(Ordering::Relaxed) && self.node.random.chance(permille)
    }

    /// Writes members of the migration's state; returns whether it did.
    fn publish(&mut self, id: &Id, vmi: &Value, members: &Value) -> bool {
        let body = json!({
            "metadata": {"resourceVersion": meta::resource_version(vmi)},
            "status": {"migrationState": members},
        });
        self.write(id, vmi, &Patch::Merge(body))
    }

    /// Applies the fields of virt-handler.
    fn report(&mut self, id: &Id, vmi: &Value, phase: &str) {
        let status = &vmi["status"];
        let now = self.node.cluster.clock().now().to_string();
        let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
        let mut changes = list("phaseTransitionTimestamps");
        if status["phase"] != phase {
            changes.push(json!({"phase": phase, "phaseTransitionTimestamp": now}));
        }
        let mut conditions = list("conditions");
        conditions.retain(|condition| condition["type"] != "Ready");
        let (ready, reason) = match phase {
            "Running" => ("True", None),
            _ => ("False", Some("GuestNotRunning")),
        };
        conditions.push(json!({
            "type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": now,
        }));
        let is_movable = vmi["spec"]["evictionStrategy"] == "LiveMigrate";
        if is_movable && conditions.iter().all(|one| one["type"] != "LiveMigratable") {
            let reason = self.node.behaviour.is_alone.then_some("OnlyWithinNode");
            conditions.push(json!({
                "type": "LiveMigratable", "status": "True", "reason": reason,
                "lastTransitionTime": now,
            }));
        }
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
        self.write(id, vmi, &Patch::Apply(body));
    }

    /// Gives the guest processors, and reports them.
    fn plug(&mut self, id: &Id, vmi: &Value, sockets: u64) {
        let conditions = vmi["status"]["conditions"].as_array();
        let mut conditions = conditions.cloned().unwrap_or_default();
        conditions.retain(|one| one["type"] != "HotVCPUChange");
        let body = json!({
            "metadata": {"resourceVersion": meta::resource_version(vmi)},
            "status": {"currentCPUTopology": {"sockets": sockets}, "conditions": conditions},
        });
        self.write(id, vmi, &Patch::Merge(body));
    }

    /// Changes the VMI, on condition that it has not changed; otherwise the pod is looked at again.
    fn write(&mut self, id: &Id, vmi: &Value, patch: &Patch) -> bool {
        let vmi = Id::new(Kind::Vmi, meta::namespace(vmi), meta::name(vmi));
        let is_refused = self.fails(60);
        let cluster = &self.node.cluster;
        let is_written = !is_refused && cluster.patch(&vmi, patch, Author::main(HANDLER)).is_ok();
        if !is_written {
            self.later.insert((Instant::now() + AGAIN, id.clone()));
        }
        is_written
    }
}

/// The members of a migration's state that report its end.
fn end(outcome: Outcome, state: &Value, now: &str) -> Value {
    let mut members = json!({"completed": true, "endTimestamp": now});
    match outcome {
        Outcome::Moved => {
            if state["targetNodeDomainReadyTimestamp"].is_null() {
                members["targetNodeDomainDetected"] = true.into();
                members["targetNodeDomainReadyTimestamp"] = now.into();
            }
            if state["abortRequested"] == true {
                members["abortStatus"] = "Failed".into();
            }
        }
        Outcome::Failed(message) => {
            members["failed"] = true.into();
            members["failureReason"] = message.into();
        }
        Outcome::Aborted => {
            members["failed"] = true.into();
            members["failureReason"] = "the migration was cancelled".into();
            members["abortStatus"] = "Succeeded".into();
        }
    }
    members
}
