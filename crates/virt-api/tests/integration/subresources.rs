//! Every subresource of `KubeVirt` has a row and an answer; the requests are counted.

use std::{collections::BTreeSet, time::Duration};

use axum::{
    Router,
    extract::ws::{Message as Frame, WebSocket, WebSocketUpgrade},
    routing::get,
};
use futures::{SinkExt as _, StreamExt as _};
use k8s_openapi::api::{
    core::v1::Node,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use kubevirt_api::VirtualMachineInstance;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use virt_api::{AGGREGATED, Answer, Configuration, Entry, Object, VERBS};

use crate::{facts, server::Running};

const BASE: &str = "/apis/subresources.kubevirt.io/v1";

/// Verbs that `KubeVirt` does not have, or that another project has there.
fn is_ours(entry: &Entry) -> bool {
    entry.object == Object::Template || ["usage", "suspend", "resume"].contains(&entry.name)
}

fn path(entry: &Entry) -> String {
    let parameter = if entry.name == "portforward" {
        "/22"
    } else {
        ""
    };
    let api = entry.object.api();
    let base = format!("/apis/{}/{}", api.group, api.versions[0]);
    match entry.object {
        Object::Cluster => format!("{base}/{}", entry.name),
        Object::Namespace => format!("{base}/namespaces/default/{}", entry.name),
        object => format!(
            "{base}/namespaces/default/{}/a/{}{parameter}",
            object.plural(),
            entry.name
        ),
    }
}

#[test]
fn every_subresource_of_kubevirt_has_a_row() {
    let wanted: BTreeSet<_> = facts::all()
        .iter()
        .map(|fact| (fact.resource(), fact.method.to_owned()))
        .collect();
    let found: BTreeSet<_> = VERBS
        .iter()
        .filter(|entry| !is_ours(entry))
        .map(|entry| (entry.resource(), entry.verb.method().to_string()))
        .collect();
    assert_eq!(found, wanted);
    let ours = VERBS.iter().filter(|entry| is_ours(entry)).count();
    assert_eq!(VERBS.len() - ours, wanted.len(), "a verb has one row");
    assert_eq!(ours, 5);
}

#[test]
fn bodies_and_codes_are_those_of_kubevirt() {
    let facts = facts::all();
    for entry in VERBS.iter().filter(|entry| !is_ours(entry)) {
        let fact = facts
            .iter()
            .find(|fact| fact.resource() == entry.resource());
        let (fact, contract) = (fact.unwrap(), &entry.contract);
        let case = entry.resource();
        assert_eq!(contract.body, fact.body, "{case}");
        let query: Vec<&str> = contract.query.iter().map(|(name, _)| *name).collect();
        assert_eq!(query, fact.query, "{case}");
        let codes = contract.refusals.iter().copied();
        let codes: BTreeSet<u16> = codes.chain([contract.answer.code()]).collect();
        assert_eq!(codes, fact.codes, "{case}");
    }
}

/// The documents that the API server merges into its own.
#[tokio::test]
async fn openapi_describes_every_verb_in_every_version() {
    let running = Running::start().await;
    let get = http::Method::GET;
    let v2 = running.request(&get, "/openapi/v2").await.json();
    let index = running.request(&get, "/openapi/v3").await.json();
    let versions = AGGREGATED
        .into_iter()
        .flat_map(|api| api.versions.iter().map(move |version| (api, *version)));
    for (api, version) in versions {
        let group = format!("apis/{}/{version}", api.group);
        let url = index["paths"][&group]["serverRelativeURL"]
            .as_str()
            .unwrap();
        let v3 = running.request(&get, url).await.json();
        for entry in VERBS.iter().filter(|entry| entry.object.api() == api) {
            for path in entry.paths(version) {
                let method = entry.verb.method().to_string().to_lowercase();
                for document in [&v2, &v3] {
                    let operation = &document["paths"][&path][&method];
                    let case = format!("{path}: {operation}");
                    let answers = operation["responses"].as_object().expect(&case);
                    let success = entry.contract.answer.code().to_string();
                    assert_eq!(answers.contains_key(&success), entry.is_built(), "{case}");
                    assert_ne!(answers.contains_key("501"), entry.is_built(), "{case}");
                    let body = entry.contract.body.unwrap_or("\"responses\"");
                    assert!(operation.to_string().contains(body), "{case}");
                }
            }
        }
    }
    running.api.end().await;
}

/// A client that asks for a verb that is not supported gets a `Status` that names it, never an empty body.
#[tokio::test]
async fn every_verb_answers_a_status_or_a_result() {
    let running = Running::start().await;
    let vmi = json!({
        "metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}},
    });
    let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
    let vmis = Api::default_namespaced(running.api.client.clone());
    vmis.create(&PostParams::default(), &vmi).await.unwrap();
    for entry in VERBS {
        let answer = running.request(&entry.verb.method(), &path(entry)).await;
        let (case, body) = (entry.resource(), answer.json());
        // A change that is done has no body, as in KubeVirt.
        let has_none = matches!(entry.contract.answer, Answer::Done | Answer::Accepted);
        if has_none && answer.code == entry.contract.answer.code() {
            assert!(answer.body.is_empty(), "{case}: {answer:?}");
            continue;
        }
        assert_eq!(answer.media_type, "application/json", "{case}: {answer:?}");
        if answer.code == 200 {
            assert!(body.is_object(), "{case}: {answer:?}");
            continue;
        }
        assert_eq!(body["kind"], "Status", "{case}: {answer:?}");
        assert_eq!(body["code"], answer.code.as_u16(), "{case}");
        for field in ["reason", "message"] {
            assert!(!body[field].as_str().unwrap().is_empty(), "{case}: {body}");
        }
        // KubeVirt refuses the others, too, for this VMI and configuration.
        if entry.name == "backup" {
            assert_eq!(answer.code, 501, "{case}: {body}");
            assert_eq!(body["reason"], "NotImplemented", "{case}");
        } else {
            assert_ne!(answer.code, 501, "{case}: {body}");
        }
    }
    running.api.end().await;
}

/// Clients of `KubeVirt` compare `gitVersion` with their own version.
#[tokio::test]
async fn version_is_the_compatible_one_beside_our_own() {
    let running = Running::start().await;
    let path = format!("{BASE}/version");
    let version = running.request(&http::Method::GET, &path).await.json();
    assert_eq!(version["gitVersion"], "v1.9.0");
    let ours = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(version["ferrovirtVersion"], ours);
    running.api.end().await;
}

async fn until_read(configuration: &Configuration, version: &str) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let read = async {
        while configuration.resource_version() != version {
            ticks.tick().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_mins(1), read).await;
    assert!(in_time.is_ok(), "{}", configuration.resource_version());
}

/// A tool that changes the configuration waits until every component has read it.
#[tokio::test]
async fn health_names_the_oldest_configuration_of_the_process() {
    let running = Running::start().await;
    let client = &running.api.client;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt"));
    let kubevirts: Api<DynamicObject> = Api::namespaced_with(client.clone(), "kubevirt", &kind);
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"},
        "spec": {"configuration": {"cpuModel": "Haswell"}},
    });
    let kubevirt = serde_json::from_value(kubevirt).unwrap();
    let kubevirt = kubevirts
        .create(&PostParams::default(), &kubevirt)
        .await
        .unwrap();
    let version = kubevirt.resource_version().unwrap();
    let subresource = format!("{BASE}/healthz");
    let paths = ["/healthz", "//healthz", &subresource];
    let all_name = async |expected: &str| {
        for path in paths {
            let answer = running.request(&http::Method::GET, path).await;
            let health = answer.json();
            assert_eq!(answer.code, 200, "{path}: {health}");
            assert_eq!(
                health["apiserver"]["connectivity"], "ok",
                "{path}: {health}"
            );
            assert_eq!(health["config-resource-version"], expected, "{path}");
        }
    };
    until_read(&running.configuration, &version).await;
    all_name("0").await;
    let (tasks, stop) = (&running.api.tasks, &running.api.stop);
    running.neighbour.follow(client, tasks, stop);
    until_read(&running.neighbour, &version).await;
    all_name(&version).await;
    running.api.end().await;
}

