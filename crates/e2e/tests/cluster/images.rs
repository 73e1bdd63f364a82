//! An image that is loaded onto the nodes again, under the name that it has there.

use std::{fs, path::Path};

use e2e::{program, run, wait_for};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use crate::{TestNamespace, test_namespace};

/// Writes a blob of a layout and returns its descriptor.
fn blob(layout: &Path, kind: &str, bytes: &[u8]) -> Value {
    let hex = hex::encode(Sha256::digest(bytes));
    fs::write(layout.join("blobs/sha256").join(&hex), bytes).expect("write a blob");
    json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{hex}"), "size": bytes.len(),
    })
}

/// Writes an OCI layout of an image with this name, whose only file is `text`.
async fn write_layout(layout: &Path, name: &str, text: &str) {
    fs::create_dir_all(layout.join("blobs/sha256")).expect("make a directory");
    let files = tempfile::tempdir().expect("make a directory");
    fs::write(files.path().join("text"), text).expect("write the file");
    let archive = files.path().join("layer.tar");
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(&archive);
    tar.arg("--directory").arg(files.path()).arg("text");
    run(&mut tar, b"").await.success();
    let layer = fs::read(&archive).expect("read the layer");
    let layer = blob(layout, "layer.v1.tar", &layer);
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob(layout, "config.v1+json", config.to_string().as_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [layer],
    });
    let mut manifest = blob(layout, "manifest.v1+json", manifest.to_string().as_bytes());
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(layout.join("index.json"), index.to_string()).expect("write the index");
    let version = json!({"imageLayoutVersion": "1.0.0"});
    fs::write(layout.join("oci-layout"), version.to_string()).expect("write the version");
}

/// What a pod with a volume of this image finds in it.
async fn content(test: &TestNamespace, pod: &str, image: &str) -> String {
    test.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "files", "image": {"reference": image, "pullPolicy": "Never"}}],
            "containers": [{
                "name": "reads", "image": "docker.io/ferrovirt/busybox:devel",
                "command": ["cat", "/files/text"],
                "volumeMounts": [{"name": "files", "mountPath": "/files"}],
            }],
        },
    }))
    .await;
    let ended = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    wait_for(&test.pods(), pod, "ended", ended).await;
    test.kubectl(&["logs", pod]).await.success()
}

/// Issue: no pod could mount an image that was loaded a second time.
#[tokio::test]
async fn image_that_is_loaded_again_is_mounted_with_its_new_content() {
    let test = test_namespace().await;
    let image = format!("docker.io/ferrovirt/loaded-twice:{}", test.namespace);
    let directory = tempfile::tempdir().expect("make a directory");
    for text in ["first", "second"] {
        let layout = directory.path().join(text);
        write_layout(&layout, &image, text).await;
        let mut load = Command::new(program("xtask"));
        load.args(["cluster", "load"]).arg(&layout);
        run(&mut load, b"").await.success();
        assert_eq!(content(&test, text, &image).await, text);
    }
}
