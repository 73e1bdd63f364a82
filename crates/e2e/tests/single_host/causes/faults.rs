//! An admission webhook that breaks VMIs and pods as other people's webhooks do: it rejects them, or it
//! changes pods so that they fail.
//!
//! The label `test.example/fault` of a template chooses the fault; it is copied to the VMI and its pod.

use std::net::{IpAddr, Ipv4Addr};

use axum::{Json, Router, routing::post};
use e2e::VmManifest;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use serving::{Authority, ClientCertificates, Leaf, Server, TlsSource, Validity};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::TestNamespace;

const LABEL: &str = "test.example/fault";
/// An image that every host of the tests has, with the programs of a Debian system.
const LAUNCHER: &str = "ferrovirt/virt-launcher:devel";
/// A launcher image that cannot be pulled.
pub(super) const AWAY: &str = "127.0.0.1:1/virt-launcher:1";

/// A running webhook; dropping it stops the server.
pub(super) struct Webhook {
    stop: CancellationToken,
    server: JoinHandle<()>,
}

impl Webhook {
    /// Starts the server and registers it at the API server of the test.
    pub(super) async fn register(test: &TestNamespace) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("listen for the webhook");
        let port = listener.local_addr().expect("it has an address").port();
        let day = Validity::starting(Timestamp::now(), SignedDuration::from_hours(24));
        let authority = Authority::create("webhook", day).expect("make an authority");
        let leaf = Leaf {
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ..Leaf::server("localhost", day)
        };
        let identity = authority.issue(&leaf).expect("issue a certificate");
        let tls = TlsSource::fixed(&identity, &ClientCertificates::Ignored).expect("use TLS");
        let router = Router::new()
            .route("/check", post(async |Json(review)| Json(checked(&review))))
            .route("/change", post(async |Json(review)| Json(changed(&review))));
        let stop = CancellationToken::new();
        let server = Server::new(listener, tls, router).run(stop.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "the test owns and stops this task"
        )]
        let server = tokio::spawn(server);

        let bundle = authority.trust();
        let client = |path: &str| {
            json!({"url": format!("https://localhost:{port}/{path}"),
                   "caBundle": base64(bundle.pem().as_bytes())})
        };
        let vmis = json!({"apiGroups": ["kubevirt.io"], "apiVersions": ["*"], "scope": "*",
                          "operations": ["CREATE"], "resources": ["virtualmachineinstances"]});
        let status = json!({"apiGroups": ["kubevirt.io"], "apiVersions": ["*"], "scope": "*",
                            "operations": ["UPDATE"],
                            "resources": ["virtualmachineinstances/status", "virtualmachineinstances"]});
        let pods = json!({"apiGroups": [""], "apiVersions": ["v1"], "scope": "*",
                          "operations": ["CREATE"], "resources": ["pods"]});
        let hook = |name: &str, client: Value, rules: Value, faults: &[&str]| {
            json!({
                "name": name, "clientConfig": client, "rules": rules, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
                "objectSelector": {"matchExpressions": [
                    {"key": LABEL, "operator": "In", "values": faults}]},
            })
        };
        let away = json!({"url": "https://127.0.0.1:1/check"});
        let namespace = &test.namespace;
        for (kind, hooks) in [
            (
                "ValidatingWebhookConfiguration",
                json!([
                    hook(
                        "check.test.example",
                        client("check"),
                        json!([vmis, pods]),
                        &["vmi-refused", "pod-refused"]
                    ),
                    hook(
                        "status.test.example",
                        client("check"),
                        json!([status]),
                        &["status-refused"]
                    ),
                    hook("away.test.example", away, json!([vmis]), &["webhook-away"]),
                ]),
            ),
            (
                "MutatingWebhookConfiguration",
                json!([hook(
                    "change.test.example",
                    client("change"),
                    json!([pods]),
                    &POD_FAULTS
                )]),
            ),
        ] {
            let object = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": format!("{namespace}-faults")}, "webhooks": hooks,
            });
            test.apply_object(&object).await;
        }
        Self { stop, server }
    }

    pub(super) async fn end(self) {
        self.stop.cancel();
        self.server.await.expect("the webhook ends");
    }
}

/// A VM whose VMI and pod have a fault.
pub(super) fn with_fault(vm: VmManifest, fault: &str) -> VmManifest {
    vm.set("/spec/template/metadata/labels", json!({LABEL: fault}))
}

