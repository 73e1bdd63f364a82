//! VMs with instance types and preferences: what their guests get, what is kept of it, and what
//! is said when it cannot be had.

use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kubevirt_api::VirtualMachine;
use kubevirt_api::vm_status::InstancetypeStatusRef;
use serde_json::Value;

use super::*;
use crate::world::NAMESPACE;

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

fn sizes(world: &World, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(SIZES, VERSION, kind);
    let resource = ApiResource::from_gvk(&kind);
    if kind.kind.contains("Cluster") {
        return Api::all_with(world.client.clone(), &resource);
    }
    Api::namespaced_with(world.client.clone(), NAMESPACE, &resource)
}

async fn create(world: &World, object: Value) {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let typed = serde_json::from_value(object).unwrap();
    let api = sizes(world, &kind);
    api.create(&PostParams::default(), &typed).await.unwrap();
}

async fn create_vm(world: &World, vm: Value) {
    let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
    let made = world.vms().create(&PostParams::default(), &vm).await;
    made.unwrap();
}

/// A VM that starts and says nothing about its size.
fn sized(name: &str, choice: &Value) -> Value {
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

fn instancetype(kind: &str, name: &str, vcpus: u32) -> Value {
    json!({
        "apiVersion": format!("{SIZES}/{VERSION}"), "kind": kind, "metadata": {"name": name},
        "spec": {"cpu": {"guest": vcpus}, "memory": {"guest": "256Mi"}},
    })
}

async fn revisions(world: &World) -> Vec<ControllerRevision> {
    let api = Api::<ControllerRevision>::namespaced(world.client.clone(), NAMESPACE);
    let params = ListParams::default().labels("instancetype.kubevirt.io/object-name");
    api.list(&params).await.unwrap().items
}

async fn sockets(world: &World, name: &str) -> Option<u32> {
    let vmi = world.vmis().get(name).await.unwrap();
    vmi.spec.domain.cpu.unwrap_or_default().sockets
}

/// What the VM says it fails for.
async fn failure(world: &World, name: &str) -> String {
    let status = world.vms().get(name).await.unwrap().status;
    let conditions = status.unwrap_or_default().conditions;
    let failure = conditions
        .iter()
        .find(|one| one.type_.as_str() == "Failure");
    failure
        .and_then(|failure| failure.message.clone())
        .unwrap_or_default()
}

fn revision_of(noted: Option<&InstancetypeStatusRef>) -> Option<&str> {
    let noted = noted?.controller_revision_ref.as_ref()?;
    noted.name.as_deref()
}

#[tokio::test(start_paused = true)]
async fn machine_of_the_examples_gets_what_it_chose() {
    let world = World::new().await;
    create(&world, example!("instancetype-app-server")).await;
    create(&world, example!("preference-virtio")).await;
    create_vm(&world, example!("vm-instancetype-preference")).await;
    let name = "sized-and-equipped";
    // Copies are kept before the first start.
    world
        .until("kept", async || revisions(&world).await.len() == 2)
        .await;
    world
        .patch_vm(name, json!({"spec": {"runStrategy": "Always"}}))
        .await;
    world.until_printable(name, "Running").await;

    let vmi = world.vmis().get(name).await.unwrap();
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

    let pod = &world
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items[0];
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let requests = container.resources.clone().unwrap().requests.unwrap();
    let memory = kubevirt_api::quantity::Amount::parse(&requests["memory"]).unwrap();
    assert!(memory.units() > 8 << 30, "{memory:?}");

    let vm = world.vms().get(name).await.unwrap();
    let status = vm.status.clone().unwrap();
    let noted = status.instancetype_ref.clone().unwrap();
    assert_eq!(noted.name.as_deref(), Some("app-server"));
    assert_eq!(noted.kind.as_deref(), Some("VirtualMachineInstancetype"));
    let kept = revisions(&world).await;
    let copy = kept
        .iter()
        .find(|one| Some(&*one.name_any()) == revision_of(Some(&noted)))
        .unwrap();
    let source = sizes(&world, "VirtualMachineInstancetype")
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
    let writes = world.all_writes();
    world.pass(Duration::from_mins(3)).await;
    assert_eq!(world.all_writes(), writes, "rest");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn machine_keeps_its_size_until_it_chooses_another() {
    let world = World::new().await;
    let kind = "VirtualMachineClusterInstancetype";
    create(&world, instancetype(kind, "small", 2)).await;
    create(&world, instancetype(kind, "large", 8)).await;
    create_vm(
        &world,
        sized("a", &json!({"instancetype": {"name": "small"}})),
    )
    .await;
    world.until_printable("a", "Running").await;
    assert_eq!(sockets(&world, "a").await, Some(2));
    let vmi = world.vmis().get("a").await.unwrap();
    assert_eq!(
        vmi.annotations()["kubevirt.io/cluster-instancetype-name"],
        "small"
    );

    let patch = json!({"spec": {"cpu": {"guest": 6}}});
    sizes(&world, kind)
        .patch(
            "small",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(patch),
        )
        .await
        .unwrap();
    restart(&world, json!({})).await;
    assert_eq!(sockets(&world, "a").await, Some(2), "held on to");
    assert_eq!(revisions(&world).await.len(), 1);

    restart(&world, json!({"instancetype": {"name": "large"}})).await;
    assert_eq!(sockets(&world, "a").await, Some(8));
    let status = world.vms().get("a").await.unwrap().status.unwrap();
    let noted = status.instancetype_ref.unwrap();
    assert_eq!(noted.name.as_deref(), Some("large"));

    // A revision that is named counts.
    let first = revisions(&world).await;
    let first = first
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| name.contains("small"));
    let small = json!({"instancetype": {"name": "small", "revisionName": first}});
    restart(&world, small).await;
    assert_eq!(sockets(&world, "a").await, Some(2));
    world.end().await;
}

/// Stops the VM, changes its spec, starts it.
async fn restart(world: &World, mut spec: Value) {
    world
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    world.until_printable("a", "Stopped").await;
    world.until_gone("a").await;
    spec["runStrategy"] = "Always".into();
    world.patch_vm("a", json!({"spec": spec})).await;
    world.until_printable("a", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn machine_waits_for_what_it_chose_and_says_so() {
    let world = World::new().await;
    create_vm(
        &world,
        sized("a", &json!({"instancetype": {"name": "late"}})),
    )
    .await;
    world
        .until("it says so", async || {
            failure(&world, "a")
                .await
                .contains("VirtualMachineClusterInstancetype late does not exist")
        })
        .await;
    assert!(world.vmis().get_opt("a").await.unwrap().is_none());
    create(
        &world,
        instancetype("VirtualMachineClusterInstancetype", "late", 2),
    )
    .await;
    world.until_printable("a", "Running").await;
    assert_eq!(failure(&world, "a").await, "");
    assert_eq!(sockets(&world, "a").await, Some(2));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn machine_that_contradicts_its_instance_type_does_not_start() {
    let world = World::new().await;
    let kind = "VirtualMachineInstancetype";
    create(&world, instancetype(kind, "small", 2)).await;
    let mut vm = sized(
        "a",
        &json!({"instancetype": {"name": "small", "kind": "virtualmachineinstancetypes"}}),
    );
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"cores": 4});
    create_vm(&world, vm).await;
    world
        .until("it says so", async || {
            failure(&world, "a")
                .await
                .contains("spec.template.spec.domain.cpu.cores")
        })
        .await;
    assert!(world.vmis().get_opt("a").await.unwrap().is_none());
    world.end().await;
}

/// Has choices written into the machines themselves, as administrators may ask for.
async fn expand_choices(world: &World) {
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"},
        "spec": {"configuration": {"instancetype": {"referencePolicy": "expand"}}},
    });
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt"));
    let kubevirts: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), NAMESPACE, &resource);
    let kubevirt = serde_json::from_value(kubevirt).unwrap();
    kubevirts
        .create(&PostParams::default(), &kubevirt)
        .await
        .unwrap();
    // Until the controllers have read it.
    world.pass(Duration::from_secs(5)).await;
}

