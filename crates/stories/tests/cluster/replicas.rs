//! Of two of a component one goes: the other does its work.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;
use stories::{Home, NAMESPACE, eventually, kill, machine, wait_for};

use crate::Story;

fn leases(story: &Story) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let resource = ApiResource::from_gvk(&kind);
    Api::namespaced_with(story.client.clone(), NAMESPACE, &resource)
}

async fn leader(story: &Story) -> String {
    let led = |lease: &Value| lease["spec"]["holderIdentity"].is_string();
    let lease = wait_for(&leases(story), "virt-controller", "led", led).await;
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn when_the_leading_controller_goes_the_other_takes_over() {
    let story = Story::alone().await;
    let before = leader(&story).await;
    let pod = format!("pod/{before}");
    let delete = [
        "delete",
        "--namespace",
        NAMESPACE,
        &pod,
        "--grace-period=0",
        "--force",
    ];
    story.home.kubectl(&delete, b"").await.good();
    story.apply(&machine("after")).await;
    story.vmi_is("after", "Running").await;
    let after = leader(&story).await;
    assert_ne!(after, before);
}

#[tokio::test]
async fn when_one_of_two_api_servers_is_killed_requests_are_soon_answered_again() {
    let story = Story::alone().await;
    let all = story.home.component("api");
    let [first, second] = all[..] else {
        panic!("looking for two among {all:?}")
    };
    kill(first);
    // Webhooks are asked of either; the kubelet needs a moment to see that one is gone.
    let machine = machine("asked").strategy("Halted");
    let mut refused = 0;
    while !story.try_apply(&machine).await.is_success {
        refused += 1;
        assert!(
            refused < 20,
            "machines are refused while one of two is gone"
        );
    }
    story.vm_is("asked", "Stopped").await;
    eventually("two again", || {
        let now = story.home.component("api");
        let is_whole = now.len() == 2 && now.contains(&second) && !now.contains(&first);
        if is_whole { Ok(()) } else { Err(now) }
    })
    .await;
}
