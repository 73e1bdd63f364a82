//! Services: addresses, node ports, endpoints and slices.

use crate::support::*;
use embedded_api::{ServiceSettings, Settings};
use http::{Method, StatusCode};
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A server that pods can reach, with a small range.
fn reachable() -> Settings {
    Settings {
        services: ServiceSettings {
            prefix_length: 24,
            server: Some("10.244.0.1:6443".parse().expect("an address")),
            ..ServiceSettings::usual()
        },
        ..settings()
    }
}

fn service(name: &str, spec: Value) -> Value {
    let mut object = json!({"metadata": {"name": name}});
    object["spec"] = spec;
    object
}

fn node_port(service: &Value) -> u64 {
    service["spec"]["ports"][0]["nodePort"]
        .as_u64()
        .unwrap_or_default()
}

impl Running {
    /// Waits until the slices of a service satisfy the condition.
    async fn until_slices(
        &self,
        service: &str,
        is_expected: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let list = format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3D{service}");
        let (_, all) = self.get(SLICES).await;
        let version = all["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let mut events = self
            .watch(&format!("{SLICES}?watch=1&resourceVersion={version}"))
            .await;
        loop {
            let (_, found) = self.get(&list).await;
            let items = found["items"].as_array().cloned().unwrap_or_default();
            if is_expected(&items) {
                return items;
            }
            events.next().await;
        }
    }
}

#[tokio::test]
async fn addresses_and_ports_are_in_the_answer_of_create() {
    let api = start().await;
    let made = api
        .create(
            SERVICES,
            service("a", json!({"type": "NodePort", "ports": [{"port": 80}]})),
        )
        .await;
    let address = made["spec"]["clusterIP"].as_str().unwrap_or_default();
    assert!(address.starts_with("10.96."), "{made}");
    assert_eq!(made["spec"]["clusterIPs"], json!([address]));
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4"]));
    assert_eq!(made["spec"]["externalTrafficPolicy"], "Cluster");
    assert!((30000..=32767).contains(&node_port(&made)), "{made}");
    let headless = json!({"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 81}]});
    let made = api.create(SERVICES, service("each", headless)).await;
    assert_eq!(made["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4"]));
    let (code, answer) = api
        .patch(
            &format!("{SERVICES}/each"),
            MERGE,
            json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    // A load balancer stays pending, as in a cluster without a cloud.
    let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                          "ports": [{"port": 80}]});
    let made = api.create(SERVICES, service("b", balancer)).await;
    let check = made["spec"]["healthCheckNodePort"]
        .as_u64()
        .unwrap_or_default();
    assert!(
        (30000..=32767).contains(&check) && check != node_port(&made),
        "{made}"
    );
    assert_eq!(made["spec"]["allocateLoadBalancerNodePorts"], true);
    assert_eq!(made["status"], json!({"loadBalancer": {}}));
    let (_, table) = api.get(&format!("{SERVICES}/b?as=Table")).await;
    assert_eq!(table["rows"][0]["cells"][3], "<pending>", "{table}");
}

#[tokio::test]
async fn node_ports_are_unique_and_free_after_use() {
    let api = start().await;
    let spec = |port: u64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    api.create(SERVICES, service("a", spec(30080))).await;
    let (code, refused) = api
        .call(Method::POST, SERVICES, service("b", spec(30080)))
        .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        refused["message"],
        "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
    );
    let (code, refused) = api
        .call(Method::POST, SERVICES, service("b", spec(80)))
        .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("The range of valid ports is 30000-32767"),
        "{message}"
    );

    // An update that does not name the port keeps it; a new type frees it.
    let at = format!("{SERVICES}/a");
    let (_, mut live) = api.get(&at).await;
    live["spec"]["ports"] = json!([{"port": 81}]);
    let (code, kept) = api.put(&at, live).await;
    assert_eq!(code, StatusCode::OK, "{kept}");
    assert_eq!(node_port(&kept), 30080);
    let (code, changed) = api
        .patch(&at, STRATEGIC, json!({"spec": {"type": "ClusterIP"}}))
        .await;
    assert_eq!(code, StatusCode::OK, "{changed}");
    assert_eq!(changed["spec"]["ports"][0].get("nodePort"), None);
    assert_eq!(changed["spec"].get("externalTrafficPolicy"), None);
    api.create(SERVICES, service("b", spec(30080))).await;
    api.delete(&format!("{SERVICES}/b")).await;
    let (code, again) = api
        .patch(
            &at,
            MERGE,
            json!({"spec": {"type": "NodePort", "ports": [{"port": 81, "nodePort": 30080}]}}),
        )
        .await;
    assert_eq!(code, StatusCode::OK, "{again}");
    // Without an address there is nothing to keep.
    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.b", "ports": null}});
    let (code, external) = api.patch(&at, MERGE, external).await;
    assert_eq!(code, StatusCode::OK, "{external}");
    assert_eq!(external["spec"].get("clusterIP"), None);
}

