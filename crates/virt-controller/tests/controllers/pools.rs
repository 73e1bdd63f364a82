//! Pools of VMs.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use kubevirt_api::pool::VirtualMachinePool;
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};

const FINALIZER: &str = "pool.kubevirt.io/finalizer";
const REVISION: &str = "kubevirt.io/vm-pool-revision-name";

fn pools(client: &Client) -> Api<VirtualMachinePool> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn revisions(client: &Client) -> Api<ControllerRevision> {
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn create_pool(cluster: &TestCluster, replicas: u32, extra: Value) {
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "virtualMachineTemplate": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "runStrategy": "Always",
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": test_cluster::guest()},
            },
        },
    });
    for (name, value) in extra.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let pool = json!({
        "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
        "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec,
    });
    cluster.create(pool).await;
}

async fn change(cluster: &TestCluster, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    let all = pools(&cluster.client);
    all.patch("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn change_guests(cluster: &TestCluster, spec: Value) {
    let template = json!({"spec": {"template": {"spec": spec}}});
    change(cluster, json!({"virtualMachineTemplate": template})).await;
}

async fn delete_pool(cluster: &TestCluster) {
    let now = DeleteParams::default();
    pools(&cluster.client).delete("web", &now).await.unwrap();
    cluster
        .wait_until("pool, VMs and revisions are gone", async || {
            let all = ListParams::default();
            pools(&cluster.client)
                .get_opt("web")
                .await
                .unwrap()
                .is_none()
                && cluster.vms().list(&all).await.unwrap().items.is_empty()
                && revisions(&cluster.client)
                    .list(&all)
                    .await
                    .unwrap()
                    .items
                    .is_empty()
        })
        .await;
}

async fn names(cluster: &TestCluster) -> Vec<String> {
    let vms = cluster.vms().list(&ListParams::default()).await.unwrap();
    vms.items.iter().map(ResourceExt::name_any).collect()
}

/// Waits until the pool has these VMs, all of them ready, and no others exist.
async fn wait_for(cluster: &TestCluster, wanted: &[&str]) {
    cluster
        .wait_until(&format!("{wanted:?} are ready"), async || {
            let status = pools(&cluster.client).get("web").await.unwrap().status;
            let status = status.unwrap_or_default();
            let count = i32::try_from(wanted.len()).ok();
            status.replicas == count
                && status.ready_replicas == count
                && names(cluster).await == wanted
        })
        .await;
}

/// Waits until the guests of these VMs run with that name of their own.
async fn wait_for_hostname(cluster: &TestCluster, wanted: &[&str], hostname: &str) {
    for name in wanted {
        cluster
            .wait_until(&format!("{name} is called {hostname}"), async || {
                let vmi = cluster.vmis().get_opt(name).await.unwrap();
                vmi.is_some_and(|vmi| vmi.spec.hostname.as_deref() == Some(hostname))
            })
            .await;
    }
    wait_for(cluster, wanted).await;
}

/// Everything that happens in the life of a pool without disks.
pub(crate) async fn lived(cluster: &TestCluster) {
    create_pool(cluster, 2, json!({})).await;
    wait_for(cluster, &["web-0", "web-1"]).await;

    // The guests are restarted.
    change_guests(cluster, json!({"hostname": "renamed"})).await;
    wait_for_hostname(cluster, &["web-0", "web-1"], "renamed").await;

    // No guest sees the annotation.
    let annotations = json!({"metadata": {"annotations": {"note": "a"}}});
    let before = cluster.vmis().get("web-0").await.unwrap();
    change(cluster, json!({"virtualMachineTemplate": annotations})).await;
    cluster
        .wait_until("VM and guest name the new revision", async || {
            let vm = cluster.vms().get("web-0").await.unwrap();
            let vmi = cluster.vmis().get("web-0").await.unwrap();
            vm.annotations().contains_key("note")
                && vm.labels().get(REVISION) == vmi.labels().get(REVISION)
                && vmi.labels().get(REVISION) != before.labels().get(REVISION)
        })
        .await;
    let after = cluster.vmis().get("web-0").await.unwrap();
    assert_eq!(after.uid(), before.uid());
    cluster
        .wait_until("one revision is left", async || {
            let all = revisions(&cluster.client);
            let all = all.list(&ListParams::default()).await.unwrap().items;
            let of_pool = all.iter().filter(|one| one.labels().contains_key(REVISION));
            of_pool.count() == 1
        })
        .await;

    // Another VM takes the place of one that has another label now.
    let released = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.patch_vm("web-0", released).await;
    cluster
        .wait_until("it stands alone", async || {
            let vm = cluster.vms().get("web-0").await.unwrap();
            vm.owner_references().is_empty() && !vm.finalizers().iter().any(|one| one == FINALIZER)
        })
        .await;
    cluster
        .wait_until("there is another", async || {
            names(cluster).await == ["web-0", "web-1", "web-2"]
        })
        .await;
    let now = DeleteParams::default();
    cluster.vms().delete("web-0", &now).await.unwrap();
    wait_for(cluster, &["web-1", "web-2"]).await;

    change(cluster, json!({"replicas": 1})).await;
    cluster
        .wait_until("one VM is left", async || names(cluster).await.len() == 1)
        .await;
    delete_pool(cluster).await;
}

/// A pool whose VMs have disks, which survive a deletion by it, and are made again when the template asks for it.
pub(crate) async fn with_disks(cluster: &TestCluster) {
    let mut guest = test_cluster::guest();
    let volume = json!({"name": "data", "dataVolume": {"name": "data"}});
    guest["volumes"].as_array_mut().unwrap().push(volume);
    let disk = json!({"name": "data", "disk": {"bus": "virtio"}});
    let disks = &mut guest["domain"]["devices"]["disks"];
    disks.as_array_mut().unwrap().push(disk);
    let template = |size: &str| {
        json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "runStrategy": "Always",
                "dataVolumeTemplates": [{"metadata": {"name": "data"}, "spec": {
                    "source": {"blank": {}},
                    "storage": {"resources": {"requests": {"storage": size}}},
                }}],
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": guest.clone()},
            },
        })
    };
    let extra = json!({
        "virtualMachineTemplate": template("1Gi"),
        "scaleInStrategy": {"proactive": {
            "statePreservation": "Offline",
            "selectionPolicy": {"sortPolicy": "DescendingOrder"},
        }},
    });
    create_pool(cluster, 2, extra).await;
    for name in ["data-0", "data-1"] {
        populate(cluster, name).await;
    }
    wait_for(cluster, &["web-0", "web-1"]).await;
    let disk = cluster.data_volumes().get("data-1").await.unwrap();

    change(cluster, json!({"replicas": 1})).await;
    wait_for(cluster, &["web-0"]).await;
    let kept = cluster.data_volumes().get("data-1").await.unwrap();
    assert_eq!((kept.uid(), kept.owner_references().len()), (disk.uid(), 0));
    change(cluster, json!({"replicas": 2})).await;
    wait_for(cluster, &["web-0", "web-1"]).await;
    let again = cluster.data_volumes().get("data-1").await.unwrap();
    assert_eq!(
        (again.uid(), again.owner_references().len()),
        (disk.uid(), 1)
    );

    change(cluster, json!({"replicas": 1})).await;
    wait_for(cluster, &["web-0"]).await;
    let first = cluster.data_volumes().get("data-0").await.unwrap().uid();
    change(cluster, json!({"virtualMachineTemplate": template("2Gi")})).await;
    cluster
        .wait_until("the disk is made again", async || {
            let disk = cluster.data_volumes().get_opt("data-0").await.unwrap();
            disk.is_some_and(|disk| disk.uid() != first)
        })
        .await;
    // The claim of the first one went with it.
    cluster
        .wait_until("the claim is gone", async || {
            let claim = cluster.claims().get_opt("data-0").await.unwrap();
            claim.is_none()
        })
        .await;
    populate(cluster, "data-0").await;
    wait_for(cluster, &["web-0"]).await;
    let disk = cluster.data_volumes().get("data-0").await.unwrap();
    let size = &disk.data["spec"]["storage"]["resources"]["requests"]["storage"];
    assert_eq!(size, "2Gi");
    delete_pool(cluster).await;
}

