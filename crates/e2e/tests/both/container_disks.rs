//! Container disks on nodes without image volumes.

use e2e::{DEADLINE, FeatureGates, VmManifest, tiny_vm, wait_for};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::TestNamespace;

const GUEST: &str = "ferrovirt/guest-tiny:devel";
const KERNEL: &str = "ferrovirt/guest-tiny-kernel:devel";

/// Restarts the VM until its pod copies the disk, since the controllers observe switched gates with a
/// delay. Returns its pod.
async fn start_copying(test: &TestNamespace, vm: &VmManifest, name: &str) -> Value {
    let until = Instant::now() + DEADLINE;
    loop {
        test.apply(vm).await;
        let pod = pod_of(test, name).await;
        if !pod["spec"]["initContainers"].is_null() {
            return pod;
        }
        assert!(
            Instant::now() < until,
            "the pod has volumes of images: {pod}"
        );
        let delete = ["delete", "vm", name, "--timeout=60s"];
        test.kubectl(&delete).await.success();
    }
}

/// Waits for the pod of the VMI.
async fn pod_of(test: &TestNamespace, name: &str) -> Value {
    let has_pod = |vmi: &Value| !matches!(vmi["status"]["phase"].as_str(), None | Some("Pending"));
    let vmi = wait_for(&test.vmis(), name, "given a pod", has_pod).await;
    let selector = format!(
        "--selector=kubevirt.io/created-by={}",
        vmi["metadata"]["uid"].as_str().unwrap_or_default()
    );
    let pods = ["get", "pods", "--output=json", &selector];
    let pods: Value =
        serde_json::from_str(&test.kubectl(&pods).await.success()).expect("read pods");
    pods["items"][0].clone()
}

#[tokio::test]
async fn vm_runs_without_image_volumes() {
    let test = TestNamespace::create_exclusive().await;
    // The copying containers satisfy the restricted pod security standard.
    let level = "pod-security.kubernetes.io/enforce=restricted";
    let label = ["label", "namespace", &test.namespace, level];
    test.kubectl(&label).await.success();
    let feature_gates =
        FeatureGates::switch(test.environment.as_ref(), &[], &["ImageVolume"]).await;
    let more = json!({"containerDisk": {"image": GUEST, "path": "/disk/disk.qcow2"}});
    let copied = tiny_vm("copied").disk(&more);
    let pod = start_copying(&test, &copied, "copied").await;
    let volumes = pod["spec"]["volumes"].as_array().expect("volumes");
    assert!(
        volumes.iter().all(|volume| volume["image"].is_null()),
        "{volumes:?}"
    );

    // It runs from one copy, and reads and writes the other.
    let mut console = test.shell("copied").await;
    let mut sums = Vec::new();
    for disk in ["vda", "vdc"] {
        let sum = format!("dd if=/dev/{disk} bs=1M count=8 2>/dev/null | md5sum");
        sums.push(console.shell(&sum).await);
    }
    assert_eq!(sums[0], sums[1], "{sums:?}");
    let write = "echo kept | dd of=/dev/vdc bs=512 seek=64 conv=notrunc,fsync 2>&1";
    console.shell(write).await;
    let read = "dd if=/dev/vdc bs=512 skip=64 count=1 2>/dev/null | grep -c kept";
    assert_eq!(console.shell(read).await, "1");

    // A restart copies the image again, without the guest's writes.
    let first = test.wait_vmi_phase("copied", "Running").await;
    test.virtctl(&["restart", "copied"]).await.success();
    test.wait_new_vmi("copied", &first).await;
    let mut console = test.shell("copied").await;
    assert_eq!(console.shell(read).await, "0");

    // A kernel image is copied as well.
    let files =
        json!({"image": KERNEL, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"});
    let firmware =
        json!({"kernelBoot": {"container": files, "kernelArgs": "console=ttyS0 quiet marker"}});
    test.apply(&tiny_vm("direct").domain("firmware", firmware))
        .await;
    let mut console = test.shell("direct").await;
    let command_line = console.shell("cat /proc/cmdline").await;
    assert!(command_line.ends_with("marker"), "{command_line}");
    drop(feature_gates);
}

#[tokio::test]
async fn image_without_disk_is_reported_without_image_volumes() {
    let test = TestNamespace::create_exclusive().await;
    let feature_gates =
        FeatureGates::switch(test.environment.as_ref(), &[], &["ImageVolume"]).await;
    let once = |name: &str| tiny_vm(name).strategy("Once");
    let empty = once("empty").image(KERNEL);
    start_copying(&test, &empty, "empty").await;
    is_reported(
        &test,
        "empty",
        "volume root: there is no file in /disk of the image",
    )
    .await;

    let cases = [
        ("gone", "/disk/other.img", "there is no such file"),
        ("outside", "/proc/self/environ", "it leads out of the image"),
    ];
    for (name, path, why) in cases {
        let disk = json!({"image": GUEST, "path": path});
        let bad = once(name).set("/spec/template/spec/volumes/0/containerDisk", disk);
        test.apply(&bad).await;
        is_reported(&test, name, &format!("use {path} of the image: {why}")).await;
    }
    drop(feature_gates);
}

/// Waits until the VMI has failed with this message, in its condition and in `virtctl why`.
async fn is_reported(test: &TestNamespace, name: &str, expected: &str) {
    let vmi = test.wait_vmi_phase(name, "Failed").await;
    let all = vmi["status"]["conditions"].as_array().expect("conditions");
    let mut all = all.iter();
    let condition = all
        .find(|one| one["type"] == "Synchronized")
        .unwrap_or(&Value::Null);
    assert_eq!(condition["reason"], "ContainerDiskMissing", "{vmi}");
    let message = condition["message"].as_str().unwrap_or_default();
    assert!(message.contains(expected), "{message}");
    let why = test.virtctl(&["why", name, "--output=json"]).await;
    let why = format!("{why:?}");
    assert!(
        why.contains("disk-missing") && why.contains(expected),
        "{why}"
    );
}
