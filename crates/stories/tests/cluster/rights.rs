//! Who may do what: users by the cluster's own roles, agents by the policy that holds them to their node.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use stories::{Home, NAMESPACE, machine};

use crate::{Story, story};

#[tokio::test]
async fn who_may_edit_a_namespace_may_edit_its_machines_and_no_more() {
    let story = story().await;
    for (role, user) in [("view", "vera"), ("edit", "ed"), ("admin", "ada")] {
        let (role, user) = (format!("--clusterrole={role}"), format!("--user={user}"));
        let bind = ["create", "rolebinding", &user[7..], &role, &user];
        story.kubectl(&bind).await.good();
    }
    let (core, verbs) = ("kubevirt.io", "subresources.kubevirt.io");
    for (verb, group, resource, expected) in [
        ("list", core, "virtualmachines", [true, true, true]),
        ("create", core, "virtualmachines", [false, true, true]),
        (
            "update",
            verbs,
            "virtualmachines/start",
            [false, true, true],
        ),
        (
            "get",
            verbs,
            "virtualmachineinstances/console",
            [false, true, true],
        ),
        (
            "deletecollection",
            core,
            "virtualmachines",
            [false, false, true],
        ),
        (
            "create",
            core,
            "virtualmachineinstancemigrations",
            [false; 3],
        ),
        ("patch", core, "kubevirts", [false; 3]),
    ] {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        for (user, expected) in ["vera", "ed", "ada"].into_iter().zip(expected) {
            let asked = json!({"user": user, "resourceAttributes": {
                "namespace": story.namespace, "verb": verb, "group": group,
                "resource": resource, "subresource": subresource,
            }});
            let may = may(&story, asked).await;
            assert_eq!(may, expected, "{user} {verb} {resource} {subresource}");
        }
    }
}

async fn may(story: &Story, asked: Value) -> bool {
    let review = json!({"metadata": {}, "spec": asked});
    let review: SubjectAccessReview = serde_json::from_value(review).expect("a review");
    let api = Api::all(story.client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    answer.expect("ask").status.expect("an answer").allowed
}

/// A client with a token of the agent on `node`, such as its pod has.
async fn agent(story: &Story, node: &str) -> Client {
    let by_node = format!("--field-selector=spec.nodeName={node}");
    let list = [
        "get",
        "pods",
        "--namespace",
        NAMESPACE,
        "--selector=kubevirt.io=virt-handler",
        &by_node,
        "--output=jsonpath={.items[0].metadata.name}",
    ];
    let pod = story.home.kubectl(&list, b"").await.good();
    let object = format!("--bound-object-name={pod}");
    let token = [
        "create",
        "token",
        "kubevirt-handler",
        "--namespace",
        NAMESPACE,
        "--bound-object-kind=Pod",
        &object,
    ];
    with_token(story, &story.home.kubectl(&token, b"").await.good()).await
}

async fn with_token(story: &Story, token: &str) -> Client {
    let mut kubeconfig = Kubeconfig::read_from(story.home.kubeconfig()).expect("a kubeconfig");
    let user = json!({"token": token.trim()});
    kubeconfig.auth_infos[0].auth_info =
        Some(serde_json::from_value(user).expect("a user with a token"));
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a good kubeconfig")).expect("make a client")
}

async fn label_node(client: &Client, node: &str) -> Result<(), String> {
    let kind = GroupVersionKind::gvk("", "v1", "Node");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let change = json!({"metadata": {"labels": {"story.example/tried": "yes"}}});
    patch(&api, node, &change).await
}

async fn patch(api: &Api<DynamicObject>, name: &str, change: &Value) -> Result<(), String> {
    let done = api
        .patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await;
    done.map(drop).map_err(|err| err.to_string())
}

#[tokio::test]
async fn an_agent_changes_its_own_node_only() {
    let story = story().await;
    let agent = agent(&story, "n1").await;
    label_node(&agent, "n1").await.expect("it is its own");
    let refused = label_node(&agent, "n2").await.expect_err("it is another's");
    assert!(refused.contains("this is on n2"), "{refused}");

    // Not even its own node is its to cordon.
    let kind = GroupVersionKind::gvk("", "v1", "Node");
    let nodes: Api<DynamicObject> = Api::all_with(agent, &ApiResource::from_gvk(&kind));
    let cordon = json!({"spec": {"unschedulable": true}});
    let refused = patch(&nodes, "n1", &cordon)
        .await
        .expect_err("it is not an agent's");
    assert!(refused.contains("not its to change"), "{refused}");
}

#[tokio::test]
async fn a_token_that_is_bound_to_no_node_changes_nothing() {
    let story = story().await;
    let token = [
        "create",
        "token",
        "kubevirt-handler",
        "--namespace",
        NAMESPACE,
    ];
    let loose = with_token(&story, &story.home.kubectl(&token, b"").await.good()).await;
    let refused = label_node(&loose, "n1")
        .await
        .expect_err("nobody knows whose it is");
    assert!(
        refused.contains("may change what is on its node"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_agent_changes_guests_of_its_own_node_only() {
    let story = story().await;
    story.apply(&machine("held")).await;
    let vmi = story.vmi_is("held", "Running").await;
    let own = vmi["status"]["nodeName"].as_str().expect("it is on a node");
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance");
    let resource = ApiResource::from_gvk(&kind);
    let change = json!({"status": {"reason": "a story"}});
    for node in story.home.nodes() {
        let api: Api<DynamicObject> =
            Api::namespaced_with(agent(&story, &node).await, &story.namespace, &resource);
        let tried = patch(&api, "held", &change).await;
        if node == own {
            tried.expect("it is on its own node");
            let more = json!({"spec": {"domain": {"memory": {"guest": "1Gi"}}}});
            patch(&api, "held", &more)
                .await
                .expect_err("what is wanted is the user's");
        } else {
            let refused = tried.expect_err("it is on another node");
            assert!(refused.contains(&format!("this is on {own}")), "{refused}");
        }
    }
}
