//! Disk images that users upload with virtctl.

use std::sync::Arc;

use e2e::{Host, VmManifest, images, kill_in_pod, tiny_vm, wait_for};
use serde_json::{Value, json};
use serving::{HttpsClient, Target, Trust};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::task::TaskTracker;

use crate::{TestNamespace, test_namespace};

fn tiny_image() -> String {
    let path = images().join("guest-tiny.qcow2");
    path.to_str().expect("a path of text").to_owned()
}

/// A tiny guest whose first disk is a claim.
fn guest_on(name: &str, claim: &str) -> VmManifest {
    let claim = json!({"claimName": claim});
    let source = json!({"name": "root", "persistentVolumeClaim": claim});
    tiny_vm(name).set("/spec/template/spec/volumes/0", source)
}

async fn claim(test: &TestNamespace, name: &str) -> Value {
    let found = test.kubectl(&["get", "pvc", name, "-o", "json"]).await;
    serde_json::from_str(&found.success()).expect("JSON")
}

async fn wait_data_volume(
    test: &TestNamespace,
    name: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool + Send,
) -> Value {
    let volumes = test.objects("cdi.kubevirt.io", "v1beta1", "DataVolume");
    wait_for(&volumes, name, what, move |volume| holds(&volume["status"])).await
}

/// The condition `Running` of a data volume.
fn running(status: &Value) -> Value {
    let all = status["conditions"].as_array().cloned();
    let mut all = all.unwrap_or_default().into_iter();
    all.find(|one| one["type"] == "Running").unwrap_or_default()
}

/// The pod that receives the upload: name and UID.
async fn receiver(test: &TestNamespace) -> (String, String) {
    let pods = test.pod_list().await.into_iter();
    let mut found = pods.filter(|(name, _)| name.starts_with("upload-"));
    found.next().expect("there is a pod of the upload")
}

/// Sends the half of a large file, and leaves the connection open.
async fn send_half(test: &TestNamespace, claim: &str) -> impl AsyncRead + AsyncWrite + Unpin {
    const MIB: usize = 1 << 20;
    let config = test.kubectl(&["get", "cdiconfig", "config", "-o", "json"]);
    let config: Value = serde_json::from_str(&config.await.success()).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let authority = text(&config["status"]["uploadProxyCA"]);
    let address = text(&config["status"]["uploadProxyURL"]);
    let address = address.strip_prefix("https://").expect("it is secure");
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": {"name": "token"}, "spec": {"pvcName": claim},
    })
    .to_string();
    let arguments = [
        "create",
        "--filename=-",
        "--output=jsonpath={.status.token}",
    ];
    let token = test.kubectl_with(&arguments, request.as_bytes());
    let token = token.await.success();
    let trust = Trust::from_pem(authority);
    let client = HttpsClient::new(&trust, None, TaskTracker::new()).expect("a client");
    let (host, port) = address.rsplit_once(':').expect("an address with a port");
    let target = Target::host(host, port.parse().expect("a port"));
    let mut stream = client.connect(&target).await.expect("reach the proxy");
    let head = format!(
        "POST /v1beta1/upload HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-length: {}\r\n\r\n",
        96 * MIB
    );
    stream.write_all(head.as_bytes()).await.expect("send");
    // More than the buffers on the way take.
    let part = vec![7; MIB];
    for _ in 0..48 {
        stream.write_all(&part).await.expect("send");
    }
    stream.flush().await.expect("send");
    stream
}

async fn wait_no_upload_pod(test: &TestNamespace) {
    let pods = test.objects("", "v1", "Pod");
    for (name, _) in test.pod_list().await {
        if name.starts_with("upload-") {
            test.wait_gone(&pods, &name).await;
        }
    }
}

#[tokio::test]
async fn guest_boots_from_an_uploaded_image() {
    let test = test_namespace().await;
    let image = tiny_image();
    test.virtctl(&[
        "image-upload",
        "dv",
        "disk",
        "--image-path",
        &image,
        "--size",
        "128Mi",
        "--force-bind",
    ])
    .await
    .success();
    let done = |status: &Value| status["phase"] == "Succeeded";
    wait_data_volume(&test, "disk", "Succeeded", done).await;
    let notes = claim(&test, "disk").await["metadata"]["annotations"].clone();
    assert_eq!(notes["cdi.kubevirt.io/storage.populatedFor"], "disk");
    wait_no_upload_pod(&test).await;
    test.apply(&guest_on("guest", "disk")).await;
    test.greeting("guest").await;
    test.delete_vms(&["guest"]).await;
}

