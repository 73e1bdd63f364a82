//! Links of a running guest's interfaces follow the template of its VM.

use serde_json::{Value, json};

use super::cluster::TestCluster;

async fn with_guest() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster
}

async fn set_state(cluster: &TestCluster, state: Value) {
    let interfaces = json!([{"name": "default", "masquerade": {}, "state": state}]);
    let spec = json!({"domain": {"devices": {"interfaces": interfaces}}});
    let patch = json!({"spec": {"template": {"spec": spec}}});
    cluster.patch_vm("a", patch).await;
}

/// Waits until the VMI of that UID has the link, without a restart.
async fn wait_for_link(cluster: &TestCluster, uid: Option<&String>, state: &str) {
    cluster
        .wait_until(&format!("the link is {state}"), async || {
            let vmi = cluster.vmis().get("a").await.unwrap();
            assert_eq!(vmi.metadata.uid.as_ref(), uid);
            let interface = json!(vmi.spec.domain.devices.interfaces[0]);
            interface["state"] == state && interface["name"] == "default"
        })
        .await;
    cluster
        .wait_until("no restart is required", async || {
            let vm = cluster.vms().get("a").await.unwrap();
            let conditions = json!(vm.status.unwrap().conditions);
            let mut conditions = conditions.as_array().unwrap().iter();
            !conditions.any(|one| one["type"] == "RestartRequired")
        })
        .await;
}

async fn down_and_up(cluster: &TestCluster) {
    let uid = cluster.vmis().get("a").await.unwrap().metadata.uid;
    set_state(cluster, json!("down")).await;
    wait_for_link(cluster, uid.as_ref(), "down").await;
    set_state(cluster, json!("up")).await;
    wait_for_link(cluster, uid.as_ref(), "up").await;
}

#[tokio::test(start_paused = true)]
async fn link_of_a_running_guest_follows_the_template() {
    let cluster = with_guest().await;
    down_and_up(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn link_survives_a_crash_of_the_controllers() {
    let mut cluster = with_guest().await;
    cluster.crash_after("virt-controller/vm/set-links");
    down_and_up(&cluster).await;
    assert!(!cluster.is_crash_pending());
    cluster.end().await;
}
