//! Writes of other users, by mistake or malicious: pods with a name that we need, forged labels and
//! owners, edited VMIs, foreign finalizers.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use serde_json::{Value, json};

use crate::cluster::{self, TestCluster};

/// Creates a pod with the name of a VMI's pod, as any user may who can create pods.
async fn take_name(cluster: &TestCluster, vmi: &VirtualMachineInstance) -> Pod {
    let pod = json!({
        "metadata": {
            "name": launcher_pod::pod_name(vmi),
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmi.uid()},
        },
        "spec": {"containers": [{"name": "compute", "image": "theirs:1"}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    let made = cluster.pods().create(&PostParams::default(), &pod).await;
    made.unwrap()
}

async fn phase(cluster: &TestCluster, name: &str) -> String {
    let vmi = cluster.vmis().get_opt(name).await.unwrap();
    let phase = vmi.and_then(|vmi| vmi.status?.phase);
    phase.map(|phase| phase.to_string()).unwrap_or_default()
}

async fn event_messages(cluster: &TestCluster, reason: &str) -> Vec<String> {
    let events = Api::<Event>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let of_reason = events
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(reason));
    of_reason.filter_map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn vm_whose_pod_name_is_taken_runs_as_another_vmi() {
    let cluster = TestCluster::new().await;
    // The VMI waits for its claim, so that the other user is first.
    cluster.create_vm_on_claim("a", "data").await;
    cluster.wait_for_printable("a", "ErrorPvcNotFound").await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let theirs = take_name(&cluster, &vmi).await;
    cluster.create_claim("data").await;
    cluster
        .wait_until("another VMI runs", async || {
            let now = cluster.vmis().get_opt("a").await.unwrap();
            let is_other = now.is_some_and(|now| now.uid() != vmi.uid());
            is_other && phase(&cluster, "a").await == "Running"
        })
        .await;
    cluster.wait_for_printable("a", "Running").await;

    let messages = event_messages(&cluster, "FailedCreate").await;
    assert!(
        messages
            .iter()
            .any(|note| note.contains(&theirs.name_any())),
        "{messages:?}"
    );
    let still = cluster.pods().get(&theirs.name_any()).await.unwrap();
    assert_eq!(still.uid(), theirs.uid());
    assert_eq!(still.metadata.deletion_timestamp, None);
    let now = cluster.vmis().get("a").await.unwrap();
    let own = cluster
        .pods()
        .get(&launcher_pod::pod_name(&now))
        .await
        .unwrap();
    let active: Vec<String> = now.status.unwrap().active_pods.into_keys().collect();
    assert_eq!(active, [own.uid().unwrap()]);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn unowned_vmi_whose_pod_name_is_taken_waits_for_the_name() {
    let cluster = TestCluster::new().await;
    cluster.create_vmi_on_claim("a", "data").await;
    let is_reported = async |reason: &str| {
        let vmi = cluster.vmis().get("a").await.unwrap();
        let conditions = vmi.status.unwrap_or_default().conditions;
        let mut conditions = conditions.into_iter();
        conditions.any(|one| {
            one.type_.as_str() == "Synchronized" && one.reason.as_deref() == Some(reason)
        })
    };
    cluster
        .wait_until("it waits", async || is_reported("FailedPvcNotFound").await)
        .await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let theirs = take_name(&cluster, &vmi).await;
    cluster.create_claim("data").await;
    cluster
        .wait_until("it is reported", async || is_reported("FailedCreate").await)
        .await;
    cluster.advance(Duration::from_mins(5)).await;
    assert_eq!(phase(&cluster, "a").await, "Pending");

    let now = DeleteParams::default();
    cluster
        .pods()
        .delete(&theirs.name_any(), &now)
        .await
        .unwrap();
    cluster
        .wait_until("it runs", async || phase(&cluster, "a").await == "Running")
        .await;
    let own = cluster.pods().get(&theirs.name_any()).await.unwrap();
    assert_ne!(own.uid(), theirs.uid());
    assert!(!is_reported("FailedCreate").await);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn foreign_pod_does_not_replace_a_lost_one() {
    let mut cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    cluster.stop_controllers().await;
    let name = launcher_pod::pod_name(&vmi);
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    cluster.pods().delete(&name, &at_once).await.unwrap();
    cluster
        .wait_until("the pod is gone", async || {
            cluster.pods().get_opt(&name).await.unwrap().is_none()
        })
        .await;
    let theirs = take_name(&cluster, &vmi).await;
    cluster.start_controllers();
    cluster
        .wait_until("another VMI runs", async || {
            let now = cluster.vmis().get_opt("a").await.unwrap();
            let is_other = now.is_some_and(|now| now.uid() != vmi.uid());
            is_other && phase(&cluster, "a").await == "Running"
        })
        .await;
    let still = cluster.pods().get(&theirs.name_any()).await.unwrap();
    assert_eq!(still.metadata.deletion_timestamp, None);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn forged_labels_have_no_effect() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let writes = cluster.all_writes();
    // A foreign pod with our labels, and our pod with foreign labels.
    let forged = json!({
        "metadata": {"name": "forged", "labels": {
            "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmi.uid(),
            "kubevirt.io/domain": "a", "vm.kubevirt.io/name": "a",
        }},
        "spec": {"containers": [{"name": "compute", "image": "theirs:1"}]},
    });
    let forged = serde_json::from_value(forged).unwrap();
    cluster
        .pods()
        .create(&PostParams::default(), &forged)
        .await
        .unwrap();
    let stolen = json!({"metadata": {"labels": {"kubevirt.io/created-by": "another"}}});
    let own = launcher_pod::pod_name(&vmi);
    let patched = cluster
        .pods()
        .patch(&own, &PatchParams::default(), &Patch::Merge(stolen))
        .await;
    patched.unwrap();
    cluster.advance(Duration::from_mins(3)).await;
    assert_eq!(cluster.all_writes(), writes);
    assert_eq!(cluster.printable("a").await, "Running");
    assert_eq!(cluster.vmis().get("a").await.unwrap().uid(), vmi.uid());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn edited_vmi_recovers_without_a_second_pod() {
    let edits = [
        json!({"status": {"phase": "Pending"}}),
        json!({"status": {"phase": "Scheduling", "conditions": []}}),
        json!({"status": {"phase": ""}}),
        json!({"status": {"phase": "Pending", "nodeName": null, "activePods": null}}),
        json!({"metadata": {"labels": {"kubevirt.io/nodeName": "elsewhere"}}}),
    ];
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    for edit in edits {
        let shown = edit.to_string();
        edit_vmi(&cluster, "a", edit).await;
        cluster
            .wait_until(&shown, async || phase(&cluster, "a").await == "Running")
            .await;
        cluster.wait_for_printable("a", "Running").await;
        let now = cluster.vmis().get("a").await.unwrap();
        assert_eq!(now.uid(), vmi.uid(), "{shown}");
        let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
        assert_eq!(pods.items.len(), 1, "{shown}");
    }

    // A VMI marked as failed is replaced, and its pod deleted.
    edit_vmi(&cluster, "a", json!({"status": {"phase": "Failed"}})).await;
    cluster
        .wait_until("another VMI runs", async || {
            let now = cluster.vmis().get_opt("a").await.unwrap();
            let is_other = now.is_some_and(|now| now.uid() != vmi.uid());
            let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
            is_other && phase(&cluster, "a").await == "Running" && pods.items.len() == 1
        })
        .await;
    cluster.end().await;
}

async fn edit_vmi(cluster: &TestCluster, name: &str, edit: Value) {
    let patched = cluster
        .vmis()
        .patch(name, &PatchParams::default(), &Patch::Merge(edit))
        .await;
    patched.unwrap();
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizer_is_left_alone() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let mut finalizers = vmi.finalizers().to_vec();
    finalizers.push("example.org/theirs".to_owned());
    edit_vmi(
        &cluster,
        "a",
        json!({"metadata": {"finalizers": finalizers}}),
    )
    .await;
    cluster
        .vmis()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait_until("only theirs is left", async || {
            let now = cluster.vmis().get("a").await.unwrap();
            let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
            now.finalizers() == ["example.org/theirs"] && pods.items.is_empty()
        })
        .await;
    cluster.advance(Duration::from_secs(30)).await;
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(10)).await;
    assert_eq!(cluster.all_writes(), writes);

    edit_vmi(&cluster, "a", json!({"metadata": {"finalizers": []}})).await;
    cluster.wait_for_printable("a", "Running").await;
    assert_ne!(cluster.vmis().get("a").await.unwrap().uid(), vmi.uid());
    cluster.end().await;
}
