//! Periodic imports; the tests act as the node that runs the pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};

fn cron(retention: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": {"namespace": NAMESPACE, "name": "nightly"},
        "spec": {
            "schedule": "@hourly", "managedDataSource": "debian", "importsToKeep": 1,
            "retentionPolicy": retention,
            "template": {"spec": {
                "source": {"http": {"url": "https://example.com/disk.qcow2"}},
                "storage": {"resources": {"requests": {"storage": "1Gi"}}},
            }},
        },
    })
}

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

async fn status(cluster: &TestCluster) -> Value {
    let all = cluster.importers("DataImportCron", NAMESPACE);
    all.get("nightly").await.unwrap().data["status"].clone()
}

async fn wait_for_reason(cluster: &TestCluster, kind: &str, reason: &str) {
    cluster
        .wait_until(&format!("{kind} is {reason}"), async || {
            let all = status(cluster).await["conditions"].as_array().cloned();
            let mut all = all.unwrap_or_default().into_iter();
            all.any(|one| one["type"] == kind && one["reason"] == reason)
        })
        .await;
}

/// Has the pod that looks for a version report this one.
async fn report(cluster: &TestCluster, digest: String) {
    let cron = cluster
        .importers("DataImportCron", NAMESPACE)
        .get("nightly")
        .await;
    let pod = format!("version-{}", cron.unwrap().uid().unwrap());
    cluster
        .wait_until("there is a pod", async || {
            let found = cluster.pods().get_opt(&pod).await.unwrap();
            found.is_some_and(|found| found.metadata.deletion_timestamp.is_none())
        })
        .await;
    let message = import_report::Report::version(digest).text();
    let state = json!({"terminated": {"exitCode": 0, "message": message}});
    let container = json!({"name": "importer", "ready": false, "image": "launcher:1",
                           "imageID": "", "restartCount": 0, "state": state});
    let ended = json!({"phase": "Succeeded", "containerStatuses": [container]});
    cluster.set_status::<Pod>(&pod, ended).await;
    cluster
        .wait_until("the pod is gone", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_none()
        })
        .await;
}

/// Finishes the import into the data volume of this name.
async fn import(cluster: &TestCluster, name: &str) {
    cluster
        .wait_until("there is a claim", async || {
            cluster.claims().get_opt(name).await.unwrap().is_some()
        })
        .await;
    let bound = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
    cluster
        .set_status::<PersistentVolumeClaim>(name, bound)
        .await;
    let uid = cluster.data_volumes().get(name).await.unwrap().uid();
    let pod = format!("importer-{}", uid.unwrap());
    cluster
        .wait_until("there is an importer", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_some()
        })
        .await;
    cluster
        .set_status::<Pod>(&pod, json!({"phase": "Succeeded"}))
        .await;
    cluster
        .wait_until("the data source leads there", async || {
            let found = cluster
                .importers("DataSource", NAMESPACE)
                .get_opt("debian")
                .await;
            let found = found.unwrap();
            found.is_some_and(|found| found.data["spec"]["source"]["pvc"]["name"] == name)
        })
        .await;
}

/// Imports two versions, for tests that crash the controller meanwhile.
pub(super) async fn followed(cluster: &TestCluster) {
    cluster.create(cron("None")).await;
    report(cluster, digest('1')).await;
    import(cluster, "debian-111111111111").await;
    wait_for_reason(cluster, "UpToDate", "UpToDate").await;
    cluster.advance(Duration::from_hours(1)).await;
    report(cluster, digest('2')).await;
    import(cluster, "debian-222222222222").await;
    cluster
        .wait_until("the old import is gone", async || {
            let old = "debian-111111111111";
            cluster.data_volumes().get_opt(old).await.unwrap().is_none()
        })
        .await;
    cluster
        .importers("DataImportCron", NAMESPACE)
        .delete("nightly", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait_until("nothing is left", async || {
            let sources = cluster.importers("DataSource", NAMESPACE);
            let sources = sources.list(&ListParams::default()).await.unwrap();
            let volumes = cluster.data_volumes().list(&ListParams::default()).await;
            sources.items.is_empty() && volumes.unwrap().items.is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn data_source_follows_the_versions_of_an_image() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    followed(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn same_version_is_not_imported_again() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    cluster.create(cron("All")).await;
    report(&cluster, digest('1')).await;
    import(&cluster, "debian-111111111111").await;
    wait_for_reason(&cluster, "UpToDate", "UpToDate").await;
    let found = status(&cluster).await;
    let current = json!([{"DataVolumeName": "debian-111111111111", "Digest": digest('1')}]);
    assert_eq!(found["currentImports"], current);
    assert_eq!(found["lastImportedPVC"]["name"], "debian-111111111111");
    for _ in 0..3 {
        let last = status(&cluster).await["lastExecutionTimestamp"].clone();
        cluster.advance(Duration::from_hours(1)).await;
        report(&cluster, digest('1')).await;
        assert_ne!(status(&cluster).await["lastExecutionTimestamp"], last);
    }
    let volumes = cluster
        .data_volumes()
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(volumes.items.len(), 1);
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(10)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");

    cluster
        .importers("DataImportCron", NAMESPACE)
        .delete("nightly", &DeleteParams::default())
        .await
        .unwrap();
    cluster.advance(Duration::from_mins(10)).await;
    let kept = cluster
        .data_volumes()
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(kept.items.len(), 1);
    cluster.end().await;
}

/// As for the class of CVE-2025-14459: a periodic import copies no claim, of whatever namespace.
#[tokio::test(start_paused = true)]
async fn periodic_copy_of_a_claim_is_refused() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    let mut copy = cron("All");
    copy["spec"]["template"]["spec"]["source"] =
        json!({"pvc": {"namespace": NAMESPACE, "name": "disk"}});
    cluster.create(copy).await;
    wait_for_reason(&cluster, "UpToDate", "ImportNotSupported").await;
    cluster.advance(Duration::from_hours(3)).await;
    assert!(cluster.writes_to("/pods").is_empty());
    cluster.end().await;
}
