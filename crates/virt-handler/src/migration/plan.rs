//! Pure planning: maps the state of a migration to the next step of this node.

use kubevirt_api::{
    VirtualMachineInstance,
    migration::{MigrationMode, VirtualMachineInstanceMigrationState as State},
};
use launcher_channel::{MigrationReport as Report, MigrationStage as Stage};

use super::limits::Due;
use crate::guest::Part;

/// The input of the plan.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(super) struct Observed<'a> {
    pub(super) state: &'a State,
    pub(super) part: Part,
    /// The guest belongs to the new pod.
    pub(super) has_moved: bool,
    pub(super) node: &'a str,
    /// The launcher of the pod on this node can be called.
    pub(super) is_connected: bool,
    /// The launcher has reported its state, with or without a migration.
    pub(super) is_known: bool,
    /// The report of the launcher about this migration.
    pub(super) stage: Option<&'a Stage>,
    /// Why the copy takes too long.
    pub(super) overrun: Option<&'a str>,
    pub(super) due: Due,
    /// The guest was paused for the end of the copy.
    pub(super) is_paused: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Prepare the pod and have its launcher wait for the guest.
    Receive,
    /// Publish where the pod can be reached.
    PublishAddress,
    /// Publish that the guest runs here.
    PublishArrival,
    /// Have the guest copied to the other pod.
    Begin,
    /// Stop the copy; the guest stays.
    Cancel,
    /// Have the guest go on in the other pod before all of its memory is there, or have it paused.
    StartPostCopy,
    /// Publish that it goes on there.
    PublishPostCopy,
    /// Publish that it was paused for the end of the copy.
    PublishPause,
    /// Publish how it has ended.
    End(Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Moved,
    Failed(String),
    /// Stopped by request.
    Aborted,
}

/// The launcher has forgotten the migration, so it was not running when the launcher was restarted.
const FORGOTTEN: &str = "the launcher of the guest was restarted before the copy began";

pub(super) fn plan(observed: &Observed<'_>) -> Option<Step> {
    let state = observed.state;
    let is_here = |node: &Option<String>| node.as_deref() == Some(observed.node);
    match observed.part {
        Part::Arrives => arriving(observed),
        Part::Runs if observed.has_moved => arrived(observed),
        Part::Runs if is_here(&state.source_node) && state.completed != Some(true) => {
            leaving(observed)
        }
        Part::Runs => None,
    }
}

fn arriving(observed: &Observed<'_>) -> Option<Step> {
    let state = observed.state;
    if !observed.is_connected || state.failed == Some(true) {
        return None;
    }
    match observed.stage {
        None if state.abort_requested == Some(true) || state.start_timestamp.is_some() => None,
        None => Some(Step::Receive),
        // In post-copy it has not arrived before all of its memory has: its old pod must stay.
        Some(Stage::Waiting | Stage::Receiving | Stage::Received | Stage::PostCopy) => {
            let is_published = state.target_node_address.is_some();
            (!is_published).then_some(Step::PublishAddress)
        }
        Some(Stage::Done) => {
            let is_published = state.target_node_domain_ready_timestamp.is_some();
            (!is_published).then_some(Step::PublishArrival)
        }
        Some(Stage::Copying | Stage::Failed(_) | Stage::Cancelled) => None,
    }
}

/// The guest belongs to this pod, because the old one has given it up.
fn arrived(observed: &Observed<'_>) -> Option<Step> {
    // If the virt-handler of the old pod could not report it.
    (observed.state.completed != Some(true)).then_some(Step::End(Outcome::Moved))
}

/// Whether the guest belongs to its new pod, whose launcher still waits for the old pod to say so. In post-copy
/// it may not have heard that all is there.
pub(crate) fn awaits_take_over(vmi: &VirtualMachineInstance, report: Option<&Report>) -> bool {
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    let (Some(state), Some(report)) = (state, report) else {
        return false;
    };
    let is_this = model::copy_id(state) == Some(report.id.as_str());
    model::has_moved(vmi)
        && is_this
        && state.failed != Some(true)
        && matches!(report.stage, Stage::Receiving | Stage::Received)
}

