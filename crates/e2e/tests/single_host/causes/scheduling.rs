//! Pods that get no node.

use e2e::{answer, tiny_vm};
use serde_json::json;

use super::{Situations, faults::with_fault};

pub(super) async fn finds_no_node(test: &Situations<'_>) {
    let requests = |name: &str, resource: &str, amount: &str| {
        tiny_vm(name).domain("resources", json!({"requests": {resource: amount}}))
    };
    let nowhere = json!({"test.example/nowhere": "yes"});
    let device = requests("gpu", "cpu", "10m");
    test.apply_all([
        requests("memory", "memory", "900Gi"),
        requests("cpu", "cpu", "900"),
        with_fault(device, "needs-device"),
        tiny_vm("nowhere").spec("nodeSelector", nowhere),
    ])
    .await;
    for (name, cause, object, next) in [
        (
            "memory",
            "memory-short",
            "Insufficient memory",
            "describe nodes",
        ),
        ("cpu", "cpu-short", "Insufficient cpu", "describe nodes"),
        ("gpu", "device-missing", "test.example/gpu", "get nodes"),
        (
            "nowhere",
            "no-matching-node",
            "test.example/nowhere",
            "get nodes --show-labels",
        ),
    ] {
        test.check(name, answer(cause, object, next)).await;
    }
    test.delete_vms(&["memory", "cpu", "gpu", "nowhere"]).await;
}

pub(super) async fn node_is_cordoned(test: &Situations<'_>) {
    test.kubectl(&["cordon", "localhost"]).await.success();
    test.apply(&tiny_vm("cordoned")).await;
    let expected = answer("nodes-cordoned", "node/localhost", "uncordon localhost");
    test.check("cordoned", expected).await;
    test.kubectl(&["uncordon", "localhost"]).await.success();
    test.delete_vms(&["cordoned"]).await;
}
