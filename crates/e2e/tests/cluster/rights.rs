//! Permissions: users have the cluster's roles; an admission policy restricts each virt-handler to its
//! node.

use e2e::{Environment, NAMESPACE, tiny_vm};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{
    Api, Client, Config,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

#[tokio::test]
async fn edit_role_covers_vms_of_its_namespace_only() {
    let test = test_namespace().await;
    for (role, user) in [("view", "vera"), ("edit", "ed"), ("admin", "ada")] {
        let (role, user) = (format!("--clusterrole={role}"), format!("--user={user}"));
        let bind = ["create", "rolebinding", &user[7..], &role, &user];
        test.kubectl(&bind).await.success();
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
                "namespace": test.namespace, "verb": verb, "group": group,
                "resource": resource, "subresource": subresource,
            }});
            let may = may(&test, asked).await;
            assert_eq!(may, expected, "{user} {verb} {resource} {subresource}");
        }
    }
}

async fn may(test: &TestNamespace, asked: Value) -> bool {
    let review = json!({"metadata": {}, "spec": asked});
    let review: SubjectAccessReview = serde_json::from_value(review).expect("a review");
    let api = Api::all(test.client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    answer.expect("ask").status.expect("an answer").allowed
}

/// A client with a token of virt-handler on `node`, as in its pod.
async fn handler(test: &TestNamespace, node: &str) -> Client {
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
    let pod = test.environment.kubectl(&list, b"").await.success();
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
    with_token(test, &test.environment.kubectl(&token, b"").await.success()).await
}

async fn with_token(test: &TestNamespace, token: &str) -> Client {
    let mut kubeconfig =
        Kubeconfig::read_from(test.environment.kubeconfig()).expect("a kubeconfig");
    let user = json!({"token": token.trim()});
    kubeconfig.auth_infos[0].auth_info =
        Some(serde_json::from_value(user).expect("a user with a token"));
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a good kubeconfig")).expect("make a client")
}

async fn label_node(client: &Client, node: &str) -> Result<(), String> {
    let kind = GroupVersionKind::gvk("", "v1", "Node");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let change = json!({"metadata": {"labels": {"cpu-feature.node.kubevirt.io/tried": "true"}}});
    patch(&api, node, &change).await
}

async fn patch(api: &Api<DynamicObject>, name: &str, change: &Value) -> Result<(), String> {
    let done = api
        .patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await;
    done.map(drop).map_err(|err| err.to_string())
}

#[tokio::test]
async fn handler_may_change_its_own_node_only() {
    let test = test_namespace().await;
    let handler = handler(&test, "n1").await;
    label_node(&handler, "n1").await.expect("it is its own");
    let refused = label_node(&handler, "n2")
        .await
        .expect_err("it is another node");
    assert!(refused.contains("this one is on n2"), "{refused}");

    // It may not cordon even its own node.
    let kind = GroupVersionKind::gvk("", "v1", "Node");
    let nodes: Api<DynamicObject> = Api::all_with(handler, &ApiResource::from_gvk(&kind));
    let cordon = json!({"spec": {"unschedulable": true}});
    let refused = patch(&nodes, "n1", &cordon)
        .await
        .expect_err("the spec is not writable");
    assert!(refused.contains("not its spec"), "{refused}");
}

/// The class of CVE-2023-26484.
#[tokio::test]
async fn taken_over_handler_changes_only_its_own_labels_and_reads_no_config_maps() {
    let test = test_namespace().await;
    let handler = handler(&test, "n1").await;
    let kind = GroupVersionKind::gvk("", "v1", "Node");
    let nodes: Api<DynamicObject> = Api::all_with(handler.clone(), &ApiResource::from_gvk(&kind));
    let own = "virt-handler may not change ";
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "x"}]);
    for (metadata, expected) in [
        (
            json!({"labels": {"node-role.kubernetes.io/control-plane": ""}}),
            own,
        ),
        (
            json!({"labels": {"node-restriction.kubernetes.io/secret": "yes"}}),
            own,
        ),
        (json!({"labels": {"kubernetes.io/hostname": "n2"}}), own),
        (
            json!({"annotations": {"node.alpha.kubernetes.io/ttl": "9"}}),
            own,
        ),
        (
            json!({"ownerReferences": owner}),
            "owner references or finalizers",
        ),
        (
            json!({"finalizers": ["example.com/hold"]}),
            "owner references or finalizers",
        ),
    ] {
        let change = json!({"metadata": metadata});
        let refused = patch(&nodes, "n1", &change).await;
        let refused = refused.expect_err(&change.to_string());
        assert!(refused.contains(expected), "{change}: {refused}");
    }
    for (namespace, is_allowed) in [(test.namespace.as_str(), false), (NAMESPACE, true)] {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let maps: Api<DynamicObject> = Api::namespaced_with(handler.clone(), namespace, &kind);
        let listed = maps.list(&ListParams::default()).await;
        assert_eq!(listed.is_ok(), is_allowed, "config maps of {namespace}");
    }
}

#[tokio::test]
async fn handler_token_without_node_may_change_nothing() {
    let test = test_namespace().await;
    let token = [
        "create",
        "token",
        "kubevirt-handler",
        "--namespace",
        NAMESPACE,
    ];
    let loose = with_token(
        &test,
        &test.environment.kubectl(&token, b"").await.success(),
    )
    .await;
    let refused = label_node(&loose, "n1")
        .await
        .expect_err("the token names no node");
    assert!(
        refused.contains("may change only objects of its node"),
        "{refused}"
    );
}

/// The class of CVE-2025-64436.
#[tokio::test]
async fn handler_may_change_vmis_of_its_own_node_only() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("held")).await;
    let vmi = test.wait_vmi_phase("held", "Running").await;
    let own = vmi["status"]["nodeName"].as_str().expect("it is on a node");
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance");
    let resource = ApiResource::from_gvk(&kind);
    let change = json!({"status": {"reason": "a test"}});
    for node in test.environment.nodes() {
        let api: Api<DynamicObject> =
            Api::namespaced_with(handler(&test, &node).await, &test.namespace, &resource);
        let tried = patch(&api, "held", &change).await;
        if node == own {
            tried.expect("it is on its own node");
            let more = json!({"spec": {"domain": {"memory": {"guest": "1Gi"}}}});
            patch(&api, "held", &more)
                .await
                .expect_err("what is wanted is the user's");
            let label = json!({"metadata": {"labels": {"a": "b"}}});
            patch(&api, "held", &label)
                .await
                .expect_err("labels are the user's");
        } else {
            let refused = tried.expect_err("it is on another node");
            assert!(
                refused.contains(&format!("this one is on {own}")),
                "{refused}"
            );
        }
    }
}

/// A role cannot limit creations to names: a policy does.
#[tokio::test]
async fn virt_controller_may_define_data_volumes_and_nothing_else() {
    let test = test_namespace().await;
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:kubevirt-controller");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "others.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "others", "singular": "other", "kind": "Other"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    let registration = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.example.com"},
        "spec": {
            "group": "example.com", "version": "v1",
            "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"name": "other", "namespace": test.namespace},
        },
    });
    for object in [definition, registration] {
        // Policies apply to attempts that write nothing, too.
        let create = ["create", "--dry-run=server", &user, "--filename=-"];
        let object = object.to_string();
        let tried = test.kubectl_with(&create, object.as_bytes()).await;
        let refused = tried.failure();
        let expected = "virt-controller defines data volumes and the API for uploads only";
        assert!(refused.contains(expected), "{refused}");
    }
}
