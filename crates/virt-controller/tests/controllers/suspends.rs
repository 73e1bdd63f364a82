//! VMs that are suspended and resumed, with the parts of virt-api and virt-handler played by the test.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::hotplug::{report_with, wait_for_phase};

const SAVING: &str = "ferrovirt-saving";
const SAVED: &str = "ferrovirt-saved-state";

fn claims(cluster: &TestCluster) -> Api<PersistentVolumeClaim> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

/// The names of the claims with saved states that stay.
async fn saved_claims(cluster: &TestCluster) -> Vec<String> {
    let own = ListParams::default().labels("ferrovirt.io/suspended-vm");
    let all = claims(cluster).list(&own).await.unwrap().into_iter();
    let staying = all.filter(|claim| claim.metadata.deletion_timestamp.is_none());
    staying.map(|claim| claim.name_any()).collect()
}

/// The reason of the VM's condition; none without the condition.
async fn state(cluster: &TestCluster) -> Option<String> {
    let vm = json!(cluster.vms().get("a").await.unwrap());
    let all = vm["status"]["conditions"].as_array().cloned();
    let mut all = all.unwrap_or_default().into_iter();
    let condition = all.find(|one| one["type"] == "Suspended")?;
    Some(condition["reason"].as_str().unwrap().to_owned())
}

async fn wait_for_state(cluster: &TestCluster, expected: Option<&str>) {
    cluster
        .wait_until(&format!("the state {expected:?}"), async || {
            state(cluster).await.as_deref() == expected
        })
        .await;
}

async fn has_volume(cluster: &TestCluster, name: &str) -> bool {
    let vmi = cluster.vmis().get_opt("a").await.unwrap();
    let volumes = vmi.map(|vmi| vmi.spec.volumes).unwrap_or_default();
    volumes.iter().any(|volume| volume.name == name)
}

async fn running(cluster: &TestCluster) {
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
}

/// Up to the place where virt-handler has the state saved.
async fn begin(cluster: &TestCluster) -> String {
    let uid = cluster.vmis().get("a").await.unwrap().uid().unwrap();
    let request = json!([{"action": "Suspend", "uid": uid}]);
    cluster.request("a", request).await;
    cluster
        .wait_until("there is a claim", async || {
            saved_claims(cluster).await.len() == 1
        })
        .await;
    let claim = saved_claims(cluster).await.remove(0);
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    let parameters = PatchParams::default();
    let api = claims(cluster);
    api.patch_status(&claim, &parameters, &bound).await.unwrap();
    wait_for_phase(cluster, SAVING, "AttachedToNode").await;
    claim
}

/// virt-handler reports that the guest has ended with its state saved.
async fn end(cluster: &TestCluster) {
    let status = json!({"status": {"phase": "Succeeded", "reason": "Suspended"}});
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(status));
    cluster
        .vmis()
        .patch("a", &parameters, &patch)
        .await
        .unwrap();
    wait_for_state(cluster, Some("Suspended")).await;
    cluster.wait_until_gone("a").await;
}

/// A guest is suspended, rests, and goes on.
pub(crate) async fn suspend_and_resume(cluster: &TestCluster) {
    running(cluster).await;
    let claim = begin(cluster).await;
    end(cluster).await;
    cluster.wait_for_printable("a", "Stopped").await;
    assert_eq!(saved_claims(cluster).await, [claim]);

    cluster.request("a", json!([{"action": "Resume"}])).await;
    cluster
        .wait_until("the guest goes on", async || {
            cluster.vmis().get_opt("a").await.unwrap().is_some()
        })
        .await;
    cluster.wait_for_printable("a", "Running").await;
    wait_for_state(cluster, None).await;
    cluster
        .wait_until("the claim is dropped", async || {
            saved_claims(cluster).await.is_empty() && !has_volume(cluster, SAVED).await
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn suspended_guest_rests_and_goes_on() {
    let cluster = TestCluster::new().await;
    suspend_and_resume(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_whose_state_is_not_saved_goes_on_without_the_claim() {
    let cluster = TestCluster::new().await;
    running(&cluster).await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    begin(&cluster).await;
    let failed = json!({"phase": "MemoryDumpFailed", "message": "no space left"});
    report_with(&cluster, SAVING, failed).await;
    wait_for_state(&cluster, Some("SuspendFailed")).await;
    cluster
        .wait_until("the claim is dropped", async || {
            saved_claims(&cluster).await.is_empty() && !has_volume(&cluster, SAVING).await
        })
        .await;
    assert_eq!(cluster.vmis().get("a").await.unwrap().uid(), uid);
    assert_eq!(cluster.events_of("SuspendFailed").await, 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn discarded_state_lets_the_guest_start_anew() {
    let cluster = TestCluster::new().await;
    running(&cluster).await;
    begin(&cluster).await;
    end(&cluster).await;
    let discard: Value = json!([{"action": "Resume", "data": {"discardState": "true"}}]);
    cluster.request("a", discard).await;
    cluster.wait_for_printable("a", "Running").await;
    wait_for_state(&cluster, None).await;
    assert!(!has_volume(&cluster, SAVED).await);
    assert!(saved_claims(&cluster).await.is_empty());
    cluster.end().await;
}
