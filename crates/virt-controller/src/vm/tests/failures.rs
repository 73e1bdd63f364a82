//! Failed starts are counted and delay the next one.

use std::time::Duration;

use serde_json::json;

use super::{NOW, Printable, now, observe, printable, set, vm, vmi};
use crate::vm::plan::{Step, backoff_seconds, plan};
use crate::vm::status::{self, Done};

#[test]
fn failed_start_is_counted_once_and_delays_the_next() {
    let observed = observe(vm("Always"), Some(vmi("Failed")));
    let counted = plan(&observed);
    let failure = counted.start_failure.clone().unwrap();
    assert_eq!(failure.consecutive_fail_count, Some(1));
    assert_eq!(failure.last_failed_vmi_uid.as_deref(), Some("vmi-uid"));

    let vm = set(vm("Always"), "/status/startFailure", json!(failure));
    let again = plan(&observe(vm.clone(), Some(vmi("Failed"))));
    assert_eq!(again.start_failure, Some(failure));

    let waiting = observe(vm.clone(), None);
    let waiting_plan = plan(&waiting);
    assert!(waiting_plan.steps.is_empty());
    let wait = waiting_plan.requeue_in.unwrap();
    assert!(
        wait >= Duration::from_secs(10) && wait <= Duration::from_secs(15),
        "{wait:?}"
    );
    assert_eq!(
        printable(&waiting, &Done::default()),
        Printable::CrashLoopBackOff
    );

    let mut later = observe(vm, None);
    later.now = now() + jiff::SignedDuration::from_secs(16);
    assert_eq!(plan(&later).steps, [Step::CreateVmi]);
}

#[test]
fn instance_that_ran_clears_the_count() {
    let failure = json!({"consecutiveFailCount": 2, "lastFailedVMIUID": "old"});
    let vm = set(vm("Always"), "/status/startFailure", failure);
    let ran = json!([{"phase": "Running", "phaseTransitionTimestamp": NOW}]);
    let vmi = set(vmi("Failed"), "/status/phaseTransitionTimestamps", ran);
    assert_eq!(plan(&observe(vm, Some(vmi))).start_failure, None);
}

#[test]
fn succeeded_guest_is_not_a_failed_start() {
    let failure = json!({"consecutiveFailCount": 2, "lastFailedVMIUID": "old"});
    let vm = set(vm("RerunOnFailure"), "/status/startFailure", failure);
    let ended = plan(&observe(vm, Some(vmi("Succeeded"))));
    assert_eq!(
        (ended.start_failure, ended.steps),
        (None, vec![Step::DeleteVmi])
    );
    // A strategy that starts it again must back off.
    let always = plan(&observe(self::vm("Always"), Some(vmi("Succeeded"))));
    assert!(always.start_failure.is_some());
}

#[test]
fn delay_grows_with_the_square_up_to_five_minutes() {
    for (count, least, most) in [
        (1, 10, 15),
        (2, 40, 60),
        (3, 90, 135),
        (5, 250, 300),
        (9, 300, 300),
    ] {
        for uid in ["a", "b", "c", "d"] {
            let seconds = backoff_seconds(count, uid);
            assert!((least..=most).contains(&seconds), "{count}: {seconds}");
        }
    }
}

#[test]
fn switch_to_rerun_under_back_off_still_starts_later() {
    let failure = json!({"consecutiveFailCount": 1, "lastFailedVMIUID": "old",
                         "retryAfterTimestamp": "2026-11-21T12:00:10Z"});
    let vm = set(vm("RerunOnFailure"), "/status/runStrategy", json!("Always"));
    let vm = set(vm, "/status/startFailure", failure);
    let observed = observe(vm, None);
    let plan = plan(&observed);
    assert_eq!(plan.requeue_in, Some(Duration::from_secs(10)));
    let status = status::render(&observed, &plan, &Done::default());
    assert_eq!(status.run_strategy.unwrap().as_str(), "Always");
}
