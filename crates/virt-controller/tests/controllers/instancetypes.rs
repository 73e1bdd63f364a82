//! VMs with instance types and preferences: the effect on guests, stored revisions, and errors.

use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kubevirt_api::VirtualMachine;
use kubevirt_api::vm_status::InstancetypeStatusRef;
use serde_json::Value;

use super::*;
use crate::cluster::NAMESPACE;

const SIZES: &str = "instancetype.kubevirt.io";
const VERSION: &str = "v1beta1";

/// A file of `examples/`.
macro_rules! example {
    ($name:literal) => {
        serde_saphyr::from_str(include_str!(concat!(
            "../../../../examples/",
            $name,
            ".yaml"
        )))
        .unwrap()
    };
}

fn instancetypes(cluster: &TestCluster, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(SIZES, VERSION, kind);
    let resource = ApiResource::from_gvk(&kind);
    if kind.kind.contains("Cluster") {
        return Api::all_with(cluster.client.clone(), &resource);
    }
    Api::namespaced_with(cluster.client.clone(), NAMESPACE, &resource)
}

pub(crate) async fn create(cluster: &TestCluster, object: Value) {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let typed = serde_json::from_value(object).unwrap();
    let api = instancetypes(cluster, &kind);
    api.create(&PostParams::default(), &typed).await.unwrap();
}

pub(crate) async fn create_vm(cluster: &TestCluster, vm: Value) {
    let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
    let made = cluster.vms().create(&PostParams::default(), &vm).await;
    made.unwrap();
}

/// A VM that starts, without a size.
pub(crate) fn sized(name: &str, choice: &Value) -> Value {
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "domain": {"devices": {}},
            "volumes": [{"name": "root", "containerDisk": {"image": "guest:1"}}],
        }}},
    });
    for (key, value) in choice.as_object().unwrap() {
        vm["spec"][key] = value.clone();
    }
    vm
}

pub(crate) fn instancetype(kind: &str, name: &str, vcpus: u32) -> Value {
    json!({
        "apiVersion": format!("{SIZES}/{VERSION}"), "kind": kind, "metadata": {"name": name},
        "spec": {"cpu": {"guest": vcpus}, "memory": {"guest": "256Mi"}},
    })
}

async fn revisions(cluster: &TestCluster) -> Vec<ControllerRevision> {
    let api = Api::<ControllerRevision>::namespaced(cluster.client.clone(), NAMESPACE);
    let params = ListParams::default().labels("instancetype.kubevirt.io/object-name");
    api.list(&params).await.unwrap().items
}

async fn sockets(cluster: &TestCluster, name: &str) -> Option<u32> {
    let vmi = cluster.vmis().get(name).await.unwrap();
    vmi.spec.domain.cpu.unwrap_or_default().sockets
}

/// Reason and message of the condition Failure.
async fn failure_with_reason(cluster: &TestCluster, name: &str) -> (String, String) {
    let status = cluster.vms().get(name).await.unwrap().status;
    let conditions = status.unwrap_or_default().conditions;
    let failure = conditions
        .into_iter()
        .find(|one| one.type_.as_str() == "Failure");
    let texts = failure.map(|one| (one.reason, one.message));
    let (reason, message) = texts.unwrap_or_default();
    (reason.unwrap_or_default(), message.unwrap_or_default())
}

/// The message of the condition Failure.
async fn failure(cluster: &TestCluster, name: &str) -> String {
    failure_with_reason(cluster, name).await.1
}

fn revision_of(noted: Option<&InstancetypeStatusRef>) -> Option<&str> {
    let noted = noted?.controller_revision_ref.as_ref()?;
    noted.name.as_deref()
}