#[tokio::test]
async fn concurrent_services_get_different_addresses_and_ports() {
    let api = start().await;
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
    let names: Vec<String> = (0..8).map(|at| format!("s{at}")).collect();
    let creates = names
        .iter()
        .map(|name| api.create(SERVICES, service(name, spec.clone())));
    let made = futures::future::join_all(creates).await;
    let distinct = |of: fn(&Value) -> String| {
        made.iter()
            .map(of)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    assert_eq!(distinct(|one| one["spec"]["clusterIP"].to_string()), 8);
    assert_eq!(distinct(|one| node_port(one).to_string()), 8);
}

#[tokio::test]
async fn service_kubernetes_has_the_first_address_and_is_repaired() {
    let api = start_with(reachable()).await;
    let at = format!("{SERVICES}/kubernetes");
    let (_, service) = api.get(&at).await;
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(service["spec"]["ports"][0]["port"], 443);
    let (_, endpoints) = api.get(&format!("{ENDPOINTS}/kubernetes")).await;
    assert_eq!(
        endpoints["subsets"][0]["addresses"],
        json!([{"ip": "10.244.0.1"}])
    );
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], 6443);
    let (_, slice) = api.get(&format!("{SLICES}/kubernetes")).await;
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["10.244.0.1"]));
    let taken = json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]});
    let body = json!({"metadata": {"name": "mine"}, "spec": taken});
    let (code, refused) = api.call(Method::POST, SERVICES, body).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    api.delete(&at).await;
    api.until(&at, |service| service["spec"]["clusterIP"] == "10.96.0.1")
        .await;
    let broken = json!({"subsets": [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 1}]}]});
    api.patch(&format!("{ENDPOINTS}/kubernetes"), MERGE, broken)
        .await;
    api.until(&format!("{ENDPOINTS}/kubernetes"), |endpoints| {
        endpoints["subsets"][0]["addresses"][0]["ip"] == "10.244.0.1"
    })
    .await;
}

#[tokio::test]
async fn services_of_older_versions_are_completed_at_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = || embedded_api::Database::File(dir.path().join("db"));
    // A server that pods cannot reach has no service `kubernetes`, so the address is free.
    let old = start_with(Settings {
        database: file(),
        ..settings()
    })
    .await;
    let mine = json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]});
    old.create(SERVICES, service("mine", mine)).await;
    old.stop.cancel();
    old.tasks.close();
    old.tasks.wait().await;
    drop(old);
    let api = start_with(Settings {
        database: file(),
        ..reachable()
    })
    .await;
    let (_, found) = api.get(&format!("{SERVICES}/kubernetes")).await;
    assert_eq!(found["spec"]["clusterIP"], "10.96.0.1");
    let (_, moved) = api.get(&format!("{SERVICES}/mine")).await;
    assert_ne!(moved["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(
        moved["spec"]["clusterIPs"],
        json!([moved["spec"]["clusterIP"]])
    );
}

async fn running_pod(api: &Running, name: &str, ip: &str) {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({"app": "a"});
    object["spec"]["nodeName"] = "n".into();
    api.create(PODS, object).await;
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let (code, answer) = api
        .patch(&format!("{PODS}/{name}/status"), MERGE, status)
        .await;
    assert_eq!(code, StatusCode::OK, "{answer}");
}

#[tokio::test]
async fn services_with_a_selector_get_endpoints_and_slices() {
    let api = start().await;
    let spec = json!({"selector": {"app": "a"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    api.create(SERVICES, service("web", spec)).await;
    let empty = api.until_slices("web", |slices| slices.len() == 1).await;
    assert_eq!(
        empty[0]["metadata"]["ownerReferences"][0]["kind"],
        "Service"
    );
    running_pod(&api, "p", "10.244.0.7").await;
    api.until(&format!("{ENDPOINTS}/web"), |endpoints| {
        endpoints["subsets"][0]["addresses"][0]["ip"] == "10.244.0.7"
            && endpoints["subsets"][0]["ports"][0]["port"] == 8080
    })
    .await;
    let full = api
        .until_slices("web", |slices| {
            slices[0]["endpoints"][0]["addresses"] == json!(["10.244.0.7"])
        })
        .await;
    assert_eq!(full.len(), 1);
    assert_eq!(full[0]["metadata"]["name"], empty[0]["metadata"]["name"]);
    assert_eq!(
        full[0]["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
    api.delete(&format!("{SERVICES}/web")).await;
    api.until_deleted(&format!("{ENDPOINTS}/web")).await;
    api.until_slices("web", <[Value]>::is_empty).await;
}

#[tokio::test]
async fn endpoints_of_users_are_mirrored() {
    let api = start().await;
    api.create(SERVICES, service("own", json!({"ports": [{"port": 80}]})))
        .await;
    let endpoints = |ip: &str| {
        json!({"metadata": {"name": "own"}, "subsets": [
            {"addresses": [{"ip": ip}], "ports": [{"port": 8080}]}]})
    };
    api.create(ENDPOINTS, endpoints("10.0.0.1")).await;
    let mirrored = |ip: &'static str| {
        move |slices: &[Value]| {
            slices.len() == 1 && slices[0]["endpoints"][0]["addresses"] == json!([ip])
        }
    };
    let made = api.until_slices("own", mirrored("10.0.0.1")).await;
    assert_eq!(
        made[0]["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"],
        "endpointslicemirroring-controller.k8s.io"
    );
    let at = format!("{ENDPOINTS}/own");
    let (code, answer) = api.put(&at, endpoints("10.0.0.2")).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    api.until_slices("own", mirrored("10.0.0.2")).await;
    let skip = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    api.patch(&at, MERGE, skip).await;
    api.until_slices("own", <[Value]>::is_empty).await;
    let again = json!({"metadata": {"labels": null}});
    api.patch(&at, MERGE, again).await;
    api.until_slices("own", mirrored("10.0.0.2")).await;
    api.delete(&at).await;
    api.until_slices("own", <[Value]>::is_empty).await;
    // The Endpoints of a user go with their service.
    api.create(ENDPOINTS, endpoints("10.0.0.3")).await;
    api.until_slices("own", mirrored("10.0.0.3")).await;
    api.delete(&format!("{SERVICES}/own")).await;
    api.until_deleted(&at).await;
}