fn leaving(observed: &Observed<'_>) -> Option<Step> {
    let state = observed.state;
    let is_unwanted = state.abort_requested == Some(true);
    if state.start_timestamp.is_none() {
        let is_ready = state.target_node_address.is_some() && observed.is_connected;
        return match (is_unwanted, is_ready) {
            (true, _) => Some(Step::End(Outcome::Aborted)),
            (false, true) => Some(Step::Begin),
            (false, false) => None,
        };
    }
    match observed.stage {
        Some(Stage::Done) => Some(Step::End(Outcome::Moved)),
        Some(Stage::Failed(message)) => Some(Step::End(Outcome::Failed(message.clone()))),
        Some(Stage::Cancelled) if is_unwanted => Some(Step::End(Outcome::Aborted)),
        Some(Stage::Cancelled) => {
            let message = observed.overrun.unwrap_or("cancelled");
            Some(Step::End(Outcome::Failed(message.to_owned())))
        }
        Some(Stage::Copying) => {
            let is_to_end = is_unwanted || observed.overrun.is_some();
            let is_pause_published = state.mode == Some(MigrationMode::Paused);
            let step = match (is_to_end, observed.due) {
                (true, _) => Some(Step::Cancel),
                (false, Due::PostCopy) => Some(Step::StartPostCopy),
                (false, Due::Nothing) if observed.is_paused && !is_pause_published => {
                    Some(Step::PublishPause)
                }
                (false, Due::Nothing) => None,
            };
            step.filter(|_| observed.is_connected)
        }
        // It cannot go back.
        Some(Stage::PostCopy) => {
            let is_published = state.mode == Some(MigrationMode::PostCopy);
            (!is_published).then_some(Step::PublishPostCopy)
        }
        Some(Stage::Waiting | Stage::Receiving | Stage::Received) => None,
        None => (observed.is_connected && observed.is_known)
            .then(|| Step::End(Outcome::Failed(FORGOTTEN.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The next step of node `n1` or `n2` of a migration from `n1` to `n2`.
    fn next(node: &str, part: Part, state: Value, stage: Option<&Stage>) -> Option<Step> {
        next_of(node, part, state, stage, None)
    }

    fn next_of(
        node: &str,
        part: Part,
        mut state: Value,
        stage: Option<&Stage>,
        overrun: Option<&str>,
    ) -> Option<Step> {
        for (name, value) in [("sourceNode", "n1"), ("targetNode", "n2")] {
            state[name] = json!(value);
        }
        let state: State = serde_json::from_value(state).unwrap();
        plan(&Observed {
            state: &state,
            part,
            has_moved: node == "n2" && part == Part::Runs,
            node,
            is_connected: true,
            is_known: true,
            stage,
            overrun,
            due: Due::Nothing,
            is_paused: false,
        })
    }

    const START: &str = "2026-11-21T12:00:00Z";

    fn failed(message: &str) -> Step {
        Step::End(Outcome::Failed(message.to_owned()))
    }

    #[test]
    fn new_node_prepares_its_pod_and_reports_the_guest() {
        let check = |state: Value, stage: Option<Stage>, expected: Option<Step>| {
            let found = next("n2", Part::Arrives, state.clone(), stage.as_ref());
            assert_eq!(found, expected, "{state} {stage:?}");
        };
        let address = || json!({"targetNodeAddress": "10.0.0.2"});
        check(json!({}), None, Some(Step::Receive));
        check(json!({"abortRequested": true}), None, None);
        check(json!({"failed": true}), None, None);
        check(json!({"startTimestamp": START}), None, None);
        check(json!({}), Some(Stage::Waiting), Some(Step::PublishAddress));
        check(address(), Some(Stage::Waiting), None);
        // It does not run before its old pod has given it up.
        check(address(), Some(Stage::Received), None);
        check(address(), Some(Stage::PostCopy), None);
        check(address(), Some(Stage::Done), Some(Step::PublishArrival));
        let ready = json!({"targetNodeDomainReadyTimestamp": START});
        check(ready, Some(Stage::Done), None);
        check(address(), Some(Stage::Failed(String::new())), None);
    }

    #[test]
    fn old_node_begins_and_reports_the_end() {
        let check = |state: Value, stage: Option<Stage>, expected: Option<Step>| {
            let found = next("n1", Part::Runs, state.clone(), stage.as_ref());
            assert_eq!(found, expected, "{state} {stage:?}");
        };
        let begun = || json!({"startTimestamp": START, "targetNodeAddress": "10.0.0.2"});
        check(json!({}), None, None);
        check(
            json!({"targetNodeAddress": "10.0.0.2"}),
            None,
            Some(Step::Begin),
        );
        let unwanted = json!({"targetNodeAddress": "10.0.0.2", "abortRequested": true});
        check(unwanted, None, Some(Step::End(Outcome::Aborted)));
        check(begun(), Some(Stage::Copying), None);
        check(begun(), Some(Stage::Done), Some(Step::End(Outcome::Moved)));
        check(
            begun(),
            Some(Stage::Failed("no room".to_owned())),
            Some(failed("no room")),
        );
        check(begun(), None, Some(failed(FORGOTTEN)));
        let mut unwanted = begun();
        unwanted["abortRequested"] = json!(true);
        check(unwanted.clone(), Some(Stage::Copying), Some(Step::Cancel));
        check(
            unwanted.clone(),
            Some(Stage::Cancelled),
            Some(Step::End(Outcome::Aborted)),
        );
        // Too late.
        check(unwanted, Some(Stage::Done), Some(Step::End(Outcome::Moved)));
        let mut over = begun();
        over["completed"] = json!(true);
        check(over, Some(Stage::Done), None);
    }

    #[test]
    fn copy_that_takes_too_long_is_cancelled_with_the_reason() {
        let begun = || json!({"startTimestamp": START});
        let late = Some("no progress for 150 s");
        let found = next_of("n1", Part::Runs, begun(), Some(&Stage::Copying), late);
        assert_eq!(found, Some(Step::Cancel));
        let found = next_of("n1", Part::Runs, begun(), Some(&Stage::Cancelled), late);
        assert_eq!(found, Some(failed("no progress for 150 s")));
    }

    #[test]
    fn late_copy_is_switched_and_then_never_stopped() {
        let check = |change: Value,
                     stage: Stage,
                     overrun: Option<&str>,
                     due: Due,
                     expected: Option<Step>| {
            let mut state = json!({"sourceNode": "n1", "targetNode": "n2",
                "startTimestamp": START, "targetNodeAddress": "10.0.0.2", "mode": "PreCopy"});
            for (name, value) in change.as_object().unwrap() {
                state[name] = value.clone();
            }
            let parsed: State = serde_json::from_value(state.clone()).unwrap();
            let found = plan(&Observed {
                state: &parsed,
                part: Part::Runs,
                has_moved: false,
                node: "n1",
                is_connected: true,
                is_known: true,
                stage: Some(&stage),
                overrun,
                due,
                is_paused: false,
            });
            assert_eq!(found, expected, "{state} {stage:?} {overrun:?}");
        };
        let late = Some("not complete");
        let unwanted = || json!({"abortRequested": true});
        check(
            json!({}),
            Stage::Copying,
            None,
            Due::PostCopy,
            Some(Step::StartPostCopy),
        );
        check(
            unwanted(),
            Stage::Copying,
            None,
            Due::PostCopy,
            Some(Step::Cancel),
        );
        check(
            json!({}),
            Stage::Copying,
            late,
            Due::PostCopy,
            Some(Step::Cancel),
        );
        let publish = || Some(Step::PublishPostCopy);
        check(json!({}), Stage::PostCopy, None, Due::PostCopy, publish());
        check(unwanted(), Stage::PostCopy, late, Due::PostCopy, publish());
        let published = json!({"mode": "PostCopy", "abortRequested": true});
        check(
            published.clone(),
            Stage::PostCopy,
            late,
            Due::PostCopy,
            None,
        );
        let moved = || Some(Step::End(Outcome::Moved));
        check(published.clone(), Stage::Done, late, Due::PostCopy, moved());
        let broken = Stage::Failed("broken".to_owned());
        check(
            published,
            broken,
            late,
            Due::PostCopy,
            Some(failed("broken")),
        );
    }

    #[test]
    fn pause_for_the_end_of_a_copy_is_published_once() {
        for (mode, is_paused, expected) in [
            ("PreCopy", false, None),
            ("PreCopy", true, Some(Step::PublishPause)),
            ("Paused", true, None),
        ] {
            let state = json!({"sourceNode": "n1", "targetNode": "n2", "startTimestamp": START,
                "targetNodeAddress": "10.0.0.2", "mode": mode});
            let state: State = serde_json::from_value(state).unwrap();
            let found = plan(&Observed {
                state: &state,
                part: Part::Runs,
                has_moved: false,
                node: "n1",
                is_connected: true,
                is_known: true,
                stage: Some(&Stage::Copying),
                overrun: None,
                due: Due::Nothing,
                is_paused,
            });
            assert_eq!(found, expected, "{mode} {is_paused}");
        }
    }

    #[test]
    fn new_node_reports_the_end_that_the_old_one_could_not() {
        let check = |state: Value, stage: Option<Stage>, expected: Option<Step>| {
            let found = next("n2", Part::Runs, state.clone(), stage.as_ref());
            assert_eq!(found, expected, "{state} {stage:?}");
        };
        let over = || json!({"completed": true});
        check(over(), Some(Stage::Done), None);
        check(over(), None, None);
        check(
            json!({}),
            Some(Stage::Done),
            Some(Step::End(Outcome::Moved)),
        );
    }

    /// Both pods are on node `n1`.
    #[test]
    fn move_within_the_node_has_the_steps_of_both_nodes() {
        let check = |part: Part, state: Value, stage: Option<Stage>, expected: Option<Step>| {
            let mut whole = state.clone();
            for name in ["sourceNode", "targetNode"] {
                whole[name] = json!("n1");
            }
            let vmi: VirtualMachineInstance = serde_json::from_value(json!({
                "metadata": {}, "spec": {"domain": {"devices": {}}},
                "status": {"nodeName": "n1", "migrationState": whole},
            }))
            .unwrap();
            let parsed: State = serde_json::from_value(whole).unwrap();
            let found = plan(&Observed {
                state: &parsed,
                part,
                has_moved: model::has_moved(&vmi),
                node: "n1",
                is_connected: true,
                is_known: true,
                stage: stage.as_ref(),
                overrun: None,
                due: Due::Nothing,
                is_paused: false,
            });
            assert_eq!(found, expected, "{part:?} {state} {stage:?}");
        };
        let address = || json!({"targetNodeAddress": "127.0.0.1"});
        let begun = || json!({"targetNodeAddress": "127.0.0.1", "startTimestamp": START});
        check(Part::Arrives, json!({}), None, Some(Step::Receive));
        check(Part::Runs, json!({}), None, None);
        check(Part::Arrives, address(), Some(Stage::Waiting), None);
        check(Part::Runs, address(), None, Some(Step::Begin));
        check(Part::Runs, begun(), Some(Stage::Copying), None);
        check(Part::Arrives, begun(), Some(Stage::Received), None);
        let moved = || Some(Step::End(Outcome::Moved));
        check(Part::Runs, begun(), Some(Stage::Done), moved());
        let arrived = Some(Step::PublishArrival);
        check(Part::Arrives, begun(), Some(Stage::Done), arrived);
        // The new pod, if the old one could not report the end.
        let mut ready = begun();
        ready["targetNodeDomainReadyTimestamp"] = json!(START);
        check(Part::Runs, ready, Some(Stage::Done), moved());
        let mut over = begun();
        over["completed"] = json!(true);
        check(Part::Runs, over, Some(Stage::Received), None);
    }

    #[test]
    fn guest_that_was_given_up_is_taken_over_by_its_new_node() {
        let check = |node: &str, change: Value, stage: Stage, expected: bool| {
            let mut state = json!({"migrationUid": "m", "targetNode": "n2", "completed": true});
            for (name, value) in change.as_object().unwrap() {
                state[name] = value.clone();
            }
            let vmi: VirtualMachineInstance = serde_json::from_value(json!({
                "metadata": {}, "spec": {"domain": {"devices": {}}},
                "status": {"nodeName": node, "migrationState": state},
            }))
            .unwrap();
            let report = Report {
                id: "m".to_owned(),
                stage,
                progress: None,
                can_switch: false,
                needs_no_switch: false,
                paused: false,
            };
            let found = awaits_take_over(&vmi, Some(&report));
            assert_eq!(found, expected, "{node} {state} {report:?}");
        };
        check("n2", json!({}), Stage::Received, true);
        check("n1", json!({}), Stage::Received, false);
        check("n2", json!({}), Stage::Receiving, true);
        check("n1", json!({}), Stage::Receiving, false);
        check("n2", json!({}), Stage::PostCopy, false);
        let within = |change: Value| {
            let mut state = json!({"sourceNode": "n2", "completed": null});
            for (name, value) in change.as_object().unwrap() {
                state[name] = value.clone();
            }
            state
        };
        check("n2", within(json!({})), Stage::Received, false);
        let given_up = within(json!({"completed": true}));
        check("n2", given_up, Stage::Received, true);
        check("n2", json!({}), Stage::Done, false);
        check("n2", json!({"failed": true}), Stage::Received, false);
        check("n2", json!({"migrationUid": "n"}), Stage::Received, false);
        assert!(!awaits_take_over(&VirtualMachineInstance::default(), None));
    }
}
