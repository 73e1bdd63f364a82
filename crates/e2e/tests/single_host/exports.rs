//! Disks that users download.

use std::path::Path;

use axum::body::{Body, to_bytes};
use e2e::wait_for;
use futures::StreamExt as _;
use http::{HeaderName, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use serving::{HttpsClient, Target, Trust};
use tokio_util::task::TaskTracker;

use crate::{TestNamespace, test_namespace};

const MIB: usize = 1 << 20;
const TOKEN: &str = "x-kubevirt-export-token";

/// 20 MiB with data at both ends.
fn image() -> Vec<u8> {
    let mut image = vec![0; 20 * MIB];
    for (index, byte) in image.iter_mut().enumerate() {
        if !(MIB..19 * MIB).contains(&index) {
            *byte = u8::try_from(index * index % 251).expect("less than 256");
        }
    }
    image
}

/// Whether the disk is the image and zeros behind it.
fn is_image(disk: &[u8]) -> bool {
    let image = image();
    disk.starts_with(&image) && disk.iter().skip(image.len()).all(|byte| *byte == 0)
}

/// A part of an address, and what is known about its server.
pub(crate) struct Link {
    client: HttpsClient,
    target: Target,
    path: String,
    token: String,
}

impl Link {
    pub(crate) fn new(url: &str, authority: String, token: String) -> Self {
        let rest = url.strip_prefix("https://").expect("it is secure");
        let (address, path) = rest.split_once('/').expect("an address with a path");
        let (host, port) = address.rsplit_once(':').expect("an address with a port");
        let trust = Trust::from_pem(authority);
        Self {
            client: HttpsClient::new(&trust, None, TaskTracker::new()).expect("a client"),
            target: Target::host(host, port.parse().expect("a port")),
            path: format!("/{path}"),
            token,
        }
    }

    /// A small answer.
    pub(crate) async fn bytes(&self) -> Vec<u8> {
        let answer = self.send(&self.token, &[]).await;
        assert_eq!(answer.status(), StatusCode::OK, "{}", self.path);
        let bytes = to_bytes(answer.into_body(), MIB).await;
        bytes.expect("a whole body").to_vec()
    }

    async fn send(&self, token: &str, headers: &[(HeaderName, &str)]) -> Response<Body> {
        let mut request = Request::get(&self.path)
            .header(header::HOST, &self.target.address)
            .header(TOKEN, token);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let response = self.client.send(&self.target, request).await;
        response.expect("an answer").map(Body::new)
    }

    /// The status of the answer to a request for all of it.
    pub(crate) async fn status(&self, token: &str) -> StatusCode {
        self.send(token, &[]).await.status()
    }

    /// Downloads with one interruption.
    async fn download_in_two_parts(&self) -> Vec<u8> {
        let first = self.send(&self.token, &[]).await;
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].clone();
        let tag = tag.to_str().expect("a text");
        let mut disk = Vec::new();
        let mut body = first.into_body().into_data_stream();
        while disk.len() < 2 * MIB {
            let bytes = body.next().await.expect("more").expect("no failure");
            disk.extend_from_slice(&bytes);
        }
        drop(body);
        let range = format!("bytes={}-", disk.len());
        let headers = [(header::RANGE, range.as_str()), (header::IF_RANGE, tag)];
        let rest = self.send(&self.token, &headers).await;
        assert_eq!(rest.status(), StatusCode::PARTIAL_CONTENT);
        let rest = to_bytes(rest.into_body(), 64 * MIB).await;
        disk.extend_from_slice(&rest.expect("a whole body"));
        disk
    }
}

async fn export(test: &TestNamespace, name: &str) -> Value {
    let kind = test.objects("export.kubevirt.io", "v1", "VirtualMachineExport");
    let ready = |export: &Value| export["status"]["phase"] == "Ready";
    wait_for(&kind, name, "ready", ready).await
}