fn base64(bytes: &[u8]) -> String {
    use k8s_openapi::ByteString;
    let text = serde_json::to_value(ByteString(bytes.to_vec())).unwrap_or_default();
    text.as_str().unwrap_or_default().to_owned()
}

fn response(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn fault(object: &Value) -> &str {
    object["metadata"]["labels"][LABEL]
        .as_str()
        .unwrap_or_default()
}

fn checked(review: &Value) -> Value {
    let object = &review["request"]["object"];
    let resource = review["request"]["resource"]["resource"]
        .as_str()
        .unwrap_or_default();
    let is_refused = match fault(object) {
        "vmi-refused" => resource == "virtualmachineinstances",
        "pod-refused" => resource == "pods",
        // Only the status that reports the end of the guest.
        "status-refused" => matches!(
            object["status"]["phase"].as_str(),
            Some("Failed" | "Succeeded")
        ),
        _ => false,
    };
    if is_refused {
        let status = json!({"code": 403, "message": "the policy of the test forbids it"});
        response(review, json!({"allowed": false, "status": status}))
    } else {
        response(review, json!({"allowed": true}))
    }
}

const POD_FAULTS: [&str; 10] = [
    "other-registry",
    "no-config-map",
    "no-program",
    "ends-at-once",
    "does-nothing",
    "crashing-sidecar",
    "full-volume",
    "small-copies",
    "needs-device",
    "no-guarantee",
];

fn changed(review: &Value) -> Value {
    let object = &review["request"]["object"];
    let patch = patch(object);
    response(
        review,
        json!({"allowed": true, "patchType": "JSONPatch",
               "patch": base64(patch.to_string().as_bytes())}),
    )
}

/// The patch of a pod that gives it its fault.
fn patch(pod: &Value) -> Value {
    let command = |command: Value| json!({"op": "add", "path": "/spec/containers/0/command", "value": command});
    let no_arguments = json!({"op": "add", "path": "/spec/containers/0/args", "value": []});
    let memory = |volume: &str, size: &str| {
        let volumes = pod["spec"]["volumes"].as_array();
        let mut volumes = volumes.into_iter().flatten();
        let at = volumes.position(|one| one["name"] == volume);
        at.map(|at| {
            json!({"op": "add", "path": format!("/spec/volumes/{at}/emptyDir"),
                   "value": {"medium": "Memory", "sizeLimit": size}})
        })
    };
    match fault(pod) {
        "no-config-map" => json!([{
            "op": "add", "path": "/spec/containers/0/envFrom",
            "value": [{"configMapRef": {"name": "injected-settings"}}],
        }]),
        // As of a policy that replaces registries, by one that does not answer.
        "other-registry" => {
            let image = json!({"op": "replace", "path": "/spec/containers/0/image", "value": AWAY});
            json!([image])
        }
        "no-program" => json!([command(json!(["/no/such/program"]))]),
        "ends-at-once" => json!([command(json!(["/usr/bin/false"]))]),
        "does-nothing" => json!([command(json!(["/usr/bin/sleep", "infinity"])), no_arguments]),
        "crashing-sidecar" => {
            let sidecar = json!({
                "name": "injected", "image": LAUNCHER, "command": ["/usr/bin/false"],
                "restartPolicy": "Always",
            });
            json!([
                {"op": "add", "path": "/spec/initContainers", "value": [sidecar]},
                command(json!(["/usr/bin/sleep", "infinity"])),
                no_arguments,
            ])
        }
        "full-volume" => json!(
            memory("ephemeral-disks", "4Ki")
                .into_iter()
                .collect::<Vec<_>>()
        ),
        "small-copies" => json!(
            memory("container-disks", "1Mi")
                .into_iter()
                .collect::<Vec<_>>()
        ),
        "needs-device" => json!([{
            "op": "add", "path": "/spec/containers/0/resources/limits/test.example~1gpu",
            "value": "1",
        }]),
        // No node of a test pins CPUs, so the pod would wait for one. It leaves the CPUs to the other guests.
        "no-guarantee" => json!([
            {"op": "remove", "path": "/spec/nodeSelector/kubevirt.io~1cpumanager"},
            {"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "1m"},
        ]),
        _ => json!([]),
    }
}
