//! Ends moves whose cause is gone: the change was taken back, or the launcher is the current one again. Ends those
//! as well whose guest has to leave its node: its evacuation waits for them, and they may fit nowhere.

use std::sync::Arc;

use error_chain::error_chain;
use kube::Api;
use kubevirt_api::annotations;
use kubevirt_api::migration_request::MigrationPriority;
use reasons::Reason;
use reconcile::{EventType, Key, WriteError, delete_unchanged};

use super::super::evacuation::has_to_leave;
use super::super::view::Migration;
use super::WorkloadUpdate;
use crate::view::Guest;

/// Why a move ends, for the event.
const TAKEN_BACK: &str = "the change that it was for was taken back";
const CURRENT: &str = "the guest's pod has the current launcher";
const EVACUATED: &str = "the guest has to leave its node first";

/// Why the move is not to go on, while the guest is still where it was.
fn is_needless(migration: &Migration, vmi: &Guest, launcher_image: &str) -> Option<&'static str> {
    let state = vmi.migration(migration.uid());
    let has_arrived = state.is_some_and(|state| {
        state.completed == Some(true) || state.target_node_domain_ready_timestamp.is_some()
    });
    if has_arrived {
        return None;
    }
    // Once virt-handlers have it, it leads away from the node as well as the evacuation would.
    if has_to_leave(vmi) && state.is_none() {
        return Some(EVACUATED);
    }
    let is_changed = vmi.awaits_size() || vmi.awaits_network() || !vmi.volume_moves().is_empty();
    if is_changed || vmi.status.runs_in_other_than(launcher_image) {
        return None;
    }
    let is_for_a_change = migration.spec.priority == Some(MigrationPriority::UserTriggered);
    Some(if is_for_a_change { TAKEN_BACK } else { CURRENT })
}

impl WorkloadUpdate {
    /// Whether guests move for an update; deletes the migrations of those that need not.
    pub(super) async fn abort_needless_moves(&self) -> bool {
        let controller = &self.controller;
        let all = controller.migrations.list().into_iter();
        let under_way = all.filter(|one| {
            let mark = one.annotation(annotations::WORKLOAD_UPDATE_MIGRATION);
            mark.is_some() && !one.is_final() && !one.is_deleting()
        });
        let under_way: Vec<Arc<Migration>> = under_way.collect();
        let current = &controller.source.launcher.launcher_image;
        for migration in &under_way {
            if let Some(vmi) = controller.vmis.get(&migration.guest())
                && let Some(why) = is_needless(migration, &vmi, current)
            {
                self.abort(migration, &vmi, why).await;
            }
        }
        !under_way.is_empty()
    }

