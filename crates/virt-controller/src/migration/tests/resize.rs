//! How long a migration waits for what its guest has moved for.

use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use serde_json::{Value, json};

use super::{CREATED, at, check, deleted, guest, migration, observed, plan, pod};

/// A guest that has moved to `n2` and is to get processors there.
fn moved(ended: Option<i64>) -> Value {
    let end = ended.map(|seconds| at(seconds).to_string());
    let state = json!({"startTimestamp": CREATED, "endTimestamp": end, "completed": true});
    let mut vmi = guest(Some(state));
    vmi["spec"] = json!({"domain": {"cpu": {"sockets": 2}, "devices": {}}});
    vmi["status"]["nodeName"] = "n2".into();
    vmi["status"]["conditions"] = json!([{"type": "HotVCPUChange", "status": "True"}]);
    vmi
}

fn made_for(size: &str) -> Value {
    let mut pod = pod("Running");
    pod["metadata"]["annotations"] = json!({"ferrovirt.io/guest-size": size});
    pod
}

/// At second 10. `None` if the migration has succeeded.
fn waits(migration: Value, vmi: Value, pod: Value) -> Option<u64> {
    let mut observed = observed(migration, Some(vmi), Some(pod));
    observed.now = at(10);
    let found = plan(&observed);
    let phase = if found.requeue_in.is_some() {
        Phase::Running
    } else {
        Phase::Succeeded
    };
    check(&observed, &phase, None);
    found.requeue_in.map(|wait| wait.as_secs())
}

#[test]
fn migration_waits_a_minute_for_what_the_guest_has_moved_for() {
    let roomy = || made_for("vcpus=2,memory=0");
    let changed = |path: &str, value: Value| {
        let mut vmi = moved(Some(0));
        vmi["status"][path] = value;
        vmi
    };
    for (case, migration, vmi, pod, expected) in [
        (
            "just ended",
            migration("Running"),
            moved(Some(0)),
            roomy(),
            Some(50),
        ),
        (
            "long ago",
            migration("Running"),
            moved(Some(-50)),
            roomy(),
            None,
        ),
        (
            "the clock of the node is ahead",
            migration("Running"),
            moved(Some(11)),
            roomy(),
            None,
        ),
        (
            "without a time",
            migration("Running"),
            moved(None),
            roomy(),
            None,
        ),
        (
            "no room",
            migration("Running"),
            moved(Some(0)),
            made_for("vcpus=1,memory=0"),
            None,
        ),
        (
            "not marked",
            migration("Running"),
            moved(Some(0)),
            pod("Running"),
            None,
        ),
        (
            "plugged in",
            migration("Running"),
            changed("conditions", json!([])),
            roomy(),
            None,
        ),
        (
            "deleted",
            deleted(migration("Running")),
            moved(Some(0)),
            roomy(),
            None,
        ),
        (
            "has to leave",
            migration("Running"),
            changed("evacuationNodeName", json!("n2")),
            roomy(),
            None,
        ),
    ] {
        assert_eq!(waits(migration, vmi, pod), expected, "{case}");
    }
}
