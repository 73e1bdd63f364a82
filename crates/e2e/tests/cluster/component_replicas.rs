//! One replica of a component is killed: the other takes over.

use e2e::{Environment, NAMESPACE, eventually, kill, tiny_vm, wait_for};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

use crate::TestNamespace;

fn leases(test: &TestNamespace) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let resource = ApiResource::from_gvk(&kind);
    Api::namespaced_with(test.client.clone(), NAMESPACE, &resource)
}

async fn leader(test: &TestNamespace) -> String {
    let led = |lease: &Value| lease["spec"]["holderIdentity"].is_string();
    let lease = wait_for(&leases(test), "virt-controller", "led", led).await;
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn controller_failover_works() {
    let test = TestNamespace::create_exclusive().await;
    let before = leader(&test).await;
    let pod = format!("pod/{before}");
    let delete = [
        "delete",
        "--namespace",
        NAMESPACE,
        &pod,
        "--grace-period=0",
        "--force",
    ];
    test.environment.kubectl(&delete, b"").await.success();
    test.apply(&tiny_vm("after")).await;
    test.wait_vmi_phase("after", "Running").await;
    let after = leader(&test).await;
    assert_ne!(after, before);
}

#[tokio::test]
async fn requests_recover_after_api_replica_kill() {
    let test = TestNamespace::create_exclusive().await;
    let all = test.environment.component("api");
    let [first, second] = all[..] else {
        panic!("looking for two among {all:?}")
    };
    kill(first);
    // Webhook calls go to either replica until the kubelet notices that one is gone.
    let vm = tiny_vm("asked").strategy("Halted");
    let mut refused = 0;
    while !test.try_apply(&vm).await.is_success {
        refused += 1;
        assert!(
            refused < 20,
            "machines are refused while one of two is gone"
        );
    }
    test.wait_vm_status("asked", "Stopped").await;
    eventually("two again", || {
        let now = test.environment.component("api");
        let is_whole = now.len() == 2 && now.contains(&second) && !now.contains(&first);
        if is_whole { Ok(()) } else { Err(now) }
    })
    .await;
}
