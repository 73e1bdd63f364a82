//! Checks and defaults of built-in kinds that other people's clients rely on.

use crate::support::*;
use embedded_api::{ServiceAccounts, SigningKey};
use http::{Method, StatusCode};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const MERGE: &str = "application/merge-patch+json";

async fn with_accounts() -> Running {
    start_with_accounts(ServiceAccounts {
        key: SigningKey::generate().expect("a key"),
        root_ca: "authority".to_owned(),
    })
    .await
}

#[tokio::test]
async fn pod_with_a_token_and_no_init_containers_can_be_changed() {
    let api = with_accounts().await;
    let made = api.create(PODS, pod("p")).await;
    assert_eq!(made["spec"].get("initContainers"), None, "{made}");
    let at = format!("{PODS}/p");
    for (language, change) in [
        (MERGE, json!({"metadata": {"labels": {"a": "b"}}})),
        (
            "application/strategic-merge-patch+json",
            json!({"metadata": {"annotations": {"c": "d"}}}),
        ),
        (
            "application/json-patch+json",
            json!([{"op": "add", "path": "/metadata/labels/e", "value": "f"}]),
        ),
    ] {
        let (code, answer) = api.patch(&at, language, change).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
    }
    // A client that does not know every field may replace it.
    let (_, mut live) = api.get(&at).await;
    for field in ["priority", "preemptionPolicy"] {
        live["spec"]
            .as_object_mut()
            .expect("a spec")
            .shift_remove(field);
    }
    let (code, answer) = api.put(&at, live).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
}

/// What was stored can be sent back: no default or plugin makes an object that cannot be updated.
#[tokio::test]
async fn created_objects_can_be_sent_back() {
    let api = with_accounts().await;
    let core = "/api/v1/namespaces/default";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for (collection, body) in [
        (PODS.to_owned(), pod("x")),
        (format!("{core}/configmaps"), config_map("x")),
        (format!("{core}/secrets"), json!({"data": {"a": "YQ=="}})),
        (format!("{core}/serviceaccounts"), json!({})),
        (
            format!("{core}/resourcequotas"),
            json!({"spec": {"hard": {"secrets": "9"}}}),
        ),
        (
            format!("{core}/services"),
            json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}),
        ),
        (
            format!("{core}/endpoints"),
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        ),
        (
            format!("{core}/persistentvolumeclaims"),
            json!({"spec": {"accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices".to_owned(),
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets".to_owned(),
            json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}),
        ),
        (CLASSES.to_owned(), json!({"value": 5})),
        (format!("{rbac}/clusterroles"), json!({})),
        (
            format!("{rbac}/clusterrolebindings"),
            json!({"roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": ""}}),
        ),
        ("/api/v1/namespaces".to_owned(), json!({})),
        ("/api/v1/nodes".to_owned(), json!({})),
    ] {
        let mut body = body;
        body["metadata"] = json!({"name": "x"});
        let made = api.create(&collection, body).await;
        let path = format!("{collection}/x");
        let (mut code, mut answer) = api.put(&path, made.clone()).await;
        // The server writes the status of budgets.
        while code == StatusCode::CONFLICT {
            let (_, newer) = api.get(&path).await;
            (code, answer) = api.put(&path, newer).await;
        }
        assert_eq!(code, StatusCode::OK, "{collection}: {answer}");
        assert_eq!(answer["spec"], made["spec"], "{collection}");
    }
}

#[tokio::test]
async fn empty_strings_get_defaults_like_absent_fields() {
    let api = start().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "", "kind": "User", "name": "u"}]});
    let made = api.create(bindings, binding).await;
    assert_eq!(made["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(made["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    let mut empty = pod("p");
    empty["spec"]["restartPolicy"] = "".into();
    empty["spec"]["terminationGracePeriodSeconds"] = 0.into();
    empty["spec"]["containers"][0]["imagePullPolicy"] = "".into();
    let made = api.create(PODS, empty).await;
    assert_eq!(made["spec"]["restartPolicy"], "Always");
    assert_eq!(
        made["spec"]["containers"][0]["imagePullPolicy"],
        "IfNotPresent"
    );
    // Zero seconds are meant.
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 0);
}

