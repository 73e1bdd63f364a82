//! The controllers die right after each of their effects, and others go on: everything becomes as
//! it was asked for, and nothing is left in the end.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};

use super::*;
use super::{data_volumes, sizes};

const PREFIX: &str = "virt-controller/";

fn names(of: &str) -> Vec<&'static str> {
    let all = failpoints::NAMES.lines();
    all.filter(|name| {
        name.strip_prefix(PREFIX)
            .is_some_and(|rest| rest.starts_with(of))
    })
    .collect()
}

/// Tells a story with a death after the effect of that name, and looks for what is left.
async fn tell(world: &mut World, name: &str, story: impl AsyncFn(&World)) {
    world.die_after(name);
    story(world).await;
    // What goes with its owner may be gone by then.
    let (all, now) = (ListParams::default(), DeleteParams::default());
    for set in world.sets().list(&all).await.unwrap() {
        world.sets().delete(&set.name_any(), &now).await.unwrap();
    }
    for vm in world.vms().list(&all).await.unwrap() {
        world.vms().delete(&vm.name_any(), &now).await.unwrap();
    }
    for vmi in world.vmis().list(&all).await.unwrap() {
        let _gone = world.vmis().delete(&vmi.name_any(), &now).await.is_err();
    }
    world
        .until(&format!("{name}: nothing is left"), async || {
            let revisions =
                Api::<ControllerRevision>::namespaced(world.client.clone(), world::NAMESPACE);
            world.vms().list(&all).await.unwrap().items.is_empty()
                && world.vmis().list(&all).await.unwrap().items.is_empty()
                && world.pods().list(&all).await.unwrap().items.is_empty()
                && revisions.list(&all).await.unwrap().items.is_empty()
        })
        .await;
    assert!(!world.is_alive(), "nobody came to {name}");
}

async fn runs_with_one_pod(world: &World, name: &str) {
    world.until_printable(name, "Running").await;
    world
        .until("it has one pod", async || {
            world
                .pods()
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .len()
                == 1
        })
        .await;
}

async fn made_stopped_started_changed(world: &World) {
    world.create_vm("a", "Halted").await;
    world.until_printable("a", "Stopped").await;
    world.request("a", json!([{"action": "Start"}])).await;
    runs_with_one_pod(world, "a").await;
    // Nothing that the guest would have to be started again for.
    world
        .patch_vm("a", json!({"spec": {"runStrategy": "RerunOnFailure"}}))
        .await;
    world
        .until("the change is known", async || {
            let vm = world.vms().get("a").await.unwrap();
            let status = vm.status.clone().unwrap();
            status.observed_generation == vm.metadata.generation
        })
        .await;
    world
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    world.until_printable("a", "Stopped").await;
    world.until_gone("a").await;
    world
        .patch_vm("a", json!({"spec": {"runStrategy": "Always"}}))
        .await;
    runs_with_one_pod(world, "a").await;
}

async fn left_and_adopted(world: &World) {
    world.create_vm("a", "Always").await;
    runs_with_one_pod(world, "a").await;
    let uid = world.vmis().get("a").await.unwrap().uid();
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    world.vms().delete("a", &orphan).await.unwrap();
    world
        .until("the VM is gone", async || {
            world.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
    world.create_vm("a", "Always").await;
    runs_with_one_pod(world, "a").await;
    world
        .until("it is adopted", async || {
            let vm = world.vms().get("a").await.unwrap();
            let vmi = world.vmis().get("a").await.unwrap();
            let mut owners = vmi.owner_references().iter();
            vmi.uid() == uid && owners.any(|owner| Some(&owner.uid) == vm.uid().as_ref())
        })
        .await;
}

async fn has_a_pod_too_many(world: &World) {
    world.create_vm("a", "Always").await;
    runs_with_one_pod(world, "a").await;
    let vmi = world.vmis().get("a").await.unwrap();
    let stray: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "stray", "labels": {"kubevirt.io": "virt-launcher"},
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "name": "a", "uid": vmi.uid(), "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "compute", "image": "launcher:1"}]},
    }))
    .unwrap();
    world
        .pods()
        .create(&PostParams::default(), &stray)
        .await
        .unwrap();
    world
        .until("the stray is gone", async || {
            world.pods().get_opt("stray").await.unwrap().is_none()
        })
        .await;
    runs_with_one_pod(world, "a").await;
}

async fn grows_shrinks_loses_and_finds(world: &World) {
    world.create_set("web", 2).await;
    world.until_replicas("web", 2).await;
    world.scale("web", 1).await;
    world.until_replicas("web", 1).await;
    let member = world
        .vmis()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items[0]
        .name_any();
    let label = async |value: &str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"app": value}}}));
        let done = world
            .vmis()
            .patch(&member, &PatchParams::default(), &patch)
            .await;
        done.unwrap();
    };
    let is_owned = async || {
        let vmi = world.vmis().get(&member).await.unwrap();
        !vmi.owner_references().is_empty()
    };
    label("other").await;
    world
        .until("it is let go", async || !is_owned().await)
        .await;
    // Another was made in its place; when this one comes back, one has to go.
    world
        .until("there is another", async || {
            let all = world.vmis().list(&ListParams::default()).await.unwrap();
            all.items.len() == 2
        })
        .await;
    world.scale("web", 2).await;
    world
        .until("there is a third", async || {
            let all = world.vmis().list(&ListParams::default()).await.unwrap();
            all.items.len() == 3
        })
        .await;
    world.scale("web", 3).await;
    label("web").await;
    world.until_replicas("web", 3).await;
}

#[tokio::test(start_paused = true)]
async fn machines_outlive_a_death_after_each_effect() {
    let mut world = World::new().await;
    for name in names("vm/") {
        match name.strip_prefix(PREFIX).unwrap() {
            "vm/adopt" => tell(&mut world, name, left_and_adopted).await,
            "vm/keep-choice" => tell(&mut world, name, sizes::kept).await,
            // What is asked for in a cluster of its own, below.
            "vm/write-out-choice" | "vm/create-data-volume" | "vm/adopt-data-volume" => {}
            _ => tell(&mut world, name, made_stopped_started_changed).await,
        }
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn machine_outlives_a_death_after_its_choice_is_written_out() {
    let mut world = World::new().await;
    tell(
        &mut world,
        "virt-controller/vm/write-out-choice",
        sizes::written_out,
    )
    .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn disks_to_be_filled_outlive_a_death_after_each_effect() {
    for name in ["vm/create-data-volume", "vmi/create-binder"] {
        let mut world = World::new().await;
        tell(&mut world, &format!("{PREFIX}{name}"), data_volumes::filled).await;
        world.end().await;
    }
    let mut world = World::new().await;
    let name = format!("{PREFIX}vm/adopt-data-volume");
    tell(&mut world, &name, data_volumes::found).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn instances_outlive_a_death_after_each_effect() {
    let mut world = World::new().await;
    for name in names("vmi/") {
        match name.strip_prefix(PREFIX).unwrap() {
            "vmi/create-binder" => {}
            "vmi/delete-others" => tell(&mut world, name, has_a_pod_too_many).await,
            _ => tell(&mut world, name, made_stopped_started_changed).await,
        }
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn replica_sets_outlive_a_death_after_each_effect() {
    let mut world = World::new().await;
    for name in names("replica-set/") {
        tell(&mut world, name, grows_shrinks_loses_and_finds).await;
    }
    world.end().await;
}

#[test]
fn each_name_of_the_controllers_has_its_story() {
    let told = ["vm/", "vmi/", "replica-set/"].map(|of| names(of).len());
    assert_eq!(told.iter().sum::<usize>(), names("").len());
}
