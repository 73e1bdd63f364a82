//! The volume of a running guest moves to another claim.

use e2e::{claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

/// The claim of the volume in the spec of the VMI.
fn claim_of(vmi: &Value) -> Option<&str> {
    let volumes = vmi["spec"]["volumes"].as_array()?;
    let volume = volumes.iter().find(|volume| volume["name"] == "more")?;
    volume["persistentVolumeClaim"]["claimName"].as_str()
}

fn has(object: &Value, kind: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.any(|one| one["type"] == kind && one["status"] == status)
}

/// Puts the volume of the VM on another claim, and waits until the move is wanted.
async fn put_on(test: &TestNamespace, vm: &str, claim: &str) {
    let found = test.vms().get(vm).await.expect("the VM is there");
    let mut volumes = found.data["spec"]["template"]["spec"]["volumes"].clone();
    for volume in volumes.as_array_mut().expect("it has volumes") {
        if volume["name"] == "more" {
            volume["persistentVolumeClaim"]["claimName"] = claim.into();
        }
    }
    let patch = json!({"spec": {
        "updateVolumesStrategy": "Migration", "template": {"spec": {"volumes": volumes}},
    }});
    let patch = patch.to_string();
    test.kubectl(&["patch", "vm", vm, "--type=merge", "-p", &patch])
        .await
        .success();
}

#[tokio::test]
async fn volume_of_a_running_guest_moves_to_another_claim() {
    let test = test_namespace().await;
    for name in ["former", "other"] {
        test.apply_object(&claim(name, "Filesystem")).await;
    }
    let volume = json!({"persistentVolumeClaim": {"claimName": "former"}});
    test.apply(&tiny_vm("mover").disk(&volume)).await;
    let mut console = test.shell("mover").await;
    let write = "echo kept | dd of=/dev/vdc bs=512 seek=64 conv=notrunc,fsync 2>&1";
    console.shell(write).await;
    console.send("count &\n").await;
    console.expect("count 3").await;
    drop(console);
    let first = test.wait_vmi_phase("mover", "Running").await;
    wait_for(&test.vmis(), "mover", "migratable", |vmi| {
        has(vmi, "LiveMigratable", "True")
    })
    .await;

    put_on(&test, "mover", "other").await;
    let vmi = wait_for(&test.vmis(), "mover", "to be moved", |vmi| {
        has(vmi, "VolumesChange", "True")
    })
    .await;
    let moved = &vmi["status"]["migratedVolumes"][0];
    assert_eq!(moved["sourcePVCInfo"]["claimName"], "former", "{moved}");
    assert_eq!(moved["destinationPVCInfo"]["claimName"], "other", "{moved}");
    // Until it has moved.
    assert_eq!(claim_of(&vmi), Some("former"));
    let refused = test.virtctl(&["restart", "mover"]).await.failure();
    assert!(
        refused.contains("volumes move to other claims"),
        "{refused}"
    );
    let why = test.virtctl(&["why", "mover"]).await.success();
    assert!(why.contains("claims for its volumes"), "{why}");
    test.virtctl(&["migrate", "--watch", "mover"])
        .await
        .success();
    let vmi = wait_for(&test.vmis(), "mover", "on its new claim", |vmi| {
        claim_of(vmi) == Some("other")
    })
    .await;
    assert_eq!(vmi["metadata"]["uid"], first["metadata"]["uid"]);
    assert!(vmi["status"]["migratedVolumes"].is_null(), "{vmi}");
    assert!(!has(&vmi, "VolumesChange", "True"), "{vmi}");
    wait_for(&test.vms(), "mover", "settled", |vm| {
        vm["status"]["volumeUpdateState"].is_null() && !has(vm, "RestartRequired", "True")
    })
    .await;

    // The former claim is not in use any more.
    test.kubectl(&["delete", "pvc", "former", "--timeout=2m"])
        .await
        .success();
    let mut console = test.console("mover").await;
    let read = "echo 3 >/proc/sys/vm/drop_caches; \
                dd if=/dev/vdc bs=512 skip=64 count=1 2>/dev/null | grep -q kept && echo is-'kept'";
    let shown = console.shell(read).await;
    assert!(shown.contains("is-kept"), "{shown}");
    let write = "echo moved | dd of=/dev/vdc bs=512 seek=65 conv=notrunc,fsync 2>&1; sync";
    console.shell(write).await;
    drop(console);
    test.virtctl(&["restart", "mover"]).await.success();
    test.wait_new_vmi("mover", &first).await;
    let mut console = test.shell("mover").await;
    let read = "dd if=/dev/vdc bs=512 skip=64 count=1 2>/dev/null | grep -q kept && \
                dd if=/dev/vdc bs=512 skip=65 count=1 2>/dev/null | grep -q moved && echo is-'both'";
    let shown = console.shell(read).await;
    assert!(shown.contains("is-both"), "{shown}");
}

/// The copy goes to storage of the other kind, there and back.
#[tokio::test]
async fn volume_moves_between_a_file_and_a_device() {
    let test = test_namespace().await;
    for (name, mode) in [
        ("file", "Filesystem"),
        ("device", "Block"),
        ("back", "Filesystem"),
    ] {
        test.apply_object(&claim(name, mode)).await;
    }
    let volume = json!({"persistentVolumeClaim": {"claimName": "file"}});
    test.apply(&tiny_vm("changes").disk(&volume)).await;
    let mut console = test.shell("changes").await;
    let write = "echo mark-0 | dd of=/dev/vdc bs=512 seek=64 conv=notrunc,fsync 2>&1";
    console.shell(write).await;
    drop(console);
    for (round, name) in ["device", "back"].into_iter().enumerate() {
        wait_for(&test.vmis(), "changes", "migratable", |vmi| {
            has(vmi, "LiveMigratable", "True")
        })
        .await;
        put_on(&test, "changes", name).await;
        wait_for(&test.vmis(), "changes", "to be moved", |vmi| {
            has(vmi, "VolumesChange", "True")
        })
        .await;
        test.virtctl(&["migrate", "--watch", "changes"])
            .await
            .success();
        wait_for(&test.vmis(), "changes", "on its new claim", |vmi| {
            claim_of(vmi) == Some(name)
        })
        .await;
        wait_for(&test.vms(), "changes", "settled", |vm| {
            vm["status"]["volumeUpdateState"].is_null() && !has(vm, "RestartRequired", "True")
        })
        .await;
        let mut console = test.console("changes").await;
        let next = round + 1;
        let read = format!(
            "echo 3 >/proc/sys/vm/drop_caches; \
             dd if=/dev/vdc bs=512 skip=64 count=1 2>/dev/null | grep -q mark-{round} && echo is-'kept'; \
             echo mark-{next} | dd of=/dev/vdc bs=512 seek=64 conv=notrunc,fsync 2>&1"
        );
        let shown = console.shell(&read).await;
        assert!(shown.contains("is-kept"), "{name}: {shown}");
    }
}