#[tokio::test]
async fn invalid_objects_are_refused() {
    let api = start().await;
    let core = "/api/v1/namespaces/default";
    let sysctls = |names: &[&str]| {
        let mut object = pod("p");
        let list: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "value": "1"}))
            .collect();
        object["spec"]["securityContext"] = json!({"sysctls": list});
        object
    };
    let mut runtime = pod("p");
    runtime["spec"]["runtimeClassName"] = "kata".into();
    let mut priority = pod("p");
    priority["spec"]["priorityClassName"] = "urgent".into();
    let mut numbered = pod("p");
    numbered["spec"]["priority"] = 7.into();
    for (collection, body, expected) in [
        (
            format!("{core}/secrets"),
            json!({"metadata": {"name": "s"}, "data": {"": "YQ=="}}),
            "data[]: Invalid value: \"\": a valid config key must consist of alphanumeric characters",
        ),
        (
            format!("{core}/configmaps"),
            json!({"metadata": {"name": "c"}, "data": {"..x": "a"}}),
            "data[..x]: Invalid value: \"..x\": must not start with '..'",
        ),
        (
            format!("{core}/configmaps"),
            json!({"metadata": {"name": "c"}, "data": {"a": "a"}, "binaryData": {"a": "YQ=="}}),
            "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
        ),
        (
            format!("{core}/secrets"),
            json!({"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "data": {"tls.crt": "YQ=="}}),
            "data[tls.key]: Required value",
        ),
        (
            PODS.to_owned(),
            sysctls(&["foo-", "kernel.shmmax", "safe-and-unsafe", "bar.."]),
            "[spec.securityContext.sysctls[0].name: Invalid value: \"foo-\": must have at most 253 characters",
        ),
        (
            PODS.to_owned(),
            sysctls(&["foo-", "kernel.shmmax", "safe-and-unsafe", "bar.."]),
            "spec.securityContext.sysctls[3].name: Invalid value: \"bar..\": must have",
        ),
        (
            PODS.to_owned(),
            runtime,
            "pods \"p\" is forbidden: pod rejected: RuntimeClass \"kata\" not found",
        ),
        (
            PODS.to_owned(),
            priority,
            "pods \"p\" is forbidden: no PriorityClass with name urgent was found",
        ),
        (
            PODS.to_owned(),
            numbered,
            "the integer value of priority (7) must not be provided in pod spec",
        ),
        (
            CLASSES.to_owned(),
            json!({"metadata": {"name": "system-mine"}, "value": 1}),
            "system-mine is not a known system priority class",
        ),
        (
            CLASSES.to_owned(),
            json!({"metadata": {"name": "high"}, "value": 1_000_000_001}),
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
        ),
    ] {
        let (code, answer) = api.call(Method::POST, &collection, body).await;
        assert!(code.is_client_error(), "{answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn priority_of_a_pod_comes_from_its_class() {
    let api = start().await;
    let made = api.create(PODS, pod("plain")).await;
    assert_eq!(made["spec"]["priority"], 0);
    assert_eq!(made["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    let mut critical = pod("critical");
    critical["spec"]["priorityClassName"] = "system-node-critical".into();
    let made = api.create(PODS, critical).await;
    assert_eq!(made["spec"]["priority"], 2_000_001_000);
    let usual = json!({"metadata": {"name": "usual"}, "value": 10, "globalDefault": true,
                       "preemptionPolicy": "Never"});
    api.create(CLASSES, usual).await;
    let made = api.create(PODS, pod("defaulted")).await;
    assert_eq!(made["spec"]["priorityClassName"], "usual");
    assert_eq!(made["spec"]["preemptionPolicy"], "Never");
    let second = json!({"metadata": {"name": "second"}, "value": 11, "globalDefault": true});
    let (code, _) = api.call(Method::POST, CLASSES, second).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let change = json!({"value": 12});
    let (code, refused) = api.patch(&format!("{CLASSES}/usual"), MERGE, change).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        refused["message"],
        "PriorityClass.scheduling.k8s.io \"usual\" is invalid: value: Forbidden: may not be changed in an update."
    );
}

#[tokio::test]
async fn status_can_be_written_with_metadata() {
    let api = start().await;
    let at = "/api/v1/namespaces/default";
    let change = json!({
        "metadata": {"annotations": {"ns": "patched"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
        "spec": {"finalizers": ["mine.example/x"]},
        "status": {"conditions": [{"type": "Patched", "status": "True"}]},
    });
    let (code, answer) = api.patch(&format!("{at}/status"), MERGE, change).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert_eq!(answer["metadata"]["annotations"]["ns"], "patched");
    assert_eq!(answer["status"]["conditions"][0]["type"], "Patched");
    assert_eq!(answer["status"]["phase"], "Active");
    assert_eq!(answer["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(answer["metadata"].get("ownerReferences"), None);
    // The definition of a kind is different: only its status is written.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.create(definitions, definition()).await;
    let uri = format!("{definitions}/widgets.example.com/status");
    let (code, answer) = api
        .patch(&uri, MERGE, json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert_eq!(answer["metadata"].get("labels"), None);
}

#[tokio::test]
async fn nothing_is_written_into_a_namespace_that_ends() {
    let api = with_accounts().await;
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["x.y/z"]);
    api.create("/api/v1/namespaces", json!({"metadata": {"name": "n"}}))
        .await;
    api.until("/api/v1/namespaces/n/configmaps/kube-root-ca.crt", |_| true)
        .await;
    api.until("/api/v1/namespaces/n/serviceaccounts/default", |_| true)
        .await;
    api.create("/api/v1/namespaces/n/configmaps", held).await;
    let selecting = json!({"metadata": {"name": "s"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}});
    api.create("/api/v1/namespaces/n/services", selecting).await;
    api.until("/api/v1/namespaces/n/endpoints/s", |_| true)
        .await;
    api.delete("/api/v1/namespaces/n").await;
    let ending = api
        .until("/api/v1/namespaces/n", |one| {
            one["status"]["conditions"][4]["status"] == "True"
        })
        .await;
    assert_eq!(ending["status"]["phase"], "Terminating");
    for plural in ["serviceaccounts", "services", "endpoints"] {
        let (_, list) = api.get(&format!("/api/v1/namespaces/n/{plural}")).await;
        assert_eq!(list["items"], json!([]), "{plural}");
    }
    let (_, maps) = api.get("/api/v1/namespaces/n/configmaps").await;
    assert_eq!(maps["items"].as_array().map(Vec::len), Some(1), "{maps}");
}

#[tokio::test]
async fn authority_for_pods_is_restored_and_described() {
    let api = with_accounts().await;
    let at = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    let made = api.until(at, |_| true).await;
    let description = made["metadata"]["annotations"]["kubernetes.io/description"].as_str();
    assert!(
        description.is_some_and(|text| text.contains("kubernetes.default.svc")),
        "{made}"
    );
    api.patch(at, MERGE, json!({"data": {"ca.crt": "broken"}}))
        .await;
    api.until(at, |map| map["data"]["ca.crt"] == "authority")
        .await;
    api.delete(at).await;
    api.until(at, |map| map["data"]["ca.crt"] == "authority")
        .await;
}

#[tokio::test]
async fn kinds_that_are_not_served_are_not_found() {
    let api = start().await;
    for uri in [
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    ] {
        let (code, _) = api.get(uri).await;
        assert_eq!(code, StatusCode::NOT_FOUND, "{uri}");
    }
    let (_, apps) = api.get("/apis/apps/v1").await;
    let names = apps["resources"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["controllerrevisions"]);
    let (_, groups) = api.get("/apis").await;
    assert!(!groups.to_string().contains("\"batch\""), "{groups}");
}
