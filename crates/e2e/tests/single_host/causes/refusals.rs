//! Requests that the API server rejects, and VMs that cannot have their own VMI.

use e2e::{Environment as _, answer, tiny_vm, wait_for};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{Situations, faults::with_fault};

pub(super) async fn by_the_api_server(test: &Situations<'_>) {
    test.kubectl(&["create", "configmap", "owner"])
        .await
        .success();
    let owner = test.objects("", "v1", "ConfigMap").get("owner").await;
    let uid = owner.expect("read the owner").metadata.uid;
    let mut taken = vmi("taken");
    taken["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true,
    }]);
    test.apply_object(&taken).await;
    let mut held = vmi("held-vmi");
    held["metadata"]["finalizers"] = json!(["test.example/hold"]);
    test.apply_object(&held).await;
    let mut migrates = vmi("from-elsewhere");
    // It waits for the guest of another VM, and for nothing else.
    migrates["spec"] = tiny_vm("any").into_object()["spec"]["template"]["spec"].clone();
    migrates["metadata"]["annotations"] = json!({"kubevirt.io/create-migration-target": "true"});
    test.apply_object(&migrates).await;
    let mut bound = tiny_vm("bound").into_object();
    let spec = &mut bound["spec"]["template"]["spec"];
    spec["domain"]["devices"]["interfaces"] =
        json!([{"name": "default", "binding": {"name": "plugin"}}]);
    spec["networks"] = json!([{"name": "default", "pod": {}}]);
    test.apply_object(&bound).await;
    test.apply_all([
        tiny_vm("taken"),
        with_fault(tiny_vm("refused"), "vmi-refused"),
        with_fault(tiny_vm("podless"), "pod-refused"),
        with_fault(tiny_vm("unheard"), "webhook-away"),
        tiny_vm("held").strategy("Halted"),
    ])
    .await;
    let hold = "--patch={\"metadata\":{\"finalizers\":[\"test.example/hold\"]}}";
    let patch = ["patch", "vm", "held", "--type=merge", hold];
    test.kubectl(&patch).await.success();
    for object in ["vm/held", "vmi/held-vmi"] {
        test.kubectl(&["delete", object, "--wait=false"])
            .await
            .success();
    }
    for (name, cause, object, next) in [
        ("taken", "name-taken", "ConfigMap owner", "delete vmi taken"),
        (
            "held-vmi",
            "instance-deletion-blocked",
            "test.example/hold",
            "get vmi held-vmi",
        ),
        (
            "held",
            "deletion-blocked",
            "test.example/hold",
            "get vm held",
        ),
        (
            "from-elsewhere",
            "awaits-guest",
            "vmi/from-elsewhere",
            "get virtualmachineinstancemigrations",
        ),
        (
            "bound",
            "pod-refused",
            "the cluster has no network binding",
            "describe vmi bound",
        ),
        (
            "refused",
            "instance-refused",
            "check.test.example",
            "edit vm refused",
        ),
        (
            "podless",
            "pod-refused",
            "check.test.example",
            "describe vmi podless",
        ),
        (
            "unheard",
            "webhook-unreachable",
            "away.test.example",
            "get validatingwebhookconfigurations",
        ),
    ] {
        test.check(name, answer(cause, object, next)).await;
    }
    for object in ["vm/held", "vmi/held-vmi"] {
        let free = "--patch={\"metadata\":{\"finalizers\":null}}";
        let patch = ["patch", object, "--type=merge", free];
        test.kubectl(&patch).await.success();
    }
    test.delete_vms(&["taken", "bound", "refused", "podless", "unheard"])
        .await;
    let vmis = ["delete", "vmi", "taken", "from-elsewhere", "--wait=false"];
    test.kubectl(&vmis).await.success();
    quota_is_used_up(test).await;
    namespace_ends(test).await;
}

/// A VMI that gets no pod, because its claim does not exist.
fn vmi(name: &str) -> Value {
    let volume = json!({"persistentVolumeClaim": {"claimName": "absent"}});
    let vm = tiny_vm(name).disk(&volume).into_object();
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": name}, "spec": vm["spec"]["template"]["spec"],
    })
}

fn quota(name: &str, pods: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
        "spec": {"hard": {"pods": pods}},
    })
}

async fn quota_is_used_up(test: &Situations<'_>) {
    // The pods of the other situations are there already.
    test.apply_object(&quota("small", "0")).await;
    let quotas = test.objects("", "v1", "ResourceQuota");
    let is_counted = |quota: &Value| quota["status"]["hard"]["pods"] == "0";
    wait_for(&quotas, "small", "counted", is_counted).await;
    test.apply(&tiny_vm("too-many")).await;
    let expected = answer("quota-exceeded", "small", "describe resourcequota");
    test.check("too-many", expected).await;
    test.kubectl(&["delete", "quota", "small"]).await.success();
    test.delete_vms(&["too-many"]).await;
}

/// A pod that does not end holds the namespace, whose VMs are still there.
async fn namespace_ends(test: &Situations<'_>) {
    let other = test.beside().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "stays", "finalizers": ["test.example/hold"]},
        "spec": {
            "nodeSelector": {"test.example/nowhere": "yes"},
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "ferrovirt/virt-launcher:devel"}],
        },
    });
    other.apply_object(&pod).await;
    // The quota is for that pod, so the guest has none yet.
    other.apply_object(&quota("full", "1")).await;
    other.apply(&tiny_vm("late")).await;
    let expected = answer("quota-exceeded", "full", "describe resourcequota");
    let answered = other.why_answers_within(super::PATIENCE, "late", expected);
    test.record(answered.await);
    let delete = ["delete", "namespace", &other.namespace, "--wait=false"];
    other.environment.kubectl(&delete, b"").await.success();
    let namespaces = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    let namespaces: Api<DynamicObject> = Api::all_with(other.client.clone(), &namespaces);
    let ends = |namespace: &Value| namespace["status"]["phase"] == "Terminating";
    wait_for(&namespaces, &other.namespace, "ending", ends).await;
    let next = format!("get namespace {}", other.namespace);
    let expected = answer("namespace-terminating", "being terminated", &next);
    test.record(
        other
            .why_answers_within(super::PATIENCE, "late", expected)
            .await,
    );
    let free = "--patch={\"metadata\":{\"finalizers\":null}}";
    let patch = ["patch", "pod", "stays", "--type=merge", free];
    other.kubectl(&patch).await.success();
}