/// A machine whose choice is kept: for the deaths after that.
pub(super) async fn kept(world: &World) {
    let size = instancetype("VirtualMachineClusterInstancetype", "small", 2);
    create(world, size).await;
    let choice = json!({"instancetype": {"name": "small"}});
    create_vm(world, sized("a", &choice)).await;
    world.until_printable("a", "Running").await;
    assert_eq!(sockets(world, "a").await, Some(2));
    assert_eq!(revisions(world).await.len(), 1);
}

/// A machine whose choice is written out: for the deaths after that.
pub(super) async fn written_out(world: &World) {
    expand_choices(world).await;
    let size = instancetype("VirtualMachineClusterInstancetype", "small", 2);
    create(world, size).await;
    let choice = json!({"instancetype": {"name": "small"}});
    create_vm(world, sized("a", &choice)).await;
    world.until_printable("a", "Running").await;
    assert_eq!(sockets(world, "a").await, Some(2));
    let vm = world.vms().get("a").await.unwrap();
    assert_eq!(vm.spec.instancetype, None);
    assert!(revisions(world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn choice_is_written_out_where_the_administrator_wants_it() {
    let world = World::new().await;
    expand_choices(&world).await;

    create(
        &world,
        instancetype("VirtualMachineClusterInstancetype", "small", 2),
    )
    .await;
    create_vm(
        &world,
        sized("a", &json!({"instancetype": {"name": "small"}})),
    )
    .await;
    world.until_printable("a", "Running").await;
    let vm = world.vms().get("a").await.unwrap();
    assert_eq!(vm.spec.instancetype, None);
    assert_eq!(vm.status.clone().unwrap().instancetype_ref, None);
    let domain = vm.spec.template.spec.unwrap().domain;
    assert_eq!(domain.cpu.unwrap().sockets, Some(2));
    assert_eq!(domain.memory.unwrap().guest.unwrap().0, "256Mi");
    assert_eq!(revisions(&world).await.len(), 0);
    assert_eq!(sockets(&world, "a").await, Some(2));
    world.end().await;
}
