//! Templates of VMs; the tests act as the storage driver and as the importer.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::template::{
    VirtualMachineTemplate, VirtualMachineTemplateRequest, VirtualMachineTemplateRequestStatus,
};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::snapshots::with_storage;

impl TestCluster {
    fn template_requests(&self) -> Api<VirtualMachineTemplateRequest> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn templates(&self) -> Api<VirtualMachineTemplate> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// For a template `golden` of VM `a`.
    async fn request_template(&self, name: &str, more: Value) {
        let mut spec = json!({
            "virtualMachineRef": {"namespace": NAMESPACE, "name": "a"},
            "templateName": "golden",
            "templateLabels": {"team": "web"},
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let request = json!({
            "apiVersion": "template.kubevirt.io/v1alpha1", "kind": "VirtualMachineTemplateRequest",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        self.create(request).await;
    }

    async fn request_status(&self, name: &str) -> VirtualMachineTemplateRequestStatus {
        let request = self.template_requests().get(name).await.unwrap();
        request.status.unwrap_or_default()
    }

    async fn wait_for_request_reason(&self, name: &str, reason: &str) {
        self.wait_until(&format!("request {name}: {reason}"), async || {
            let conditions = self.request_status(name).await.conditions;
            conditions.iter().any(|one| one.reason == reason)
        })
        .await;
    }

    /// The names of the data volumes of requests.
    async fn request_volumes(&self) -> Vec<String> {
        let all = self.data_volumes().list(&ListParams::default()).await;
        all.unwrap()
            .iter()
            .map(kube::ResourceExt::name_any)
            .collect()
    }

    /// As the importer does.
    async fn fill_request_volume(&self) {
        self.wait_until("there is a data volume", async || {
            self.request_volumes().await.len() == 1
        })
        .await;
        for name in self.request_volumes().await {
            self.set_data_volume_phase(&name, "Succeeded").await;
        }
    }

    async fn delete_template(&self, what: &str) {
        let now = DeleteParams::default();
        self.templates().delete("golden", &now).await.unwrap();
        self.wait_until(&format!("{what}: the data volume is gone"), async || {
            self.request_volumes().await.is_empty()
        })
        .await;
    }

    async fn wait_for_no_snapshot(&self) {
        self.wait_until("the snapshot is gone", async || {
            let all = self.snapshots().list(&ListParams::default()).await;
            all.unwrap().items.is_empty()
        })
        .await;
    }
}

/// Only requests that fail get there.
const DELETE_VOLUME: &str = "virt-controller/template-request/delete-volume";

async fn with_importer() -> TestCluster {
    let cluster = with_storage().await;
    cluster.install_importer().await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn template_of_a_running_vm_copies_its_disk() {
    let cluster = with_importer().await;
    cluster.request_template("r", json!({})).await;
    cluster
        .wait_for_request_reason("r", "SourceDoesNotExist")
        .await;
    cluster.run_vm_on_a_disk().await;
    let guest = cluster.vmis().get("a").await.unwrap().uid();
    cluster.fill_request_volume().await;
    cluster.wait_for_request_reason("r", "TemplateReady").await;
    let status = cluster.request_status("r").await;
    let states: Vec<_> = status
        .conditions
        .iter()
        .map(|one| (one.type_.as_str(), one.status.as_str()))
        .collect();
    assert_eq!(states, [("Progressing", "False"), ("Ready", "True")]);
    assert_eq!(status.template_ref.unwrap().name, "golden");
    let template = cluster.templates().get("golden").await.unwrap();
    let request = cluster.template_requests().get("r").await.unwrap();
    assert_eq!(template.labels()["team"], "web");
    assert_eq!(
        template.labels().get("template.kubevirt.io/RequestUID"),
        request.uid().as_ref()
    );
    let vm = &template.spec.virtual_machine.0;
    assert_eq!(vm["metadata"]["name"], "${NAME}");
    let volumes = cluster.request_volumes().await;
    let [volume] = &volumes[..] else {
        panic!("not one data volume: {volumes:?}");
    };
    let copied = &vm["spec"]["dataVolumeTemplates"][0];
    assert_eq!(copied["metadata"]["name"], "${NAME}-data");
    assert_eq!(copied["spec"]["source"]["pvc"]["name"], volume.as_str());
    let volume = cluster.data_volumes().get(volume).await.unwrap();
    let owners: Vec<_> = volume
        .owner_references()
        .iter()
        .map(|one| &one.uid)
        .collect();
    assert_eq!(owners, [template.metadata.uid.as_ref().unwrap()]);
    cluster.wait_for_no_snapshot().await;
    // The source runs on.
    assert_eq!(cluster.vmis().get("a").await.unwrap().uid(), guest);
    cluster.wait_for_unlocked("a").await;
    cluster.request_template("again", json!({})).await;
    cluster
        .wait_for_request_reason("again", "TemplateExists")
        .await;
    cluster.delete_template("in the end").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn request_that_cannot_be_carried_out_leaves_nothing() {
    let mut cluster = with_importer().await;
    cluster.run_vm_on_a_disk().await;
    // The importer fails.
    cluster.crash_after(DELETE_VOLUME);
    cluster.request_template("failing", json!({})).await;
    cluster
        .wait_until("there is a data volume", async || {
            cluster.request_volumes().await.len() == 1
        })
        .await;
    for name in cluster.request_volumes().await {
        cluster.set_data_volume_phase(&name, "Failed").await;
    }
    cluster
        .wait_for_request_reason("failing", "TemplateNotPossible")
        .await;
    cluster.wait_for_no_snapshot().await;
    cluster
        .wait_until("the data volume is gone", async || {
            cluster.request_volumes().await.is_empty()
        })
        .await;
    assert!(!cluster.is_crash_pending());
    cluster.template_requests().get("failing").await.unwrap();
    let template = cluster.templates().get_opt("golden").await.unwrap();
    assert!(template.is_none());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn request_is_deleted_after_its_time_and_the_template_stays() {
    let cluster = with_importer().await;
    cluster.run_vm_on_a_disk().await;
    let short = json!({"ttlSecondsAfterFinished": 60});
    cluster.request_template("r", short).await;
    cluster.fill_request_volume().await;
    cluster.wait_for_request_reason("r", "TemplateReady").await;
    cluster.advance(Duration::from_secs(90)).await;
    let request = cluster.template_requests().get_opt("r").await.unwrap();
    assert!(request.is_none());
    cluster.templates().get("golden").await.unwrap();
    assert_eq!(cluster.request_volumes().await.len(), 1);
    cluster.end().await;
}

/// The template exists, and its disks do not belong to it yet.
#[tokio::test(start_paused = true)]
async fn deleted_request_leaves_the_disks_to_its_template() {
    for how in [DeleteParams::background(), DeleteParams::foreground()] {
        disks_are_left_to_the_template(&how).await;
    }
}

async fn disks_are_left_to_the_template(how: &DeleteParams) {
    let mut cluster = with_importer().await;
    cluster.run_vm_on_a_disk().await;
    cluster.crash_and_stay_down_after("virt-controller/template-request/create-template");
    cluster.request_template("r", json!({})).await;
    cluster.fill_request_volume().await;
    cluster
        .wait_until("the controllers are down", async || {
            !cluster.is_crash_pending()
        })
        .await;
    cluster.template_requests().delete("r", how).await.unwrap();
    cluster.start_controllers();
    cluster
        .wait_until("the request is gone", async || {
            let request = cluster.template_requests().get_opt("r").await;
            request.unwrap().is_none()
        })
        .await;
    let template = cluster.templates().get("golden").await.unwrap();
    let volumes = cluster.request_volumes().await;
    let [volume] = &volumes[..] else {
        panic!("not one data volume: {volumes:?}");
    };
    let volume = cluster.data_volumes().get(volume).await.unwrap();
    let owners: Vec<_> = volume
        .owner_references()
        .iter()
        .map(|one| &one.uid)
        .collect();
    assert_eq!(owners, [template.metadata.uid.as_ref().unwrap()]);
    cluster.wait_for_no_snapshot().await;
    cluster.end().await;
}

const TEAM: &str = "team";

fn of_team<K>(cluster: &TestCluster) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(cluster.client.clone(), TEAM)
}

/// Requests a template of VM `a` for another namespace, which exists.
async fn request_for_team(cluster: &TestCluster, name: &str) {
    let request = json!({
        "apiVersion": "template.kubevirt.io/v1alpha1", "kind": "VirtualMachineTemplateRequest",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"virtualMachineRef": {"namespace": NAMESPACE, "name": "a"}},
    });
    cluster.create(request).await;
}

/// Waits for the data volume of a request, and says that it has its data.
async fn fill_for_team(cluster: &TestCluster, request: &str) -> DataVolume {
    let requests = of_team::<VirtualMachineTemplateRequest>(cluster);
    let uid = requests.get(request).await.unwrap().uid().unwrap();
    let name = format!("template-{uid}-data");
    let volumes = of_team::<DataVolume>(cluster);
    cluster
        .wait_until("there is a data volume", async || {
            volumes.get_opt(&name).await.unwrap().is_some()
        })
        .await;
    let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let filled = volumes.patch(&name, &PatchParams::default(), &status).await;
    filled.unwrap()
}

/// virt-api has asked for the right of the user. Killed after any step, the controller leaves no snapshot behind.
#[tokio::test(start_paused = true)]
async fn template_of_a_vm_in_another_namespace() {
    let mut cluster = with_importer().await;
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}});
    cluster.create(team).await;
    cluster.run_vm_on_a_disk().await;
    for step in ["add-finalizer", "create-snapshot", "delete-snapshot"] {
        cluster.crash_after(&format!("virt-controller/template-request/{step}"));
        request_for_team(&cluster, step).await;
        let volume = fill_for_team(&cluster, step).await;
        let source = volume.spec.source.clone().unwrap().snapshot.unwrap();
        assert_eq!(source.namespace, NAMESPACE);
        let permitted = format!("snapshot/{NAMESPACE}/{}", source.name);
        assert_eq!(
            volume.annotations()["ferrovirt.io/copy-permitted"],
            permitted
        );
        let requests = of_team::<VirtualMachineTemplateRequest>(&cluster);
        cluster
            .wait_until(&format!("{step}: the request is done"), async || {
                let request = requests.get(step).await.unwrap();
                request.finalizers().is_empty() && request.status.is_some()
            })
            .await;
        cluster.wait_for_no_snapshot().await;
        let template = of_team::<VirtualMachineTemplate>(&cluster).get(step).await;
        let vm = template.unwrap().spec.virtual_machine.0;
        let copied = &vm["spec"]["dataVolumeTemplates"][0]["spec"]["source"]["pvc"];
        assert_eq!(copied["namespace"], TEAM);
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {step} was not reached"
        );
    }
    cluster.end().await;
}

/// Nothing but the controller deletes the snapshot.
#[tokio::test(start_paused = true)]
async fn deleted_request_leaves_no_snapshot_in_another_namespace() {
    let cluster = with_importer().await;
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}});
    cluster.create(team).await;
    cluster.run_vm_on_a_disk().await;
    request_for_team(&cluster, "r").await;
    cluster
        .wait_until("there is a snapshot", async || {
            let all = cluster.snapshots().list(&ListParams::default()).await;
            !all.unwrap().items.is_empty()
        })
        .await;
    let requests = of_team::<VirtualMachineTemplateRequest>(&cluster);
    requests
        .delete("r", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait_until("the request is gone", async || {
            requests.get_opt("r").await.unwrap().is_none()
        })
        .await;
    cluster.wait_for_no_snapshot().await;
    cluster.end().await;
}