#[tokio::test]
async fn unknown_paths_and_methods_are_answered_by_a_status() {
    let running = Running::start().await;
    let get = http::Method::GET;
    let vmi = format!("{BASE}/namespaces/default/virtualmachineinstances/a");
    for (method, path, code, reason) in [
        (&get, format!("{vmi}/dance"), 404, "NotFound"),
        (&get, "/apis/other".to_owned(), 404, "NotFound"),
        (&get, format!("{vmi}/pause"), 405, "MethodNotAllowed"),
        (
            &http::Method::PUT,
            format!("{vmi}/vnc"),
            405,
            "MethodNotAllowed",
        ),
    ] {
        let answer = running.request(method, &path).await;
        assert_eq!(answer.code, code, "{path}");
        assert_eq!(answer.json()["reason"], reason, "{path}");
    }
    let list = running.request(&get, BASE).await.json();
    let with_slash = running.request(&get, &format!("{BASE}/")).await.json();
    assert_eq!(list["kind"], "APIResourceList");
    assert_eq!(list, with_slash);
    let paths = running.request(&get, "/").await.json();
    assert!(paths["paths"].to_string().contains(BASE), "{paths}");
    running.api.end().await;
}

/// Scrapes `/metrics`: the verb is counted under its whole name, slash and all.
/// The class of CVE-2025-64432.
#[tokio::test]
async fn metrics_count_requests_by_the_verb() {
    let running = Running::start().await;
    let vmi = format!("{BASE}/namespaces/default/virtualmachineinstances/a");
    let refused = running
        .request_without_certificate(&format!("{vmi}/vnc/screenshot"))
        .await;
    assert_eq!(refused.code, 401, "{refused:?}");
    running
        .request_without_certificate(&format!("{vmi}/portforward/22/tcp"))
        .await;
    let scraped = running.request_without_certificate("/metrics").await;
    assert_eq!(scraped.code, 200);
    assert!(
        scraped
            .media_type
            .starts_with("application/openmetrics-text")
            || scraped.media_type.starts_with("text/plain"),
        "{}",
        scraped.media_type
    );
    let text = String::from_utf8(scraped.body.to_vec()).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("ferrovirt_virt_api_subresource_requests_total{"))
        .collect();
    for verb in ["vnc/screenshot", "portforward"] {
        let counted = lines.iter().any(|line| {
            line.contains(&format!("verb=\"{verb}\""))
                && line.contains("resource=\"virtualmachineinstances\"")
                && line.contains("code=\"401\"")
        });
        assert!(counted, "{verb}: {lines:#?}");
    }
    running.api.end().await;
}

