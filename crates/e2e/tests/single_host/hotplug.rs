//! Volumes that a running guest gets and loses.

use e2e::{claim, later_answer, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

/// How often a disk comes and goes.
const ROUNDS: usize = 10;

/// The status of a volume of the VMI.
fn status<'a>(vmi: &'a Value, volume: &str) -> Option<&'a Value> {
    let all = vmi["status"]["volumeStatus"].as_array()?;
    all.iter().find(|one| one["name"] == volume)
}

/// Waits until the volume has that phase, or is gone.
pub(crate) async fn waits_for(test: &TestNamespace, name: &str, volume: &str, phase: Option<&str>) {
    let what = format!("volume {volume} in phase {phase:?}");
    let is_reached = |vmi: &Value| match (status(vmi, volume), phase) {
        (None, None) => true,
        (Some(found), Some(phase)) => found["phase"] == phase,
        _ => false,
    };
    wait_for(&test.vmis(), name, &what, is_reached).await;
}

async fn waits_for_reason(test: &TestNamespace, name: &str, volume: &str, reason: &str) {
    let is_there = |vmi: &Value| status(vmi, volume).is_some_and(|found| found["reason"] == reason);
    wait_for(&test.vmis(), name, reason, is_there).await;
}

pub(crate) async fn attach(test: &TestNamespace, vm: &str, volume: &str) {
    let name = format!("--volume-name={volume}");
    let done = test
        .virtctl(&["addvolume", vm, &name, "--bus=virtio"])
        .await;
    done.success();
}

pub(crate) async fn detach(test: &TestNamespace, vm: &str, volume: &str) {
    let name = format!("--volume-name={volume}");
    test.virtctl(&["removevolume", vm, &name]).await.success();
}

#[tokio::test]
async fn guest_gets_and_loses_a_disk_while_it_writes() {
    let test = test_namespace().await;
    test.apply_object(&claim("busy", "Filesystem")).await;
    test.apply_object(&claim("extra", "Filesystem")).await;
    let vm = tiny_vm("plugs").disk(&json!({"persistentVolumeClaim": {"claimName": "busy"}}));
    test.apply(&vm).await;
    let mut console = test.shell("plugs").await;
    let writes = "(while true; do dd if=/dev/zero of=/dev/vdc bs=1M count=8 conv=fsync \
                  2>/dev/null || echo failed >>/failed; done) &\n";
    console.send(writes).await;
    for round in 0..ROUNDS {
        attach(&test, "plugs", "extra").await;
        waits_for(&test, "plugs", "extra", Some("Ready")).await;
        let wait = "i=0; while [ ! -b /dev/vdd ] && [ $i -lt 100 ]; do usleep 100000; \
                    i=$((i+1)); done; ls /dev/vdd";
        let found = console.shell(wait).await;
        assert!(found.contains("/dev/vdd"), "round {round}: {found}");
        let mark = format!("round-{round}");
        let write = format!(
            "echo {mark} | dd of=/dev/vdd bs=512 count=1 conv=sync,fsync 2>/dev/null; \
             dd if=/dev/vdd bs=512 count=1 2>/dev/null | head -n 1"
        );
        let read = console.shell(&write).await;
        assert!(read.contains(&mark), "round {round}: {read}");
        detach(&test, "plugs", "extra").await;
        waits_for(&test, "plugs", "extra", None).await;
        let gone = console.shell("ls /dev/vdd 2>&1").await;
        assert!(gone.contains("No such file"), "round {round}: {gone}");
    }
    let failed = console.shell("cat /failed 2>&1").await;
    assert!(failed.contains("No such file"), "{failed}");
    // No pod is left that has the claim.
    let api = test.objects("", "v1", "Pod");
    let pods = api.list(&kube::api::ListParams::default()).await;
    let pods = pods.expect("list pods");
    let of_claim = pods.items.iter().filter(|pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        name.starts_with("hp-volume-") && pod.metadata.deletion_timestamp.is_none()
    });
    assert_eq!(of_claim.count(), 0);
}

#[tokio::test]
async fn volume_that_cannot_come_or_go_is_explained() {
    let test = test_namespace().await;
    test.apply_object(&claim("raw", "Block")).await;
    test.apply_object(&claim("kept", "Filesystem")).await;
    test.apply(&tiny_vm("keeps")).await;
    let _console = test.shell("keeps").await;
    attach(&test, "keeps", "raw").await;
    waits_for_reason(&test, "keeps", "raw", "VolumeModeNotSupported").await;
    let next = "describe vmi keeps";
    // The first cause is that nothing binds the claim.
    let refused = later_answer("volume-not-attached", "The volume \"raw\"", next);
    test.why_answers("keeps", refused).await;
    detach(&test, "keeps", "raw").await;
    waits_for(&test, "keeps", "raw", None).await;

    attach(&test, "keeps", "kept").await;
    waits_for(&test, "keeps", "kept", Some("Ready")).await;
    // A guest that does not run does not release anything.
    test.virtctl(&["pause", "vmi", "keeps"]).await.success();
    detach(&test, "keeps", "kept").await;
    waits_for_reason(&test, "keeps", "kept", "VolumeNotReleased").await;
    // The first cause is that the guest is paused.
    let held = later_answer("volume-not-released", "The volume \"kept\"", next);
    test.why_answers("keeps", held).await;
    test.virtctl(&["unpause", "vmi", "keeps"]).await.success();
    waits_for(&test, "keeps", "kept", None).await;
}