#[tokio::test(start_paused = true)]
async fn example_vm_gets_its_instance_type_and_preference() {
    let cluster = TestCluster::new().await;
    create(&cluster, example!("instancetype-app-server")).await;
    create(&cluster, example!("preference-virtio")).await;
    create_vm(&cluster, example!("vm-instancetype-preference")).await;
    let name = "sized-and-equipped";
    // Revisions are stored before the first start.
    cluster
        .wait_until("kept", async || revisions(&cluster).await.len() == 2)
        .await;
    cluster
        .patch_vm(name, json!({"spec": {"runStrategy": "Always"}}))
        .await;
    cluster.wait_for_printable(name, "Running").await;

    let vmi = cluster.vmis().get(name).await.unwrap();
    let domain = &vmi.spec.domain;
    let cpu = domain.cpu.clone().unwrap();
    assert_eq!(
        (cpu.sockets, cpu.cores, cpu.threads),
        (Some(4), Some(1), Some(1))
    );
    assert_eq!(domain.memory.clone().unwrap().guest.unwrap().0, "8Gi");
    for disk in &domain.devices.disks {
        let bus = disk.disk.clone().unwrap().bus.unwrap();
        assert_eq!(bus.as_str(), "virtio", "{}", disk.name);
    }
    let interface = &domain.devices.interfaces[0];
    assert_eq!(interface.model.as_deref(), Some("virtio"));
    assert!(domain.devices.rng.is_some());
    assert_eq!(
        vmi.annotations()["kubevirt.io/instancetype-name"],
        "app-server"
    );
    assert_eq!(
        vmi.annotations()["kubevirt.io/preference-name"],
        "paravirtual"
    );

    let pod = &cluster
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items[0];
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let requests = container.resources.clone().unwrap().requests.unwrap();
    let memory = kubevirt_api::quantity::Amount::parse(&requests["memory"]).unwrap();
    assert!(memory.units() > 8 << 30, "{memory:?}");

    let vm = cluster.vms().get(name).await.unwrap();
    let status = vm.status.clone().unwrap();
    let noted = status.instancetype_ref.clone().unwrap();
    assert_eq!(noted.name.as_deref(), Some("app-server"));
    assert_eq!(noted.kind.as_deref(), Some("VirtualMachineInstancetype"));
    let kept = revisions(&cluster).await;
    let copy = kept
        .iter()
        .find(|one| Some(&*one.name_any()) == revision_of(Some(&noted)))
        .unwrap();
    let source = instancetypes(&cluster, "VirtualMachineInstancetype")
        .get("app-server")
        .await
        .unwrap();
    let uid = source.uid().unwrap();
    assert_eq!(
        copy.name_any(),
        format!("{name}-app-server-v1beta1-{uid}-1")
    );
    assert_eq!(copy.owner_references()[0].name, name);
    let labels = copy.labels();
    for (label, value) in [
        ("name", "app-server"),
        ("kind", "VirtualMachineInstancetype"),
        ("uid", &*uid),
        ("generation", "1"),
        ("version", "v1beta1"),
    ] {
        assert_eq!(
            labels[&format!("instancetype.kubevirt.io/object-{label}")],
            value
        );
    }
    assert_eq!(copy.data.clone().unwrap().0["spec"]["cpu"]["guest"], 4);
    assert!(revision_of(status.preference_ref.as_ref()).is_some());
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(3)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vm_keeps_its_instance_type_until_it_chooses_another() {
    let cluster = TestCluster::new().await;
    let kind = "VirtualMachineClusterInstancetype";
    create(&cluster, instancetype(kind, "small", 2)).await;
    create(&cluster, instancetype(kind, "large", 8)).await;
    create_vm(
        &cluster,
        sized("a", &json!({"instancetype": {"name": "small"}})),
    )
    .await;
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(sockets(&cluster, "a").await, Some(2));
    let vmi = cluster.vmis().get("a").await.unwrap();
    assert_eq!(
        vmi.annotations()["kubevirt.io/cluster-instancetype-name"],
        "small"
    );

    let patch = json!({"spec": {"cpu": {"guest": 6}}});
    instancetypes(&cluster, kind)
        .patch(
            "small",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(patch),
        )
        .await
        .unwrap();
    restart(&cluster, json!({})).await;
    assert_eq!(sockets(&cluster, "a").await, Some(2), "the stored revision");
    assert_eq!(revisions(&cluster).await.len(), 1);

    restart(&cluster, json!({"instancetype": {"name": "large"}})).await;
    assert_eq!(sockets(&cluster, "a").await, Some(8));
    let status = cluster.vms().get("a").await.unwrap().status.unwrap();
    let noted = status.instancetype_ref.unwrap();
    assert_eq!(noted.name.as_deref(), Some("large"));

    // A named revision wins.
    let first = revisions(&cluster).await;
    let first = first
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| name.contains("small"));
    let small = json!({"instancetype": {"name": "small", "revisionName": first}});
    restart(&cluster, small).await;
    assert_eq!(sockets(&cluster, "a").await, Some(2));
    cluster.end().await;
}

