//! Answers that other people's clients and the conformance tests of Kubernetes rely on.

use crate::support::*;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

#[tokio::test]
async fn defaults_that_a_definition_gains_are_read_from_old_objects() {
    let api = start().await;
    let mut made = api.create(CRDS, definition()).await;
    api.create(WIDGETS, widget(&json!({"size": 1}))).await;
    let at = format!("{CRDS}/widgets.example.com");
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["colour"] = json!({"type": "string", "default": "red"});
    assert_eq!(api.put(&at, made).await.0, StatusCode::OK);

    let one = format!("{WIDGETS}/w");
    assert_eq!(api.get(&one).await.1["spec"]["colour"], "red");
    assert_eq!(
        api.get(WIDGETS).await.1["items"][0]["spec"]["colour"],
        "red"
    );
    let mut events = api.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(events.next().await["object"]["spec"]["colour"], "red");
    // A write stores it.
    let (_, written) = api.patch(&one, MERGE, json!({"spec": {"size": 2}})).await;
    assert_eq!(written["spec"]["colour"], "red");
}

#[tokio::test]
async fn an_applied_map_that_loses_all_members_is_refused_as_null() {
    let api = start().await;
    let mut crd = definition();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["info"] =
        json!({"type": "object", "properties": {"id": {"type": "string"}}});
    api.create(CRDS, crd).await;
    let at = format!("{WIDGETS}/w");
    let (code, _) = api
        .apply(&at, "one", widget(&json!({"info": {"id": "x"}})))
        .await;
    assert_eq!(code, StatusCode::CREATED);
    let (code, status) = api.apply(&at, "one", widget(&json!({"info": {}}))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{status}");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("spec.info: Invalid value: \"null\""),
        "{message}"
    );
    // Leaving the field out removes it.
    let (code, written) = api.apply(&at, "one", widget(&json!({}))).await;
    assert_eq!(code, StatusCode::OK, "{written}");
    assert!(written["spec"].get("info").is_none(), "{written}");
    // A null in a body counts as absent.
    let (code, written) = api
        .patch(&at, MERGE, json!({"spec": {"info": {"id": "y"}}}))
        .await;
    assert_eq!(code, StatusCode::OK, "{written}");
    let mut body = written;
    body["spec"]["info"] = Value::Null;
    let (code, written) = api.put(&at, body).await;
    assert_eq!(code, StatusCode::OK, "{written}");
    assert!(written["spec"].get("info").is_none(), "{written}");
}

#[tokio::test]
async fn status_writes_keep_metadata_of_built_in_kinds_only() {
    let api = start().await;
    let at = "/api/v1/namespaces/default";
    let change = json!({"metadata": {"annotations": {"a": "b"}, "labels": {"l": "m"}},
        "spec": {"finalizers": ["x.y/z"]},
        "status": {"conditions": [{"type": "C", "status": "False", "reason": "r", "message": "m",
                                   "lastTransitionTime": "2026-01-02T03:04:05Z"}]}});
    let (code, namespace) = api.patch(&format!("{at}/status"), MERGE, change).await;
    assert_eq!(code, StatusCode::OK, "{namespace}");
    assert_eq!(namespace["metadata"]["annotations"]["a"], "b");
    assert_eq!(namespace["metadata"]["labels"]["l"], "m");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(namespace["status"]["conditions"][0]["type"], "C");
    assert_eq!(namespace["status"]["phase"], "Active");

    let pods = "/api/v1/namespaces/default/pods";
    api.create(pods, pod("p")).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]);
    let change = json!({"metadata": {"labels": {"l": "m"}, "ownerReferences": owner},
                        "status": {"phase": "Running"}});
    let (_, written) = api.patch(&format!("{pods}/p/status"), MERGE, change).await;
    assert_eq!(written["metadata"]["labels"]["l"], "m");
    assert!(
        written["metadata"]["ownerReferences"].is_null(),
        "{written}"
    );

    let mut crd = definition();
    crd["spec"]["versions"][0]["subresources"]["status"] = json!({});
    api.create(CRDS, crd).await;
    api.create(WIDGETS, widget(&json!({}))).await;
    let change = json!({"metadata": {"labels": {"l": "m"}}, "status": {"replicas": 1}});
    let (_, written) = api
        .patch(&format!("{WIDGETS}/w/status"), MERGE, change)
        .await;
    assert!(written["metadata"]["labels"].is_null(), "{written}");
    assert_eq!(written["status"]["replicas"], 1);
}

