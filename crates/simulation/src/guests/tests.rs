//! Copies, hand-overs and violations.

use super::*;
use crate::cluster::Kind;

fn owner(node: &str) -> Owner {
    Owner {
        vmi: Id::new(Kind::Vmi, "default", "a"),
        vmi_uid: "vmi".to_owned(),
        node: node.to_owned(),
    }
}

/// A guest that is being copied from pod `old` on `n1` to pod `new` on `n2`.
fn copying() -> Guests {
    let guests = Guests::default();
    guests.start("old", owner("n1"));
    guests.wait("new", owner("n2"), "m");
    guests.copy("old", "m", "new", Instant::now());
    assert!(guests.copies_until("old").is_some());
    guests
}

fn states(guests: &Guests) -> [GuestState; 2] {
    [guests.state("old"), guests.state("new")]
}

#[tokio::test(start_paused = true)]
async fn guest_runs_in_one_pod_however_its_copy_ends() {
    use GuestState::{GivenUp, Received, Running, Waiting};
    for (end, expected) in [
        (CopyEnd::HandOver, [GivenUp, Running]),
        (CopyEnd::RequestLost, [GivenUp, Received]),
        (CopyEnd::Failure, [Running, Waiting]),
    ] {
        let guests = copying();
        assert_eq!(guests.end_copy("old", end), end);
        assert_eq!(states(&guests), expected, "{end:?}");
        assert_eq!(guests.has_moved("m"), end != CopyEnd::Failure);
        // A launcher that has given its guest up is not asked again.
        guests.copy("old", "m", "new", Instant::now());
        assert_eq!(guests.copies_until("old"), None);
        guests.take_over("new");
        let is_moved = end != CopyEnd::Failure;
        assert_eq!(guests.state("new") == Running, is_moved, "{end:?}");
        assert_eq!(guests.violation(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn copy_breaks_with_its_connection() {
    for node in ["n1", "n2"] {
        let guests = copying();
        guests.cut_off(node);
        guests.connect(node);
        assert_eq!(guests.stage("old", "m"), Some(Stage::Failed));
        guests.end_copy("old", CopyEnd::HandOver);
        assert_eq!(guests.state("old"), GuestState::Running);
    }
    let guests = copying();
    guests.kill("new");
    assert_eq!(guests.end_copy("old", CopyEnd::HandOver), CopyEnd::Failure);
}

#[tokio::test(start_paused = true)]
async fn second_guest_and_lost_guest_are_violations() {
    let guests = copying();
    guests.start("other", owner("n2"));
    assert!(guests.violation().unwrap().starts_with("two guests"));

    let guests = copying();
    guests.end_copy("old", CopyEnd::HandOver);
    guests.remove_unneeded("old");
    assert_eq!(guests.violation(), None);
    guests.remove_unneeded("new");
    assert!(guests.violation().unwrap().contains("is lost on n2"));

    let guests = copying();
    guests.cut_off("n1");
    guests.remove_unneeded("old");
    assert_eq!(guests.violation(), None);
}

/// A guest that runs in pod `new` on `n2`, and whose memory is still in pod `old` on `n1`.
fn following() -> Guests {
    let guests = copying();
    assert!(guests.switch("old", Instant::now()));
    guests
}

#[tokio::test(start_paused = true)]
async fn guest_runs_once_while_its_memory_follows() {
    use GuestState::{Following, GivenUp, Running, Switched};
    let guests = following();
    assert_eq!(states(&guests), [Switched, Following]);
    for pod in ["old", "new"] {
        assert_eq!(guests.stage(pod, "m"), Some(Stage::PostCopy), "{pod}");
    }
    // It cannot go back.
    guests.cancel("old");
    assert_eq!(states(&guests), [Switched, Following]);
    assert!(!guests.has_moved("m"));
    guests.end_post_copy("old", PostCopyEnd::Complete);
    assert_eq!(states(&guests), [GivenUp, Running]);
    assert!(guests.has_moved("m"));
    guests.remove_unneeded("old");
    assert_eq!(guests.violation(), None);
    guests.start("other", owner("n1"));
    assert!(guests.violation().is_some());
}

#[tokio::test(start_paused = true)]
async fn end_of_either_pod_loses_a_guest_that_is_in_both() {
    let crashed = GuestState::Ended(End::Crash);
    let guests = following();
    guests.end_post_copy("old", PostCopyEnd::Lost);
    assert_eq!(states(&guests), [crashed; 2]);
    for node in ["n1", "n2"] {
        let guests = following();
        guests.cut_off(node);
        assert_eq!(states(&guests), [crashed; 2], "{node}");
    }
    for (pod, other) in [("old", "new"), ("new", "old")] {
        let guests = following();
        guests.kill(pod);
        assert_eq!(guests.state(other), crashed, "{pod}");
        assert_eq!(guests.violation(), None);
        // A kubelet may not do that without a cause.
        let guests = following();
        guests.remove_unneeded(pod);
        assert!(guests.violation().unwrap().contains("is lost"), "{pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_copies_at_a_time_are_a_violation() {
    let guests = copying();
    guests.limit(Limits {
        per_cluster: 2,
        per_node: 1,
    });
    let begin = |pod: &str, node: &str| {
        let mut owner = owner(node);
        owner.vmi.name = pod.to_owned();
        guests.start(pod, owner);
        guests.copy(pod, pod, "elsewhere", Instant::now());
        guests.violation()
    };
    assert_eq!(begin("b", "n2"), None);
    assert!(begin("c", "n3").unwrap().contains("more guests"));
    guests.end_copy("b", CopyEnd::Failure);
}
