//! What others write, by mistake or to do harm: pods that take a name, forged labels and owners,
//! instances edited by hand, finalizers that are not ours.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use serde_json::{Value, json};

use crate::world::{self, World};

/// A pod by somebody who may make pods in the namespace, and knows all that can be known.
async fn squat(world: &World, vmi: &VirtualMachineInstance) -> Pod {
    let pod = json!({
        "metadata": {
            "name": launcher_pod::pod_name(vmi),
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmi.uid()},
        },
        "spec": {"containers": [{"name": "compute", "image": "theirs:1"}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    let made = world.pods().create(&PostParams::default(), &pod).await;
    made.unwrap()
}

async fn phase(world: &World, name: &str) -> String {
    let vmi = world.vmis().get_opt(name).await.unwrap();
    let phase = vmi.and_then(|vmi| vmi.status?.phase);
    phase.map(|phase| phase.to_string()).unwrap_or_default()
}

async fn told(world: &World, reason: &str) -> Vec<String> {
    let events = Api::<Event>::namespaced(world.client.clone(), world::NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let of_reason = events
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(reason));
    of_reason.filter_map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn machine_whose_pods_name_is_taken_runs_as_another_instance() {
    let world = World::new().await;
    // Without its claim the instance waits, so that there is time to be faster than we.
    world.create_vm_on_claim("a", "data").await;
    world.until_printable("a", "ErrorPvcNotFound").await;
    let vmi = world.vmis().get("a").await.unwrap();
    let theirs = squat(&world, &vmi).await;
    world.create_claim("data").await;
    world
        .until("another instance runs", async || {
            let now = world.vmis().get_opt("a").await.unwrap();
            let is_other = now.is_some_and(|now| now.uid() != vmi.uid());
            is_other && phase(&world, "a").await == "Running"
        })
        .await;
    world.until_printable("a", "Running").await;

    let said = told(&world, "FailedCreate").await;
    assert!(
        said.iter().any(|note| note.contains(&theirs.name_any())),
        "{said:?}"
    );
    let still = world.pods().get(&theirs.name_any()).await.unwrap();
    assert_eq!(still.uid(), theirs.uid());
    assert_eq!(still.metadata.deletion_timestamp, None);
    let now = world.vmis().get("a").await.unwrap();
    let own = world
        .pods()
        .get(&launcher_pod::pod_name(&now))
        .await
        .unwrap();
    let active: Vec<String> = now.status.unwrap().active_pods.into_keys().collect();
    assert_eq!(active, [own.uid().unwrap()]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn instance_of_nobody_whose_pods_name_is_taken_says_so_and_waits_for_it() {
    let world = World::new().await;
    world.create_vmi_on_claim("a", "data").await;
    let is_told = async |reason: &str| {
        let vmi = world.vmis().get("a").await.unwrap();
        let conditions = vmi.status.unwrap_or_default().conditions;
        let mut conditions = conditions.into_iter();
        conditions.any(|one| {
            one.type_.as_str() == "Synchronized" && one.reason.as_deref() == Some(reason)
        })
    };
    world
        .until("it waits", async || is_told("FailedPvcNotFound").await)
        .await;
    let vmi = world.vmis().get("a").await.unwrap();
    let theirs = squat(&world, &vmi).await;
    world.create_claim("data").await;
    world
        .until("it is told", async || is_told("FailedCreate").await)
        .await;
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(phase(&world, "a").await, "Pending");

    let now = DeleteParams::default();
    world.pods().delete(&theirs.name_any(), &now).await.unwrap();
    world
        .until("it runs", async || phase(&world, "a").await == "Running")
        .await;
    let own = world.pods().get(&theirs.name_any()).await.unwrap();
    assert_ne!(own.uid(), theirs.uid());
    assert!(!is_told("FailedCreate").await);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn pod_that_takes_the_place_of_a_lost_one_is_not_taken_for_it() {
    let mut world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let vmi = world.vmis().get("a").await.unwrap();
    world.stop_controllers().await;
    let name = launcher_pod::pod_name(&vmi);
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    world.pods().delete(&name, &at_once).await.unwrap();
    world
        .until("the pod is gone", async || {
            world.pods().get_opt(&name).await.unwrap().is_none()
        })
        .await;
    let theirs = squat(&world, &vmi).await;
    world.start_controllers();
    world
        .until("another instance runs", async || {
            let now = world.vmis().get_opt("a").await.unwrap();
            let is_other = now.is_some_and(|now| now.uid() != vmi.uid());
            is_other && phase(&world, "a").await == "Running"
        })
        .await;
    let still = world.pods().get(&theirs.name_any()).await.unwrap();
    assert_eq!(still.metadata.deletion_timestamp, None);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn labels_that_others_put_on_a_pod_change_nothing() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let vmi = world.vmis().get("a").await.unwrap();
    let writes = world.all_writes();
    // Another's pod under our labels, and our pod under another's.
    let forged = json!({
        "metadata": {"name": "forged", "labels": {
            "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmi.uid(),
            "kubevirt.io/domain": "a", "vm.kubevirt.io/name": "a",
        }},
        "spec": {"containers": [{"name": "compute", "image": "theirs:1"}]},
    });
    let forged = serde_json::from_value(forged).unwrap();
    world
        .pods()
        .create(&PostParams::default(), &forged)
        .await
        .unwrap();
    let stolen = json!({"metadata": {"labels": {"kubevirt.io/created-by": "somebody"}}});
    let own = launcher_pod::pod_name(&vmi);
    let patched = world
        .pods()
        .patch(&own, &PatchParams::default(), &Patch::Merge(stolen))
        .await;
    patched.unwrap();
    world.pass(Duration::from_mins(3)).await;
    assert_eq!(world.all_writes(), writes);
    assert_eq!(world.printable("a").await, "Running");
    assert_eq!(world.vmis().get("a").await.unwrap().uid(), vmi.uid());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn instance_edited_by_hand_comes_right_without_a_second_pod() {
    let edits = [
        json!({"status": {"phase": "Pending"}}),
        json!({"status": {"phase": "Scheduling", "conditions": []}}),
        json!({"status": {"phase": ""}}),
        json!({"status": {"phase": "Pending", "nodeName": null, "activePods": null}}),
        json!({"metadata": {"labels": {"kubevirt.io/nodeName": "elsewhere"}}}),
    ];
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let vmi = world.vmis().get("a").await.unwrap();
    for edit in edits {
        let shown = edit.to_string();
        edit_vmi(&world, "a", edit).await;
        world
            .until(&shown, async || phase(&world, "a").await == "Running")
            .await;
        world.until_printable("a", "Running").await;
        let now = world.vmis().get("a").await.unwrap();
        assert_eq!(now.uid(), vmi.uid(), "{shown}");
        let pods = world.pods().list(&ListParams::default()).await.unwrap();
        assert_eq!(pods.items.len(), 1, "{shown}");
    }

    // One that is said to have failed is replaced, and its pod goes with it.
    edit_vmi(&world, "a", json!({"status": {"phase": "Failed"}})).await;
    world
        .until("another instance runs", async || {
            let now = world.vmis().get_opt("a").await.unwrap();
            let is_other = now.is_some_and(|now| now.uid() != vmi.uid());
            let pods = world.pods().list(&ListParams::default()).await.unwrap();
            is_other && phase(&world, "a").await == "Running" && pods.items.len() == 1
        })
        .await;
    world.end().await;
}

async fn edit_vmi(world: &World, name: &str, edit: Value) {
    let patched = world
        .vmis()
        .patch(name, &PatchParams::default(), &Patch::Merge(edit))
        .await;
    patched.unwrap();
}

#[tokio::test(start_paused = true)]
async fn finalizer_of_others_is_left_alone_and_waited_for_without_work() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let vmi = world.vmis().get("a").await.unwrap();
    let mut finalizers = vmi.finalizers().to_vec();
    finalizers.push("example.org/theirs".to_owned());
    edit_vmi(&world, "a", json!({"metadata": {"finalizers": finalizers}})).await;
    world
        .vmis()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("only theirs is left", async || {
            let now = world.vmis().get("a").await.unwrap();
            let pods = world.pods().list(&ListParams::default()).await.unwrap();
            now.finalizers() == ["example.org/theirs"] && pods.items.is_empty()
        })
        .await;
    world.pass(Duration::from_secs(30)).await;
    let writes = world.all_writes();
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(world.all_writes(), writes);

    edit_vmi(&world, "a", json!({"metadata": {"finalizers": []}})).await;
    world.until_printable("a", "Running").await;
    assert_ne!(world.vmis().get("a").await.unwrap().uid(), vmi.uid());
    world.end().await;
}