/// The address of the raw disk for clients that are not in a pod.
async fn raw_link(test: &TestNamespace, name: &str) -> Link {
    let export = export(test, name).await;
    let status = &export["status"];
    let external = &status["links"]["external"];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let url = text(&external["volumes"][0]["formats"][0]["url"]);
    let secret = text(&status["tokenSecretRef"]);
    let output = "--output=go-template={{.data.token | base64decode}}";
    let token = test.kubectl(&["get", "secret", &secret, output]).await;
    Link::new(&url, text(&external["cert"]), token.success())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// An export of a VM names its disk, and has a manifest that another VM can be made of.
async fn check_manifest(test: &TestNamespace) {
    test.apply_object(&json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "guest"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {
                "memory": {"guest": "64Mi"},
                "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
            },
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}],
        }}},
    }))
    .await;
    let manifest = [
        "vmexport",
        "download",
        "whole",
        "--vm",
        "guest",
        "--manifest",
    ];
    let more = ["--include-secret", "--manifest-output-format", "json"];
    let manifest = test
        .virtctl(&[&manifest[..], &more].concat())
        .await
        .success();
    for part in [
        "\"VirtualMachine\"",
        "\"DataVolume\"",
        "/volumes/disk/disk.img",
        TOKEN,
    ] {
        assert!(manifest.contains(part), "{part}: {manifest}");
    }
}

#[tokio::test]
async fn exported_disk_is_downloaded_byte_for_byte() {
    let test = test_namespace().await;
    let folder = tempfile::tempdir().expect("a directory");
    let source = folder.path().join("source.img");
    std::fs::write(&source, image()).expect("write the image");
    let upload = ["image-upload", "dv", "disk", "--image-path", text(&source)];
    let arguments = [&upload[..], &["--size", "24Mi", "--force-bind"]].concat();
    test.virtctl(&arguments).await.success();

    // Through the port of the API server.
    let download = [
        "vmexport",
        "download",
        "copy",
        "--pvc",
        "disk",
        "--keep-vme",
    ];
    let raw = folder.path().join("raw.img");
    let more = ["--format", "raw", "--output", text(&raw)];
    test.virtctl(&[&download[..], &more].concat())
        .await
        .success();
    assert!(
        is_image(&std::fs::read(&raw).expect("the disk")),
        "the disk differs"
    );
    // Through a port that is forwarded to the pod.
    let forwarded = folder.path().join("forwarded.img");
    let more = [
        "--format",
        "raw",
        "--port-forward",
        "--output",
        text(&forwarded),
    ];
    test.virtctl(&[&download[..], &more].concat())
        .await
        .success();
    assert!(
        is_image(&std::fs::read(&forwarded).expect("the disk")),
        "the disk differs"
    );

    // A download that broke off goes on.
    let link = raw_link(&test, "copy").await;
    assert!(
        is_image(&link.download_in_two_parts().await),
        "the disk in two parts differs"
    );
    assert_eq!(link.status("wrong").await, StatusCode::UNAUTHORIZED);

    check_manifest(&test).await;
    let of_vm = folder.path().join("of-vm.img");
    let arguments = [
        "vmexport", "download", "of-vm", "--vm", "guest", "--volume", "disk",
    ];
    let more = ["--format", "raw", "--output", text(&of_vm)];
    test.virtctl(&[&arguments[..], &more].concat())
        .await
        .success();
    assert!(
        is_image(&std::fs::read(&of_vm).expect("the disk")),
        "the disk of the VM differs"
    );

    let secrets = test.kubectl(&["get", "secret", "--output=name"]).await;
    let secrets = secrets.success();
    assert!(secrets.contains("secret/"), "{secrets}");
    test.virtctl(&["vmexport", "delete", "copy"])
        .await
        .success();
    // Its token ends with it.
    assert_eq!(link.status(&link.token).await, StatusCode::NOT_FOUND);
    let services = test.objects("", "v1", "Service");
    for name in ["virt-export-copy", "virt-export-whole", "virt-export-of-vm"] {
        test.wait_gone(&services, name).await;
        test.wait_gone(&test.pods(), name).await;
    }
    let kind = test.objects("", "v1", "Secret");
    for name in secrets
        .lines()
        .filter_map(|line| line.strip_prefix("secret/"))
    {
        test.wait_gone(&kind, name).await;
    }
}