/// No guest is frozen, and no disk copied, for data volumes that nothing fills.
#[tokio::test(start_paused = true)]
async fn request_waits_for_an_importer() {
    let cluster = with_storage().await;
    cluster.run_vm_on_a_disk().await;
    cluster.request_template("r", json!({})).await;
    cluster
        .wait_for_request_reason("r", "VMVolumeSnapshotsInvalid")
        .await;
    let snapshots = cluster.snapshots().list(&ListParams::default()).await;
    assert!(snapshots.unwrap().items.is_empty());
    cluster.install_importer().await;
    cluster.fill_request_volume().await;
    cluster.wait_for_request_reason("r", "TemplateReady").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn template_requests_survive_a_crash_at_every_failpoint() {
    let mut cluster = with_importer().await;
    let own = |name: &&str| name.starts_with("virt-controller/template-request/");
    let all = ::failpoints::NAMES.lines().filter(own);
    for name in all.filter(|name| *name != DELETE_VOLUME) {
        cluster.run_vm_on_a_disk().await;
        cluster.crash_after(name);
        let at_once = json!({"ttlSecondsAfterFinished": 0});
        cluster.request_template("r", at_once).await;
        cluster.fill_request_volume().await;
        cluster
            .wait_until(&format!("{name}: the request is gone"), async || {
                let request = cluster.template_requests().get_opt("r").await;
                request.unwrap().is_none()
            })
            .await;
        cluster.wait_for_no_snapshot().await;
        assert_eq!(cluster.request_volumes().await.len(), 1, "{name}");
        cluster.delete_template(name).await;
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {name} was not reached"
        );
        cluster.delete_vm_and_wait("a").await;
        let now = DeleteParams::default();
        cluster.claims().delete("data", &now).await.unwrap();
        cluster
            .wait_until(&format!("{name}: nothing is left"), async || {
                cluster.claim_names().await.is_empty()
            })
            .await;
        cluster.delete_contents().await;
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn template_of_a_user_is_ready_also_after_a_crash() {
    let mut cluster = TestCluster::new().await;
    cluster.crash_after("virt-controller/template/write-status");
    let template = json!({
        "apiVersion": "template.kubevirt.io/v1alpha1", "kind": "VirtualMachineTemplate",
        "metadata": {"name": "golden", "namespace": NAMESPACE},
        "spec": {"virtualMachine": {
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
            "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
        }},
    });
    cluster.create(template).await;
    cluster
        .wait_until("the template is ready", async || {
            let template = cluster.templates().get("golden").await.unwrap();
            let generation = template.metadata.generation;
            let status = template.status.unwrap_or_default();
            status.conditions.iter().any(|one| {
                (one.type_.as_str(), one.status.as_str()) == ("Ready", "True")
                    && one.observed_generation == generation
            })
        })
        .await;
    cluster
        .wait_until("the controllers have crashed once", async || {
            !cluster.is_crash_pending()
        })
        .await;
    cluster.end().await;
}
