//! Guests move to new pods of the host while they run.

use std::{slice, sync::Arc};

use e2e::{GuestProcesses, Host, Serial, claim, reading, tiny_vm, wait_for};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{TestNamespace, hotplug, test_namespace};

const ROUNDS: usize = 2;
/// Another name of the image that hosts use by default.
const NEW_LAUNCHER: &str = "docker.io/ferrovirt/virt-launcher:devel";

/// Waits until the guest can move to another pod.
async fn wait_migratable(test: &TestNamespace, vm: &str) {
    let is_migratable = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        let found = all.find(|one| one["type"] == "LiveMigratable");
        found.is_some_and(|one| one["status"] == "True" && one["reason"] == "OnlyWithinNode")
    };
    wait_for(&test.vmis(), vm, "migratable", is_migratable).await;
}

/// Waits until the VMI has one pod only, and returns that pod's UID.
async fn wait_settled(test: &TestNamespace, vm: &str) -> String {
    let is_settled = |vmi: &Value| {
        let active = vmi["status"]["activePods"].as_object();
        active.is_some_and(|active| active.len() == 1)
    };
    let vmi = wait_for(&test.vmis(), vm, "one active pod", is_settled).await;
    let active = vmi["status"]["activePods"].as_object();
    let uid = active.and_then(|active| active.keys().next());
    uid.expect("there is a pod").clone()
}

#[tokio::test]
async fn counting_guest_moves_to_new_pods_with_its_claim() {
    let test = test_namespace().await;
    test.apply_object(&claim("data", "Filesystem")).await;
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    test.apply(&tiny_vm("mobile").disk(&volume)).await;
    let mut console = test.shell("mobile").await;
    let write = "echo kept | dd of=/dev/vdc bs=512 seek=64 conv=notrunc,fsync 2>&1";
    console.shell(write).await;
    console.send("count &\n").await;
    console.expect("count 3").await;
    drop(console);
    let first = test.wait_vmi_phase("mobile", "Running").await;
    let mut serial = Serial::of(&first);
    serial.goes_on(&test).await;
    let mut seen = GuestProcesses::of(&test.namespace);
    let moves = async {
        for round in 0..ROUNDS {
            wait_migratable(&test, "mobile").await;
            let before = wait_settled(&test, "mobile").await;
            let began = Instant::now();
            serial.read(&test);
            serial.longest_silence();
            let watch = test.virtctl(&["migrate", "--watch", "mobile"]);
            let shown = reading(&test, slice::from_mut(&mut serial), watch).await;
            println!(
                "move {round} took {:.1?}; the guest was silent for {:.1?} at most",
                began.elapsed(),
                serial.longest_silence()
            );
            let shown = shown.success();
            assert!(
                shown.contains("Succeeded: VM mobile runs in pod "),
                "{shown}"
            );
            serial.goes_on(&test).await;
            let after = wait_settled(&test, "mobile").await;
            assert_ne!(after, before, "{round}");
            let pods = test.pod_list().await;
            assert_eq!(pods.len(), 1, "{pods:?}");
            let now = test.wait_vmi_phase("mobile", "Running").await;
            assert_eq!(now["metadata"]["uid"], first["metadata"]["uid"]);
            assert_eq!(now["status"]["nodeName"], first["status"]["nodeName"]);
        }
    };
    seen.during(moves).await;
    assert_eq!(seen.overlaps(), [""; 0]);
    assert_eq!(seen.lifetimes("mobile"), ROUNDS + 1);

    let mut console = test.console("mobile").await;
    let read = "echo 3 >/proc/sys/vm/drop_caches; \
                dd if=/dev/vdc bs=512 skip=64 count=1 2>/dev/null | grep -q kept && echo is-'kept'";
    let shown = console.shell(read).await;
    assert!(shown.contains("is-kept"), "{shown}");
    let write =
        "echo moved | dd of=/dev/vdc bs=512 seek=65 conv=notrunc,fsync 2>&1 && echo is-'moved'";
    let shown = console.shell(write).await;
    assert!(shown.contains("is-moved"), "{shown}");

    // Beside a stop and a start.
    let began = Instant::now();
    test.virtctl(&["restart", "mobile"]).await.success();
    test.wait_new_vmi("mobile", &first).await;
    test.greeting("mobile").await;
    println!("stop and start took {:.1?}", began.elapsed());
}

