//! Disks that an importer populates; the tests act as the importer.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::TestCluster;

fn blank() -> Value {
    json!({"source": {"blank": {}}})
}

/// Reason and message of a condition of a VM.
async fn condition(cluster: &TestCluster, name: &str, kind: &str) -> (String, String) {
    let vm = cluster.vms().get(name).await.unwrap();
    let conditions = vm.status.unwrap_or_default().conditions;
    let found = conditions
        .into_iter()
        .find(|one| one.type_.as_str() == kind);
    let found = found.unwrap_or_default();
    (
        found.reason.unwrap_or_default(),
        found.message.unwrap_or_default(),
    )
}

async fn wait_for_data_volume(cluster: &TestCluster, name: &str) {
    cluster
        .wait_until("data volume exists", async || {
            cluster
                .data_volumes()
                .get_opt(name)
                .await
                .unwrap()
                .is_some()
        })
        .await;
}

pub(super) async fn wait_for_no_data_volume(cluster: &TestCluster, name: &str) {
    cluster
        .wait_until(&format!("data volume {name} is gone"), async || {
            cluster
                .data_volumes()
                .get_opt(name)
                .await
                .unwrap()
                .is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn guest_waits_until_its_data_volume_is_populated() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    cluster
        .create_vm_with_template("a", "Always", blank())
        .await;
    wait_for_data_volume(&cluster, "a-data").await;
    let made = cluster.data_volumes().get("a-data").await.unwrap();
    let vm = cluster.vms().get("a").await.unwrap();
    let uid = vm.uid().unwrap();
    assert_eq!(made.labels()["kubevirt.io/created-by"], uid);
    assert_eq!(made.labels()["mine"], "1");
    assert_eq!(
        made.annotations()["cdi.kubevirt.io/allowClaimAdoption"],
        "true"
    );
    let owner = &made.owner_references()[0];
    assert_eq!(
        (owner.uid.as_str(), owner.controller),
        (uid.as_str(), Some(true))
    );
    assert_eq!(
        made.data["spec"]["storage"]["resources"]["requests"]["storage"],
        "1Gi"
    );

    cluster
        .set_data_volume_phase("a-data", "ImportInProgress")
        .await;
    cluster.wait_for_printable("a", "Provisioning").await;
    cluster
        .wait_until("the pending data volume is reported", async || {
            let (reason, message) = condition(&cluster, "a", "DataVolumesReady").await;
            reason == "NotAllDVsReady" && message == "data volume a-data is ImportInProgress"
        })
        .await;
    assert!(cluster.vmis().get_opt("a").await.unwrap().is_none());
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(5)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");

    cluster.create_claim("a-data").await;
    cluster.set_data_volume_phase("a-data", "Succeeded").await;
    cluster
        .wait_for_printable("a", "WaitingForVolumeBinding")
        .await;
    cluster
        .wait_until("the guest runs", async || {
            let vmi = cluster.vmis().get_opt("a").await.unwrap();
            let phase = vmi.and_then(|vmi| vmi.status?.phase);
            phase.is_some_and(|phase| phase.as_str() == "Running")
        })
        .await;
    assert_eq!(cluster.events_of("SuccessfulDataVolumeCreate").await, 1);
    assert_eq!(
        condition(&cluster, "a", "DataVolumesReady").await.0,
        "AllDVsReady"
    );

    let foreground = DeleteParams::foreground();
    cluster.vms().delete("a", &foreground).await.unwrap();
    wait_for_no_data_volume(&cluster, "a-data").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn missing_importer_is_reported_until_there_is_a_claim_or_an_importer() {
    let cluster = TestCluster::new().await;
    for name in ["a", "b"] {
        cluster
            .create_vm_with_template(name, "Always", blank())
            .await;
        cluster
            .wait_until("the failure is reported", async || {
                let (reason, message) = condition(&cluster, name, "Failure").await;
                reason == "FeatureNotSupported"
                    && message.contains("spec.dataVolumeTemplates[0]")
                    && message.contains("install one, or create persistentvolumeclaim")
            })
            .await;
    }
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(5)).await;
    assert_eq!(cluster.all_writes(), writes, "no futile writes");
    assert_eq!(cluster.printable("a").await, "Stopped");

    cluster.create_claim("a-data").await;
    cluster
        .wait_until("one runs on a claim of that name", async || {
            cluster.vmis().get_opt("a").await.unwrap().is_some()
        })
        .await;
    assert_eq!(condition(&cluster, "a", "Failure").await.0, "");

    cluster.install_importer().await;
    wait_for_data_volume(&cluster, "b-data").await;
    cluster
        .wait_until("nothing is wrong", async || {
            condition(&cluster, "b", "Failure").await.0.is_empty()
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_import_is_reported_once_and_replaced() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    cluster
        .create_vm_with_template("a", "Always", blank())
        .await;
    wait_for_data_volume(&cluster, "a-data").await;
    cluster.set_data_volume_phase("a-data", "Failed").await;
    cluster.wait_for_printable("a", "DataVolumeError").await;
    cluster.advance(Duration::from_mins(2)).await;
    assert_eq!(cluster.events_of("FailedDataVolumeImport").await, 1);

    let first = cluster.data_volumes().get("a-data").await.unwrap().uid();
    let now = DeleteParams::default();
    cluster.data_volumes().delete("a-data", &now).await.unwrap();
    cluster
        .wait_until("another is created", async || {
            let found = cluster.data_volumes().get_opt("a-data").await.unwrap();
            found.is_some_and(|found| found.uid() != first)
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn halted_vm_creates_data_volumes_unless_annotated() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    cluster
        .create_vm_with_template("a", "Halted", blank())
        .await;
    wait_for_data_volume(&cluster, "a-data").await;

    // Annotated before the controllers observe it.
    let mut cluster = cluster;
    cluster.stop_controllers().await;
    cluster
        .create_vm_with_template("b", "Halted", blank())
        .await;
    let late = json!({"metadata": {"annotations": {
        "kubevirt.io/immediate-data-volume-creation": "false"}}});
    cluster.patch_vm("b", late).await;
    cluster.start_controllers();
    cluster.wait_for_printable("b", "Stopped").await;
    cluster.advance(Duration::from_mins(1)).await;
    assert!(
        cluster
            .data_volumes()
            .get_opt("b-data")
            .await
            .unwrap()
            .is_none()
    );
    let start = json!({"spec": {"runStrategy": "Always"}});
    cluster.patch_vm("b", start).await;
    wait_for_data_volume(&cluster, "b-data").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn unowned_data_volume_is_adopted_and_foreign_one_is_used() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let node = nodes.get("node1").await.unwrap().uid().unwrap();
    for (name, owners) in [
        ("a-data", json!([])),
        (
            "b-data",
            json!([{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": node,
                    "controller": true}]),
        ),
    ] {
        let there = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {}, "status": {"phase": "Succeeded"},
        });
        create(cluster.data_volumes(), there).await;
        cluster.create_claim(name).await;
    }
    for name in ["a", "b"] {
        cluster
            .create_vm_with_template(name, "Always", blank())
            .await;
        cluster
            .wait_until("it starts", async || {
                cluster.vmis().get_opt(name).await.unwrap().is_some()
            })
            .await;
    }
    let uid = cluster.vms().get("a").await.unwrap().uid().unwrap();
    // The caches may show the claim before the data volume, and that is enough to start.
    cluster
        .wait_until("it is adopted", async || {
            let adopted = cluster.data_volumes().get("a-data").await.unwrap();
            let mut owners = adopted.owner_references().iter();
            owners.any(|owner| owner.uid == uid)
        })
        .await;
    let other = cluster.data_volumes().get("b-data").await.unwrap();
    assert_eq!(other.owner_references().len(), 1);
    assert_eq!(other.owner_references()[0].uid, node);
    cluster.end().await;
}

/// Scenario: the disk of a VM is created, bound and populated.
pub(super) async fn populated(cluster: &TestCluster) {
    cluster.install_importer().await;
    cluster
        .create_vm_with_template("a", "Always", blank())
        .await;
    wait_for_data_volume(cluster, "a-data").await;
    cluster.create_claim("a-data").await;
    cluster
        .set_data_volume_phase("a-data", "WaitForFirstConsumer")
        .await;
    cluster
        .wait_until("a pod has run for the claim", async || {
            let all = cluster.pods().list(&ListParams::default()).await.unwrap();
            let mut all = all.into_iter();
            all.any(|pod| pod.status.and_then(|it| it.phase).as_deref() == Some("Succeeded"))
        })
        .await;
    cluster.set_data_volume_phase("a-data", "Succeeded").await;
    cluster.wait_for_printable("a", "Running").await;
}

/// Scenario: a VM adopts an existing disk.
pub(super) async fn adopted(cluster: &TestCluster) {
    cluster.install_importer().await;
    let there = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": "a-data"}, "spec": {}, "status": {"phase": "Succeeded"},
    });
    create(cluster.data_volumes(), there).await;
    cluster.create_claim("a-data").await;
    cluster
        .create_vm_with_template("a", "Always", blank())
        .await;
    cluster.wait_for_printable("a", "Running").await;
    let adopted = cluster.data_volumes().get("a-data").await.unwrap();
    let uid = cluster.vms().get("a").await.unwrap().uid();
    assert_eq!(adopted.owner_references()[0].uid, uid.unwrap());
}

async fn create<K>(api: Api<K>, body: Value)
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object = serde_json::from_value(body).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// The classes of CVE-2025-14459 and CVE-2026-133879, in which the importer copies the disk of another
/// namespace: nothing on the VM turns the check off.
#[tokio::test(start_paused = true)]
async fn disk_of_another_namespace_needs_the_right_of_the_service_account() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    create(namespaces, json!({"metadata": {"name": "images"}})).await;
    let source = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": {"name": "fedora"},
        "spec": {"source": {"pvc": {"namespace": "images", "name": "fedora"}}},
    });
    create(cluster.importers("DataSource", "images"), source).await;
    let direct = json!({"source": {"pvc": {"namespace": "images", "name": "fedora"}}});
    let named = json!({"sourceRef": {"kind": "DataSource", "namespace": "images",
                                     "name": "fedora"}});
    let nowhere = json!({"sourceRef": {"kind": "DataSource", "name": "nothing"}});
    for (name, source, part) in [
        (
            "a",
            direct,
            "system:serviceaccount:default:default must not copy",
        ),
        ("b", named, "must not copy from namespace images"),
        (
            "c",
            nowhere,
            "data source default/nothing, which does not exist",
        ),
    ] {
        cluster
            .create_vm_with_template(name, "Always", source)
            .await;
        cluster
            .wait_until("it is refused", async || {
                let (reason, message) = condition(&cluster, name, "Failure").await;
                reason == "FailedCreate" && message.contains(part)
            })
            .await;
    }
    let all = cluster.data_volumes().list(&ListParams::default()).await;
    assert!(all.unwrap().items.is_empty());
    cluster.events_of("UnauthorizedDataVolumeCreate").await;

    let roles = Api::<Role>::namespaced(cluster.client.clone(), "images");
    let role = json!({"metadata": {"name": "copy"}, "rules": [{
        "apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"],
        "verbs": ["create"]}]});
    create(roles, role).await;
    let bindings = Api::<RoleBinding>::namespaced(cluster.client.clone(), "images");
    let binding = json!({
        "metadata": {"name": "copy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "copy"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
    });
    create(bindings, binding).await;
    for name in ["a-data", "b-data"] {
        wait_for_data_volume(&cluster, name).await;
    }
    // A missing source is reported.
    cluster.set_data_volume_phase("a-data", "Pending").await;
    cluster
        .wait_until("the missing source is reported", async || {
            let (_, message) = condition(&cluster, "a", "DataVolumesReady").await;
            message.contains("a copy of persistentvolumeclaim images/fedora")
        })
        .await;
    assert_eq!(cluster.events_of("SourcePVCNotAvailabe").await, 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn claim_that_waits_for_its_first_consumer_gets_a_binding_pod() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    cluster
        .create_vm_with_template("a", "Always", blank())
        .await;
    wait_for_data_volume(&cluster, "a-data").await;
    cluster.create_claim("a-data").await;
    cluster
        .set_data_volume_phase("a-data", "WaitForFirstConsumer")
        .await;
    let pods = async || {
        cluster
            .pods()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    };
    cluster
        .wait_until("a pod has run for the claim", async || {
            let all = pods().await;
            let phase = |pod: &k8s_openapi::api::core::v1::Pod| pod.status.clone()?.phase;
            all.len() == 1 && phase(&all[0]).as_deref() == Some("Succeeded")
        })
        .await;
    let binder = pods().await.remove(0);
    assert!(
        binder.name_any().ends_with("-bind"),
        "{}",
        binder.name_any()
    );
    let vmi = cluster.vmis().get("a").await.unwrap();
    let status = vmi.status.unwrap();
    assert_eq!(status.phase.unwrap().as_str(), "Pending");
    let is_true = |kind: &str| {
        let mut conditions = status.conditions.iter();
        conditions.any(|one| one.type_.as_str() == kind && one.status == "True")
    };
    assert!(is_true("Provisioning") && !is_true("DataVolumesReady"));
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(pods().await.len(), 1, "one pod");

    cluster
        .set_data_volume_phase("a-data", "ImportInProgress")
        .await;
    cluster.wait_for_printable("a", "Provisioning").await;
    cluster.set_data_volume_phase("a-data", "Succeeded").await;
    cluster
        .wait_until("the guest runs and that pod is gone", async || {
            let vmi = cluster.vmis().get("a").await.unwrap();
            let phase = vmi.status.unwrap().phase.unwrap();
            let all = pods().await;
            phase.as_str() == "Running" && all.len() == 1 && all[0].name_any() != binder.name_any()
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vmi_deleted_during_binding_leaves_no_pod() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    cluster
        .create_vm_with_template("a", "Always", blank())
        .await;
    wait_for_data_volume(&cluster, "a-data").await;
    cluster.create_claim("a-data").await;
    cluster
        .set_data_volume_phase("a-data", "WaitForFirstConsumer")
        .await;
    cluster
        .wait_until("there is a pod", async || {
            !cluster.writes_to("/pods").is_empty()
        })
        .await;
    let halt = json!({"spec": {"runStrategy": "Halted"}});
    cluster.patch_vm("a", halt).await;
    cluster.wait_until_gone("a").await;
    cluster.end().await;
}
