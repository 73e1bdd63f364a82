//! Protobuf in both directions, as Kubernetes' own clients send and accept it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails so")]
use crate::support::*;
use apimachinery::protobuf;
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";

struct Answer {
    code: StatusCode,
    media: String,
    body: Vec<u8>,
}

impl Answer {
    /// The object, decoded by the media type.
    fn object(&self) -> Value {
        match self.media.as_str() {
            protobuf::MEDIA_TYPE => protobuf::decode(&self.body).unwrap(),
            "application/json" => serde_json::from_slice(&self.body).unwrap(),
            other => panic!("media type {other:?}"),
        }
    }
}

async fn ask(api: &Running, method: Method, uri: &str, accept: &str, body: Value) -> Answer {
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        protobuf::encode(&body).unwrap()
    };
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, protobuf::MEDIA_TYPE)
        .header(header::ACCEPT, accept)
        .body(Body::from(bytes))
        .unwrap();
    let response = api.request(request).await;
    let media = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
    Answer {
        code: response.status(),
        media: media.to_owned(),
        body: response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .to_vec(),
    }
}

#[tokio::test]
async fn kinds_that_kubectl_creates_are_accepted_and_answered_as_protobuf() {
    let api = start().await;
    let core = "/api/v1/namespaces/default";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = "rbac.authorization.k8s.io";
    for (uri, object) in [
        (
            format!("{core}/services"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
                "spec": {"ports": [{"port": 80, "targetPort": "web", "protocol": "TCP"}],
                         "selector": {"app": "a"}}}),
        ),
        (
            format!("{rbac}/namespaces/default/roles"),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "a"},
                "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
        ),
        (
            format!("{rbac}/clusterroles"),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "a"},
                "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
        ),
        (
            format!("{rbac}/namespaces/default/rolebindings"),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "a"}, "roleRef": {"apiGroup": role, "kind": "Role", "name": "a"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]}),
        ),
        (
            format!("{rbac}/clusterrolebindings"),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "a"},
                "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": "a"},
                "subjects": [{"kind": "User", "name": "u", "apiGroup": role}]}),
        ),
        (
            format!("{core}/resourcequotas"),
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a"},
                "spec": {"hard": {"cpu": "1", "pods": "2"}}}),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "a"}, "value": 7}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets".to_owned(),
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
                "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "a"}}}}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases".to_owned(),
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
                "spec": {"holderIdentity": "h", "renewTime": "2026-01-02T03:04:05.000006Z"}}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            definition(),
        ),
    ] {
        let made = ask(&api, Method::POST, &uri, ACCEPT, object.clone()).await;
        assert_eq!(made.media, protobuf::MEDIA_TYPE, "{uri}");
        let answer = made.object();
        assert_eq!(made.code, StatusCode::CREATED, "{answer}");
        assert_eq!(answer["kind"], object["kind"]);
        assert_eq!(answer["metadata"]["name"], object["metadata"]["name"]);
        let name = object["metadata"]["name"].as_str().unwrap();
        let (_, stored) = api.get(&format!("{uri}/{name}")).await;
        for part in ["spec", "rules", "subjects", "value"] {
            if let (Value::Object(sent), Value::Object(stored)) = (&object[part], &stored[part]) {
                for (key, value) in sent
                    .iter()
                    .filter(|(key, _)| *key != "versions" && *key != "names")
                {
                    assert_eq!(&stored[key], value, "{uri} {key}");
                }
            } else {
                assert_eq!(stored[part], object[part], "{uri}");
            }
        }
    }
}

#[tokio::test]
async fn subresources_reviews_options_and_errors_are_protobuf_too() {
    let api = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let made = ask(&api, Method::POST, pods, ACCEPT, pod("p")).await;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.object());
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
                         "target": {"kind": "Node", "name": "n"}});
    let bound = ask(
        &api,
        Method::POST,
        &format!("{pods}/p/binding"),
        ACCEPT,
        binding,
    )
    .await;
    assert_eq!(
        (bound.code, bound.object()["status"].clone()),
        (StatusCode::CREATED, json!("Success"))
    );

    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "metadata": {}, "spec": {"user": "u", "extra": {"x": ["y"]},
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}});
    let uri = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = ask(&api, Method::POST, uri, ACCEPT, review).await;
    assert_eq!(answer.media, protobuf::MEDIA_TYPE);
    assert_eq!(answer.object()["status"]["allowed"], false);

    let lost = ask(
        &api,
        Method::GET,
        &format!("{pods}/lost"),
        ACCEPT,
        Value::Null,
    )
    .await;
    assert_eq!(lost.media, protobuf::MEDIA_TYPE);
    assert_eq!(lost.object()["details"]["name"], "lost");
    assert_eq!(lost.object()["reason"], "NotFound");

    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                         "preconditions": {"uid": made.object()["metadata"]["uid"]}});
    let gone = ask(&api, Method::DELETE, &format!("{pods}/p"), ACCEPT, options).await;
    assert_eq!(gone.code, StatusCode::OK, "{}", gone.object());
    assert_eq!(api.get(&format!("{pods}/p")).await.0, StatusCode::NOT_FOUND);

    let list = ask(&api, Method::GET, "/api/v1/namespaces", ACCEPT, Value::Null).await;
    assert_eq!(list.media, protobuf::MEDIA_TYPE);
    assert!(list.object()["items"].as_array().unwrap().len() > 2);
    let accept =
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = ask(&api, Method::GET, "/api/v1/namespaces", accept, Value::Null).await;
    assert_eq!(list.object()["kind"], "PartialObjectMetadataList");
}

