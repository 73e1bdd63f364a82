//! Exports of VMs, snapshots and claims; the simulated node runs their pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kubevirt_api::export::{VirtualMachineExport, VirtualMachineExportStatus};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::snapshots::with_vm;

impl TestCluster {
    fn exports(&self) -> Api<VirtualMachineExport> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn all_of<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn create_export(&self, source: Value, more: Value) {
        let mut spec = json!({"source": source});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let export = json!({
            "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
            "metadata": {"name": "copy", "namespace": NAMESPACE}, "spec": spec,
        });
        self.create(export).await;
    }

    async fn export_status(&self) -> VirtualMachineExportStatus {
        let export = self.exports().get_opt("copy").await.unwrap();
        export.and_then(|export| export.status).unwrap_or_default()
    }

    async fn wait_for_export(&self, phase: &str, reason: &str) {
        self.wait_until(&format!("the export is {phase}: {reason}"), async || {
            let status = self.export_status().await;
            let mut conditions = status.conditions.iter();
            status.phase.is_some_and(|found| found.as_str() == phase)
                && conditions.any(|one| one.reason.as_deref() == Some(reason))
        })
        .await;
    }

    async fn wait_for_no_exporter(&self) {
        self.wait_until("there is no export server", async || {
            let pods = self.pods();
            pods.get_opt("virt-export-copy").await.unwrap().is_none()
        })
        .await;
    }

    /// The export and all that it made.
    async fn wait_for_nothing(&self) {
        let all = ListParams::default();
        self.wait_until("nothing of the export is left", async || {
            let secrets = self.all_of::<Secret>().list(&all).await.unwrap().items;
            let maps = self.all_of::<ConfigMap>().list(&all).await.unwrap().items;
            let services = self.all_of::<Service>();
            let service = services.get_opt("virt-export-copy").await.unwrap();
            let claims = self.claims().list(&all).await.unwrap().items;
            self.exports().get_opt("copy").await.unwrap().is_none()
                && secrets.iter().all(|one| one.name_any() == "mine")
                && !maps
                    .iter()
                    .any(|one| one.name_any().starts_with("exporter-"))
                && !claims.iter().any(|one| one.name_any().starts_with("copy-"))
                && service.is_none()
        })
        .await;
        self.wait_for_no_exporter().await;
    }
}

fn of_vm() -> Value {
    json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"})
}

