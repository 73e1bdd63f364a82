//! Volumes of running guests, with the part of virt-handler played by the test.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};

async fn create_bound_claim(cluster: &TestCluster, name: &str) {
    cluster.create_claim(name).await;
    bind(cluster, name).await;
}

async fn bind(cluster: &TestCluster, name: &str) {
    let claims = Api::<PersistentVolumeClaim>::namespaced(cluster.client.clone(), NAMESPACE);
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    let parameters = PatchParams::default();
    claims
        .patch_status(name, &parameters, &bound)
        .await
        .unwrap();
}

/// The template with these claims besides what it has; each volume has the name of its claim.
pub(crate) async fn set_volumes(cluster: &TestCluster, claims: &[&str]) {
    // A merge patch replaces lists as a whole.
    let guest = test_cluster::guest();
    let own = |path: &str| {
        guest
            .pointer(path)
            .and_then(Value::as_array)
            .unwrap()
            .clone()
    };
    let mut volumes = own("/volumes");
    volumes.extend(claims.iter().map(|claim| {
        json!({"name": claim,
               "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}})
    }));
    let mut disks = own("/domain/devices/disks");
    let plugged = |claim| json!({"name": claim, "disk": {"bus": "scsi"}});
    disks.extend(claims.iter().map(plugged));
    let spec = json!({"volumes": volumes, "domain": {"devices": {"disks": disks}}});
    let patch = json!({"spec": {"template": {"spec": spec}}});
    cluster.patch_vm("a", patch).await;
}

/// The status of a volume; null if it has none.
pub(crate) async fn volume(cluster: &TestCluster, name: &str) -> Value {
    let vmi = cluster.vmis().get("a").await.unwrap();
    let status = json!(vmi.status.unwrap());
    let all = status["volumeStatus"].as_array().cloned();
    let mut all = all.unwrap_or_default().into_iter();
    all.find(|one| one["name"] == name).unwrap_or_default()
}

pub(crate) async fn wait_for_phase(cluster: &TestCluster, name: &str, phase: &str) {
    cluster
        .wait_until(&format!("{name} is {phase}"), async || {
            volume(cluster, name).await["phase"] == phase
        })
        .await;
}

/// Writes a phase, as virt-handler does.
async fn report(cluster: &TestCluster, name: &str, phase: &str) {
    report_with(cluster, name, json!({"phase": phase})).await;
}

/// Writes members of a volume's status, as virt-handler does.
pub(crate) async fn report_with(cluster: &TestCluster, name: &str, members: Value) {
    cluster
        .wait_until("the report is written", async || {
            let vmi = cluster.vmis().get("a").await.unwrap();
            let version = vmi.resource_version();
            let mut all = json!(vmi.status.unwrap().volume_status);
            for one in all.as_array_mut().unwrap() {
                if one["name"] == name {
                    for (member, value) in members.as_object().unwrap() {
                        one[member] = value.clone();
                    }
                }
            }
            let patch = json!({
                "metadata": {"resourceVersion": version}, "status": {"volumeStatus": all},
            });
            let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
            cluster.vmis().patch("a", &parameters, &patch).await.is_ok()
        })
        .await;
}

/// The claims that each attachment pod mounts.
async fn attachments(cluster: &TestCluster) -> Vec<Vec<String>> {
    let all = cluster.pods().list(&ListParams::default()).await.unwrap();
    let attachments = all
        .items
        .into_iter()
        .filter(|pod| pod.name_any().starts_with("hp-volume-"));
    attachments.map(|pod| claims(&pod)).collect()
}

fn claims(pod: &Pod) -> Vec<String> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.clone()).collect()
}

pub(crate) async fn wait_for_attachments(cluster: &TestCluster, wanted: &[&[&str]]) {
    cluster
        .wait_until(&format!("attachment pods {wanted:?}"), async || {
            attachments(cluster).await == wanted
        })
        .await;
}

pub(crate) async fn with_guest() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    for claim in ["one", "two"] {
        create_bound_claim(&cluster, claim).await;
    }
    cluster
}