#[tokio::test]
async fn owner_references_merge_by_uid() {
    let api = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut object = pod("p");
    let maps = "/api/v1/namespaces/default/configmaps";
    let a = api.create(maps, config_map("a")).await;
    let b = api.create(maps, config_map("b")).await;
    let owner = |of: &Value| {
        let (name, uid) = (&of["metadata"]["name"], &of["metadata"]["uid"]);
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    };
    object["metadata"]["ownerReferences"] = json!([owner(&a), owner(&b)]);
    api.create(pods, object).await;
    let strategic = "application/strategic-merge-patch+json";
    let change = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": a["metadata"]["uid"]}]}});
    let (code, written) = api.patch(&format!("{pods}/p"), strategic, change).await;
    assert_eq!(code, StatusCode::OK, "{written}");
    let owners = written["metadata"]["ownerReferences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(owners.len(), 1, "{written}");
    assert_eq!(owners[0]["name"], "b");
}

#[tokio::test]
async fn invalid_match_conditions_are_refused() {
    let api = start().await;
    let hooks = |conditions: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"}, "webhooks": [{
            "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [],
            "matchConditions": conditions}]})
    };
    let uri = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All";
    for (conditions, field) in [
        (
            json!([{"name": "a", "expression": "... [] bad expression"}]),
            "matchConditions[0].expression",
        ),
        (
            json!([{"name": "a", "expression": "other == 1"}]),
            "matchConditions[0].expression",
        ),
        (
            json!([{"name": "a", "expression": ""}]),
            "matchConditions[0].expression",
        ),
        (
            json!([{"name": "a b", "expression": "true"}]),
            "matchConditions[0].name",
        ),
        (
            json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]),
            "matchConditions[1].name",
        ),
    ] {
        let (code, status) = api.call(Method::POST, uri, hooks(conditions)).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{status}");
        assert_eq!(
            status["details"]["causes"][0]["field"],
            format!("webhooks[0].{field}")
        );
    }
    let good = json!([{"name": "a", "expression": "object.metadata.namespace != 'x'"}]);
    let (code, status) = api.call(Method::POST, uri, hooks(good)).await;
    assert_eq!(code, StatusCode::CREATED, "{status}");
}

#[tokio::test]
async fn events_are_selected_by_their_source() {
    let api = start().await;
    let events = "/api/v1/namespaces/default/events";
    for (name, event) in [
        ("a", json!({"source": {"component": "kubelet"}})),
        ("b", json!({"reportingComponent": "kubelet", "source": {}})),
        ("c", json!({"source": {"component": "other"}})),
    ] {
        let mut object = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
            "involvedObject": {"namespace": "default"}, "reason": "r", "type": "Normal"});
        for (key, value) in event.as_object().into_iter().flatten() {
            object[key.as_str()] = value.clone();
        }
        api.create(events, object).await;
    }
    let (_, found) = api
        .get(&format!("{events}?fieldSelector=source%3Dkubelet"))
        .await;
    let names: Vec<&str> = found["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|event| event["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn health_checks_have_names_and_details() {
    let api = start().await;
    for (path, expected) in [
        ("/healthz", "ok"),
        ("/healthz/ping", "ok"),
        ("/livez/etcd", "ok"),
        (
            "/livez?verbose",
            "[+]ping ok\n[+]log ok\n[+]etcd ok\nlivez check passed\n",
        ),
        (
            "/readyz?verbose&exclude=etcd",
            "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]shutdown ok\nreadyz check passed\n",
        ),
    ] {
        let (code, found) = api.get(path).await;
        assert_eq!((code, found), (StatusCode::OK, json!(expected)), "{path}");
    }
    assert_eq!(api.get("/readyz/nothing").await.0, StatusCode::NOT_FOUND);
}
