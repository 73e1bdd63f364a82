//! Disk images that users bring: from a web server, an image, another claim, or blank.

use std::{convert::Infallible, future::ready};

use axum::{
    Router,
    body::{Body, Bytes},
    http::header::CONTENT_LENGTH,
    response::Response,
    routing::get,
};
use e2e::{VmManifest, answer, images, tiny_vm, wait_for};
use futures::stream::pending;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{TestNamespace, test_namespace};

/// A web server with the tiny guest, which pods can reach; it ends with the test.
struct Server {
    address: String,
    checksum: String,
    _stop: DropGuard,
}

impl Server {
    async fn up(test: &TestNamespace) -> Self {
        let disk = std::fs::read(images().join("guest-tiny.qcow2")).expect("read the tiny guest");
        let checksum = format!("sha256:{}", hex::encode(Sha256::digest(&disk)));
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("find a port");
        let port = listener.local_addr().expect("it has an address").port();
        let disk = Bytes::from(disk);
        let router = Router::new()
            .route("/tiny.qcow2", get(move || ready(disk.clone())))
            .route("/slow.qcow2", get(slow));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let served = axum::serve(listener, router).with_graceful_shutdown(stopped);
        TaskTracker::new().spawn(async move {
            served.await.expect("serve the tiny guest");
        });
        Self {
            address: format!("http://{}:{port}", test.environment.gateway()),
            checksum,
            _stop: stop.drop_guard(),
        }
    }
}

/// A response that never goes on.
async fn slow() -> Response {
    let body = Body::from_stream(pending::<Result<Bytes, Infallible>>());
    let response = Response::builder().header(CONTENT_LENGTH, 1_000_000);
    response.body(body).expect("a response")
}

fn data_volume(name: &str, source: &Value, size: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {
            "name": name,
            // No VM waits for it.
            "annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"},
        },
        "spec": {
            "source": source,
            "storage": {"resources": {"requests": {"storage": size}}},
        },
    })
}

fn web(server: &Server, path: &str) -> Value {
    json!({"http": {"url": format!("{}/{path}", server.address)}})
}

fn with_checksum(mut volume: Value, checksum: &str) -> Value {
    volume["metadata"]["annotations"]["ferrovirt.io/import-checksum"] = checksum.into();
    volume
}

/// A tiny guest whose first disk is a data volume.
fn guest_on(name: &str, volume: &str) -> VmManifest {
    let source = json!({"name": "root", "dataVolume": {"name": volume}});
    tiny_vm(name).set("/spec/template/spec/volumes/0", source)
}

async fn wait_phase(test: &TestNamespace, name: &str, phase: &str) -> Value {
    let volumes = test.objects("cdi.kubevirt.io", "v1beta1", "DataVolume");
    wait_for(&volumes, name, phase, |volume| {
        volume["status"]["phase"] == phase
    })
    .await
}

/// Waits until the condition `Running` has the reason, and returns its message.
async fn wait_reason(test: &TestNamespace, name: &str, reason: &str) -> String {
    let running = |volume: &Value| {
        let all = volume["status"]["conditions"].as_array().cloned();
        let mut all = all.unwrap_or_default().into_iter();
        all.find(|one| one["type"] == "Running").unwrap_or_default()
    };
    let volumes = test.objects("cdi.kubevirt.io", "v1beta1", "DataVolume");
    let found = wait_for(&volumes, name, reason, |volume| {
        running(volume)["reason"] == reason
    });
    let found = running(&found.await);
    found["message"].as_str().unwrap_or_default().to_owned()
}

/// The mark of a claim with data.
async fn is_populated(test: &TestNamespace, claim: &str) -> bool {
    let found = test.kubectl(&["get", "pvc", claim, "-o", "json"]).await;
    let found: Value = serde_json::from_str(&found.success()).expect("JSON");
    found["metadata"]["annotations"]["cdi.kubevirt.io/storage.populatedFor"] == claim
}

#[tokio::test]
async fn guest_boots_from_an_image_of_a_web_server() {
    let test = test_namespace().await;
    let server = Server::up(&test).await;
    let volume = data_volume("disk", &web(&server, "tiny.qcow2"), "128Mi");
    test.apply_object(&with_checksum(volume, &server.checksum))
        .await;
    let done = wait_phase(&test, "disk", "Succeeded").await;
    assert_eq!(done["status"]["progress"], "100.0%", "{done}");
    assert!(is_populated(&test, "disk").await);
    test.apply(&guest_on("guest", "disk")).await;
    let mut console = test.shell("guest").await;
    let size = console.shell("cat /sys/block/vda/size").await;
    assert_eq!(size, "262144", "128 MiB in sectors");

    // A copy waits until the guest is off.
    let copied = json!({"pvc": {"namespace": test.namespace, "name": "disk"}});
    test.apply_object(&data_volume("copy", &copied, "128Mi"))
        .await;
    let message = wait_reason(&test, "copy", "CloneSourceInUse").await;
    assert!(message.contains("Stop the VM"), "{message}");
    test.virtctl(&["stop", "guest", "--grace-period", "0", "--force"])
        .await
        .success();
    wait_phase(&test, "copy", "Succeeded").await;
    test.apply(&guest_on("twin", "copy")).await;
    test.greeting("twin").await;
    test.delete_vms(&["guest", "twin"]).await;
    test.kubectl(&["delete", "datavolume", "disk", "copy"])
        .await
        .success();
    for claim in ["disk", "copy"] {
        let claims = test.objects("", "v1", "PersistentVolumeClaim");
        test.wait_gone(&claims, claim).await;
    }
}