/// Two volumes come one after the other, by the template and by a request, and go again.
async fn plug_and_unplug(cluster: &TestCluster) {
    set_volumes(cluster, &["one"]).await;
    wait_for_phase(cluster, "one", "AttachedToNode").await;
    wait_for_attachments(cluster, &[&["one"]]).await;
    report(cluster, "one", "Ready").await;
    let request = json!({"addVolumeOptions": {
        "name": "two", "disk": {"name": "two", "disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "two", "hotpluggable": true}},
    }});
    let patch = Patch::Merge(json!({"status": {"volumeRequests": [request]}}));
    let parameters = PatchParams::default();
    let vms = cluster.vms();
    vms.patch_status("a", &parameters, &patch).await.unwrap();
    wait_for_phase(cluster, "two", "AttachedToNode").await;
    // One pod has both, and the first one is gone.
    wait_for_attachments(cluster, &[&["one", "two"]]).await;
    let published = &volume(cluster, "one").await["hotplugVolume"]["attachPodUID"];
    assert_eq!(
        *published,
        volume(cluster, "two").await["hotplugVolume"]["attachPodUID"]
    );
    let vm = cluster.vms().get("a").await.unwrap();
    assert!(vm.status.unwrap().volume_requests.is_empty());
    report(cluster, "two", "Ready").await;

    set_volumes(cluster, &["two"]).await;
    wait_for_phase(cluster, "one", "Detaching").await;
    // Its claim is in use.
    wait_for_attachments(cluster, &[&["one", "two"]]).await;
    report(cluster, "one", "UnMountedFromPod").await;
    wait_for_attachments(cluster, &[&["two"]]).await;
    cluster
        .wait_until("the status has forgotten it", async || {
            volume(cluster, "one").await.is_null()
        })
        .await;
    set_volumes(cluster, &[]).await;
    wait_for_phase(cluster, "two", "Detaching").await;
    report(cluster, "two", "UnMountedFromPod").await;
    wait_for_attachments(cluster, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn volumes_follow_the_template_without_a_restart() {
    let cluster = with_guest().await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    plug_and_unplug(&cluster).await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    assert_eq!(vmi.uid(), uid);
    cluster
        .wait_until("no restart is required", async || {
            let vm = json!(cluster.vms().get("a").await.unwrap());
            let conditions = vm["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.unwrap_or_default().into_iter();
            !conditions.any(|one| one["type"] == "RestartRequired")
        })
        .await;
    cluster.end().await;
}

/// A definition checks less in a request than in a template.
#[tokio::test(start_paused = true)]
async fn request_for_a_template_that_is_refused_is_dropped_with_an_event() {
    let cluster = with_guest().await;
    let disk = json!({"name": "one", "cache": "unknown", "disk": {"bus": "scsi"}});
    let request = json!({"addVolumeOptions": {
        "name": "one", "disk": disk,
        "volumeSource": {"persistentVolumeClaim": {"claimName": "one"}},
    }});
    let patch = Patch::Merge(json!({"status": {"volumeRequests": [request]}}));
    let vms = cluster.vms();
    let parameters = PatchParams::default();
    vms.patch_status("a", &parameters, &patch).await.unwrap();
    cluster
        .wait_until("the request is dropped", async || {
            let vm = vms.get("a").await.unwrap();
            vm.status.unwrap().volume_requests.is_empty()
        })
        .await;
    assert_eq!(cluster.events_of("HotPlugVolumeError").await, 1);
    // The VM goes on.
    set_volumes(&cluster, &["two"]).await;
    wait_for_phase(&cluster, "two", "AttachedToNode").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn missing_claim_is_reported_and_used_once_it_exists() {
    let cluster = with_guest().await;
    set_volumes(&cluster, &["late"]).await;
    wait_for_phase(&cluster, "late", "Pending").await;
    assert_eq!(
        volume(&cluster, "late").await["reason"],
        "FailedPvcNotFound"
    );
    assert_eq!(cluster.events_of("FailedPvcNotFound").await, 1);
    wait_for_attachments(&cluster, &[]).await;
    create_bound_claim(&cluster, "late").await;
    wait_for_phase(&cluster, "late", "AttachedToNode").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn data_volume_that_waits_for_a_pod_gets_one_and_comes_once_it_is_filled() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let waiting = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": "late"}, "spec": {}, "status": {"phase": "WaitForFirstConsumer"},
    });
    let waiting = serde_json::from_value(waiting).unwrap();
    let created = cluster.data_volumes();
    let created = created.create(&PostParams::default(), &waiting).await;
    created.unwrap();
    cluster.create_claim("late").await;
    set_volumes(&cluster, &["late"]).await;
    wait_for_attachments(&cluster, &[&["late"]]).await;
    for phase in ["ImportScheduled", "ImportInProgress"] {
        cluster.set_data_volume_phase("late", phase).await;
        bind(&cluster, "late").await;
        assert_eq!(volume(&cluster, "late").await["phase"], "Pending");
        wait_for_attachments(&cluster, &[&["late"]]).await;
    }
    cluster.set_data_volume_phase("late", "Succeeded").await;
    wait_for_phase(&cluster, "late", "AttachedToNode").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn volumes_survive_a_crash_of_the_controllers_at_every_failpoint() {
    let names = ::failpoints::NAMES.lines();
    let own = [
        "virt-controller/vm/apply-volume-requests",
        "virt-controller/vm/change-template",
        "virt-controller/vm/plug-volumes",
    ];
    let names =
        names.filter(|name| name.starts_with("virt-controller/hotplug/") || own.contains(name));
    for name in names {
        let mut cluster = with_guest().await;
        cluster.crash_after(name);
        plug_and_unplug(&cluster).await;
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {name} was not reached"
        );
        cluster.end().await;
    }
}
