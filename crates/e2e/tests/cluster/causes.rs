//! Causes that only a cluster's own scheduler, kubelet and API server make.

use std::{path::PathBuf, process::Command};

use e2e::{Environment as _, NAMESPACE, answer, tiny_vm};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use serde_json::json;
use serving::{Authority, Validity};

use crate::TestNamespace;

/// A taint of all nodes, removed on drop: the other tests need the nodes.
struct Taint {
    kubeconfig: PathBuf,
}

impl Taint {
    async fn on_all_nodes(test: &TestNamespace) -> Self {
        let kubeconfig = test.environment.kubeconfig();
        let taint = "test.example/closed=yes:NoSchedule";
        let add = ["taint", "nodes", "--all", taint];
        test.kubectl(&add).await.success();
        Self { kubeconfig }
    }
}

impl Drop for Taint {
    fn drop(&mut self) {
        let removed = Command::new("kubectl")
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["taint", "nodes", "--all", "test.example/closed-"])
            .output();
        let is_removed = removed.as_ref().is_ok_and(|output| output.status.success());
        assert!(is_removed || std::thread::panicking(), "{removed:?}");
    }
}

#[tokio::test]
async fn scheduler_obstacles_are_explained() {
    let test = TestNamespace::create_exclusive().await;
    let most = json!({"requests": {"ephemeral-storage": "900Ti"}});
    test.apply(&tiny_vm("storage").domain("resources", most))
        .await;
    let storage = answer(
        "unschedulable",
        "Insufficient ephemeral-storage",
        "describe pod virt-launcher-storage-",
    );
    test.why_answers("storage", storage).await;

    let taint = Taint::on_all_nodes(&test).await;
    test.apply(&tiny_vm("tainted")).await;
    let tainted = answer("taint", "untolerated taint", "get nodes -o custom-columns");
    test.why_answers("tainted", tainted).await;
    drop(taint);
    test.wait_vmi_phase("tainted", "Running").await;
}

#[tokio::test]
async fn failing_images_of_guests_are_distinguished() {
    let test = crate::test_namespace().await;
    let away = "127.0.0.1:1/guest:1";
    let kernel = json!({"kernelBoot": {"container": {
        "image": away, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}});
    test.apply_all([
        tiny_vm("disk").image(away),
        tiny_vm("kernel").domain("firmware", kernel),
        tiny_vm("name").image("GUEST:::"),
    ])
    .await;
    let volume = format!("{away:?} of volume \"root\"");
    let field = "spec.domain.firmware.kernelBoot.container.image";
    for (name, cause, object, next) in [
        (
            "disk",
            "registry-unreachable",
            volume.as_str(),
            "describe pod virt-launcher-disk-",
        ),
        (
            "kernel",
            "registry-unreachable",
            field,
            "describe pod virt-launcher-kernel-",
        ),
        (
            "name",
            "image-name-invalid",
            "\"GUEST:::\" of volume \"root\"",
            "edit vm name",
        ),
    ] {
        test.why_answers(name, answer(cause, object, next)).await;
    }
}

/// virt-controller waits for the claim, a kubelet for the other objects.
#[tokio::test]
async fn missing_objects_of_guests_are_named() {
    let test = crate::test_namespace().await;
    let cases = [
        (
            "no-claim",
            json!({"persistentVolumeClaim": {"claimName": "absent"}}),
            answer("claim-missing", "pvc/absent", "get pvc"),
        ),
        (
            "no-secret",
            json!({"secret": {"secretName": "absent-secret"}}),
            answer("secret-missing", "secret/absent-secret", "get secret"),
        ),
        (
            "no-files",
            json!({"configMap": {"name": "absent-map"}}),
            answer(
                "config-map-missing",
                "configmap/absent-map",
                "get configmap",
            ),
        ),
    ];
    let vms = cases
        .iter()
        .map(|(name, source, _)| tiny_vm(name).disk(source));
    test.apply_all(vms).await;
    for (name, _, expected) in cases {
        test.why_answers(name, expected).await;
    }
}

/// The guest writes more than the pod's limit of local storage, and the kubelet evicts the pod.
#[tokio::test]
async fn eviction_by_the_kubelet_is_explained() {
    let test = crate::test_namespace().await;
    let little = json!({"limits": {"ephemeral-storage": "20Mi"}});
    let vm = tiny_vm("writes")
        .strategy("Once")
        .domain("resources", little);
    let disk = json!({"emptyDisk": {"capacity": "256Mi"}});
    test.apply(&vm.disk(&disk)).await;
    let mut console = test.shell("writes").await;
    console
        .send("dd if=/dev/urandom of=/dev/vdc bs=1M count=128 conv=fsync\n")
        .await;
    let evicted = answer(
        "pod-evicted",
        "ephemeral",
        "describe pod virt-launcher-writes-",
    );
    test.why_answers("writes", evicted).await;
}

/// A webhook of the installation whose bundle is of another authority.
#[tokio::test]
async fn wrong_authority_of_a_webhook_is_explained() {
    let test = TestNamespace::create_exclusive().await;
    let day = Validity::starting(Timestamp::now(), SignedDuration::from_hours(24));
    let other = Authority::create("other", day).expect("make an authority");
    let bundle = ByteString(other.trust().pem().as_bytes().to_vec());
    let name = format!("{}-webhook", test.namespace);
    test.apply_object(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{
            "name": "virtualmachineinstances-test.kubevirt.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
            "clientConfig": {
                "service": {"namespace": NAMESPACE, "name": "virt-api", "path": "/test"},
                "caBundle": bundle,
            },
            "rules": [{"apiGroups": ["kubevirt.io"], "apiVersions": ["*"],
                       "operations": ["CREATE"], "resources": ["virtualmachineinstances"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": test.namespace}},
        }],
    }))
    .await;
    test.apply(&tiny_vm("untrusted")).await;
    let untrusted = answer(
        "webhook-certificate",
        "x509",
        "rollout restart deployment virt-api",
    );
    test.why_answers("untrusted", untrusted).await;
    let delete = ["delete", "validatingwebhookconfiguration", &name];
    test.kubectl(&delete).await.success();
}