/// Through an export: no pod has claims of two namespaces.
#[tokio::test]
async fn disk_of_another_namespace_is_copied() {
    let test = test_namespace().await;
    let images = test.beside().await;
    let server = Server::up(&images).await;
    let volume = data_volume("disk", &web(&server, "tiny.qcow2"), "128Mi");
    images.apply_object(&volume).await;
    wait_phase(&images, "disk", "Succeeded").await;
    let copied = json!({"pvc": {"namespace": images.namespace, "name": "disk"}});
    test.apply_object(&data_volume("copy", &copied, "128Mi"))
        .await;
    let done = wait_phase(&test, "copy", "Succeeded").await;
    let uid = done["metadata"]["uid"].as_str().expect("it has a UID");
    let exports = images.objects("export.kubevirt.io", "v1", "VirtualMachineExport");
    images.wait_gone(&exports, &format!("copy-{uid}")).await;
    test.apply(&guest_on("twin", "copy")).await;
    test.greeting("twin").await;
    test.delete_vms(&["twin"]).await;
}

#[tokio::test]
async fn vm_brings_its_image_by_a_template() {
    let test = test_namespace().await;
    let server = Server::up(&test).await;
    let mut template = data_volume("guest-disk", &web(&server, "tiny.qcow2"), "128Mi");
    template["metadata"]["annotations"] = json!({});
    let mut vm = guest_on("guest", "guest-disk").into_object();
    vm["spec"]["dataVolumeTemplates"] = json!([template]);
    test.apply_object(&vm).await;
    test.greeting("guest").await;
    // The data volume and its claim end with the VM.
    test.delete_vms(&["guest"]).await;
    let claims = test.objects("", "v1", "PersistentVolumeClaim");
    test.wait_gone(&claims, "guest-disk").await;
}

#[tokio::test]
async fn guest_boots_from_a_disk_of_an_image() {
    let test = test_namespace().await;
    let image = json!({"registry": {"url": "docker://ferrovirt/guest-tiny:devel"}});
    test.apply_object(&data_volume("disk", &image, "128Mi"))
        .await;
    let blank = data_volume("blank", &json!({"blank": {}}), "16Mi");
    test.apply_object(&blank).await;
    wait_phase(&test, "disk", "Succeeded").await;
    wait_phase(&test, "blank", "Succeeded").await;
    let data = json!({"dataVolume": {"name": "blank"}});
    test.apply(&guest_on("guest", "disk").disk(&data)).await;
    let mut console = test.shell("guest").await;
    let size = console.shell("cat /sys/block/vdc/size").await;
    assert_eq!(size, "32768", "16 MiB in sectors");
}

#[tokio::test]
async fn failed_import_says_why_and_leaves_no_disk() {
    let test = test_namespace().await;
    let server = Server::up(&test).await;
    let zeros = format!("sha256:{}", "0".repeat(64));
    let wrong = data_volume("wrong", &web(&server, "tiny.qcow2"), "128Mi");
    test.apply_object(&with_checksum(wrong, &zeros)).await;
    let missing = data_volume("missing", &web(&server, "nothing.qcow2"), "128Mi");
    test.apply_object(&missing).await;
    let small = data_volume("small", &web(&server, "tiny.qcow2"), "1Mi");
    test.apply_object(&small).await;

    let message = wait_reason(&test, "missing", "ImportSourceNotFound").await;
    assert!(message.contains("Correct the address"), "{message}");
    let message = wait_reason(&test, "wrong", "ImportChecksumMismatch").await;
    assert!(message.contains("Correct the checksum"), "{message}");
    wait_phase(&test, "wrong", "Failed").await;
    let message = wait_reason(&test, "small", "DiskDoesNotFit").await;
    assert!(message.contains("Use a larger volume"), "{message}");
    wait_phase(&test, "small", "Failed").await;
    for claim in ["wrong", "missing", "small"] {
        assert!(!is_populated(&test, claim).await, "{claim}");
    }
    // The cause is found from the VM that needs the disk.
    test.apply(&guest_on("guest", "missing")).await;
    let failed = answer(
        "data-volume-failed",
        "missing",
        "describe datavolume missing",
    );
    test.why_answers("guest", failed).await;
}

#[tokio::test]
async fn slow_import_is_the_cause_that_its_guest_waits() {
    let test = test_namespace().await;
    let server = Server::up(&test).await;
    let slow = data_volume("slow", &web(&server, "slow.qcow2"), "128Mi");
    test.apply_object(&slow).await;
    wait_phase(&test, "slow", "ImportInProgress").await;
    test.apply(&guest_on("guest", "slow")).await;
    let importing = answer(
        "data-volume-importing",
        "slow",
        "get datavolume slow --watch",
    );
    test.why_answers("guest", importing).await;
    // Nothing is left of an import that was not finished.
    test.delete_vms(&["guest"]).await;
    test.kubectl(&["delete", "datavolume", "slow"])
        .await
        .success();
    let claims = test.objects("", "v1", "PersistentVolumeClaim");
    test.wait_gone(&claims, "slow").await;
    let left = test.pod_list().await;
    assert!(left.is_empty(), "{left:?}");
}
