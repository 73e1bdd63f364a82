//! Pure planning: the next step of a simulated virt-handler in a migration.

use apimachinery::meta;
use kubevirt_api::labels;
use serde_json::Value;

use crate::guests::Stage;

/// What a pod has to do with a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The guest belongs to this pod.
    Runs,
    /// The guest migrates to this pod and belongs to another one.
    Arrives,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Have the launcher wait for the guest.
    Receive,
    PublishAddress,
    PublishArrival,
    /// Have the launcher run the guest that was given up to it.
    TakeOver,
    Begin,
    /// Report that the guest runs in its new pod and its memory follows.
    PublishPostCopy,
    Cancel,
    End(Outcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Moved,
    Failed(&'static str),
    Aborted,
}

/// Whether the guest belongs to the pod that its last migration led to: the node of the VMI shows that, or, within a
/// node, that it has arrived.
fn has_moved(vmi: &Value) -> bool {
    let state = &vmi["status"]["migrationState"];
    let target = &state["targetNode"];
    let is_at_target = target.is_string() && *target == vmi["status"]["nodeName"];
    let is_within_node = state["sourceNode"] == *target;
    let is_there = state["completed"] == true || !state["targetNodeDomainReadyTimestamp"].is_null();
    is_at_target && (!is_within_node || is_there && state["failed"] != true)
}

/// The part of a pod of that node in the life of the VMI that owns it.
pub(super) fn part_of(pod: &Value, vmi: &Value, node: &str) -> Option<Part> {
    let (status, name) = (&vmi["status"], meta::name(pod));
    let active = status["activePods"].as_object();
    if active.is_some_and(|all| !all.is_empty() && !all.contains_key(meta::uid(pod))) {
        return None;
    }
    let state = &status["migrationState"];
    let is_current = match state["migrationUid"].as_str() {
        None => meta::label(pod, labels::MIGRATION_JOB_UID).is_none(),
        Some(_) if has_moved(vmi) => state["targetPod"] == name,
        Some(_) => state["sourcePod"] == name,
    };
    if is_current
        && status["nodeName"]
            .as_str()
            .is_none_or(|other| other == node)
    {
        return Some(Part::Runs);
    }
    let is_over = state["completed"] == true && state["failed"] == true;
    let is_target = state["targetNode"] == node && state["targetPod"] == name && !is_over;
    is_target.then_some(Part::Arrives)
}

/// The next step of the node for a pod, from the VMI and what the launcher reports about its migration.
pub(super) fn next_step(part: Part, vmi: &Value, node: &str, stage: Option<Stage>) -> Option<Step> {
    let state = &vmi["status"]["migrationState"];
    let has = |member: &str| !state[member].is_null();
    match part {
        Part::Arrives if state["failed"] == true => None,
        Part::Arrives => match stage {
            None if state["abortRequested"] == true || has("startTimestamp") => None,
            None => Some(Step::Receive),
            Some(Stage::Waiting | Stage::Received | Stage::PostCopy) => {
                (!has("targetNodeAddress")).then_some(Step::PublishAddress)
            }
            Some(Stage::Done) => {
                (!has("targetNodeDomainReadyTimestamp")).then_some(Step::PublishArrival)
            }
            Some(Stage::Copying | Stage::Failed | Stage::Cancelled) => None,
        },
        Part::Runs if !has("migrationUid") => None,
        Part::Runs if has_moved(vmi) && state["failed"] != true => match stage {
            Some(Stage::Received) => Some(Step::TakeOver),
            _ if state["completed"] != true => Some(Step::End(Outcome::Moved)),
            _ => None,
        },
        Part::Runs if state["sourceNode"] == node && state["completed"] != true => {
            leaving(state, stage)
        }
        Part::Runs => None,
    }
}

fn leaving(state: &Value, stage: Option<Stage>) -> Option<Step> {
    let is_unwanted = state["abortRequested"] == true;
    if state["startTimestamp"].is_null() {
        return match (is_unwanted, state["targetNodeAddress"].is_null()) {
            (true, _) => Some(Step::End(Outcome::Aborted)),
            (false, false) => Some(Step::Begin),
            (false, true) => None,
        };
    }
    match stage {
        Some(Stage::Done) => Some(Step::End(Outcome::Moved)),
        Some(Stage::Failed) => Some(Step::End(Outcome::Failed("the copy failed"))),
        Some(Stage::Cancelled) if is_unwanted => Some(Step::End(Outcome::Aborted)),
        Some(Stage::Cancelled) => Some(Step::End(Outcome::Failed("cancelled"))),
        Some(Stage::Copying) => is_unwanted.then_some(Step::Cancel),
        // It cannot go back.
        Some(Stage::PostCopy) => (state["mode"] != "PostCopy").then_some(Step::PublishPostCopy),
        Some(Stage::Waiting | Stage::Received) => None,
        None => Some(Step::End(Outcome::Failed("the launcher was not asked"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(node: &str, state: Value) -> Value {
        let mut state = state;
        for (name, value) in [
            ("migrationUid", "m"),
            ("sourceNode", "n1"),
            ("sourcePod", "old"),
            ("targetNode", "n2"),
            ("targetPod", "new"),
        ] {
            state[name] = value.into();
        }
        let active = json!({"old-uid": "n1", "new-uid": "n2"});
        json!({"status": {"nodeName": node, "activePods": active, "migrationState": state}})
    }

    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name, "uid": format!("{name}-uid")}})
    }

    #[test]
    fn part_follows_the_guest() {
        let check = |name: &str, node: &str, vmi: &Value, expected: Option<Part>| {
            assert_eq!(part_of(&pod(name), vmi, node), expected, "{name} {vmi}");
        };
        let first = json!({"status": {}});
        check("any", "n1", &first, Some(Part::Runs));
        let mut target = pod("any");
        target["metadata"]["labels"] = json!({"kubevirt.io/migrationJobUID": "m"});
        assert_eq!(part_of(&target, &first, "n1"), None);
        let before = vmi("n1", json!({}));
        check("old", "n1", &before, Some(Part::Runs));
        check("new", "n2", &before, Some(Part::Arrives));
        check("other", "n2", &before, None);
        let failed = vmi("n1", json!({"completed": true, "failed": true}));
        check("old", "n1", &failed, Some(Part::Runs));
        check("new", "n2", &failed, None);
        let after = vmi("n2", json!({"completed": true}));
        check("old", "n1", &after, None);
        check("new", "n2", &after, Some(Part::Runs));
    }

    #[test]
    fn guest_stays_in_its_pod_until_it_has_arrived_in_another_one_of_its_node() {
        let within = |change: Value| {
            let mut vmi = vmi("n1", change);
            vmi["status"]["migrationState"]["targetNode"] = "n1".into();
            vmi
        };
        let part = |name: &str, vmi: &Value| part_of(&pod(name), vmi, "n1");
        for (state, old, new) in [
            (json!({}), Some(Part::Runs), Some(Part::Arrives)),
            (
                json!({"completed": true, "failed": true}),
                Some(Part::Runs),
                None,
            ),
            (json!({"completed": true}), None, Some(Part::Runs)),
            (
                json!({"targetNodeDomainReadyTimestamp": "t"}),
                None,
                Some(Part::Runs),
            ),
        ] {
            let vmi = within(state);
            assert_eq!((part("old", &vmi), part("new", &vmi)), (old, new), "{vmi}");
        }
        let begun = within(json!({"startTimestamp": "t", "targetNodeAddress": "a"}));
        let next = |part, stage| next_step(part, &begun, "n1", Some(stage));
        assert_eq!(next(Part::Arrives, Stage::Waiting), None);
        assert_eq!(next(Part::Runs, Stage::Copying), None);
        let switched = Some(Step::PublishPostCopy);
        assert_eq!(next(Part::Runs, Stage::PostCopy), switched);
        let moved = Some(Step::End(Outcome::Moved));
        assert_eq!(next(Part::Runs, Stage::Done), moved);
    }

    #[test]
    fn steps_of_a_migration_in_their_order() {
        let begun = || json!({"startTimestamp": "t", "targetNodeAddress": "a"});
        let aborted = || json!({"startTimestamp": "t", "abortRequested": true});
        let over = || json!({"completed": true});
        let end = |outcome| Some(Step::End(outcome));
        for (node, state, stage, expected) in [
            ("n1", json!({}), None, None),
            (
                "n1",
                json!({"targetNodeAddress": "a"}),
                None,
                Some(Step::Begin),
            ),
            (
                "n1",
                json!({"abortRequested": true}),
                None,
                end(Outcome::Aborted),
            ),
            ("n1", begun(), Some(Stage::Copying), None),
            ("n1", aborted(), Some(Stage::Copying), Some(Step::Cancel)),
            (
                "n1",
                aborted(),
                Some(Stage::Cancelled),
                end(Outcome::Aborted),
            ),
            ("n1", aborted(), Some(Stage::Done), end(Outcome::Moved)),
            ("n1", over(), Some(Stage::Done), None),
            ("n2", begun(), Some(Stage::Received), Some(Step::TakeOver)),
            ("n2", begun(), Some(Stage::Done), end(Outcome::Moved)),
            ("n2", over(), Some(Stage::Done), None),
        ] {
            let vmi = vmi(node, state);
            assert_eq!(
                next_step(Part::Runs, &vmi, node, stage),
                expected,
                "{vmi} {stage:?}"
            );
        }
        for (state, stage, expected) in [
            (json!({}), None, Some(Step::Receive)),
            (json!({"abortRequested": true}), None, None),
            (json!({}), Some(Stage::Waiting), Some(Step::PublishAddress)),
            (begun(), Some(Stage::Waiting), None),
            (begun(), Some(Stage::Received), None),
            (begun(), Some(Stage::Done), Some(Step::PublishArrival)),
        ] {
            let vmi = vmi("n1", state);
            let found = next_step(Part::Arrives, &vmi, "n2", stage);
            assert_eq!(found, expected, "{vmi} {stage:?}");
        }
    }
}
