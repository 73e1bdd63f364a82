//! Disks come out of images where nodes mount none, too.

use serde_json::{Value, json};
use stories::{DEADLINE, Gates, Machine, machine, wait_for};
use tokio::time::Instant;

use crate::Story;

const GUEST: &str = "ferrovirt/guest-tiny:devel";
const KERNEL: &str = "ferrovirt/guest-tiny-kernel:devel";

/// Starts the machine, as often as it takes until its pod copies: the controllers hear of the gates a
/// moment after they were switched. Its pod.
async fn start_copying(story: &Story, machine: &Machine, name: &str) -> Value {
    let until = Instant::now() + DEADLINE;
    loop {
        story.apply(machine).await;
        let pod = pod_of(story, name).await;
        if !pod["spec"]["initContainers"].is_null() {
            return pod;
        }
        assert!(
            Instant::now() < until,
            "the pod has volumes of images: {pod}"
        );
        let delete = ["delete", "vm", name, "--timeout=60s"];
        story.kubectl(&delete).await.good();
    }
}

/// The pod of the instance that there is or is to come.
async fn pod_of(story: &Story, name: &str) -> Value {
    let has_pod = |vmi: &Value| !matches!(vmi["status"]["phase"].as_str(), None | Some("Pending"));
    let vmi = wait_for(&story.vmis(), name, "given a pod", has_pod).await;
    let selector = format!(
        "--selector=kubevirt.io/created-by={}",
        vmi["metadata"]["uid"].as_str().unwrap_or_default()
    );
    let pods = ["get", "pods", "--output=json", &selector];
    let pods: Value = serde_json::from_str(&story.kubectl(&pods).await.good()).expect("read pods");
    pods["items"][0].clone()
}

#[tokio::test]
async fn a_machine_runs_where_nodes_mount_no_images() {
    let story = Story::alone().await;
    // The copies stay within what the strictest namespaces allow.
    let level = "pod-security.kubernetes.io/enforce=restricted";
    let label = ["label", "namespace", &story.namespace, level];
    story.kubectl(&label).await.good();
    let gates = Gates::switch(story.home.as_ref(), &[], &["ImageVolume"]).await;
    let more = json!({"containerDisk": {"image": GUEST, "path": "/disk/disk.qcow2"}});
    let copied = machine("copied").disk(&more);
    let pod = start_copying(&story, &copied, "copied").await;
    let volumes = pod["spec"]["volumes"].as_array().expect("volumes");
    assert!(
        volumes.iter().all(|volume| volume["image"].is_null()),
        "{volumes:?}"
    );

    // It runs from the one copy, and reads and writes over the other.
    let mut console = story.shell("copied").await;
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

    // A restart copies again, from what the image holds and not from what the guest wrote.
    let first = story.vmi_is("copied", "Running").await;
    story.virtctl(&["restart", "copied"]).await.good();
    story.runs_again("copied", &first).await;
    let mut console = story.shell("copied").await;
    assert_eq!(console.shell(read).await, "0");

    // So does a kernel, which has no disk to come from.
    let files =
        json!({"image": KERNEL, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"});
    let firmware =
        json!({"kernelBoot": {"container": files, "kernelArgs": "console=ttyS0 quiet told"}});
    story
        .apply(&machine("direct").domain("firmware", firmware))
        .await;
    let mut console = story.shell("direct").await;
    let told = console.shell("cat /proc/cmdline").await;
    assert!(told.ends_with("told"), "{told}");
    drop(gates);
}

#[tokio::test]
async fn an_image_without_a_disk_is_told_where_nodes_mount_no_images() {
    let story = Story::alone().await;
    let gates = Gates::switch(story.home.as_ref(), &[], &["ImageVolume"]).await;
    let once = |name: &str| machine(name).strategy("Once");
    let empty = once("empty").image(KERNEL);
    start_copying(&story, &empty, "empty").await;
    is_told(
        &story,
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
        story.apply(&bad).await;
        is_told(&story, name, &format!("use {path} of the image: {why}")).await;
    }
    drop(gates);
}

/// Waits until the instance has failed; it and `virtctl why` say so in those words.
async fn is_told(story: &Story, name: &str, words: &str) {
    let vmi = story.vmi_is(name, "Failed").await;
    let all = vmi["status"]["conditions"].as_array().expect("conditions");
    let mut all = all.iter();
    let told = all
        .find(|one| one["type"] == "Synchronized")
        .unwrap_or(&Value::Null);
    assert_eq!(told["reason"], "ContainerDiskMissing", "{vmi}");
    let message = told["message"].as_str().unwrap_or_default();
    assert!(message.contains(words), "{message}");
    let why = story.virtctl(&["why", name, "--output=json"]).await;
    let why = format!("{why:?}");
    assert!(why.contains("disk-missing") && why.contains(words), "{why}");
}
