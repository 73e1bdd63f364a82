//! The life of objects, request by request.

use crate::support::*;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn object_lives_from_create_to_delete() {
    let api = start().await;
    let made = api.create(MAPS, config_map("a")).await;
    assert_eq!(
        made["metadata"]["creationTimestamp"],
        "2026-01-02T03:04:05Z"
    );
    assert_eq!(made["metadata"]["namespace"], "default");
    let (code, again) = api.call(Method::POST, MAPS, config_map("a")).await;
    assert_eq!(
        (code, &again["reason"]),
        (StatusCode::CONFLICT, &json!("AlreadyExists"))
    );
    let at = format!("{MAPS}/a");
    let (_, found) = api.get(&at).await;
    assert_eq!(found, made);
    let mut changed = found.clone();
    changed["data"]["a"] = "c".into();
    let (code, updated) = api.put(&at, changed.clone()).await;
    assert_eq!(code, StatusCode::OK);
    assert_ne!(
        updated["metadata"]["resourceVersion"],
        found["metadata"]["resourceVersion"]
    );
    changed["data"]["a"] = "d".into();
    let (code, stale) = api.put(&at, changed).await;
    assert_eq!(
        (code, &stale["reason"]),
        (StatusCode::CONFLICT, &json!("Conflict"))
    );
    let (code, _) = api.delete(&at).await;
    assert_eq!(code, StatusCode::OK);
    let (code, missing) = api.get(&at).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert_eq!(missing["message"], "configmaps \"a\" not found");
}

#[tokio::test]
async fn write_that_changes_nothing_leaves_the_version() {
    let api = start().await;
    let made = api.create(MAPS, config_map("a")).await;
    let (_, same) = api
        .patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"a": "b"}}))
        .await;
    assert_eq!(
        same["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn patches_of_every_format_work() {
    let api = start().await;
    api.create(MAPS, config_map("a")).await;
    let at = format!("{MAPS}/a");
    let cases = [
        (
            MERGE,
            json!({"data": {"m": "1", "a": null}}),
            json!({"m": "1"}),
        ),
        (
            "application/json-patch+json",
            json!([{"op": "add", "path": "/data/j", "value": "2"}]),
            json!({"m": "1", "j": "2"}),
        ),
        (
            "application/strategic-merge-patch+json",
            json!({"data": {"j": null, "s": "3"}}),
            json!({"m": "1", "s": "3"}),
        ),
    ];
    for (language, patch, expected) in cases {
        let (code, object) = api.patch(&at, language, patch).await;
        assert_eq!(
            (code, &object["data"]),
            (StatusCode::OK, &expected),
            "{language}"
        );
    }
    let (code, _) = api.patch(&at, "application/json", json!({})).await;
    assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn apply_creates_updates_and_removes_omitted_fields() {
    let api = start().await;
    let at = format!("{MAPS}/a");
    let fragment = |data: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
                                        "metadata": {"name": "a"}, "data": data})
    };
    let (code, _) = api
        .apply(&at, "one", fragment(json!({"x": "1", "y": "1"})))
        .await;
    assert_eq!(code, StatusCode::CREATED);
    let (code, _) = api.apply(&at, "two", fragment(json!({"z": "2"}))).await;
    assert_eq!(code, StatusCode::OK);
    let (_, object) = api.apply(&at, "one", fragment(json!({"x": "1"}))).await;
    assert_eq!(object["data"], json!({"x": "1", "z": "2"}));
    let version = object["metadata"]["resourceVersion"].clone();
    let (_, same) = api.apply(&at, "one", fragment(json!({"x": "1"}))).await;
    assert_eq!(same["metadata"]["resourceVersion"], version);
    let (code, conflict) = api
        .patch(
            &format!("{at}?fieldManager=three"),
            "application/apply-patch+yaml",
            fragment(json!({"x": "9"})),
        )
        .await;
    assert_eq!(code, StatusCode::CONFLICT, "{conflict}");
}