/// Acts as the importer.
async fn populate(cluster: &TestCluster, name: &str) {
    cluster
        .wait_until(&format!("data volume {name} exists"), async || {
            let disk = cluster.data_volumes().get_opt(name).await.unwrap();
            disk.is_some_and(|disk| disk.metadata.deletion_timestamp.is_none())
        })
        .await;
    cluster.create_claim(name).await;
    cluster.set_data_volume_phase(name, "Succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn pool_keeps_its_number_and_its_vms_follow_the_template() {
    let cluster = TestCluster::new().await;
    Box::pin(lived(&cluster)).await;
    for reason in ["SuccessfulCreate", "SuccessfulUpdate", "SuccessfulDelete"] {
        assert!(cluster.events_of(reason).await > 0, "{reason}");
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn quiet_pool_writes_nothing() {
    let cluster = TestCluster::new().await;
    create_pool(&cluster, 3, json!({})).await;
    wait_for(&cluster, &["web-0", "web-1", "web-2"]).await;
    let made = cluster.writes_to("POST /apis/kubevirt.io/v1/namespaces/default/virtualmachines");
    assert_eq!(made.len(), 3, "{made:?}");
    cluster.advance(Duration::from_secs(10)).await;
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(10)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
    let scale = pools(&cluster.client).get_scale("web").await.unwrap();
    let status = scale.status.unwrap();
    assert_eq!(
        (status.replicas, status.selector.as_deref()),
        (3, Some("app=web"))
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn disks_are_kept_and_made_again() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    with_disks(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_vm_is_replaced_under_its_name() {
    let cluster = TestCluster::new().await;
    create_pool(&cluster, 2, json!({})).await;
    wait_for(&cluster, &["web-0", "web-1"]).await;
    let uid = cluster.vms().get("web-0").await.unwrap().uid();
    let now = DeleteParams::default();
    cluster.vms().delete("web-0", &now).await.unwrap();
    cluster
        .wait_until("it is another", async || {
            let vm = cluster.vms().get_opt("web-0").await.unwrap();
            vm.is_some_and(|vm| vm.uid() != uid)
        })
        .await;
    wait_for(&cluster, &["web-0", "web-1"]).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn paused_pool_does_nothing_until_it_is_resumed() {
    let cluster = TestCluster::new().await;
    create_pool(&cluster, 1, json!({})).await;
    wait_for(&cluster, &["web-0"]).await;
    change(&cluster, json!({"paused": true})).await;
    assert_eq!(cluster.events_of("SuccessfulPaused").await, 1);
    change(&cluster, json!({"replicas": 2})).await;
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(names(&cluster).await, ["web-0"]);
    change(&cluster, json!({"paused": false})).await;
    wait_for(&cluster, &["web-0", "web-1"]).await;
    assert_eq!(cluster.events_of("SuccessfulResume").await, 1);
    let status = pools(&cluster.client).get("web").await.unwrap().status;
    assert!(status.unwrap().conditions.is_empty());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn refused_vms_are_reported_and_back_off() {
    let cluster = TestCluster::new().await;
    let template = json!({
        "metadata": {"labels": {"app": "web", "motto": "no label may hold blanks"}},
        "spec": {"runStrategy": "Always", "template": {"spec": test_cluster::guest()}},
    });
    create_pool(&cluster, 2, json!({"virtualMachineTemplate": template})).await;
    cluster.advance(Duration::from_mins(5)).await;
    let status = pools(&cluster.client)
        .get("web")
        .await
        .unwrap()
        .status
        .unwrap();
    let condition = &status.conditions[0];
    assert_eq!(condition.reason.as_deref(), Some("FailedScaleOut"));
    let message = condition.message.as_deref().unwrap();
    assert!(message.starts_with("error during scale out: "), "{message}");
    assert!(message.contains("blanks"), "{message}");
    let tries = cluster.writes_to("POST /apis/kubevirt.io/v1/namespaces/default/virtualmachines");
    assert!((5..40).contains(&tries.len()), "{}", tries.len());
    let status_writes = cluster.writes_to("/status");
    assert!(status_writes.len() <= 2, "{status_writes:?}");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vms_outlive_a_pool_that_is_deleted_without_them() {
    let cluster = TestCluster::new().await;
    create_pool(&cluster, 1, json!({})).await;
    wait_for(&cluster, &["web-0"]).await;
    let orphan = DeleteParams::orphan();
    pools(&cluster.client).delete("web", &orphan).await.unwrap();
    cluster
        .wait_until("the VM stands alone", async || {
            let vm = cluster.vms().get("web-0").await.unwrap();
            vm.owner_references().is_empty() && !vm.finalizers().iter().any(|one| one == FINALIZER)
        })
        .await;
    let now = DeleteParams::default();
    cluster.vms().delete("web-0", &now).await.unwrap();
    cluster.wait_until_gone("web-0").await;
    cluster
        .wait_until("it can be deleted", async || {
            names(&cluster).await.is_empty()
        })
        .await;
    cluster.end().await;
}

/// As after a backup without pools, or when somebody removes the pool's finalizer.
pub(crate) async fn abandoned(cluster: &TestCluster) {
    create_pool(cluster, 1, json!({})).await;
    wait_for(cluster, &["web-0"]).await;
    let all = pools(&cluster.client);
    let vm = cluster.vms().get("web-0").await.unwrap();
    // A VM of a pool with another identity.
    let mut owner = json!(vm.owner_references()[0]);
    owner["uid"] = "another".into();
    owner["name"] = "gone".into();
    let stray = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "gone-0", "namespace": NAMESPACE, "finalizers": [FINALIZER], "ownerReferences": [owner]},
        "spec": {"runStrategy": "Halted", "template": {"spec": test_cluster::guest()}},
    });
    cluster.create(stray).await;
    // The garbage collector may be faster, because its owner does not exist.
    let now = DeleteParams::default();
    let _gone = cluster.vms().delete("gone-0", &now).await.is_err();
    cluster
        .wait_until("the stray is gone", async || {
            names(cluster).await == ["web-0"]
        })
        .await;
    assert!(all.get_opt("web").await.unwrap().is_some());
    delete_pool(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn vm_of_a_pool_that_is_gone_can_be_deleted() {
    let cluster = TestCluster::new().await;
    abandoned(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vm_without_any_pool_can_be_deleted() {
    let cluster = TestCluster::new().await;
    let stray = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "gone-0", "namespace": NAMESPACE, "finalizers": [FINALIZER]},
        "spec": {"runStrategy": "Halted", "template": {"spec": test_cluster::guest()}},
    });
    cluster.create(stray).await;
    let now = DeleteParams::default();
    cluster.vms().delete("gone-0", &now).await.unwrap();
    cluster
        .wait_until("it is gone", async || names(&cluster).await.is_empty())
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guests_that_start_on_request_are_restarted() {
    for strategy in ["RerunOnFailure", "Manual"] {
        let cluster = TestCluster::new().await;
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"runStrategy": strategy, "template": {"spec": test_cluster::guest()}},
        });
        create_pool(&cluster, 1, json!({"virtualMachineTemplate": template})).await;
        if strategy == "Manual" {
            cluster
                .wait_until("it exists", async || names(&cluster).await == ["web-0"])
                .await;
            cluster.wait_for_printable("web-0", "Stopped").await;
            cluster.request("web-0", json!([{"action": "Start"}])).await;
        }
        wait_for(&cluster, &["web-0"]).await;
        change_guests(&cluster, json!({"hostname": "renamed"})).await;
        wait_for_hostname(&cluster, &["web-0"], "renamed").await;
        cluster.end().await;
    }
}

async fn has_note(cluster: &TestCluster) -> bool {
    let vm = cluster.vms().get("web-0").await.unwrap();
    vm.annotations().contains_key("note")
}

#[tokio::test(start_paused = true)]
async fn change_follows_a_revision_without_a_label() {
    let cluster = TestCluster::new().await;
    create_pool(&cluster, 1, json!({})).await;
    let note = |value: Value| {
        let metadata = json!({"metadata": {"annotations": {"note": value}}});
        json!({"virtualMachineTemplate": metadata})
    };
    change(&cluster, note("a".into())).await;
    wait_for(&cluster, &["web-0"]).await;
    cluster
        .wait_until("it has the note", async || has_note(&cluster).await)
        .await;
    // As KubeVirt makes them.
    let all = revisions(&cluster.client);
    let unlabelled = json!({"metadata": {"labels": {REVISION: null}}});
    let parameters = PatchParams::default();
    for one in all.list(&ListParams::default()).await.unwrap() {
        all.patch(&one.name_any(), &parameters, &Patch::Merge(&unlabelled))
            .await
            .unwrap();
    }
    cluster.advance(Duration::from_secs(10)).await;
    change(&cluster, note(Value::Null)).await;
    cluster
        .wait_until("it has none", async || !has_note(&cluster).await)
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn revision_of_another_object_is_reported() {
    let cluster = TestCluster::new().await;
    let taken = json!({"metadata": {"name": "web-1"}, "revision": 1});
    let taken = serde_json::from_value(taken).unwrap();
    let all = revisions(&cluster.client);
    all.create(&PostParams::default(), &taken).await.unwrap();
    create_pool(&cluster, 1, json!({})).await;
    let expected = "error during scale out: controllerrevision web-1 belongs to another object: \
                    delete it";
    cluster
        .wait_until("the condition says so", async || {
            let status = pools(&cluster.client).get("web").await.unwrap().status;
            let conditions = status.unwrap_or_default().conditions;
            let mut messages = conditions.iter().map(|one| one.message.as_deref());
            messages.any(|message| message == Some(expected))
        })
        .await;
    let now = DeleteParams::default();
    all.delete("web-1", &now).await.unwrap();
    wait_for(&cluster, &["web-0"]).await;
    cluster.end().await;
}

/// Among them are claims that no spec names, such as the one with the contents of a TPM.
#[tokio::test(start_paused = true)]
async fn all_disks_of_a_vm_are_kept() {
    let cluster = TestCluster::new().await;
    let kept = json!({"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}});
    create_pool(&cluster, 1, kept).await;
    wait_for(&cluster, &["web-0"]).await;
    let uid = cluster.vms().get("web-0").await.unwrap().uid();
    // A restored disk has an owner that does not control it.
    for (name, is_controller) in [("persistent-state-for-web-0", true), ("restored", false)] {
        let claim = json!({
            "metadata": {"name": name, "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web-0",
                "uid": uid, "controller": is_controller,
            }]},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let claim = serde_json::from_value(claim).unwrap();
        let parameters = PostParams::default();
        cluster.claims().create(&parameters, &claim).await.unwrap();
    }
    // Until the cache shows them.
    cluster.advance(Duration::from_secs(10)).await;
    change(&cluster, json!({"replicas": 0})).await;
    cluster
        .wait_until("the VM is gone", async || names(&cluster).await.is_empty())
        .await;
    cluster.advance(Duration::from_mins(1)).await;
    let left = cluster.claims().list(&ListParams::default()).await.unwrap();
    let names: Vec<String> = left.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["persistent-state-for-web-0", "restored"]);
    let mut owners = left.items.iter().flat_map(ResourceExt::owner_references);
    assert!(owners.next().is_none());
    cluster.end().await;
}
