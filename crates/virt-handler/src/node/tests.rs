use std::{collections::BTreeMap, time::Duration};

use cluster_view::Configuration;
use embedded_api::Identity;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    runtime::wait::await_condition,
};
use kubevirt_api::{annotations, labels};
use reconcile::{Clock, recorder};
use serde_json::{Value, json};
use test_cluster::{NAMESPACE, TestApi};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    NodeReport, ReportParts,
    heartbeat::{CpuManager, Schedulable, cpu_manager},
    report::{HEARTBEAT, is_realtime, spread},
    warnings::EVENT_NAMESPACE,
};
use crate::{
    capabilities::NodeFacts,
    guest::{ClientHandle, Reach},
};

async fn server() -> TestApi {
    TestApi::without_kinds(Identity::component("test")).await
}

/// A report that follows the configuration until the guard is dropped.
fn reporter(client: &Client) -> (NodeReport, DropGuard) {
    let cluster = Configuration::new(NAMESPACE);
    let stop = CancellationToken::new();
    cluster.follow(client, &TaskTracker::new(), &stop);
    let (events, recorder_task) = recorder(client.clone(), "virt-handler", Clock::system());
    TaskTracker::new().spawn(recorder_task.run(stop.clone()));
    let report = NodeReport::new(ReportParts {
        client: ClientHandle(client.clone()),
        node: "here".to_owned(),
        address: ([127, 0, 0, 1], 8186).into(),
        facts: NodeFacts {
            cpu_models: ["EPYC", "Conroe"].map(str::to_owned).to_vec(),
            ..NodeFacts::default()
        },
        kubelet_dir: "/nonexistent".into(),
        reach: Reach::OtherNodes,
        cluster,
        recorder: events,
        clock: Clock::system(),
    });
    (report, stop.drop_guard())
}

async fn labels_after(node: Value) -> BTreeMap<String, String> {
    let api = server().await;
    let client = api.client.clone();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let (report, _following) = reporter(&client);
    let mut config = report.parts.cluster.changes();
    report.report(&mut config).await.unwrap();
    let node = nodes.get("here").await.unwrap();
    let annotations = node.metadata.annotations.unwrap();
    assert_eq!(annotations[annotations::HANDLER_ADDRESS], "127.0.0.1:8186");
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels["mine"], "x");
    // An admission policy allows no others.
    let has_prefix = |key: &str| {
        let mut prefixes = labels::HANDLER_NODE_PREFIXES.iter();
        prefixes.any(|prefix| key.starts_with(prefix))
    };
    for key in labels.keys().filter(|key| *key != "mine") {
        let is_listed = labels::HANDLER_NODE_LABELS.contains(&key.as_str());
        assert!(is_listed || has_prefix(key), "{key}");
    }
    let kept = [annotations::SKIP_NODE_LABELLER];
    for key in annotations
        .keys()
        .filter(|key| !kept.contains(&key.as_str()))
    {
        assert!(
            annotations::HANDLER_NODE_ANNOTATIONS.contains(&key.as_str()),
            "{key}"
        );
    }
    assert_eq!(labels[labels::SCHEDULABLE], "true");
    let before = node.metadata.resource_version;
    report.beat(Schedulable::No).await.unwrap();
    let node = nodes.get("here").await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()[labels::SCHEDULABLE], "false");
    assert_ne!(node.metadata.resource_version, before);
    labels
}

/// Waits until the node's CPU model labels are these.
async fn await_models(client: &Client, expected: &[&str]) {
    let matches = |node: Option<&Node>| {
        let labels = node.and_then(|node| node.metadata.labels.as_ref());
        let names = labels.into_iter().flat_map(BTreeMap::keys);
        let names = names.filter_map(|name| name.strip_prefix(labels::CPU_MODEL_PREFIX));
        names.eq(expected.iter().copied())
    };
    let waiting = await_condition(Api::all(client.clone()), "here", matches);
    let found = tokio::time::timeout(Duration::from_mins(1), waiting).await;
    found.unwrap_or_else(|_| panic!("{expected:?}")).unwrap();
}

