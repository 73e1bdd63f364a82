//! Guests that cannot start.

use e2e::{FeatureGates, VmManifest, answer, claim, tiny_vm};
use serde_json::{Value, json};

use super::{Situations, faults::with_fault, objects::bound};

const GUEST: &str = "ferrovirt/guest-tiny:devel";
const KERNEL: &str = "ferrovirt/guest-tiny-kernel:devel";

fn once(name: &str) -> VmManifest {
    tiny_vm(name).strategy("Once")
}

pub(super) async fn are_refused(test: &Situations<'_>) {
    // A directory where the disk's file should be.
    let directory = test.environment.base().join("not-a-disk");
    std::fs::create_dir_all(directory.join("disk.img")).expect("make a directory");
    bound(test, "not-a-disk", json!({"path": directory})).await;
    let keyless = [
        "create",
        "secret",
        "generic",
        "keyless",
        "--from-literal=a=b",
    ];
    test.kubectl(&keyless).await.success();

    test.apply_object(&claim("files", "Filesystem")).await;

    let seed = json!({"secretRef": {"name": "keyless"}});
    let no_kernel = json!({
        "image": GUEST, "kernelPath": "/disk/disk.qcow2", "initrdPath": "/disk/disk.qcow2"});
    test.apply_all([
        once("lun").disk_as(
            &json!({"name": "more", "lun": {"bus": "scsi"}}),
            &json!({"persistentVolumeClaim": {"claimName": "files"}}),
        ),
        once("seed").set("/spec/template/spec/volumes/1/cloudInitNoCloud", seed),
        once("diskless").image(KERNEL),
        tiny_vm("loops").image(KERNEL),
        once("directory").disk(&json!({"persistentVolumeClaim": {"claimName": "not-a-disk"}})),
        once("network").set(
            "/spec/template/spec/networks",
            json!([{"name": "default", "pod": {"vmNetworkCIDR": "10.77.0.0/31"}}]),
        ),
        once("kernel").domain("firmware", json!({"kernelBoot": {"container": no_kernel}})),
        with_fault(once("full"), "full-volume"),
    ])
    .await;
    for (name, cause, object, next) in [
        ("lun", "description-refused", "lun", "edit vm lun"),
        ("seed", "seed-unusable", "userdata", "edit vm seed"),
        ("diskless", "disk-missing", "/disk", "edit vm diskless"),
        (
            "directory",
            "disk-unusable",
            "volume more",
            "edit vm directory",
        ),
        (
            "network",
            "network-unusable",
            "10.77.0.0/31",
            "edit vm network",
        ),
        (
            "kernel",
            "start-refused",
            "kernel",
            "logs virt-launcher-kernel-",
        ),
        (
            "full",
            "pod-unreachable",
            "o space left",
            "logs virt-launcher-full-",
        ),
        (
            "loops",
            "crash-loop",
            "in a row",
            "logs -l vm.kubevirt.io/name=loops",
        ),
    ] {
        test.check(name, answer(cause, object, next)).await;
    }
    let names = [
        "lun",
        "seed",
        "diskless",
        "directory",
        "network",
        "kernel",
        "full",
        "loops",
    ];
    test.delete_vms(&names).await;
}

/// Without image volumes, an init container copies the disk, and there is no room for it.
pub(super) async fn disk_is_not_copied(test: &Situations<'_>) {
    let gates = FeatureGates::switch(test.environment.as_ref(), &[], &["ImageVolume"]).await;
    let vm = with_fault(once("uncopied"), "small-copies");
    let until = tokio::time::Instant::now() + e2e::DEADLINE;
    // The controllers observe the gate with a delay.
    loop {
        test.apply(&vm).await;
        let pods = [
            "get",
            "pods",
            "--output=json",
            "--selector=test.example/fault=small-copies",
        ];
        let pods: Value = serde_json::from_str(&test.kubectl(&pods).await.success()).expect("JSON");
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        if pods
            .iter()
            .any(|pod| pod["spec"]["initContainers"].is_array())
        {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{pods:?}");
        if !pods.is_empty() {
            let delete = ["delete", "vm", "uncopied", "--timeout=60s"];
            test.kubectl(&delete).await.success();
        }
    }
    let expected = answer("disk-not-copied", "volume root", "edit vm uncopied");
    test.check("uncopied", expected).await;
    drop(gates);
}
