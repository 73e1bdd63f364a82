//! Pod Security admission: levels of namespaces, refusals, warnings, exemptions.

use embedded_api::Identity;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use crate::support::*;

const DEFAULT: &str = "/api/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn host_pod(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["hostPID"] = true.into();
    pod["spec"]["volumes"] = json!([{"name": "root", "hostPath": {"path": "/"}}]);
    pod
}

async fn label(api: &Running, mode: &str, level: &Value) -> (StatusCode, Value) {
    let key = format!("pod-security.kubernetes.io/{mode}");
    let change = json!({"metadata": {"labels": {key: level}}});
    api.patch(DEFAULT, "application/merge-patch+json", change)
        .await
}

/// The answer's code and its warnings.
async fn create(api: &Running, collection: &str, body: &Value) -> (StatusCode, Vec<String>) {
    let json = "application/json";
    let response = api
        .send(Method::POST, collection, json, body.to_string())
        .await;
    (response.status(), warnings(&response))
}

fn warnings<T>(response: &http::Response<T>) -> Vec<String> {
    let values = response.headers().get_all(header::WARNING).into_iter();
    values
        .map(|value| value.to_str().expect("a header of text").to_owned())
        .collect()
}

#[tokio::test]
async fn pods_that_reach_the_host_are_refused_without_a_label() {
    let api = start().await;
    let (code, answer) = api.call(Method::POST, PODS, host_pod("p")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(answer["reason"], "Forbidden");
    assert_eq!(
        answer["message"],
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces \
         (hostPID=true), hostPath volumes (volume \"root\")"
    );
    api.create(PODS, pod("p")).await;
    let dry = format!("{PODS}?dryRun=All");
    let (code, _) = api.call(Method::POST, &dry, host_pod("q")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let (code, _) = api.apply(&format!("{PODS}/q"), "test", host_pod("q")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn label_of_the_namespace_sets_the_level() {
    let api = start().await;
    label(&api, "enforce", &"privileged".into()).await;
    api.create(PODS, host_pod("p")).await;
    label(&api, "enforce", &"restricted".into()).await;
    let (code, answer) = api.call(Method::POST, PODS, pod("q")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let message = answer["message"].as_str().unwrap();
    let begin = "pods \"q\" is forbidden: violates PodSecurity \"restricted:latest\": \
                 allowPrivilegeEscalation != false (container \"c\" must set";
    assert!(message.starts_with(begin), "{message}");
    // A pod from before can be labelled and finish.
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, _) = api
        .patch(&format!("{PODS}/p"), "application/merge-patch+json", change)
        .await;
    assert_eq!(code, StatusCode::OK);
    let change = json!({"spec": {"containers": [{"name": "c", "image": "j:1"}]}});
    let language = "application/strategic-merge-patch+json";
    let (code, _) = api.patch(&format!("{PODS}/p"), language, change).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn unreadable_labels_are_refused() {
    let api = start().await;
    let (code, answer) = label(&api, "enforce", &"high".into()).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        answer["message"],
        "Namespace \"default\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: \
         Invalid value: \"high\": must be one of privileged, baseline, restricted"
    );
    let (code, _) = label(&api, "warn-version", &"v2".into()).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn warnings_do_not_refuse() {
    let api = start().await;
    label(&api, "warn", &"restricted".into()).await;
    label(&api, "warn-version", &"v1.20".into()).await;
    let (code, found) = create(&api, PODS, &pod("p")).await;
    assert_eq!(code, StatusCode::CREATED);
    let [warning] = &found[..] else {
        panic!("one warning: {found:?}");
    };
    let begin = "299 - \"would violate PodSecurity \\\"restricted:v1.20\\\": \
                 allowPrivilegeEscalation != false (";
    assert!(warning.starts_with(begin), "{warning}");
}

#[tokio::test]
async fn stricter_level_warns_about_existing_pods() {
    let api = start().await;
    label(&api, "enforce", &"privileged".into()).await;
    for name in ["a", "b"] {
        api.create(PODS, host_pod(name)).await;
    }
    let change =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let language = "application/merge-patch+json";
    let response = api
        .send(Method::PATCH, DEFAULT, language, change.to_string())
        .await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        warnings(&response),
        [
            "299 - \"existing pods in namespace \\\"default\\\" violate the new PodSecurity enforce \
             level \\\"baseline:latest\\\"\"",
            "299 - \"a (and 1 other pod): host namespaces, hostPath volumes\"",
        ]
    );
}

#[tokio::test]
async fn system_namespaces_and_launcher_pods_are_exempt() {
    let api = start().await;
    for namespace in ["kube-system", "kubevirt"] {
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        api.create(&pods, host_pod("p")).await;
    }
    let controller = Identity::new(
        "system:serviceaccount:kubevirt:kubevirt-controller",
        &["system:masters"],
    );
    let (code, answer) = api
        .as_user(&controller, Method::POST, PODS, host_pod("l"))
        .await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let other = Identity::new(
        "system:serviceaccount:default:kubevirt-controller",
        &["system:masters"],
    );
    let (code, _) = api.as_user(&other, Method::POST, PODS, host_pod("m")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
}
