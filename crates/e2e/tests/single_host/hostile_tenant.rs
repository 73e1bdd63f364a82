//! A hostile tenant: with the role `edit` in one namespace, a table of ways to the VM, secret or disk of another
//! tenant, or to the host. Each must be refused with an error that says why.

use e2e::{Attempt, FORBIDDEN, Intruder, attempt, tiny_vm};
use http::Method;
use serde_json::{Value, json};

use crate::test_namespace;

const VIOLATES: (u16, &str) = (403, "violates PodSecurity \"baseline:latest\"");

/// Reads of what belongs to another tenant or to the administrator.
fn reads() -> Vec<Attempt> {
    let reads = [
        (
            "read another's VM",
            "/apis/kubevirt.io/v1/namespaces/$other/virtualmachines/victim",
        ),
        (
            "list the VMs of all",
            "/apis/kubevirt.io/v1/virtualmachines",
        ),
        (
            "read another's instance",
            "/apis/kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim",
        ),
        (
            "watch another's instances",
            "/apis/kubevirt.io/v1/namespaces/$other/virtualmachineinstances?watch=1",
        ),
        (
            "watch them by the old path",
            "/apis/kubevirt.io/v1/watch/namespaces/$other/virtualmachineinstances",
        ),
        (
            "read another's secrets",
            "/api/v1/namespaces/$other/secrets",
        ),
        ("list the secrets of all", "/api/v1/secrets"),
        (
            "read the keys of the installation",
            "/api/v1/namespaces/kubevirt/secrets",
        ),
        (
            "read another's config maps",
            "/api/v1/namespaces/$other/configmaps",
        ),
        ("read another's pods", "/api/v1/namespaces/$other/pods"),
        (
            "read another's claims",
            "/api/v1/namespaces/$other/persistentvolumeclaims",
        ),
        ("list the volumes of all", "/api/v1/persistentvolumes"),
        ("read the nodes", "/api/v1/nodes"),
        ("read the metrics", "/metrics"),
        ("read another's events", "/api/v1/namespaces/$other/events"),
        (
            "open another's console",
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/console",
        ),
        (
            "open another's screen",
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/vnc",
        ),
        (
            "reach a port of another's guest",
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/portforward/22/tcp",
        ),
        (
            "ask another's guest agent",
            "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim/guestosinfo",
        ),
    ];
    let reads = reads.into_iter();
    reads
        .map(|(aim, path)| attempt(aim, (Method::GET, path), Value::Null, FORBIDDEN))
        .collect()
}

/// Changes of what belongs to another tenant.
fn changes() -> Vec<Attempt> {
    let merge = json!({"spec": {"runStrategy": "Halted"}});
    vec![
        attempt(
            "stop another's VM by its spec",
            (
                Method::PATCH,
                "/apis/kubevirt.io/v1/namespaces/$other/virtualmachines/victim",
            ),
            merge,
            FORBIDDEN,
        ),
        attempt(
            "stop another's VM by the subresource",
            (
                Method::PUT,
                "/apis/subresources.kubevirt.io/v1/namespaces/$other/virtualmachines/victim/stop",
            ),
            json!({}),
            FORBIDDEN,
        ),
        attempt(
            "delete another's instance",
            (
                Method::DELETE,
                "/apis/kubevirt.io/v1/namespaces/$other/virtualmachineinstances/victim",
            ),
            Value::Null,
            FORBIDDEN,
        ),
        attempt(
            "migrate an own instance without the role",
            (
                Method::POST,
                "/apis/kubevirt.io/v1/namespaces/$own/virtualmachineinstancemigrations",
            ),
            json!({"metadata": {"name": "m"}, "spec": {"vmiName": "victim"}}),
            FORBIDDEN,
        ),
        attempt(
            "create a VM in another's namespace",
            (
                Method::POST,
                "/apis/kubevirt.io/v1/namespaces/$other/virtualmachines",
            ),
            json!({"metadata": {"name": "mine"}, "spec": {"running": false, "template": {"spec": {"domain": {}}}}}),
            FORBIDDEN,
        ),
    ]
}