#[tokio::test]
async fn events_of_a_watch_are_frames() {
    let api = start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    api.create(maps, config_map("a")).await;
    let uri = format!("{maps}?watch=1&timeoutSeconds=1");
    let answer = ask(&api, Method::GET, &uri, ACCEPT, Value::Null).await;
    assert_eq!(
        answer.media,
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    let (length, event) = answer.body.split_first_chunk::<4>().unwrap();
    assert_eq!(
        usize::try_from(u32::from_be_bytes(*length)).unwrap(),
        event.len()
    );
    // Type (1), then an object (2) with raw bytes (1), which are a body of their own.
    assert!(event.starts_with(b"\x0a\x05ADDED\x12"));
    let at = event
        .windows(4)
        .position(|window| window == b"k8s\0")
        .unwrap();
    let object = protobuf::decode(&event[at..]).unwrap();
    assert_eq!(object["metadata"]["name"], "a");
}

#[tokio::test]
async fn custom_kinds_are_json_only() {
    let api = start().await;
    api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition(),
    )
    .await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let listed = ask(&api, Method::GET, widgets, ACCEPT, Value::Null).await;
    assert_eq!(
        (listed.code, listed.media.as_str()),
        (StatusCode::OK, "application/json")
    );
    let strict = ask(
        &api,
        Method::GET,
        widgets,
        protobuf::MEDIA_TYPE,
        Value::Null,
    )
    .await;
    assert_eq!(strict.code, StatusCode::NOT_ACCEPTABLE);
    let sent = ask(
        &api,
        Method::POST,
        widgets,
        "application/json",
        config_map("a"),
    )
    .await;
    let status = sent.object();
    assert_eq!(sent.code, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{status}");
    assert!(
        !status["message"].as_str().unwrap().contains("protobuf"),
        "{status}"
    );
}

#[tokio::test]
async fn malformed_and_unknown_bodies_are_bad_requests() {
    let api = start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for body in ["k8s\0\u{0}", "{}", "k8s\0\n\x09\n\x02v9\x12\x03Abc"] {
        let response = api
            .send(Method::POST, maps, protobuf::MEDIA_TYPE, body.to_owned())
            .await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body:?}");
    }
}

#[tokio::test]
async fn a_table_of_a_review_is_not_acceptable() {
    let api = start().await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "metadata": {}, "spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}});
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let answer = ask(&api, Method::POST, uri, table, review.clone()).await;
    assert_eq!(answer.code, StatusCode::NOT_ACCEPTABLE);
    assert_eq!(answer.object()["reason"], "NotAcceptable");
    let either = format!("{table},application/json");
    let answer = ask(&api, Method::POST, uri, &either, review).await;
    assert_eq!(answer.object()["kind"], "SelfSubjectAccessReview");
}

#[tokio::test]
async fn openapi_is_protobuf_for_kubectl() {
    let api = start().await;
    let media = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let answer = ask(&api, Method::GET, "/openapi/v2", media, Value::Null).await;
    assert_eq!(answer.code, StatusCode::OK);
    assert_eq!(
        answer.media,
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    // Field 1, text: the version of the format.
    assert!(answer.body.starts_with(b"\x0a\x032.0"));
    let name = b"io.k8s.api.core.v1.ConfigMap";
    assert!(answer.body.windows(name.len()).any(|window| window == name));
    let plain = ask(
        &api,
        Method::GET,
        "/openapi/v2",
        "application/json",
        Value::Null,
    )
    .await;
    assert_eq!(plain.object()["swagger"], "2.0");
}

#[tokio::test]
async fn answers_can_be_yaml() {
    let api = start().await;
    let answer = ask(
        &api,
        Method::GET,
        "/api/v1/namespaces/default",
        "application/yaml",
        Value::Null,
    )
    .await;
    assert_eq!(answer.media, "application/yaml");
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.contains("kind: Namespace"), "{text}");
}