#[tokio::test]
async fn attached_volume_moves_with_its_guest() {
    let test = test_namespace().await;
    test.apply_object(&claim("extra", "Filesystem")).await;
    test.apply(&tiny_vm("carries")).await;
    let mut console = test.shell("carries").await;
    hotplug::attach(&test, "carries", "extra").await;
    hotplug::waits_for(&test, "carries", "extra", Some("Ready")).await;
    let write = "i=0; while [ ! -b /dev/vdc ] && [ $i -lt 100 ]; do usleep 100000; i=$((i+1)); done; \
                 echo kept | dd of=/dev/vdc bs=512 seek=64 conv=notrunc,fsync 2>&1";
    console.shell(write).await;
    drop(console);
    let first = test.wait_vmi_phase("carries", "Running").await;
    let mut seen = GuestProcesses::of(&test.namespace);
    let moves = async {
        wait_migratable(&test, "carries").await;
        let shown = test.virtctl(&["migrate", "--watch", "carries"]).await;
        let shown = shown.success();
        assert!(shown.contains("Succeeded"), "{shown}");
        wait_settled(&test, "carries").await;
    };
    seen.during(moves).await;
    assert_eq!(seen.overlaps(), [""; 0]);
    let now = test.wait_vmi_phase("carries", "Running").await;
    assert_eq!(now["metadata"]["uid"], first["metadata"]["uid"]);
    let mut console = test.console("carries").await;
    let read = "echo 3 >/proc/sys/vm/drop_caches; \
                dd if=/dev/vdc bs=512 skip=64 count=1 2>/dev/null | grep -q kept && echo is-'kept'; \
                echo moved | dd of=/dev/vdc bs=512 seek=65 conv=notrunc,fsync 2>&1 && echo is-'moved'";
    let shown = console.shell(read).await;
    assert!(
        shown.contains("is-kept") && shown.contains("is-moved"),
        "{shown}"
    );
    // It leaves the guest in its new pod as in any.
    hotplug::waits_for(&test, "carries", "extra", Some("Ready")).await;
    hotplug::detach(&test, "carries", "extra").await;
    hotplug::waits_for(&test, "carries", "extra", None).await;
}

#[tokio::test]
async fn guests_move_into_pods_with_the_new_launcher() {
    let host = Arc::new(Host::up().await);
    let test = TestNamespace::on(Arc::clone(&host)).await;
    let mut serials = Vec::new();
    let names = ["first", "second"];
    for name in names {
        test.apply(&tiny_vm(name)).await;
        let mut console = test.shell(name).await;
        console.send("count\n").await;
        console.expect("count 3").await;
        let vmi = test.wait_vmi_phase(name, "Running").await;
        serials.push(Serial::of(&vmi));
        wait_migratable(&test, name).await;
    }
    let strategy =
        r#"{"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}}}"#;
    let patch = [
        "patch",
        "kubevirt",
        "kubevirt",
        "-n",
        "kubevirt",
        "--type=merge",
        "-p",
        strategy,
    ];
    test.kubectl(&patch).await.success();
    let mut seen = GuestProcesses::of(&test.namespace);
    let update = async {
        host.kill();
        let flag = format!("--launcher-image={NEW_LAUNCHER}");
        host.start(&[&flag]).await.success();
        for name in names {
            let has_it =
                |vmi: &Value| vmi["status"]["launcherContainerImageVersion"] == NEW_LAUNCHER;
            wait_for(&test.vmis(), name, "updated", has_it).await;
            wait_settled(&test, name).await;
        }
    };
    let began = Instant::now();
    let (vms, reader) = (&test, &mut serials);
    Box::pin(seen.during(reading(vms, reader, update))).await;
    println!("two guests were updated in {:.1?}", began.elapsed());
    for serial in &mut serials {
        serial.goes_on(&test).await;
    }
    assert_eq!(seen.overlaps(), [""; 0]);
    for name in names {
        assert_eq!(seen.lifetimes(name), 2, "{name}");
    }
}
