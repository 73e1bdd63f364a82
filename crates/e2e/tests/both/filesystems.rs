//! Directories that a guest shares with its pod.

use e2e::{Console, FeatureGates, claim, kill_in_pod, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

async fn create_settings(test: &TestNamespace) -> Value {
    let literal = "--from-literal=app.conf=colour=blue";
    let map = ["create", "configmap", "settings", literal];
    test.kubectl(&map).await.success();
    json!({"name": "settings", "configMap": {"name": "settings"}})
}

async fn mount(console: &mut Console, name: &str) {
    let output = console
        .shell(&format!("share {name} /tmp/{name} 2>&1"))
        .await;
    assert_eq!(output, "");
}

#[tokio::test]
async fn guest_reads_config_map_and_writes_to_claim_by_virtiofs() {
    let test = TestNamespace::create_exclusive().await;
    let gate = "EnableVirtioFsStorageVolumes";
    let feature_gates = FeatureGates::switch(test.environment.as_ref(), &[gate], &[]).await;
    let settings = create_settings(&test).await;
    test.apply_object(&claim("data", "Filesystem")).await;
    let data = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
    let vm = tiny_vm("sharer").filesystem(&settings).filesystem(&data);
    test.apply_gated(&vm, gate).await;
    let mut console = test.shell("sharer").await;
    mount(&mut console, "settings").await;
    let read = "cat /tmp/settings/app.conf";
    assert_eq!(console.shell(read).await, "colour=blue");
    let output = console
        .shell("echo x 2>/dev/null >/tmp/settings/new || echo refused")
        .await;
    assert_eq!(output, "refused");

    mount(&mut console, "data").await;
    console.shell("echo kept >/tmp/data/file; sync").await;
    let first = test.wait_vmi_phase("sharer", "Running").await;
    test.virtctl(&["restart", "sharer"]).await.success();
    test.wait_new_vmi("sharer", &first).await;
    let mut console = test.shell("sharer").await;
    mount(&mut console, "data").await;
    assert_eq!(console.shell("cat /tmp/data/file").await, "kept");
    drop(feature_gates);
}

#[tokio::test]
async fn filesystem_survives_launcher_kill_and_its_loss_is_reported() {
    let test = test_namespace().await;
    let settings = create_settings(&test).await;
    test.apply(&tiny_vm("sharer").filesystem(&settings)).await;
    let mut console = test.shell("sharer").await;
    mount(&mut console, "settings").await;
    let pods = test.pod_list().await;
    kill_in_pod(&pods[0].1, "virt-launcher");
    let read = "cat /tmp/settings/app.conf";
    assert_eq!(console.shell(read).await, "colour=blue");

    kill_in_pod(&pods[0].1, "virtiofsd");
    let is_reported = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "Synchronized" && condition["reason"] == "FilesystemLost"
        })
    };
    wait_for(&test.vmis(), "sharer", "the loss is reported", is_reported).await;
    assert_eq!(console.shell("echo alive").await, "alive");
}