#[tokio::test]
async fn labels_follow_configuration_changes() {
    let api = server().await;
    let client = api.client.clone();
    api.install_kinds(|name| name.contains("kubevirts.")).await;
    let node = serde_json::from_value(json!({"metadata": {"name": "here"}})).unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let (report, _following) = reporter(&client);
    let stop = CancellationToken::new();
    let running = TaskTracker::new().spawn(report.run(stop.clone()));
    await_models(&client, &["EPYC"]).await;

    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt");
    let kind = ApiResource::from_gvk(&kind);
    let kubevirts: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    let obsolete =
        |models: Value| json!({"spec": {"configuration": {"obsoleteCPUModels": models}}});
    let mut object = DynamicObject::new("kubevirt", &kind);
    object.data = obsolete(json!({"EPYC": true}));
    kubevirts
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    await_models(&client, &["Conroe"]).await;

    let both = Patch::Merge(obsolete(json!({"Conroe": true})));
    let parameters = PatchParams::default();
    kubevirts
        .patch("kubevirt", &parameters, &both)
        .await
        .unwrap();
    await_models(&client, &[]).await;

    kubevirts
        .delete("kubevirt", &DeleteParams::default())
        .await
        .unwrap();
    await_models(&client, &["EPYC"]).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn labels_of_an_older_virt_handler_are_removed() {
    let labels = labels_after(json!({"metadata": {"name": "here", "labels": {
        "mine": "x", "cpu-model.node.kubevirt.io/Old": "true",
    }}}))
    .await;
    assert!(!labels.contains_key("cpu-model.node.kubevirt.io/Old"));
    assert_eq!(labels["cpu-model.node.kubevirt.io/EPYC"], "true");
    assert_eq!(labels["kubevirt.io/cpumanager"], "false");
}

#[tokio::test]
async fn missing_requirement_has_one_event_and_an_annotation() {
    let api = server().await;
    let client = api.client.clone();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": "here"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let (report, _following) = reporter(&client);
    let mut config = report.parts.cluster.changes();
    // The facts of this test have no KVM.
    report.report(&mut config).await.unwrap();
    report.report(&mut config).await.unwrap();
    let node = nodes.get("here").await.unwrap();
    let missing = &node.metadata.annotations.unwrap()[annotations::MISSING_REQUIREMENTS];
    assert!(
        missing.contains("KvmMissing: KVM is not available"),
        "{missing}"
    );

    let events: Api<Event> = Api::namespaced(client, EVENT_NAMESPACE);
    let found = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            let all = events.list(&ListParams::default()).await.unwrap().items;
            let matches = |event: &Event| event.reason.as_deref() == Some("KvmMissing");
            if let Some(found) = all.into_iter().find(matches) {
                return found;
            }
        }
    };
    let event = tokio::time::timeout(Duration::from_mins(1), found);
    let event = event.await.expect("an event");
    assert_eq!(event.involved_object.kind.as_deref(), Some("Node"));
    assert_eq!(event.involved_object.name.as_deref(), Some("here"));
    assert_eq!(event.count, Some(1));
}

#[tokio::test]
async fn node_with_skip_annotation_keeps_its_labels() {
    let labels = labels_after(json!({"metadata": {"name": "here",
        "labels": {"mine": "x", "cpu-model.node.kubevirt.io/Old": "true"},
        "annotations": {"node-labeller.kubevirt.io/skip-node": ""},
    }}))
    .await;
    assert_eq!(labels["cpu-model.node.kubevirt.io/Old"], "true");
    assert!(!labels.contains_key("cpu-model.node.kubevirt.io/EPYC"));
}

#[test]
fn host_files_are_parsed() {
    assert!(is_realtime("-1\n"));
    assert!(!is_realtime("950000\n") && !is_realtime(""));
    assert_eq!(
        cpu_manager(br#"{"policyName":"static","checksum":1}"#),
        CpuManager::Static
    );
    let none = br#"{"policyName":"none"}"#;
    assert_eq!(cpu_manager(none), CpuManager::Other);
    assert_eq!(cpu_manager(b""), CpuManager::Other);
}

#[test]
fn heartbeats_of_nodes_are_spread() {
    let times: std::collections::BTreeSet<_> =
        (0..100).map(|n| spread(&format!("node-{n}"))).collect();
    assert!(times.len() > 6, "{times:?}");
    assert!(
        times
            .iter()
            .all(|time| HEARTBEAT + *time <= HEARTBEAT.mul_f32(1.2))
    );
}