    /// A refusal is published; the next reconcile tries again.
    async fn abort(&self, migration: &Migration, vmi: &Guest, why: &str) {
        let controller = &self.controller;
        let key = Key::of(migration);
        let api = Api::<Migration>::namespaced(controller.client.clone(), &key.namespace);
        let deleted = delete_unchanged(&api, &key, &migration.metadata).await;
        let (kind, reason, note) = match deleted {
            // It has changed: the next reconcile looks again.
            Err(WriteError::NotFound { .. } | WriteError::Conflict { .. }) => return,
            Ok(()) => {
                failpoints::after("virt-controller/migration/abort-needless");
                let note = format!("Aborted migration {}: {why}", key.name);
                (EventType::Normal, Reason::SuccessfulChangeAbortion, note)
            }
            Err(error) => {
                let error = error_chain(&error);
                let note = format!("Cannot abort migration {}: {error}", key.name);
                (EventType::Warning, Reason::FailedChangeAbortion, note)
            }
        };
        controller.recorder.publish(vmi, kind, reason, note);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn move_is_needless_once_its_cause_is_gone() {
        let migration: Migration =
            serde_json::from_value(json!({"metadata": {"name": "m", "uid": "m-uid"}})).unwrap();
        let check = |kind: &str, image: &str, state: Value, expected: bool| {
            let vmi: Guest = serde_json::from_value(json!({
                "metadata": {},
                "status": {
                    "phase": "Running", "launcherContainerImageVersion": image,
                    "conditions": [{"type": kind, "status": "True"}], "migrationState": state,
                },
            }))
            .unwrap();
            let found = is_needless(&migration, &vmi, "now").is_some();
            assert_eq!(found, expected, "{kind} {image} {state}");
        };
        let state = |change: Value| {
            let mut state = json!({"migrationUid": "m-uid"});
            for (name, value) in change.as_object().unwrap() {
                state[name] = value.clone();
            }
            state
        };
        for cause in ["HotVCPUChange", "HotMemoryChange", "MigrationRequired"] {
            check(cause, "now", json!(null), false);
        }
        check("Ready", "old", json!(null), false);
        check("Ready", "now", json!(null), true);
        check("Ready", "now", state(json!({})), true);
        // The guest is there.
        check("Ready", "now", state(json!({"completed": true})), false);
        let at = "2026-11-21T12:00:00Z";
        let ready = state(json!({"targetNodeDomainReadyTimestamp": at}));
        check("Ready", "now", ready, false);
        // That state is of an earlier migration.
        let other = json!({"migrationUid": "other", "completed": true});
        check("Ready", "now", other, true);
    }

    #[test]
    fn event_names_the_cause_that_is_gone() {
        let vmi: Guest = serde_json::from_value(json!({
            "metadata": {},
            "status": {"phase": "Running", "launcherContainerImageVersion": "now"},
        }))
        .unwrap();
        for (priority, expected) in [
            ("user-triggered", TAKEN_BACK),
            ("system-maintenance", CURRENT),
        ] {
            let migration: Migration = serde_json::from_value(json!({
                "metadata": {"name": "m", "uid": "m-uid"}, "spec": {"priority": priority},
            }))
            .unwrap();
            assert_eq!(
                is_needless(&migration, &vmi, "now"),
                Some(expected),
                "{priority}"
            );
        }
    }

    #[test]
    fn evacuation_goes_before_a_move_that_has_not_begun() {
        let migration: Migration =
            serde_json::from_value(json!({"metadata": {"name": "m", "uid": "m-uid"}})).unwrap();
        let begun = json!({"migrationUid": "m-uid"});
        for (evacuated, mobility, strategy, state, expected) in [
            ("n1", "True", "", json!(null), Some(EVACUATED)),
            (
                "n1",
                "True",
                "",
                json!({"migrationUid": "other"}),
                Some(EVACUATED),
            ),
            ("n1", "True", "", begun, None),
            // It has left that node.
            ("n0", "True", "", json!(null), None),
            // It cannot leave it.
            ("n1", "True OnlyWithinNode", "", json!(null), None),
            ("n1", "False", "", json!(null), None),
            // Another controller has it leave.
            ("n1", "True", "External", json!(null), None),
        ] {
            let (can_move, reason) = mobility.split_once(' ').unwrap_or((mobility, ""));
            let strategy = Some(strategy).filter(|strategy| !strategy.is_empty());
            let vmi: Guest = serde_json::from_value(json!({
                "metadata": {},
                "spec": {"domain": {"devices": {}}, "evictionStrategy": strategy},
                "status": {
                    "phase": "Running", "launcherContainerImageVersion": "old",
                    "nodeName": "n1", "evacuationNodeName": evacuated,
                    "conditions": [
                        {"type": "HotVCPUChange", "status": "True"},
                        {"type": "LiveMigratable", "status": can_move, "reason": reason},
                    ],
                    "migrationState": state,
                },
            }))
            .unwrap();
            let found = is_needless(&migration, &vmi, "now");
            assert_eq!(
                found, expected,
                "{evacuated} {mobility} {strategy:?} {state}"
            );
        }
    }
}
