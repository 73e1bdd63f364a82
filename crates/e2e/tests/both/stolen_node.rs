//! A stolen identity of a node: with the service account of virt-handler, a table of ways to the VM, secret
//! or disk of a tenant, to another node or to more power. Each must be refused with an error that says why.
//! What the role cannot express, a cluster's admission policy refuses (`cluster/rights.rs`).

use e2e::{Attempt, FORBIDDEN, Intruder, attempt, tiny_vm};
use http::Method;
use serde_json::{Value, json};

use crate::test_namespace;

const HANDLER: &str = "system:serviceaccount:kubevirt:kubevirt-handler";
const GROUPS: [&str; 3] = [
    "system:serviceaccounts",
    "system:serviceaccounts:kubevirt",
    "system:authenticated",
];

/// Reads that a node has no use for.
fn reads() -> Vec<Attempt> {
    [
        ("read a tenant's secrets", "/api/v1/namespaces/$other/secrets"),
        ("list the secrets of all", "/api/v1/secrets"),
        ("read the keys of the installation", "/api/v1/namespaces/kubevirt/secrets"),
        ("read a tenant's config maps", "/api/v1/namespaces/$other/configmaps"),
        ("list the config maps of all", "/api/v1/configmaps"),
        ("read a tenant's claims", "/api/v1/namespaces/$other/persistentvolumeclaims"),
        ("list the volumes of all", "/api/v1/persistentvolumes"),
        ("list the VMs of all", "/apis/kubevirt.io/v1/virtualmachines"),
        ("read the accounts", "/api/v1/namespaces/kubevirt/serviceaccounts"),
        ("read the events of a tenant", "/api/v1/namespaces/$other/events"),
        ("read the roles", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        ("read the metrics of the API server", "/metrics"),
        ("reach a node through the API server", "/api/v1/nodes/n/proxy/metrics"),
        (
            "open a tenant's console",
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/console",
        ),
        (
            "open a tenant's screen",
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/vnc",
        ),
        (
            "reach a port of a tenant's guest",
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/portforward/22/tcp",
        ),
        (
            "ask a tenant's guest agent",
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/userlist",
        ),
        ("read the log of a tenant's pod", "/api/v1/namespaces/$other/pods/p/log"),
        ("run a program in a tenant's pod", "/api/v1/namespaces/$other/pods/p/exec?command=sh&stdout=1"),
    ]
    .into_iter()
    .map(|(aim, path)| attempt(aim, (Method::GET, path), Value::Null, FORBIDDEN))
    .collect()
}

/// Changes of what runs elsewhere, and of nodes.
fn changes() -> Vec<Attempt> {
    let named = json!({"metadata": {"name": "mine"}});
    [
        ("delete a tenant's instance", Method::DELETE,
            "/apis/kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim", Value::Null),
        ("stop a tenant's VM", Method::PATCH,
            "/apis/kubevirt.io/v1/namespaces/$other/virtualmachines/victim",
            json!({"spec": {"runStrategy": "Halted"}})),
        ("create an instance", Method::POST,
            "/apis/kubevirt.io/v1/namespaces/$other/virtualmachineinstances",
            json!({"metadata": {"name": "mine"}, "spec": {"domain": {"devices": {}}}})),
        ("pause a tenant's guest", Method::PUT,
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/pause", json!({})),
        ("draw a tenant's guest to this node", Method::POST,
            "/apis/kubevirt.io/v1/namespaces/$other/virtualmachineinstancemigrations",
            json!({"metadata": {"name": "mine"}, "spec": {"vmiName": "victim"}})),
        ("create a pod for a tenant", Method::POST, "/api/v1/namespaces/$other/pods",
            json!({"metadata": {"name": "mine"}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}})),
        ("create a pod beside the components", Method::POST, "/api/v1/namespaces/kubevirt/pods",
            json!({"metadata": {"name": "mine"}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}})),
        ("claim a tenant's guest by the labels of a pod", Method::PATCH, "/api/v1/namespaces/$other/pods/p",
            json!({"metadata": {"labels": {"kubevirt.io/created-by": "x"}}})),
        ("delete a tenant's pod", Method::DELETE, "/api/v1/namespaces/$other/pods/p", Value::Null),
        ("evict a tenant's pod", Method::POST, "/api/v1/namespaces/$other/pods/p/eviction", named.clone()),
        ("delete a node", Method::DELETE, "/api/v1/nodes/n", Value::Null),
        ("add a node", Method::POST, "/api/v1/nodes", named.clone()),
        ("free memory on a node", Method::PATCH, "/api/v1/nodes/n/status",
            json!({"status": {"capacity": {"memory": "1Ti"}}})),
        ("keep a lost node alive", Method::PATCH,
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n",
            json!({"spec": {"holderIdentity": "n"}})),
    ]
    .into_iter()
    .map(|(aim, method, path, body)| attempt(aim, (method, path), body, FORBIDDEN))
    .collect()
}

