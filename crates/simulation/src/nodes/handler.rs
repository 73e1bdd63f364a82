//! virt-handler of a simulated node: starts, stops and reports guests.

use std::time::Duration;

use apimachinery::meta;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kubelet::{Kubelet, Stage};
use super::status;
use crate::cluster::{Author, Id, Kind, Patch};
use crate::guests::{End, GuestState};

const HANDLER: &str = "virt-handler";

impl Kubelet {
    /// Starts, stops and reports the guest of a pod, as virt-handler does.
    pub(super) fn handle_guest(&mut self, id: &Id) {
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
        let step = self.node.behaviour.step;
        let phase = vmi["status"]["phase"].as_str().unwrap_or_default();
        let is_ours = matches!(phase, "Scheduled" | "Running");
        let is_deleting = meta::is_deleting(&vmi);
        match (phase, self.node.guests.state(&uid)) {
            ("Succeeded" | "Failed", _) => {
                if self.is_done(id, step) {
                    if let Some(local) = self.pods.get_mut(id) {
                        local.stage = Stage::Over;
                    }
                    self.node.guests.remove(&uid);
                    self.write_status(id, &status::ended_or_running(phase));
                }
            }
            (_, GuestState::NotStarted) if is_deleting => {
                if is_ours && self.is_done(id, step) {
                    self.report(id, &vmi, "Failed");
                }
            }
            (_, GuestState::NotStarted) => {
                if self.is_done(id, step) {
                    self.node.guests.start(&uid, &vmi_id, &vmi_uid);
                    self.pending.insert(id.clone());
                }
            }
            (_, GuestState::Running) if is_deleting => {
                if self.is_done(id, step * 2) {
                    self.node.guests.end(&uid, End::Shutdown);
                    self.pending.insert(id.clone());
                }
            }
            ("Scheduled", GuestState::Running) => {
                if self.is_done(id, step) {
                    self.report(id, &vmi, "Running");
                }
            }
            (_, GuestState::Running) => {}
            (_, GuestState::Ended(end)) => {
                // Before the handover only the pod reports it.
                if self.is_done(id, step) {
                    let phase = match end {
                        End::Shutdown => "Succeeded",
                        End::Crash => "Failed",
                    };
                    self.report(id, &vmi, phase);
                }
            }
        }
    }

    /// Applies the fields of virt-handler, on condition that the VMI has not changed.
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
        let author = Author::main(HANDLER);
        let is_written = self
            .node
            .cluster
            .patch(&vmi, &Patch::Apply(body), author)
            .is_ok();
        if !is_written {
            self.later
                .insert((Instant::now() + Duration::from_millis(200), id.clone()));
        }
    }
}
