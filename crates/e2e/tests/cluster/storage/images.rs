//! A disk image on its way into the cluster, out of it, and in again.

use std::path::Path;

use e2e::{Environment as _, NAMESPACE, Terminal, VmManifest, images, tiny_vm, wait_for};
use serde_json::{Value, json};
use tokio::process::Command;

use super::wait_importer;
use crate::{TestNamespace, test_namespace};

const TOKEN: &str = "x-kubevirt-export-token";

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// A port of this host that leads to the upload proxy, as long as the program runs.
async fn forwarded_proxy(test: &TestNamespace) -> (Terminal, String) {
    let mut command = Command::new("kubectl");
    command
        .env("KUBECONFIG", test.environment.kubeconfig())
        .args(["--namespace", NAMESPACE, "port-forward"])
        .args(["--address=127.0.0.1", "service/virt-uploadproxy", ":443"]);
    let mut forwarding = Terminal::start(&mut command);
    forwarding.expect("Forwarding from 127.0.0.1:").await;
    let port = forwarding.expect(" -> ").await;
    let port = port.trim_end_matches(" -> ").to_owned();
    (forwarding, format!("https://127.0.0.1:{port}"))
}

/// A tiny guest whose first disk is a data volume.
fn guest_on(name: &str, volume: &str) -> VmManifest {
    let source = json!({"name": "root", "dataVolume": {"name": volume}});
    tiny_vm(name).set("/spec/template/spec/volumes/0", source)
}

async fn wait_populated(test: &TestNamespace, name: &str) {
    let volumes = test.objects("cdi.kubevirt.io", "v1beta1", "DataVolume");
    let is_done = |volume: &Value| volume["status"]["phase"] == "Succeeded";
    wait_for(&volumes, name, "Succeeded", is_done).await;
}

/// The raw disk of a claim, through a port that virtctl forwards to the server of its export.
async fn download(test: &TestNamespace, claim: &str, to: &Path) -> Vec<u8> {
    let export = format!("of-{claim}");
    let download = ["vmexport", "download", &export, "--pvc", claim];
    let more = [
        "--keep-vme",
        "--format",
        "raw",
        "--port-forward",
        "--output",
        text(to),
    ];
    test.virtctl(&[&download[..], &more].concat())
        .await
        .success();
    std::fs::read(to).expect("read the disk")
}

/// A data volume that a pod fetches from the server of the export, by its link for pods.
async fn import(test: &TestNamespace, export: &str, name: &str) {
    let exports = test.objects("export.kubevirt.io", "v1", "VirtualMachineExport");
    let is_ready = |export: &Value| export["status"]["phase"] == "Ready";
    let status = wait_for(&exports, export, "ready", is_ready).await["status"].take();
    let link = &status["links"]["internal"];
    assert!(
        status["links"]["external"].is_null(),
        "the cluster has no ingress: {status}"
    );
    let given = |value: &Value| value.as_str().expect("a text").to_owned();
    let secret = given(&status["tokenSecretRef"]);
    let output = "--output=go-template={{.data.token | base64decode}}";
    let token = test.kubectl(&["get", "secret", &secret, output]).await;
    let header = format!("--from-literal=header={TOKEN}: {}", token.success().trim());
    let secret = ["create", "secret", "generic", "export-token", &header];
    test.kubectl(&secret).await.success();
    let authority = format!("--from-literal=ca.pem={}", given(&link["cert"]));
    let map = ["create", "configmap", "export-authority", &authority];
    test.kubectl(&map).await.success();
    test.apply_object(&json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {
            "source": {"http": {
                "url": link["volumes"][0]["formats"][0]["url"],
                "certConfigMap": "export-authority",
                "secretExtraHeaders": ["export-token"],
            }},
            // An upload fills its claim, which is larger than what was asked for.
            "storage": {"resources": {"requests": {"storage": "192Mi"}}},
        },
    }))
    .await;
}

#[tokio::test]
async fn uploaded_disk_is_exported_and_a_guest_boots_from_its_import() {
    let test = test_namespace().await;
    wait_importer(&test).await;
    let (forwarding, proxy) = forwarded_proxy(&test).await;
    let image = images().join("guest-tiny.qcow2");
    let upload = ["image-upload", "dv", "disk", "--image-path", text(&image)];
    let more = ["--size", "128Mi", "--force-bind", "--insecure"];
    let to = ["--uploadproxy-url", &proxy];
    test.virtctl(&[&upload[..], &more, &to].concat())
        .await
        .success();
    wait_populated(&test, "disk").await;
    drop(forwarding);

    let folder = tempfile::tempdir().expect("a directory");
    let first = download(&test, "disk", &folder.path().join("first.img")).await;
    assert!(first.iter().any(|byte| *byte != 0), "the disk is empty");
    // The claim of the import gets its volume on the node of the guest that waits for it.
    import(&test, "of-disk", "again").await;
    test.apply(&guest_on("guest", "again")).await;
    test.greeting("guest").await;
    test.virtctl(&["stop", "guest"]).await.success();
    test.wait_gone(&test.vmis(), "guest").await;
}

#[tokio::test]
async fn imported_export_is_equal_byte_for_byte() {
    let test = test_namespace().await;
    wait_importer(&test).await;
    let (forwarding, proxy) = forwarded_proxy(&test).await;
    let folder = tempfile::tempdir().expect("a directory");
    let source = folder.path().join("source.img");
    let bytes: Vec<u8> = (0..9_u32 << 20)
        .map(|at| at.wrapping_mul(at).to_be_bytes()[1])
        .collect();
    std::fs::write(&source, &bytes).expect("write the image");
    let upload = ["image-upload", "dv", "disk", "--image-path", text(&source)];
    let more = ["--size", "128Mi", "--force-bind", "--insecure"];
    let to = ["--uploadproxy-url", &proxy];
    test.virtctl(&[&upload[..], &more, &to].concat())
        .await
        .success();
    drop(forwarding);
    let first = download(&test, "disk", &folder.path().join("first.img")).await;
    assert!(first.starts_with(&bytes), "the disk differs from its image");
    import(&test, "of-disk", "again").await;
    let bind = "cdi.kubevirt.io/storage.bind.immediate.requested=true";
    test.kubectl(&["annotate", "datavolume", "again", bind])
        .await
        .success();
    wait_populated(&test, "again").await;
    let second = download(&test, "again", &folder.path().join("second.img")).await;
    // Not by assert_eq, which would print both. The second claim is larger.
    let rest = second
        .strip_prefix(&first[..])
        .expect("the imported disk differs");
    assert!(
        rest.iter().all(|byte| *byte == 0),
        "something follows the disk"
    );
}
