//! The common instance types and preferences.

use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::world::{World, kubevirt};

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind,
        "metadata": {"name": name},
    })
}

fn size(name: &str) -> Value {
    object("VirtualMachineClusterInstancetype", name)
}

fn preference(name: &str) -> Value {
    object("VirtualMachineClusterPreference", name)
}

async fn versions(world: &World) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    for kind in [size(""), preference("")] {
        let list = world.of(&kind).list(&ListParams::default()).await.unwrap();
        let version = |one: kube::api::DynamicObject| {
            (one.metadata.name.unwrap(), one.metadata.resource_version)
        };
        all.extend(list.items.into_iter().map(version));
    }
    all
}

async fn wait_for_count(world: &World, count: usize) {
    while versions(world).await.len() != count {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn common_objects_are_installed_and_left_alone() {
    let mut world = World::new().await;
    wait_for_count(&world, 65 + 54).await;
    let found = world.get(&size("u1.small")).await;
    assert_eq!(
        found["spec"],
        json!({"cpu": {"guest": 1}, "memory": {"guest": "2Gi"}})
    );
    let labels = &found["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/managed-by"], "virt-operator");
    assert_eq!(labels["instancetype.kubevirt.io/class"], "general.purpose");
    let found = world.get(&preference("windows.11")).await;
    assert_eq!(
        found["spec"]["features"]["preferredHyperv"]["synictimer"],
        json!({"direct": {}})
    );
    world.stop().await;
    let before = versions(&world).await;
    world.start();
    // A repair shows that the restarted operator has compared all objects.
    let api = world.of(&size(""));
    api.delete("u1.nano", &DeleteParams::default())
        .await
        .unwrap();
    world.wait(&size("u1.nano"), |found| !found.is_null()).await;
    let mut after = versions(&world).await;
    after.retain(|(name, _)| name != "u1.nano");
    let unchanged = |one: &(String, Option<String>)| before.contains(one);
    assert!(after.iter().all(unchanged), "the schema changes no spec");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn changed_and_deleted_objects_are_repaired() {
    let world = World::new().await;
    wait_for_count(&world, 65 + 54).await;
    let small = size("u1.small");
    let change = json!({"spec": {"cpu": {"guest": 7, "model": "Haswell"}}});
    world.patch(&small, None, &change).await;
    let expected = json!({"cpu": {"guest": 1}, "memory": {"guest": "2Gi"}});
    world.wait(&small, |found| found["spec"] == expected).await;
    let fedora = preference("fedora");
    let parameters = DeleteParams::default();
    world
        .of(&fedora)
        .delete("fedora", &parameters)
        .await
        .unwrap();
    world.wait(&fedora, |found| !found.is_null()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn disabled_objects_are_deleted_and_those_of_users_kept() {
    let mut world = World::new().await;
    wait_for_count(&world, 65 + 54).await;
    world.stop().await;
    // A user's own object with a common name.
    let mut own = size("u1.small");
    let parameters = DeleteParams::default();
    world
        .of(&own)
        .delete("u1.small", &parameters)
        .await
        .unwrap();
    own["spec"] = json!({"cpu": {"guest": 3}, "memory": {"guest": "1Gi"}});
    world.api.create(own.clone()).await.unwrap();
    world.start();
    let enabled = |value: Value| json!({"spec": {"configuration": {"commonInstancetypesDeployment": {"enabled": value}}}});
    world.patch(&kubevirt(), None, &enabled(json!(false))).await;
    wait_for_count(&world, 1).await;
    world.patch(&kubevirt(), None, &enabled(json!(null))).await;
    wait_for_count(&world, 65 + 54).await;
    assert_eq!(world.get(&own).await["spec"], own["spec"]);
    world.end().await;
}