/// Stops the VM, changes its spec, starts it.
async fn restart(cluster: &TestCluster, mut spec: Value) {
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.wait_until_gone("a").await;
    spec["runStrategy"] = "Always".into();
    cluster.patch_vm("a", json!({"spec": spec})).await;
    cluster.wait_for_printable("a", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn missing_instance_type_or_preference_is_reported_and_waited_for() {
    let cluster = TestCluster::new().await;
    // KubeVirt's tools wait for these reasons.
    let cases = [
        ("a", "instancetype", "Instancetype"),
        ("b", "preference", "Preference"),
    ];
    for (name, field, family) in cases {
        let mut vm = sized(name, &json!({field: {"name": "late"}}));
        if family == "Preference" {
            vm["spec"]["template"]["spec"]["domain"]["memory"] = json!({"guest": "64Mi"});
        }
        create_vm(&cluster, vm).await;
        let expected = format!("VirtualMachineCluster{family} late does not exist");
        cluster
            .wait_until("the failure is reported", async || {
                failure(&cluster, name).await.contains(&expected)
            })
            .await;
        assert!(cluster.vmis().get_opt(name).await.unwrap().is_none());
        let reason = format!("FailedFind{family}");
        assert_eq!(failure_with_reason(&cluster, name).await.0, reason);
        assert!(cluster.events_of(&reason).await > 0);
    }
    create(
        &cluster,
        instancetype("VirtualMachineClusterInstancetype", "late", 2),
    )
    .await;
    let preference = json!({
        "apiVersion": format!("{SIZES}/{VERSION}"), "kind": "VirtualMachineClusterPreference",
        "metadata": {"name": "late"}, "spec": {"devices": {"preferredRng": {}}},
    });
    create(&cluster, preference).await;
    for (name, ..) in cases {
        cluster.wait_for_printable(name, "Running").await;
        assert_eq!(failure(&cluster, name).await, "");
    }
    assert_eq!(sockets(&cluster, "a").await, Some(2));
    let vmi = cluster.vmis().get("b").await.unwrap();
    assert!(vmi.spec.domain.devices.rng.is_some());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vm_that_conflicts_with_its_instance_type_does_not_start() {
    let cluster = TestCluster::new().await;
    let kind = "VirtualMachineInstancetype";
    create(&cluster, instancetype(kind, "small", 2)).await;
    let mut vm = sized(
        "a",
        &json!({"instancetype": {"name": "small", "kind": "virtualmachineinstancetypes"}}),
    );
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"cores": 4});
    create_vm(&cluster, vm).await;
    cluster
        .wait_until("the failure is reported", async || {
            failure(&cluster, "a")
                .await
                .contains("spec.template.spec.domain.cpu.cores")
        })
        .await;
    assert!(cluster.vmis().get_opt("a").await.unwrap().is_none());
    cluster.end().await;
}

/// A revision of the name that this VM would store exists already and differs.
#[tokio::test(start_paused = true)]
async fn changed_revision_is_reported_and_never_overwritten() {
    let cluster = TestCluster::new().await;
    let kind = "VirtualMachineClusterInstancetype";
    create(&cluster, instancetype(kind, "small", 2)).await;
    let source = instancetypes(&cluster, kind).get("small").await.unwrap();
    let name = format!("a-small-v1beta1-{}-1", source.uid().unwrap());
    let changed = json!({
        "metadata": {"name": name, "labels": {"instancetype.kubevirt.io/object-name": "small"}},
        "data": {
            "apiVersion": format!("{SIZES}/{VERSION}"), "kind": kind, "metadata": {"name": "small"},
            "spec": {"cpu": {"guest": 2}, "memory": {"guest": "266Mi"}},
        },
        "revision": 0,
    });
    let api = Api::<ControllerRevision>::namespaced(cluster.client.clone(), NAMESPACE);
    let changed = serde_json::from_value(changed).unwrap();
    let changed = api.create(&PostParams::default(), &changed).await.unwrap();
    let choice = json!({"instancetype": {"name": "small"}});
    create_vm(&cluster, sized("a", &choice)).await;
    let expected = format!("found existing ControllerRevision with unexpected data: {name}");
    cluster
        .wait_until("the failure is reported", async || {
            failure(&cluster, "a").await.contains(&expected)
        })
        .await;
    assert!(cluster.vmis().get_opt("a").await.unwrap().is_none());
    assert_eq!(revisions(&cluster).await[0].data, changed.data);

    api.delete(&name, &DeleteParams::default()).await.unwrap();
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(failure(&cluster, "a").await, "");
    cluster.end().await;
}

/// A halted VM whose status refers to a revision by an older version, which has neither the version in its
/// name nor its label. Returns the name of that revision.
async fn with_outdated_revision(cluster: &TestCluster) -> String {
    let kind = "VirtualMachineClusterInstancetype";
    create(cluster, instancetype(kind, "small", 2)).await;
    let mut vm = sized("a", &json!({"instancetype": {"name": "small"}}));
    vm["spec"]["runStrategy"] = "Halted".into();
    create_vm(cluster, vm).await;
    cluster
        .wait_until("kept", async || revisions(cluster).await.len() == 1)
        .await;
    let uid = "5a3f8c1e-2b74-4c0d-9e61-0d7f3a9b1c22";
    let name = format!("a-small-{uid}-1");
    let old = json!({
        "metadata": {"name": name, "labels": {"instancetype.kubevirt.io/object-name": "small"}},
        "data": {
            "apiVersion": format!("{SIZES}/{VERSION}"), "kind": kind,
            "metadata": {"name": "small", "uid": uid, "generation": 1},
            "spec": {"cpu": {"guest": 3}, "memory": {"guest": "256Mi"}},
        },
        "revision": 0,
    });
    let api = Api::<ControllerRevision>::namespaced(cluster.client.clone(), NAMESPACE);
    let old = serde_json::from_value(old).unwrap();
    api.create(&PostParams::default(), &old).await.unwrap();
    let status = json!({"status": {"instancetypeRef": {"controllerRevisionRef": {"name": name}}}});
    let patch = kube::api::Patch::Merge(status);
    cluster
        .vms()
        .patch_status("a", &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    name
}

/// Scenario: a revision of an older format is replaced.
pub(super) async fn upgraded(cluster: &TestCluster) {
    let old = with_outdated_revision(cluster).await;
    let new = old.replace("small-", "small-v1beta1-");
    cluster
        .wait_until("the status names the new revision", async || {
            let status = cluster.vms().get("a").await.unwrap().status.unwrap();
            revision_of(status.instancetype_ref.as_ref()) == Some(&new)
        })
        .await;
    cluster
        .wait_until("the old revision is deleted", async || {
            let all = revisions(cluster).await;
            all.iter().all(|one| one.name_any() != old)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn revision_of_an_older_format_is_upgraded_with_its_content() {
    let cluster = TestCluster::new().await;
    upgraded(&cluster).await;
    let all = revisions(&cluster).await;
    let new = all
        .iter()
        .find(|one| one.name_any().contains("5a3f8c1e"))
        .unwrap();
    assert_eq!(
        new.labels()["instancetype.kubevirt.io/object-version"],
        VERSION
    );
    assert_eq!(new.data.clone().unwrap().0["spec"]["cpu"]["guest"], 3);
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Always"}}))
        .await;
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(sockets(&cluster, "a").await, Some(3));
    cluster.end().await;
}

/// Sets the reference policy `expand`.
async fn expand_choices(cluster: &TestCluster) {
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"},
        "spec": {"configuration": {"instancetype": {"referencePolicy": "expand"}}},
    });
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt"));
    let kubevirts: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), NAMESPACE, &resource);
    let kubevirt = serde_json::from_value(kubevirt).unwrap();
    kubevirts
        .create(&PostParams::default(), &kubevirt)
        .await
        .unwrap();
    // Until the controllers have read it.
    cluster.advance(Duration::from_secs(5)).await;
}

/// Scenario: the revision of a choice is stored.
pub(super) async fn kept(cluster: &TestCluster) {
    let size = instancetype("VirtualMachineClusterInstancetype", "small", 2);
    create(cluster, size).await;
    let choice = json!({"instancetype": {"name": "small"}});
    create_vm(cluster, sized("a", &choice)).await;
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(sockets(cluster, "a").await, Some(2));
    assert_eq!(revisions(cluster).await.len(), 1);
}

/// Scenario: a choice is expanded into the VM.
pub(super) async fn expanded(cluster: &TestCluster) {
    expand_choices(cluster).await;
    let size = instancetype("VirtualMachineClusterInstancetype", "small", 2);
    create(cluster, size).await;
    let choice = json!({"instancetype": {"name": "small"}});
    create_vm(cluster, sized("a", &choice)).await;
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(sockets(cluster, "a").await, Some(2));
    let vm = cluster.vms().get("a").await.unwrap();
    assert_eq!(vm.spec.instancetype, None);
    assert!(revisions(cluster).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn choice_is_expanded_under_the_expand_policy() {
    let cluster = TestCluster::new().await;
    expand_choices(&cluster).await;

    create(
        &cluster,
        instancetype("VirtualMachineClusterInstancetype", "small", 2),
    )
    .await;
    create_vm(
        &cluster,
        sized("a", &json!({"instancetype": {"name": "small"}})),
    )
    .await;
    cluster.wait_for_printable("a", "Running").await;
    let vm = cluster.vms().get("a").await.unwrap();
    assert_eq!(vm.spec.instancetype, None);
    assert_eq!(vm.status.clone().unwrap().instancetype_ref, None);
    let domain = vm.spec.template.spec.unwrap().domain;
    assert_eq!(domain.cpu.unwrap().sockets, Some(2));
    assert_eq!(domain.memory.unwrap().guest.unwrap().0, "256Mi");
    assert_eq!(revisions(&cluster).await.len(), 0);
    assert_eq!(sockets(&cluster, "a").await, Some(2));
    cluster.end().await;
}
