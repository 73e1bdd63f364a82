//! Claims and other objects that are missing or unusable.

use e2e::{answer, claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use super::Situations;

fn of_class(name: &str, class: &str) -> Value {
    let mut claim = claim(name, "Filesystem");
    claim["spec"]["storageClassName"] = json!(class);
    claim
}

fn on_claim(claim: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": claim}})
}

/// A volume of the host's directory, and a claim that is bound to it.
pub(super) async fn bound(test: &Situations<'_>, name: &str, host_path: Value) -> String {
    let volume = format!("{}-{name}", test.namespace);
    test.apply_object(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "", "hostPath": host_path,
        },
    }))
    .await;
    let mut claim = of_class(name, "");
    claim["spec"]["volumeName"] = json!(volume);
    test.apply_object(&claim).await;
    let claims = test.objects("", "v1", "PersistentVolumeClaim");
    let is_bound = |claim: &Value| claim["status"]["phase"] == "Bound";
    wait_for(&claims, name, "bound", is_bound).await;
    volume
}

pub(super) async fn are_missing(test: &Situations<'_>) {
    let foreign = format!("{}-foreign", test.namespace);
    test.apply_object(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": foreign}, "provisioner": "example.com/none",
    }))
    .await;
    test.apply_object(&of_class("classless", "no-such-class"))
        .await;
    test.apply_object(&of_class("pending", &foreign)).await;
    test.apply_object(&claim("first-consumer", "Filesystem"))
        .await;
    let base = test.environment.base().to_owned();
    let volume = bound(test, "lost", json!({"path": base})).await;
    let missing = base.join("no-such-directory");
    bound(
        test,
        "unmounted",
        json!({"path": missing, "type": "Directory"}),
    )
    .await;

    let nowhere = json!({"test.example/nowhere": "yes"});
    let sources = [
        ("no-claim", on_claim("absent")),
        ("no-class", on_claim("classless")),
        ("pending", on_claim("pending")),
        ("lost", on_claim("lost")),
        ("unmounted", on_claim("unmounted")),
        ("no-import", json!({"dataVolume": {"name": "import"}})),
        (
            "no-secret",
            json!({"secret": {"secretName": "absent-secret"}}),
        ),
        ("no-files", json!({"configMap": {"name": "absent-map"}})),
    ];
    let vms = sources
        .iter()
        .map(|(name, source)| tiny_vm(name).disk(source));
    let waits = tiny_vm("waits-for-pod")
        .disk(&on_claim("first-consumer"))
        .spec("nodeSelector", nowhere);
    let account = json!({"serviceAccount": {"serviceAccountName": "robot"}});
    let account = tiny_vm("no-account").disk(&account);
    test.apply_all(vms.chain([waits, account])).await;
    // The administrator deletes a volume that is in use.
    let unprotected = "--patch={\"metadata\":{\"finalizers\":null}}";
    let delete = ["delete", "pv", &volume, "--wait=false"];
    test.kubectl(&delete).await.success();
    let patch = ["patch", "pv", &volume, "--type=merge", unprotected];
    test.kubectl(&patch).await;

    are_explained(test, &volume).await;
}

async fn are_explained(test: &Situations<'_>, volume: &str) {
    for (name, cause, object, next) in [
        ("no-claim", "claim-missing", "pvc/absent", "get pvc"),
        (
            "no-class",
            "storage-class-missing",
            "storageclass/no-such-class",
            "get storageclass",
        ),
        (
            "pending",
            "claim-pending",
            "example.com/none",
            "describe pvc pending",
        ),
        (
            "waits-for-pod",
            "claim-waits-for-consumer",
            "pvc/first-consumer",
            "describe pvc first-consumer",
        ),
        ("lost", "claim-lost", volume, "describe pvc lost"),
        ("no-import", "data-volume-missing", "\"import\"", "get"),
        (
            "no-secret",
            "secret-missing",
            "secret/absent-secret",
            "get secret",
        ),
        (
            "no-files",
            "config-map-missing",
            "configmap/absent-map",
            "get configmap",
        ),
        (
            "no-account",
            "service-account-missing",
            "serviceaccount/robot",
            "get serviceaccount",
        ),
        (
            "unmounted",
            "warned",
            "no-such-directory",
            "describe Pod virt-launcher-unmounted-",
        ),
    ] {
        test.check(name, answer(cause, object, next)).await;
    }
    let names = [
        "no-claim",
        "no-class",
        "pending",
        "waits-for-pod",
        "lost",
        "no-import",
        "no-secret",
        "no-files",
        "no-account",
        "unmounted",
    ];
    test.delete_vms(&names).await;
}