/// Every client of virt-api can post a review; only that of the API server marks a guest.
#[tokio::test]
async fn eviction_review_needs_the_certificate_of_the_api_server() {
    let running = Running::start().await;
    let refused = running
        .post_without_certificate(virt_api::EVICTION_PATH)
        .await;
    assert_eq!(refused.code, 401, "{refused:?}");
    let read = running
        .request(&http::Method::POST, virt_api::EVICTION_PATH)
        .await;
    assert_eq!(read.code, 400, "the review is empty: {read:?}");
}

/// A role that names a subresource of two words gives that one only, and one that names its first word does
/// not give it. The class of CVE-2026-6383.
#[tokio::test]
async fn right_to_a_subresource_is_checked_by_its_whole_name() {
    let running = Running::start().await;
    let get = http::Method::GET;
    let vmi = format!("{BASE}/namespaces/default/virtualmachineinstances/a");
    for (user, permitted) in [("ann", "vnc"), ("bob", "vnc/screenshot")] {
        let resource = format!("virtualmachineinstances/{permitted}");
        let role = json!({"metadata": {"name": user}, "rules": [{
            "apiGroups": ["subresources.kubevirt.io"], "resources": [resource], "verbs": ["get"]}]});
        running.create::<Role>(role).await;
        let binding = json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        });
        running.create::<RoleBinding>(binding).await;
        for asked in ["vnc", "vnc/screenshot"] {
            let answer = running
                .request_of(user, &get, &format!("{vmi}/{asked}"))
                .await;
            let message = answer.json()["message"].to_string();
            assert_eq!(
                answer.code == 403,
                asked != permitted,
                "{user} {asked}: {message}"
            );
            let named = format!("virtualmachineinstances/{asked} in API group");
            assert!(asked == permitted || message.contains(&named), "{message}");
        }
    }
    running.api.end().await;
}

/// The class of CVE-2025-64434: every node has a certificate of the same authority.
#[tokio::test]
async fn server_with_the_certificate_of_another_node_gets_no_request() {
    let running = Running::start().await;
    let put = http::Method::PUT;
    let vmi = json!({
        "metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "n1"},
    });
    running.create::<VirtualMachineInstance>(vmi).await;
    let path = format!("{BASE}/namespaces/default/virtualmachineinstances/a/pause");
    let nodes: Api<Node> = Api::all(running.api.client.clone());
    let node = json!({"metadata": {"name": "n1"}});
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    for (name, code) in [("virt-handler.n2", 503), ("virt-handler.n1", 200)] {
        let address = running.serve_as(name).await.to_string();
        let annotations = json!({kubevirt_api::annotations::HANDLER_ADDRESS: address});
        let change = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let parameters = PatchParams::default();
        nodes.patch("n1", &parameters, &change).await.unwrap();
        let answer = running.request(&put, &path).await;
        assert_eq!(answer.code, code, "{name}: {answer:?}");
        if code == 503 {
            let message = answer.json()["message"].to_string();
            for part in [
                "did not prove to be virt-handler.n1",
                "restart its virt-handler",
            ] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
    running.api.end().await;
}

/// What the stand-in for virt-handler does with a websocket.
async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Frame::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn many_consoles_are_open_at_once_and_each_works() {
    const CONSOLES: usize = 500;
    let running = Running::start().await;
    let console = "/v1/namespaces/default/virtualmachineinstances/a/console";
    let upgrade = |upgrade: WebSocketUpgrade| async {
        upgrade.protocols(["plain.kubevirt.io"]).on_upgrade(echo)
    };
    let node = Router::new().route(console, get(upgrade));
    let address = running.serve("virt-handler.n1", node).await;
    running.add_node("n1", address).await;
    let vmi = json!({
        "metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "n1"},
    });
    running.create::<VirtualMachineInstance>(vmi).await;
    let path = format!("{BASE}/namespaces/default/virtualmachineinstances/a/console");
    let mut open = vec![];
    for _ in 0..CONSOLES {
        open.push(running.open(&path).await);
    }
    for (number, stream) in open.iter_mut().enumerate() {
        let typed = Message::binary(number.to_string().into_bytes());
        stream.send(typed.clone()).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), typed);
    }
    drop(open);
    running.api.end().await;
}
