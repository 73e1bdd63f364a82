//! What `virtctl why` reads: the namespace of the installation, and what a user may not read.

use embedded_api::Identity;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

use crate::Environment;

impl Environment {
    /// Creates an object of any kind and group.
    pub(super) async fn create_kind(&self, group: &str, object: Value) {
        let version = object["apiVersion"].as_str().unwrap();
        let version = version.rsplit('/').next().unwrap();
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let kind = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        };
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn installation_is_found_in_any_namespace() {
    let environment = Environment::without_controllers().await;
    environment.create_vm("tiny", "Always", json!({})).await;
    environment
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}))
        .await;
    environment
        .create_kind(
            "kubevirt.io",
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
                "metadata": {"name": "any", "namespace": "elsewhere"}, "spec": {},
            }),
        )
        .await;
    let cause = environment.until_cause("tiny", "controller-silent").await;
    let next = "kubectl -n elsewhere get pods";
    assert!(cause.next.starts_with(next), "{cause:?}");

    // A component reports there that it cannot work.
    let now = environment.clock.now();
    environment
        .create_kind(
            "",
            json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": {"name": "virt-controller-x.1", "namespace": "elsewhere"},
                "involvedObject": {"kind": "Pod", "name": "virt-controller-x",
                                   "namespace": "elsewhere"},
                "type": "Warning", "reason": "RightMissing", "lastTimestamp": now.to_string(),
                "message": "virt-controller may not create pods",
            }),
        )
        .await;
    let cause = environment
        .until_cause("tiny", "component-unavailable")
        .await;
    assert_eq!(
        cause.next,
        "kubectl -n elsewhere describe pod virt-controller-x"
    );
    environment.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_user_may_not_read_is_listed_with_the_missing_right() {
    let environment = Environment::new().await;
    let files = json!({"volumes": [
        {"name": "root", "containerDisk": {"image": "guest:1"}},
        {"name": "files", "secret": {"secretName": "user"}},
    ]});
    environment.create_vm("tiny", "Always", files).await;
    environment.until_cause("tiny", "secret-missing").await;
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules,
        })
    };
    let binding = |user: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        })
    };
    let group = "rbac.authorization.k8s.io";
    let vmis = json!([{"apiGroups": ["kubevirt.io"], "verbs": ["get"],
                       "resources": ["virtualmachineinstances"]}]);
    environment.create_kind(group, role("vmis", vmis)).await;
    environment.create_kind(group, binding("ann", "vmis")).await;

    let ann = environment.api.client_of(Identity::new("ann", &[]));
    let found = environment.why_as(&ann, "tiny").await;
    // Without the right to read secrets, their absence is not a cause.
    let ids: Vec<&str> = found.causes.iter().map(|cause| cause.id).collect();
    assert_eq!(ids, ["starting"], "{found:#?}");
    let objects = [
        ("vm/tiny: ", "virtualmachines"),
        ("pods: ", "pods"),
        ("secret/user: ", "secrets"),
        ("nodes: ", "nodes"),
        ("events: ", "events"),
        ("the components in namespace kubevirt: ", "pods"),
    ];
    for (object, resource) in objects {
        let mut lines = found.unread.iter();
        let line = lines.find(|line| line.starts_with(object));
        let line = line.unwrap_or_else(|| panic!("{object} is not in {:#?}", found.unread));
        assert!(line.contains("cannot"), "{line}");
        assert!(line.contains(&format!("\"{resource}\"")), "{line}");
    }

    // Without the right to read either, there is no answer.
    let unauthorized = environment.api.client_of(Identity::new("ben", &[]));
    let target = observation::Target {
        namespace: test_cluster::NAMESPACE,
        name: "tiny",
    };
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(environment.clock.now());
    let error = Box::pin(observation::observe(&unauthorized, target, now))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("virtualmachines"), "{error}");
    environment.end().await;
}