/// More power than the role gives.
fn powers() -> Vec<Attempt> {
    let named = json!({"metadata": {"name": "mine"}});
    let bound = json!({
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kubevirt", "name": "kubevirt-handler"}],
    });
    [
        ("become administrator of the cluster", Method::POST,
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", bound.clone()),
        ("become administrator of a tenant's namespace", Method::POST,
            "/apis/rbac.authorization.k8s.io/v1/namespaces/$other/rolebindings", bound),
        ("widen the own role", Method::PATCH,
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/kubevirt-handler",
            json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})),
        ("take a token of virt-controller", Method::POST,
            "/api/v1/namespaces/kubevirt/serviceaccounts/kubevirt-controller/token", json!({"spec": {}})),
        ("take a token of its own that no pod bounds", Method::POST,
            "/api/v1/namespaces/kubevirt/serviceaccounts/kubevirt-handler/token", json!({"spec": {}})),
        ("configure the installation", Method::PATCH,
            "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt",
            json!({"spec": {"configuration": {"developerConfiguration": {"featureGates": ["HostDisk"]}}}})),
        ("register a webhook that sees all VMs", Method::POST,
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", named.clone()),
        ("take over the API of subresources", Method::PATCH,
            "/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io",
            json!({"spec": {"service": {"namespace": "$own", "name": "mine"}}})),
        ("change the schema of VMs", Method::PATCH,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/virtualmachines.kubevirt.io",
            json!({"spec": {"preserveUnknownFields": true}})),
        ("create a volume on a node's disk", Method::POST, "/api/v1/persistentvolumes",
            json!({"metadata": {"name": "root"}, "spec": {"capacity": {"storage": "1Gi"},
                   "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/"}}})),
        ("raise the level of a namespace", Method::PATCH, "/api/v1/namespaces/$other",
            json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}})),
        ("ask what others may do", Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            json!({"spec": {"user": "admin", "resourceAttributes": {"verb": "get", "resource": "secrets"}}})),
        ("leave a secret for a tenant", Method::POST, "/api/v1/namespaces/$other/secrets", named),
    ]
    .into_iter()
    .map(|(aim, method, path, body)| attempt(aim, (method, path), body, FORBIDDEN))
    .collect()
}

#[tokio::test]
async fn stolen_identity_of_a_node_reaches_neither_tenants_nor_more_power() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("victim")).await;
    test.wait_vmi_phase("victim", "Running").await;
    let before = test.vmis().get("victim").await.expect("the victim");
    let attempts = [reads(), changes(), powers()].concat();
    assert!(attempts.len() >= 40, "{}", attempts.len());
    let node = Intruder {
        client: &test.client,
        user: HANDLER,
        groups: &GROUPS,
        own: &test.namespace,
        other: &test.namespace,
    };
    let succeeded = node.try_all(&attempts).await;
    assert!(succeeded.is_empty(), "{}", succeeded.join("\n"));
    let after = test.vmis().get("victim").await.expect("the victim");
    assert_eq!(before.metadata.uid, after.metadata.uid);
    println!("{} attempts, 0 succeeded", attempts.len());
}