/// More power than the role gives.
fn powers() -> Vec<Attempt> {
    vec![
        attempt(
            "configure the installation",
            (
                Method::PATCH,
                "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt",
            ),
            json!({"spec": {"configuration": {"developerConfiguration": {"featureGates": ["HostDisk"]}}}}),
            FORBIDDEN,
        ),
        attempt(
            "raise the level of the own namespace",
            (Method::PATCH, "/api/v1/namespaces/$own"),
            json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
            FORBIDDEN,
        ),
        attempt(
            "create a namespace that allows everything",
            (Method::POST, "/api/v1/namespaces"),
            json!({"metadata": {"name": "mine", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
            FORBIDDEN,
        ),
        attempt(
            "become administrator of the cluster",
            (
                Method::POST,
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            ),
            json!({"metadata": {"name": "mine"},
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                   "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]}),
            FORBIDDEN,
        ),
        attempt(
            "become administrator of the own namespace",
            (
                Method::POST,
                "/apis/rbac.authorization.k8s.io/v1/namespaces/$own/rolebindings",
            ),
            json!({"metadata": {"name": "mine"},
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                   "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]}),
            FORBIDDEN,
        ),
        attempt(
            "take a token of a component",
            (
                Method::POST,
                "/api/v1/namespaces/kubevirt/serviceaccounts/kubevirt-controller/token",
            ),
            json!({"spec": {}}),
            FORBIDDEN,
        ),
        attempt(
            "create a volume on the host's disk",
            (Method::POST, "/api/v1/persistentvolumes"),
            json!({"metadata": {"name": "root"}, "spec": {"capacity": {"storage": "1Gi"},
                   "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/"}}}),
            FORBIDDEN,
        ),
        attempt(
            "register a webhook that sees all VMs",
            (
                Method::POST,
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            ),
            json!({"metadata": {"name": "mine"}, "webhooks": []}),
            FORBIDDEN,
        ),
        attempt(
            "take over the API of subresources",
            (
                Method::PATCH,
                "/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io",
            ),
            json!({"spec": {"service": {"namespace": "$own", "name": "mine"}}}),
            FORBIDDEN,
        ),
        attempt(
            "create a pod beside the components",
            (Method::POST, "/api/v1/namespaces/kubevirt/pods"),
            pod(&json!({})),
            FORBIDDEN,
        ),
    ]
}

/// A pod of the tenant, with these fields in its spec.
fn pod(spec: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "mine"},
        "spec": {"containers": [{"name": "c", "image": "busybox:1"}]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Pods that would reach the host.
fn pods() -> Vec<Attempt> {
    let container = |security: Value| json!({"containers": [{"name": "c", "image": "busybox:1", "securityContext": security}]});
    let own_pods = (Method::POST, "/api/v1/namespaces/$own/pods");
    [
        ("mount the host's root", json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})),
        ("see the processes of the host", json!({"hostPID": true})),
        ("use the network of the host", json!({"hostNetwork": true})),
        ("use the memory of the host", json!({"hostIPC": true})),
        ("be privileged", container(json!({"privileged": true}))),
        ("mount file systems", container(json!({"capabilities": {"add": ["SYS_ADMIN"]}}))),
        ("forge packets", container(json!({"capabilities": {"add": ["NET_RAW"]}}))),
        ("read raw disks", container(json!({"capabilities": {"add": ["SYS_RAWIO"]}}))),
        ("use all system calls", container(json!({"seccompProfile": {"type": "Unconfined"}}))),
        ("see all of /proc", container(json!({"procMount": "Unmasked"}))),
        (
            "take a port of the host",
            json!({"containers": [{"name": "c", "image": "busybox:1", "ports": [{"containerPort": 22, "hostPort": 22}]}]}),
        ),
        (
            "change the kernel",
            json!({"securityContext": {"sysctls": [{"name": "kernel.core_pattern", "value": "|/x"}]}}),
        ),
        (
            "have the node connect to the host",
            json!({"containers": [{"name": "c", "image": "busybox:1",
                                   "livenessProbe": {"httpGet": {"host": "127.0.0.1", "port": 6443}}}]}),
        ),
    ]
    .into_iter()
    .map(|(aim, spec)| attempt(aim, own_pods.clone(), pod(&spec), VIOLATES))
    .collect()
}

#[tokio::test]
async fn tenant_with_edit_reaches_neither_others_nor_the_host() {
    let own = test_namespace().await;
    let other = own.beside().await;
    own.kubectl(&[
        "create",
        "rolebinding",
        "edits",
        "--clusterrole=edit",
        "--user=mallory",
    ])
    .await
    .success();
    other.apply(&tiny_vm("victim")).await;
    other.wait_vmi_phase("victim", "Running").await;
    let before = other.vmis().get("victim").await.expect("the victim");
    let attempts = [reads(), changes(), powers(), pods()].concat();
    assert!(attempts.len() >= 40, "{}", attempts.len());
    let tenant = Intruder {
        client: &own.client,
        user: "mallory",
        groups: &["system:authenticated"],
        own: &own.namespace,
        other: &other.namespace,
    };
    let succeeded = tenant.try_all(&attempts).await;
    assert!(succeeded.is_empty(), "{}", succeeded.join("\n"));
    let after = other.vmis().get("victim").await.expect("the victim");
    assert_eq!(before.metadata.uid, after.metadata.uid);
    println!("{} attempts, 0 succeeded", attempts.len());
}