#[tokio::test]
async fn unusable_image_is_refused_and_the_claim_takes_another() {
    let test = test_namespace().await;
    let folder = tempfile::tempdir().expect("a directory");
    let wrong = folder.path().join("wrong.qcow2");
    let mut bytes = std::fs::read(tiny_image()).expect("read the tiny guest");
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&wrong, bytes).expect("write half of it");
    let wrong = wrong.to_str().expect("a path of text");
    let upload = ["image-upload", "pvc", "disk", "--image-path"];
    let first = [&upload[..], &[wrong, "--size", "128Mi", "--force-bind"]].concat();
    let message = test.virtctl(&first).await.failure();
    assert!(message.contains("the image is damaged"), "{message}");
    let phase = "cdi.kubevirt.io/storage.pod.phase";
    let notes = claim(&test, "disk").await["metadata"]["annotations"].clone();
    assert_eq!(notes[phase], "Running");
    let image = tiny_image();
    let second = [&upload[..], &[&image, "--no-create"]].concat();
    test.virtctl(&second).await.success();
    test.apply(&guest_on("guest", "disk")).await;
    test.greeting("guest").await;
    test.delete_vms(&["guest"]).await;
    // A claim that has its disk receives no other one.
    let message = test.virtctl(&second).await.failure();
    assert!(message.contains("its data is there already"), "{message}");
}

#[tokio::test]
async fn image_that_does_not_fit_is_refused_with_a_condition() {
    let test = test_namespace().await;
    let image = tiny_image();
    let upload = ["image-upload", "dv", "small", "--image-path", &image];
    let arguments = [&upload[..], &["--size", "1Mi", "--force-bind"]].concat();
    let message = test.virtctl(&arguments).await.failure();
    assert!(message.contains("larger than the"), "{message}");
    let status = wait_data_volume(&test, "small", "refused", |status| {
        running(status)["reason"] == "UploadRefused"
    });
    let status = status.await["status"].clone();
    assert_eq!(status["phase"], "UploadReady");
    let message = running(&status)["message"].clone();
    let message = message.as_str().unwrap_or_default();
    for part in ["larger than the", "the volume takes another file"] {
        assert!(message.contains(part), "{message}");
    }
    let notes = claim(&test, "small").await["metadata"]["annotations"].clone();
    assert!(notes["cdi.kubevirt.io/storage.populatedFor"].is_null());
    // Nothing is left of it.
    let deleted = ["delete", "datavolume", "small", "--cascade=foreground"];
    test.kubectl(&deleted).await.success();
    wait_no_upload_pod(&test).await;
}

#[tokio::test]
async fn upload_that_was_cut_or_killed_can_be_sent_again() {
    let host = Arc::new(Host::up().await);
    let test = TestNamespace::on(Arc::clone(&host)).await;
    test.apply_object(&json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {
            "name": "disk",
            "annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"},
        },
        "spec": {
            "source": {"upload": {}},
            "storage": {"resources": {"requests": {"storage": "128Mi"}}},
        },
    }))
    .await;
    let is_ready = |status: &Value| status["phase"] == "UploadReady";
    wait_data_volume(&test, "disk", "ready", is_ready).await;
    let (pod, uid) = receiver(&test).await;

    // The client goes away.
    drop(send_half(&test, "disk").await);

    // The process that receives the file is killed.
    let mut half = send_half(&test, "disk").await;
    kill_in_pod(&uid, "disk-import");
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    wait_for(&test.pods(), &pod, "restarted", |pod| {
        let container = &pod["status"]["containerStatuses"][0];
        container["restartCount"] == 1 && !container["state"]["running"].is_null()
    })
    .await;
    wait_data_volume(&test, "disk", "ready", is_ready).await;

    // The proxy, virt-handler, virt-controller and the API server are killed: one process here.
    let half = send_half(&test, "disk").await;
    host.kill();
    drop(half);
    host.start(&[]).await.success();
    wait_data_volume(&test, "disk", "ready", is_ready).await;
    assert_eq!(receiver(&test).await, (pod, uid));

    let notes = claim(&test, "disk").await["metadata"]["annotations"].clone();
    assert!(notes["cdi.kubevirt.io/storage.populatedFor"].is_null());
    let image = tiny_image();
    let upload = ["image-upload", "dv", "disk", "--image-path", &image];
    let arguments = [&upload[..], &["--no-create"]].concat();
    test.virtctl(&arguments).await.success();
    let done = |status: &Value| status["phase"] == "Succeeded";
    wait_data_volume(&test, "disk", "Succeeded", done).await;
    wait_no_upload_pod(&test).await;
    test.apply(&guest_on("guest", "disk")).await;
    test.greeting("guest").await;
    test.delete_vms(&["guest"]).await;
}
