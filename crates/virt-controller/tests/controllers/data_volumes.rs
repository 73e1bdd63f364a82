//! Disks that an importer fills, whose part the tests play.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::world::World;

fn blank() -> Value {
    json!({"source": {"blank": {}}})
}

/// Reason and message of a condition of a VM.
async fn said(world: &World, name: &str, kind: &str) -> (String, String) {
    let vm = world.vms().get(name).await.unwrap();
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

async fn until_made(world: &World, name: &str) {
    world
        .until("data volume is made", async || {
            world.data_volumes().get_opt(name).await.unwrap().is_some()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn data_volume_is_made_with_the_vm_and_its_guest_waits_until_it_is_filled() {
    let world = World::new().await;
    world.install_importer().await;
    world.create_vm_with_template("a", "Always", blank()).await;
    until_made(&world, "a-data").await;
    let made = world.data_volumes().get("a-data").await.unwrap();
    let vm = world.vms().get("a").await.unwrap();
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

    world
        .set_data_volume_phase("a-data", "ImportInProgress")
        .await;
    world.until_printable("a", "Provisioning").await;
    world
        .until("it says what it waits for", async || {
            let (reason, message) = said(&world, "a", "DataVolumesReady").await;
            reason == "NotAllDVsReady" && message == "data volume a-data is ImportInProgress"
        })
        .await;
    assert!(world.vmis().get_opt("a").await.unwrap().is_none());
    let writes = world.all_writes();
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(world.all_writes(), writes, "rest");

    world.create_claim("a-data").await;
    world.set_data_volume_phase("a-data", "Succeeded").await;
    world.until_printable("a", "WaitingForVolumeBinding").await;
    world
        .until("the guest runs", async || {
            let vmi = world.vmis().get_opt("a").await.unwrap();
            let phase = vmi.and_then(|vmi| vmi.status?.phase);
            phase.is_some_and(|phase| phase.as_str() == "Running")
        })
        .await;
    assert_eq!(world.events_of("SuccessfulDataVolumeCreate").await, 1);
    assert_eq!(said(&world, "a", "DataVolumesReady").await.0, "AllDVsReady");

    let foreground = DeleteParams::foreground();
    world.vms().delete("a", &foreground).await.unwrap();
    world
        .until("its data volume goes with it", async || {
            world
                .data_volumes()
                .get_opt("a-data")
                .await
                .unwrap()
                .is_none()
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_an_importer_the_vm_says_so_until_a_claim_or_an_importer_comes() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.create_vm_with_template(name, "Always", blank()).await;
        world
            .until("it says so", async || {
                let (reason, message) = said(&world, name, "Failure").await;
                reason == "FeatureNotSupported"
                    && message.contains("spec.dataVolumeTemplates[0]")
                    && message.contains("install one, or make persistentvolumeclaim")
            })
            .await;
    }
    let writes = world.all_writes();
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(world.all_writes(), writes, "nothing is tried in vain");
    assert_eq!(world.printable("a").await, "Stopped");

    world.create_claim("a-data").await;
    world
        .until("one runs on a claim of that name", async || {
            world.vmis().get_opt("a").await.unwrap().is_some()
        })
        .await;
    assert_eq!(said(&world, "a", "Failure").await.0, "");

    world.install_importer().await;
    until_made(&world, "b-data").await;
    world
        .until("nothing is wrong", async || {
            said(&world, "b", "Failure").await.0.is_empty()
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_import_is_told_once_and_mended_by_a_fresh_data_volume() {
    let world = World::new().await;
    world.install_importer().await;
    world.create_vm_with_template("a", "Always", blank()).await;
    until_made(&world, "a-data").await;
    world.set_data_volume_phase("a-data", "Failed").await;
    world.until_printable("a", "DataVolumeError").await;
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(world.events_of("FailedDataVolumeImport").await, 1);

    let first = world.data_volumes().get("a-data").await.unwrap().uid();
    let now = DeleteParams::default();
    world.data_volumes().delete("a-data", &now).await.unwrap();
    world
        .until("another is made", async || {
            let found = world.data_volumes().get_opt("a-data").await.unwrap();
            found.is_some_and(|found| found.uid() != first)
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn halted_vm_makes_its_data_volumes_unless_told_to_wait_for_the_start() {
    let world = World::new().await;
    world.install_importer().await;
    world.create_vm_with_template("a", "Halted", blank()).await;
    until_made(&world, "a-data").await;

    // Before the controllers see it.
    let mut world = world;
    world.stop_controllers().await;
    world.create_vm_with_template("b", "Halted", blank()).await;
    let late = json!({"metadata": {"annotations": {
        "kubevirt.io/immediate-data-volume-creation": "false"}}});
    world.patch_vm("b", late).await;
    world.start_controllers();
    world.until_printable("b", "Stopped").await;
    world.pass(Duration::from_mins(1)).await;
    assert!(
        world
            .data_volumes()
            .get_opt("b-data")
            .await
            .unwrap()
            .is_none()
    );
    let start = json!({"spec": {"runStrategy": "Always"}});
    world.patch_vm("b", start).await;
    until_made(&world, "b-data").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn data_volume_of_nobody_is_adopted_and_that_of_another_used() {
    let world = World::new().await;
    world.install_importer().await;
    let nodes = Api::<Node>::all(world.client.clone());
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
        create(world.data_volumes(), there).await;
        world.create_claim(name).await;
    }
    for name in ["a", "b"] {
        world.create_vm_with_template(name, "Always", blank()).await;
        world
            .until("it starts", async || {
                world.vmis().get_opt(name).await.unwrap().is_some()
            })
            .await;
    }
    let uid = world.vms().get("a").await.unwrap().uid().unwrap();
    // The claim may be seen before the data volume, and that is enough to start.
    world
        .until("it is adopted", async || {
            let adopted = world.data_volumes().get("a-data").await.unwrap();
            let mut owners = adopted.owner_references().iter();
            owners.any(|owner| owner.uid == uid)
        })
        .await;
    let other = world.data_volumes().get("b-data").await.unwrap();
    assert_eq!(other.owner_references().len(), 1);
    assert_eq!(other.owner_references()[0].uid, node);
    world.end().await;
}

/// A machine whose disk is made, bound and filled: for deaths on the way.
pub(super) async fn filled(world: &World) {
    world.install_importer().await;
    world.create_vm_with_template("a", "Always", blank()).await;
    until_made(world, "a-data").await;
    world.create_claim("a-data").await;
    world
        .set_data_volume_phase("a-data", "WaitForFirstConsumer")
        .await;
    world
        .until("a pod has run for the claim", async || {
            let all = world.pods().list(&ListParams::default()).await.unwrap();
            let mut all = all.into_iter();
            all.any(|pod| pod.status.and_then(|it| it.phase).as_deref() == Some("Succeeded"))
        })
        .await;
    world.set_data_volume_phase("a-data", "Succeeded").await;
    world.until_printable("a", "Running").await;
}

/// A machine whose disk was there before: for the deaths after it is adopted.
pub(super) async fn found(world: &World) {
    world.install_importer().await;
    let there = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": "a-data"}, "spec": {}, "status": {"phase": "Succeeded"},
    });
    create(world.data_volumes(), there).await;
    world.create_claim("a-data").await;
    world.create_vm_with_template("a", "Always", blank()).await;
    world.until_printable("a", "Running").await;
    let adopted = world.data_volumes().get("a-data").await.unwrap();
    let uid = world.vms().get("a").await.unwrap().uid();
    assert_eq!(adopted.owner_references()[0].uid, uid.unwrap());
}

async fn create<K>(api: Api<K>, body: Value)
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object = serde_json::from_value(body).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn disk_of_another_namespace_is_copied_only_where_the_machines_account_may() {
    let world = World::new().await;
    world.install_importer().await;
    let namespaces = Api::<Namespace>::all(world.client.clone());
    create(namespaces, json!({"metadata": {"name": "images"}})).await;
    let source = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": {"name": "fedora"},
        "spec": {"source": {"pvc": {"namespace": "images", "name": "fedora"}}},
    });
    create(world.importers("DataSource", "images"), source).await;
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
        world.create_vm_with_template(name, "Always", source).await;
        world
            .until("it is refused", async || {
                let (reason, message) = said(&world, name, "Failure").await;
                reason == "FailedCreate" && message.contains(part)
            })
            .await;
    }
    let all = world.data_volumes().list(&ListParams::default()).await;
    assert!(all.unwrap().items.is_empty());
    world.events_of("UnauthorizedDataVolumeCreate").await;

    let roles = Api::<Role>::namespaced(world.client.clone(), "images");
    let role = json!({"metadata": {"name": "copy"}, "rules": [{
        "apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"],
        "verbs": ["create"]}]});
    create(roles, role).await;
    let bindings = Api::<RoleBinding>::namespaced(world.client.clone(), "images");
    let binding = json!({
        "metadata": {"name": "copy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "copy"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
    });
    create(bindings, binding).await;
    for name in ["a-data", "b-data"] {
        until_made(&world, name).await;
    }
    // What waits for a source that is not there says so.
    world.set_data_volume_phase("a-data", "Pending").await;
    world
        .until("the missing source is told", async || {
            let (_, message) = said(&world, "a", "DataVolumesReady").await;
            message.contains("a copy of persistentvolumeclaim images/fedora")
        })
        .await;
    assert_eq!(world.events_of("SourcePVCNotAvailabe").await, 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn claim_that_waits_for_its_first_consumer_gets_a_pod_for_just_that() {
    let world = World::new().await;
    world.install_importer().await;
    world.create_vm_with_template("a", "Always", blank()).await;
    until_made(&world, "a-data").await;
    world.create_claim("a-data").await;
    world
        .set_data_volume_phase("a-data", "WaitForFirstConsumer")
        .await;
    let pods = async || {
        world
            .pods()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    };
    world
        .until("a pod has run for the claim", async || {
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
    let vmi = world.vmis().get("a").await.unwrap();
    let status = vmi.status.unwrap();
    assert_eq!(status.phase.unwrap().as_str(), "Pending");
    let says = |kind: &str| {
        let mut conditions = status.conditions.iter();
        conditions.any(|one| one.type_.as_str() == kind && one.status == "True")
    };
    assert!(says("Provisioning") && !says("DataVolumesReady"));
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(pods().await.len(), 1, "one is enough");

    world
        .set_data_volume_phase("a-data", "ImportInProgress")
        .await;
    world.until_printable("a", "Provisioning").await;
    world.set_data_volume_phase("a-data", "Succeeded").await;
    world
        .until("the guest runs and that pod is gone", async || {
            let vmi = world.vmis().get("a").await.unwrap();
            let phase = vmi.status.unwrap().phase.unwrap();
            let all = pods().await;
            phase.as_str() == "Running" && all.len() == 1 && all[0].name_any() != binder.name_any()
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn instance_that_is_deleted_while_its_claim_is_bound_leaves_no_pod() {
    let world = World::new().await;
    world.install_importer().await;
    world.create_vm_with_template("a", "Always", blank()).await;
    until_made(&world, "a-data").await;
    world.create_claim("a-data").await;
    world
        .set_data_volume_phase("a-data", "WaitForFirstConsumer")
        .await;
    world
        .until("there is a pod", async || {
            !world.writes_to("/pods").is_empty()
        })
        .await;
    let halt = json!({"spec": {"runStrategy": "Halted"}});
    world.patch_vm("a", halt).await;
    world.until_gone("a").await;
    world.end().await;
}