fn of_claim() -> Value {
    json!({"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "data"})
}

/// Exports a VM, which is started and stopped meanwhile, until the time is over.
pub(super) async fn exported(cluster: &TestCluster) {
    cluster.create_bound_claim("data").await;
    cluster.create_vm_on_claim("a", "data").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster
        .create_export(of_vm(), json!({"ttlDuration": "10m"}))
        .await;
    cluster.wait_for_export("Pending", "InUse").await;
    let halted = json!({"spec": {"runStrategy": "Halted"}});
    cluster.patch_vm("a", halted.clone()).await;
    cluster.wait_for_export("Ready", "PodReady").await;
    let always = json!({"spec": {"runStrategy": "Always"}});
    cluster.patch_vm("a", always).await;
    cluster.wait_for_export("Pending", "InUse").await;
    cluster.wait_for_no_exporter().await;
    assert_eq!(cluster.export_status().await.links, None);
    cluster.patch_vm("a", halted).await;
    cluster.wait_for_export("Ready", "PodReady").await;
    cluster.advance(Duration::from_mins(10)).await;
    cluster.wait_for_nothing().await;
    let vm = cluster.vms().get_opt("a").await.unwrap();
    assert!(vm.is_some(), "the VM is not touched");
    let now = DeleteParams::default();
    cluster.claims().delete("data", &now).await.unwrap();
    cluster.vms().delete("a", &now).await.unwrap();
    cluster
        .wait_until("the VM is gone", async || {
            cluster.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
}

/// Exports a snapshot of the VM that `with_vm` made.
pub(super) async fn snapshot_exported(cluster: &TestCluster) {
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_snapshot("s", "Succeeded").await;
    let source = json!({
        "apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "s",
    });
    cluster.create_export(source, json!({})).await;
    cluster
        .wait_until("there is a claim", async || {
            cluster
                .claims()
                .get_opt("copy-data")
                .await
                .unwrap()
                .is_some()
        })
        .await;
    let claim = cluster.claims().get("copy-data").await.unwrap();
    let data_source = claim.spec.unwrap().data_source.unwrap();
    assert_eq!(data_source.kind, "VolumeSnapshot");
    let bound = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
    cluster
        .set_status::<PersistentVolumeClaim>("copy-data", bound)
        .await;
    // The guest runs on: its own claim is not concerned.
    cluster.wait_for_export("Ready", "AllPVCsReady").await;
    let status = cluster.export_status().await;
    let internal = status.links.unwrap().internal.unwrap();
    let volume = &internal.volumes[0];
    assert_eq!(volume.name, "data");
    let url = "https://virt-export-copy.default.svc/volumes/copy-data/disk.img";
    assert_eq!(volume.formats[0].url, url);
    assert_eq!(status.virtual_machine_name.as_deref(), Some("a"));
    let now = DeleteParams::default();
    cluster.exports().delete("copy", &now).await.unwrap();
    cluster.wait_for_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn export_of_a_vm_has_links_a_token_and_a_manifest() {
    let cluster = TestCluster::new().await;
    cluster.create_bound_claim("data").await;
    cluster.create_vm_on_claim("a", "data").await;
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.create_export(of_vm(), json!({})).await;
    cluster.wait_for_export("Ready", "PodReady").await;
    let status = cluster.export_status().await;
    assert_eq!(
        status.token_secret_ref.as_deref(),
        Some("export-token-copy")
    );
    assert_eq!(status.service_name.as_deref(), Some("virt-export-copy"));
    let secrets = cluster.all_of::<Secret>();
    let token = secrets
        .get("export-token-copy")
        .await
        .unwrap()
        .data
        .unwrap();
    assert_eq!(token["token"].0.len(), 64);
    let internal = status.links.unwrap().internal.unwrap();
    assert!(internal.cert.starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(internal.manifests.len(), 2);
    // The certificate that the pod gets is that of the links.
    let pod = cluster.pods().get("virt-export-copy").await.unwrap();
    let volumes = pod.spec.unwrap().volumes.unwrap();
    let mounted = |name: &str| volumes.iter().find(|one| one.name == name).unwrap();
    let certificate = mounted("certificate").secret.as_ref().unwrap();
    let certificate = certificate.secret_name.as_deref().unwrap();
    assert!(secrets.get_opt(certificate).await.unwrap().is_some());
    assert_eq!(
        secrets
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    let claim = mounted("volume-0")
        .persistent_volume_claim
        .as_ref()
        .unwrap();
    assert_eq!(
        (claim.claim_name.as_str(), claim.read_only),
        ("data", Some(true))
    );
    let maps = cluster.all_of::<ConfigMap>();
    let manifests = mounted("manifests").config_map.as_ref().unwrap();
    let manifests = maps.get(&manifests.name).await.unwrap().data.unwrap();
    assert_eq!(
        manifests.keys().collect::<Vec<_>>(),
        ["internal.json", "internal.yaml"]
    );
    for reason in ["ServiceCreated", "SecretCreated", "ExporterPodCreated"] {
        assert_eq!(cluster.events_of(reason).await, 1, "{reason}");
    }
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(30)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
    cluster
        .exports()
        .delete("copy", &DeleteParams::default())
        .await
        .unwrap();
    cluster.wait_for_nothing().await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn export_waits_for_its_claim_and_keeps_the_token_of_its_user() {
    let cluster = TestCluster::new().await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine", "namespace": NAMESPACE},
        "stringData": {"token": "1234567890ab"},
    });
    cluster.create(secret).await;
    cluster
        .create_export(of_claim(), json!({"tokenSecretRef": "mine"}))
        .await;
    cluster.wait_for_export("Pending", "PVCNotFound").await;
    cluster.create_bound_claim("data").await;
    cluster.wait_for_export("Ready", "PVCBound").await;
    let status = cluster.export_status().await;
    assert_eq!(status.token_secret_ref.as_deref(), Some("mine"));
    // A pod that is not a guest uses the claim.
    let user = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user", "namespace": NAMESPACE},
        "spec": {
            "containers": [{"name": "a", "image": "b"}],
            "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    cluster.create(user).await;
    cluster.wait_for_export("Pending", "InUse").await;
    cluster.wait_for_no_exporter().await;
    let now = DeleteParams::default();
    cluster.pods().delete("user", &now).await.unwrap();
    cluster.wait_for_export("Ready", "PodReady").await;
    cluster.exports().delete("copy", &now).await.unwrap();
    cluster.wait_for_nothing().await;
    let secrets = cluster.all_of::<Secret>();
    assert!(secrets.get_opt("mine").await.unwrap().is_some());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn export_server_that_failed_is_replaced() {
    let cluster = TestCluster::new().await;
    cluster.create_bound_claim("data").await;
    cluster.create_export(of_claim(), json!({})).await;
    cluster.wait_for_export("Ready", "PodReady").await;
    let before = cluster.pods().get("virt-export-copy").await.unwrap().uid();
    let failed = json!({"phase": "Failed", "message": "evicted"});
    cluster.set_status::<Pod>("virt-export-copy", failed).await;
    cluster
        .wait_until("there is another pod", async || {
            let pod = cluster.pods().get_opt("virt-export-copy").await.unwrap();
            pod.is_some_and(|pod| pod.uid() != before)
        })
        .await;
    cluster.wait_for_export("Ready", "PodReady").await;
    assert_eq!(cluster.events_of("ExporterPodFailedOrCompleted").await, 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_of_somebody_else_is_taken() {
    let cluster = TestCluster::new().await;
    cluster.create_bound_claim("data").await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "virt-export-copy", "namespace": NAMESPACE},
        "spec": {"ports": [{"port": 80}]},
    });
    cluster.create(service).await;
    // Whoever made this Secret knows the token.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "export-token-copy", "namespace": NAMESPACE},
        "stringData": {"token": "known"},
    });
    cluster.create(secret).await;
    cluster.create_export(of_claim(), json!({})).await;
    cluster.wait_for_export("Pending", "Initializing").await;
    let now = DeleteParams::default();
    let services = cluster.all_of::<Service>();
    services.delete("virt-export-copy", &now).await.unwrap();
    cluster.wait_for_export("Ready", "PodReady").await;
    let token = cluster.export_status().await.token_secret_ref.unwrap();
    assert!(token.starts_with("export-token-copy-"), "{token}");
    let pod = cluster.pods().get("virt-export-copy").await.unwrap();
    let mut volumes = pod.spec.unwrap().volumes.unwrap().into_iter();
    let mounted = volumes.find(|one| one.name == "token").unwrap();
    assert_eq!(mounted.secret.unwrap().secret_name, Some(token));
    // A service that a user deletes comes again, with a certificate that the server has, too.
    let before = cluster.export_status().await.links;
    services.delete("virt-export-copy", &now).await.unwrap();
    cluster
        .wait_until("the links have another authority", async || {
            let links = cluster.export_status().await.links;
            links.is_some() && links != before
        })
        .await;
    let service = services.get("virt-export-copy").await.unwrap();
    let noted = &service.annotations()["ferrovirt.io/export-certificate"];
    let pod = cluster.pods().get("virt-export-copy").await.unwrap();
    let mut volumes = pod.spec.unwrap().volumes.unwrap().into_iter();
    let mounted = volumes.find(|one| one.name == "certificate").unwrap();
    assert_eq!(mounted.secret.unwrap().secret_name.as_ref(), Some(noted));
    // A deleted export and its successor of the same name.
    cluster.exports().delete("copy", &now).await.unwrap();
    cluster.create_export(of_claim(), json!({})).await;
    cluster.wait_for_export("Ready", "PodReady").await;
    let uid = cluster.exports().get("copy").await.unwrap().uid();
    let pod = cluster.pods().get("virt-export-copy").await.unwrap();
    assert_eq!(Some(&pod.owner_references()[0].uid), uid.as_ref());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vm_without_disks_is_skipped() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Halted").await;
    cluster.create_export(of_vm(), json!({})).await;
    cluster.wait_for_export("Skipped", "VMNoVolumes").await;
    assert_eq!(cluster.events_of("VMNoVolumes").await, 1);
    assert!(
        cluster
            .pods()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    // It gets one.
    cluster.create_bound_claim("data").await;
    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    let patch = Patch::Merge(json!({"spec": {"template": {"spec": {"volumes": volumes}}}}));
    let patched = cluster
        .vms()
        .patch("a", &PatchParams::default(), &patch)
        .await;
    patched.unwrap();
    cluster.wait_for_export("Ready", "PodReady").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_exported_while_its_guest_runs() {
    let cluster = with_vm().await;
    snapshot_exported(&cluster).await;
    cluster.end().await;
}
