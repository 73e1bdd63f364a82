//! Built-in kinds: defaults, validation, and table columns.

use crate::support::*;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const TABLE: &str = "as=Table";

fn named(name: &str, rest: Value) -> Value {
    let mut object = json!({"metadata": {"name": name}});
    if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
        object.extend(rest);
    }
    object
}

fn volume() -> Value {
    json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/x"}}})
}

fn claim() -> Value {
    json!({"spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}})
}

#[tokio::test]
async fn new_objects_are_defaulted() {
    let api = start().await;
    let cases = [
        (
            "/api/v1/persistentvolumes",
            volume(),
            "/spec/persistentVolumeReclaimPolicy",
            json!("Retain"),
        ),
        (
            "/api/v1/persistentvolumes",
            volume(),
            "/status",
            json!({"phase": "Pending", "lastPhaseTransitionTime": "2026-01-02T03:04:05Z"}),
        ),
        (CLAIMS, claim(), "/status/phase", json!("Pending")),
        (
            CLASSES,
            json!({"provisioner": "p"}),
            "/volumeBindingMode",
            json!("Immediate"),
        ),
        (
            BUDGETS,
            json!({"spec": {"minAvailable": 1}}),
            "/status",
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0,
                   "expectedPods": 0}),
        ),
        (
            SLICES,
            json!({"addressType": "IPv4", "ports": [{"port": 1}]}),
            "/ports/0",
            json!({"name": "", "protocol": "TCP", "port": 1}),
        ),
        (
            &format!("{RBAC}/clusterroles"),
            json!({}),
            "/rules",
            Value::Null,
        ),
        (
            &format!("{RBAC}/clusterrolebindings"),
            json!({"roleRef": {"kind": "ClusterRole", "name": "view"},
                   "subjects": [{"kind": "User", "name": "u"}]}),
            "/subjects/0/apiGroup",
            json!("rbac.authorization.k8s.io"),
        ),
    ];
    for (at, (uri, object, pointer, expected)) in cases.into_iter().enumerate() {
        let made = api.create(uri, named(&format!("n{at}"), object)).await;
        assert_eq!(made.pointer(pointer), Some(&expected), "{uri}");
    }
}

#[tokio::test]
async fn invalid_objects_are_rejected_with_the_field() {
    let api = start().await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let cases = [
        (
            "/api/v1/persistentvolumes",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}),
            "spec: Required value: must specify a volume type",
        ),
        (
            "/api/v1/persistentvolumes",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                            "local": {"path": "/x"}}}),
            "spec.nodeAffinity: Required value: Local volume requires node affinity",
        ),
        (
            CLASSES,
            json!({"provisioner": ""}),
            "provisioner: Required value",
        ),
        (
            BUDGETS,
            json!({"spec": {"maxUnavailable": "200%"}}),
            "spec.maxUnavailable: Invalid value: \"200%\": must not be greater than 100%",
        ),
        (
            &roles,
            json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
            "namespaced rules cannot apply to non-resource URLs",
        ),
        (
            &roles,
            json!({"rules": [{"verbs": ["get"], "apiGroups": [""]}]}),
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ),
        (
            &bindings,
            json!({"roleRef": {"kind": "Role", "name": "r"},
                   "subjects": [{"kind": "Robot", "name": "x"}]}),
            "subjects[0].kind: Unsupported value: \"Robot\"",
        ),
        (
            SLICES,
            json!({"addressType": "IPv5"}),
            "addressType: Unsupported value: \"IPv5\"",
        ),
    ];
    for (uri, object, expected) in cases {
        let (code, answer) = api.call(Method::POST, uri, named("n", object)).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn only_the_volume_of_a_claim_can_be_set_later() {
    let api = start().await;
    api.create(CLAIMS, named("c", claim())).await;
    let at = format!("{CLAIMS}/c");
    let merge = "application/merge-patch+json";
    for (change, expected) in [
        (json!({"volumeName": "v", "storageClassName": "s"}), 200),
        (json!({"volumeName": "w"}), 422),
        (json!({"accessModes": ["ReadWriteMany"]}), 422),
        (json!({"resources": {"requests": {"storage": "2Gi"}}}), 422),
    ] {
        let (code, answer) = api.patch(&at, merge, json!({"spec": change})).await;
        assert_eq!(code.as_u16(), expected, "{answer}");
    }
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                                  "accessModes": ["ReadWriteOnce"]}});
    let (code, _) = api.patch(&format!("{at}/status"), merge, bound).await;
    assert_eq!(code, StatusCode::OK);
    let grow = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let (code, answer) = api.patch(&at, merge, grow).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let (_, table) = api.get(&format!("{CLAIMS}?{TABLE}")).await;
    assert_eq!(
        table["rows"][0]["cells"],
        json!([
            "c",
            "Bound",
            "v",
            "1Gi",
            "RWO",
            "s",
            "<unset>",
            "0s",
            "Filesystem"
        ])
    );
}

#[tokio::test]
async fn kinds_have_their_columns() {
    let api = start().await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
        {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]});
    let cases = [
        (
            BUDGETS,
            json!({"spec": {"minAvailable": 1}}),
            json!(["x", "1", "N/A", 0, "0s"]),
        ),
        (
            SLICES,
            json!({"addressType": "IPv4", "ports": [{"port": 1}, {"port": 2}],
                   "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            json!(["x", "IPv4", "1,2", "10.0.0.1", "0s"]),
        ),
        (
            &bindings,
            binding,
            json!(["x", "ClusterRole/view", "0s", "u", "g", "n/s"]),
        ),
        (
            "/api/v1/persistentvolumes",
            volume(),
            json!([
                "x",
                "1Gi",
                "RWO",
                "Retain",
                "Pending",
                "",
                "",
                "<unset>",
                "",
                "0s",
                "Filesystem"
            ]),
        ),
    ];
    for (uri, object, expected) in cases {
        api.create(uri, named("x", object)).await;
        let (_, table) = api.get(&format!("{uri}/x?{TABLE}")).await;
        assert_eq!(table["rows"][0]["cells"], expected, "{uri}");
    }
}