#[tokio::test]
async fn apply_with_a_stale_version_is_a_conflict_and_recreates_nothing() {
    let api = start().await;
    let at = format!("{MAPS}/a");
    let made = api.create(MAPS, config_map("a")).await;
    let mut fragment = config_map("a");
    fragment["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    fragment["data"]["a"] = "c".into();
    let (code, _) = api.apply(&at, "one", fragment.clone()).await;
    assert_eq!(code, StatusCode::OK);
    let (code, _) = api.apply(&at, "one", fragment.clone()).await;
    assert_eq!(code, StatusCode::CONFLICT);
    api.delete(&at).await;
    let (code, _) = api.apply(&at, "one", fragment).await;
    assert_eq!(code, StatusCode::CONFLICT);
    assert_eq!(api.get(&at).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn names_are_generated_and_namespaces_must_exist() {
    let api = start().await;
    let mut object = config_map("");
    object["metadata"] = json!({"generateName": "gen-"});
    let made = api.create(MAPS, object).await;
    assert!(
        made["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("gen-")
    );
    let elsewhere = "/api/v1/namespaces/nowhere/configmaps";
    let (code, missing) = api.call(Method::POST, elsewhere, config_map("a")).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert_eq!(missing["message"], "namespaces \"nowhere\" not found");
}

#[tokio::test]
async fn lists_are_filtered_and_chunked() {
    let api = start().await;
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        api.create(MAPS, object).await;
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let (_, all) = api.get(MAPS).await;
    assert_eq!(
        (names(&all), &all["kind"]),
        (
            vec!["a".into(), "b".into(), "c".into()],
            &json!("ConfigMapList")
        )
    );
    let (_, some) = api.get(&format!("{MAPS}?labelSelector=tier%3Dx")).await;
    assert_eq!(names(&some), ["a", "c"]);
    let (_, one) = api
        .get("/api/v1/configmaps?fieldSelector=metadata.name%3Db")
        .await;
    assert_eq!(names(&one), ["b"]);
    let (_, page) = api.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(
        (names(&page).len(), &page["metadata"]["remainingItemCount"]),
        (2, &json!(1))
    );
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = api.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&rest), ["c"]);
    assert_eq!(rest["metadata"]["continue"], Value::Null);
    let (_, page) = api
        .get(&format!("{MAPS}?limit=1&labelSelector=tier%3Dy"))
        .await;
    assert_eq!(names(&page), ["b"]);
}

#[tokio::test]
async fn dry_run_stores_nothing() {
    let api = start().await;
    api.create(&format!("{MAPS}?dryRun=All"), config_map("a"))
        .await;
    assert_eq!(api.get(&format!("{MAPS}/a")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn unknown_fields_are_dropped_or_rejected() {
    let api = start().await;
    let mut object = config_map("a");
    object["nonsense"] = json!(1);
    let (code, refused) = api
        .call(
            Method::POST,
            &format!("{MAPS}?fieldValidation=Strict"),
            object.clone(),
        )
        .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("unknown field \"nonsense\"")
    );
    let response = api
        .send(Method::POST, MAPS, "application/json", object.to_string())
        .await;
    let warning = response.headers()[http::header::WARNING]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(warning, "299 - \"unknown field \\\"nonsense\\\"\"");
    assert_eq!(
        api.get(&format!("{MAPS}/a")).await.1["nonsense"],
        Value::Null
    );
}

#[tokio::test]
async fn pod_is_defaulted_bound_and_deleted_in_two_steps() {
    let api = start().await;
    let made = api.create(PODS, pod("p")).await;
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["status"]["qosClass"], "BestEffort");
    assert_eq!(made["spec"]["restartPolicy"], "Always");
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(
        made["spec"]["containers"][0]["imagePullPolicy"],
        "IfNotPresent"
    );
    let at = format!("{PODS}/p");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
                         "target": {"kind": "Node", "name": "n"}});
    api.create(&format!("{at}/binding"), binding.clone()).await;
    let (code, _) = api
        .call(Method::POST, &format!("{at}/binding"), binding)
        .await;
    assert_eq!(code, StatusCode::CONFLICT);
    let (code, _) = api
        .patch(
            &format!("{at}/status"),
            MERGE,
            json!({"status": {"phase": "Running"}}),
        )
        .await;
    assert_eq!(code, StatusCode::OK);
    let (code, refused) = api
        .patch(&at, MERGE, json!({"spec": {"nodeName": "other"}}))
        .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    let (_, terminating) = api.delete(&at).await;
    assert_eq!(
        terminating["metadata"]["deletionTimestamp"],
        "2026-01-02T03:04:35Z"
    );
    assert_eq!(terminating["status"]["phase"], "Running");
    assert_eq!(api.get(&at).await.0, StatusCode::OK);
    let (code, _) = api.delete(&format!("{at}?gracePeriodSeconds=0")).await;
    assert_eq!(
        (code, api.get(&at).await.0),
        (StatusCode::OK, StatusCode::NOT_FOUND)
    );
}

#[tokio::test]
async fn finalizer_holds_an_object_until_it_is_removed() {
    let api = start().await;
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["x/y"]);
    api.create(MAPS, object).await;
    let at = format!("{MAPS}/a");
    let (_, terminating) = api.delete(&at).await;
    assert_eq!(
        terminating["metadata"]["deletionTimestamp"],
        "2026-01-02T03:04:05Z"
    );
    let (code, _) = api
        .patch(
            &at,
            MERGE,
            json!({"metadata": {"finalizers": ["x/y", "z/z"]}}),
        )
        .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let (code, _) = api
        .patch(&at, MERGE, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(
        (code, api.get(&at).await.0),
        (StatusCode::OK, StatusCode::NOT_FOUND)
    );
}

#[tokio::test]
async fn deletion_checks_its_preconditions() {
    let api = start().await;
    api.create(MAPS, config_map("a")).await;
    let at = format!("{MAPS}/a");
    let options = json!({"preconditions": {"uid": "other"}});
    let (code, _) = api.call(Method::DELETE, &at, options).await;
    assert_eq!(code, StatusCode::CONFLICT);
    let (code, _) = api.call(Method::DELETE, MAPS, Value::Null).await;
    assert_eq!(
        (code, api.get(&at).await.0),
        (StatusCode::OK, StatusCode::NOT_FOUND)
    );
}

#[tokio::test]
async fn definition_is_served_immediately_and_deleted_with_its_objects() {
    let api = start().await;
    assert_eq!(api.get(WIDGETS).await.0, StatusCode::NOT_FOUND);
    let crd = api.create(DEFINITIONS, definition()).await;
    assert_eq!(crd["status"]["conditions"][1]["type"], "Established");
    assert_eq!(crd["status"]["acceptedNames"]["listKind"], "WidgetList");
    let made = api.create(WIDGETS, widget("w", &json!({"junk": 1}))).await;
    assert_eq!(made["spec"], json!({"size": 3}));
    assert_eq!(made["metadata"]["generation"], 1);
    let at = format!("{WIDGETS}/w");
    let (code, _) = api.patch(&at, MERGE, json!({"spec": {"size": 0}})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let (_, changed) = api.patch(&at, MERGE, json!({"spec": {"size": 4}})).await;
    assert_eq!(changed["metadata"]["generation"], 2);
    let (_, changed) = api
        .patch(&at, MERGE, json!({"status": {"phase": "x"}}))
        .await;
    assert_eq!(
        changed["metadata"]["generation"], 3,
        "status is part of this object"
    );
    let (_, other) = api
        .get("/apis/example.com/v1beta1/namespaces/default/widgets/w")
        .await;
    assert_eq!(other["apiVersion"], "example.com/v1beta1");
    let (_, scale) = api
        .patch(
            &format!("{at}/scale"),
            MERGE,
            json!({"spec": {"replicas": 5}}),
        )
        .await;
    assert_eq!(scale["spec"]["replicas"], 5);
    let (code, _) = api.get(&format!("{at}/status")).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    let crd_at = format!("{DEFINITIONS}/widgets.example.com");
    api.delete(&crd_at).await;
    api.until_deleted(&crd_at).await;
    // The definition is deleted a moment before its kind is unserved.
    let unserved = async {
        while api.get(WIDGETS).await.0 != StatusCode::NOT_FOUND {
            tokio::task::yield_now().await;
        }
    };
    within_deadline(unserved).await;
}

#[tokio::test]
async fn scaling_survives_concurrent_writes() {
    let api = start().await;
    api.create(DEFINITIONS, definition()).await;
    api.create(WIDGETS, widget("w", &json!({}))).await;
    let at = format!("{WIDGETS}/w/scale");
    let tries = (1..=4).map(|n| api.patch(&at, MERGE, json!({"spec": {"replicas": n}})));
    for (code, body) in futures::future::join_all(tries).await {
        assert_eq!(code, StatusCode::OK, "{body}");
    }
    let (_, observed) = api.get(&at).await;
    api.patch(&at, MERGE, json!({"spec": {"replicas": 7}}))
        .await;
    let (code, _) = api.call(Method::PUT, &at, observed).await;
    assert_eq!(code, StatusCode::CONFLICT, "a stale version");
}

#[tokio::test]
async fn invalid_definition_is_rejected() {
    let api = start().await;
    let mut broken = definition();
    broken["metadata"]["name"] = "x.example.com".into();
    broken["spec"]["versions"][1]["storage"] = true.into();
    let (code, status) = api.call(Method::POST, DEFINITIONS, broken).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        status["details"]["causes"].as_array().unwrap().len(),
        2,
        "{status}"
    );
}

#[tokio::test]
async fn status_subresource_separates_status_and_spec() {
    let api = start().await;
    api.create(DEFINITIONS, definition()).await;
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let object = json!({"apiVersion": "example.com/v1beta1", "kind": "Widget",
                        "metadata": {"name": "w"}, "spec": {"x": 1}, "status": {"y": 1}});
    let made = api.create(beta, object).await;
    assert_eq!(made["status"], Value::Null);
    let at = format!("{beta}/w");
    let change = json!({"spec": {"x": 2}, "status": {"y": 2}});
    let (_, main) = api.patch(&at, MERGE, change.clone()).await;
    assert_eq!(
        (&main["spec"]["x"], &main["status"]),
        (&json!(2), &Value::Null)
    );
    assert_eq!(main["metadata"]["generation"], 2);
    let change = json!({"spec": {"x": 3}, "status": {"y": 3}});
    let (_, status) = api.patch(&format!("{at}/status"), MERGE, change).await;
    assert_eq!(
        (&status["spec"]["x"], &status["status"]["y"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(status["metadata"]["generation"], 2);
}

#[tokio::test]
async fn reviews_are_answered_and_other_paths_require_permissions() {
    let api = start().await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answered = api
        .create(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            review,
        )
        .await;
    assert_eq!(answered["status"]["allowed"], true);
    for (path, code) in [
        ("/healthz", 200),
        ("/version", 200),
        ("/readyz/ping", 403),
        ("/api/v1/pods", 403),
        ("/apis", 403),
    ] {
        let request = http::Request::get(path)
            .body(axum::body::Body::empty())
            .unwrap();
        let answer = api.api.router().oneshot(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), code, "{path}");
    }
}

#[tokio::test]
async fn secrets_and_events_are_converted() {
    let api = start().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
                        "stringData": {"k": "v"}});
    let made = api
        .create("/api/v1/namespaces/default/secrets", secret)
        .await;
    assert_eq!(
        (&made["data"]["k"], &made["type"]),
        (&json!("dg=="), &json!("Opaque"))
    );
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
                       "eventTime": "2026-01-02T03:04:05.000000Z", "note": "hello", "reason": "R",
                       "action": "A", "type": "Normal", "reportingController": "c",
                       "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    api.create("/apis/events.k8s.io/v1/namespaces/default/events", event)
        .await;
    let (_, old) = api
        .get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp")
        .await;
    assert_eq!(old["items"][0]["message"], "hello", "{old}");
}
