//! The heartbeat, and the labels that go with it, at once when the configuration changes; and what guests
//! lack on this node, as an annotation that stays and as events.

use std::{collections::HashMap, fs, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use admission::ClusterConfig;
use cluster_view::Configuration;
use error_chain::error_chain;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kubevirt_api::{annotations, labels as words};
use parking_lot::Mutex;
use reconcile::{Clock, EventType, Fragment, Key, Recorder, WriteError};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    ObsoleteModels,
    labels::{self, Facts},
    lacks::{self, Host, Lack},
};
use crate::{capabilities::NodeFacts, guest::ClientHandle};

/// Its own manager: the guests' fields and these are never in one fragment.
const MANAGER: &str = "virt-handler-node";
/// Between two heartbeats. A node is given up after five minutes without.
const HEARTBEAT: Duration = Duration::from_mins(1);
/// Up to so much later, each node at a time of its own.
const SPREAD_SECONDS: u32 = 12;
/// After a heartbeat that did not get through.
const RETRY: Duration = Duration::from_secs(2);
/// How long the first labels wait for the configuration, which may be out of reach.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the last word, when the agent is being ended.
const FAREWELL: Duration = Duration::from_secs(2);
const REALTIME_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// API servers forget events after an hour.
const EVENTS_LAST: Duration = Duration::from_mins(30);
const EVENTS_OF_NODES: &str = "default";
const CPU_MANAGER_STATE: &str = "cpu_manager_state";

#[derive(Debug)]
pub(crate) struct ReportParts {
    pub(crate) client: ClientHandle,
    pub(crate) node: String,
    pub(crate) address: SocketAddr,
    pub(crate) facts: NodeFacts,
    /// The kubelet's directory, such as `/var/lib/kubelet`.
    pub(crate) kubelet_dir: PathBuf,
    pub(crate) cluster: Configuration,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

/// What the administrator wrote, as it changes.
type Config = watch::Receiver<Arc<ClusterConfig>>;

/// Says so every minute.
#[derive(Debug)]
pub(crate) struct NodeReport {
    parts: ReportParts,
    /// What was told by events, and when.
    told: Mutex<HashMap<Lack, Instant>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Schedulable {
    Yes,
    No,
}

impl NodeReport {
    pub(crate) fn new(parts: ReportParts) -> Self {
        Self {
            parts,
            told: Mutex::default(),
        }
    }

    /// Reports until stopped, and then says that no guest should come here any more.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut config = self.parts.cluster.changes();
        loop {
            let reported = tokio::select! {
                () = stop.cancelled() => break,
                reported = self.report(&mut config) => reported,
            };
            let wait = match reported {
                Ok(()) => HEARTBEAT + spread(&self.parts.node),
                Err(err) => {
                    let (node, error) = (&self.parts.node, error_chain(&err));
                    tracing::warn!(node, error, "heartbeat failed");
                    RETRY
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
                // The sender lives in `self`, so waiting cannot fail.
                _changed = config.changed() => {}
            }
        }
        match tokio::time::timeout(FAREWELL, self.beat(Schedulable::No)).await {
            Ok(Ok(_)) => {}
            Ok(Err(err)) => tracing::info!(error = error_chain(&err), "no farewell"),
            Err(_elapsed) => tracing::info!("no farewell in time"),
        }
    }

    async fn report(&self, config: &mut Config) -> Result<(), WriteError> {
        let node = self.beat(Schedulable::Yes).await?;
        self.tell(&node);
        let marks = node.metadata.annotations.unwrap_or_default();
        if marks.contains_key(annotations::SKIP_NODE_LABELLER) {
            return Ok(());
        }
        // Labels that the administrator does not want must not come back with each agent.
        let known = self.parts.cluster.ready();
        if tokio::time::timeout(PATIENCE, known).await.is_err() {
            tracing::warn!("labels follow the last known configuration: it cannot be read");
        }
        let config = Arc::clone(&config.borrow_and_update());
        let wanted = labels::labels(&Facts {
            node: &self.parts.facts,
            obsolete: ObsoleteModels::of(&config.written),
            realtime: is_realtime(&fs::read_to_string(REALTIME_RUNTIME).unwrap_or_default()),
        });
        let changes = labels::changes(&node.metadata.labels.unwrap_or_default(), &wanted);
        if changes.is_empty() {
            return Ok(());
        }
        let body = json!({"metadata": {"labels": changes}});
        let key = Key::new("", &self.parts.node);
        reconcile::merge::<Node>(&self.api(), MANAGER, &key, &body)
            .await
            .map(drop)
    }

    async fn beat(&self, schedulable: Schedulable) -> Result<Node, WriteError> {
        let state = self.parts.kubelet_dir.join(CPU_MANAGER_STATE);
        let pinned = pins_processors(&fs::read(state).unwrap_or_default());
        let lacks = lacks::written(&self.lacks());
        let key = Key::new("", &self.parts.node);
        let fragment = Fragment {
            manager: MANAGER,
            key: &key,
            subresource: None,
            body: self.fragment(schedulable, pinned, lacks),
        };
        reconcile::apply(&self.api(), &fragment).await
    }

    fn fragment(&self, schedulable: Schedulable, pinned: bool, lacks: Option<String>) -> Value {
        let schedulable = schedulable == Schedulable::Yes;
        let mut fragment = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.parts.node,
                "labels": {
                    words::SCHEDULABLE: schedulable.to_string(),
                    words::CPU_MANAGER: pinned.to_string(),
                    words::CPU_MANAGER_OLD: pinned.to_string(),
                },
                "annotations": {
                    annotations::HEARTBEAT: self.parts.clock.now().to_string(),
                    annotations::HANDLER_ADDRESS: self.parts.address.to_string(),
                },
            },
        });
        // What is left out goes, for nobody else writes it.
        if let Some(lacks) = lacks {
            fragment["metadata"]["annotations"][annotations::MISSING_REQUIREMENTS] = lacks.into();
        }
        fragment
    }

    fn lacks(&self) -> Vec<Lack> {
        lacks::lacks(&self.parts.facts, &Host::look(), &self.parts.node)
    }

    /// Events for what is news, and for what would be forgotten.
    fn tell(&self, node: &Node) {
        let now = self.lacks();
        let mut told = self.told.lock();
        told.retain(|lack, at| now.contains(lack) && at.elapsed() < EVENTS_LAST);
        let mut node = node.clone();
        // Events live in namespaces and nodes do not: this is where they are looked for.
        node.metadata.namespace = Some(EVENTS_OF_NODES.to_owned());
        for lack in now {
            if told.contains_key(&lack) {
                continue;
            }
            let Lack { reason, note } = &lack;
            let recorder = &self.parts.recorder;
            recorder.publish(&node, EventType::Warning, *reason, note.as_str());
            told.insert(lack, Instant::now());
        }
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.parts.client.0.clone())
    }
}

/// The same for a node each time, and different between nodes.
fn spread(node: &str) -> Duration {
    let sum = node.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    Duration::from_secs((sum % SPREAD_SECONDS).into())
}

fn is_realtime(runtime: &str) -> bool {
    runtime.trim() == "-1"
}

/// What the kubelet notes of its policy for processors.
fn pins_processors(state: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct State {
        policy_name: String,
    }
    // No kubelet, or one of another mind: it pins nothing that we know of.
    serde_json::from_slice::<State>(state).is_ok_and(|state| state.policy_name == "static")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use embedded_api::{Database, EmbeddedApi, Identity};
    use k8s_openapi::api::core::v1::Event;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::{
        Client,
        api::{
            ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
            PatchParams, PostParams,
        },
        runtime::wait::await_condition,
    };
    use tokio_util::{sync::DropGuard, task::TaskTracker};

    use super::*;
    use reconcile::recorder;

    const NAMESPACE: &str = "default";

    async fn server() -> Client {
        let api = EmbeddedApi::open(embedded_api::Settings {
            database: Database::Memory,
            clock: embedded_api::Clock::Wall,
            front_proxy: None,
            kubelet: None,
        })
        .await
        .unwrap();
        api.client(Identity::component("test"), "default")
    }

    /// A reporter that follows the configuration until the guard is dropped.
    fn reporter(client: &Client) -> (NodeReport, DropGuard) {
        let cluster = Configuration::new(ClusterConfig::default(), NAMESPACE.to_owned());
        let stop = CancellationToken::new();
        cluster.follow(client, &TaskTracker::new(), &stop);
        let (events, writing) = recorder(client.clone(), "virt-handler", Clock::system());
        TaskTracker::new().spawn(writing.run(stop.clone()));
        let report = NodeReport::new(ReportParts {
            client: ClientHandle(client.clone()),
            node: "here".to_owned(),
            address: ([127, 0, 0, 1], 8186).into(),
            facts: NodeFacts {
                cpu_models: ["EPYC", "Conroe"].map(str::to_owned).to_vec(),
                ..NodeFacts::default()
            },
            kubelet_dir: "/nonexistent".into(),
            cluster,
            recorder: events,
            clock: Clock::system(),
        });
        (report, stop.drop_guard())
    }

    async fn labels_after(node: Value) -> BTreeMap<String, String> {
        let client = server().await;
        let nodes: Api<Node> = Api::all(client.clone());
        let node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let (report, _following) = reporter(&client);
        let mut config = report.parts.cluster.changes();
        report.report(&mut config).await.unwrap();
        let node = nodes.get("here").await.unwrap();
        assert_eq!(
            node.metadata.annotations.unwrap()[annotations::HANDLER_ADDRESS],
            "127.0.0.1:8186"
        );
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["mine"], "x");
        assert_eq!(labels[words::SCHEDULABLE], "true");
        let before = node.metadata.resource_version;
        report.beat(Schedulable::No).await.unwrap();
        let node = nodes.get("here").await.unwrap();
        assert_eq!(node.metadata.labels.unwrap()[words::SCHEDULABLE], "false");
        assert_ne!(node.metadata.resource_version, before);
        labels
    }

    /// Waits until the node's models are those.
    async fn models_are(client: &Client, expected: &[&str]) {
        let is_so = |node: Option<&Node>| {
            let labels = node.and_then(|node| node.metadata.labels.as_ref());
            let names = labels.into_iter().flat_map(BTreeMap::keys);
            let names = names.filter_map(|name| name.strip_prefix(words::CPU_MODEL_PREFIX));
            names.eq(expected.iter().copied())
        };
        let waiting = await_condition(Api::all(client.clone()), "here", is_so);
        let found = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        found.unwrap_or_else(|_| panic!("{expected:?}")).unwrap();
    }

    #[tokio::test]
    async fn labels_follow_the_configuration_as_it_changes() {
        let client = server().await;
        let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let all = kubevirt_api::crds::ALL.iter();
        for (_, manifest) in all.filter(|(name, _)| name.contains("kubevirts.")) {
            let kind = serde_saphyr::from_str(manifest).unwrap();
            kinds.create(&PostParams::default(), &kind).await.unwrap();
        }
        let node = serde_json::from_value(json!({"metadata": {"name": "here"}})).unwrap();
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let (report, _following) = reporter(&client);
        let stop = CancellationToken::new();
        let running = TaskTracker::new().spawn(report.run(stop.clone()));
        models_are(&client, &["EPYC"]).await;

        let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt");
        let kind = ApiResource::from_gvk(&kind);
        let kubevirts: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
        let says =
            |models: Value| json!({"spec": {"configuration": {"obsoleteCPUModels": models}}});
        let mut object = DynamicObject::new("kubevirt", &kind);
        object.data = says(json!({"EPYC": true}));
        kubevirts
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        models_are(&client, &["Conroe"]).await;

        let both = Patch::Merge(says(json!({"Conroe": true})));
        let parameters = PatchParams::default();
        kubevirts
            .patch("kubevirt", &parameters, &both)
            .await
            .unwrap();
        models_are(&client, &[]).await;

        kubevirts
            .delete("kubevirt", &DeleteParams::default())
            .await
            .unwrap();
        models_are(&client, &["EPYC"]).await;
        stop.cancel();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn labels_that_an_older_agent_left_go() {
        let labels = labels_after(json!({"metadata": {"name": "here", "labels": {
            "mine": "x", "cpu-model.node.kubevirt.io/Old": "true",
        }}}))
        .await;
        assert!(!labels.contains_key("cpu-model.node.kubevirt.io/Old"));
        assert_eq!(labels["cpu-model.node.kubevirt.io/EPYC"], "true");
        assert_eq!(labels["kubevirt.io/cpumanager"], "false");
    }

    #[tokio::test]
    async fn what_guests_lack_is_told_once_and_stays_written() {
        let client = server().await;
        let nodes: Api<Node> = Api::all(client.clone());
        let node = serde_json::from_value(json!({"metadata": {"name": "here"}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let (report, _following) = reporter(&client);
        let mut config = report.parts.cluster.changes();
        // The facts of the tests have no KVM.
        report.report(&mut config).await.unwrap();
        report.report(&mut config).await.unwrap();
        let node = nodes.get("here").await.unwrap();
        let lacks = &node.metadata.annotations.unwrap()[annotations::MISSING_REQUIREMENTS];
        assert!(
            lacks.contains("KvmMissing: no guest runs by KVM"),
            "{lacks}"
        );

        let events: Api<Event> = Api::namespaced(client, EVENTS_OF_NODES);
        let told = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            loop {
                ticks.tick().await;
                let all = events.list(&ListParams::default()).await.unwrap().items;
                let is_it = |event: &Event| event.reason.as_deref() == Some("KvmMissing");
                if let Some(found) = all.into_iter().find(is_it) {
                    return found;
                }
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(30), told);
        let told = told.await.expect("an event");
        assert_eq!(told.involved_object.kind.as_deref(), Some("Node"));
        assert_eq!(told.involved_object.name.as_deref(), Some("here"));
        assert_eq!(told.count, Some(1));
    }

    #[tokio::test]
    async fn a_node_to_be_left_alone_keeps_what_it_has() {
        let labels = labels_after(json!({"metadata": {"name": "here",
            "labels": {"mine": "x", "cpu-model.node.kubevirt.io/Old": "true"},
            "annotations": {"node-labeller.kubevirt.io/skip-node": ""},
        }}))
        .await;
        assert_eq!(labels["cpu-model.node.kubevirt.io/Old"], "true");
        assert!(!labels.contains_key("cpu-model.node.kubevirt.io/EPYC"));
    }

    #[test]
    fn the_hosts_own_words_are_understood() {
        assert!(is_realtime("-1\n"));
        assert!(!is_realtime("950000\n") && !is_realtime(""));
        assert!(pins_processors(br#"{"policyName":"static","checksum":1}"#));
        assert!(!pins_processors(br#"{"policyName":"none"}"#));
        assert!(!pins_processors(b""));
    }

    #[test]
    fn nodes_do_not_all_speak_at_once() {
        let times: std::collections::BTreeSet<_> =
            (0..100).map(|n| spread(&format!("node-{n}"))).collect();
        assert!(times.len() > 6, "{times:?}");
        assert!(
            times
                .iter()
                .all(|time| HEARTBEAT + *time <= HEARTBEAT.mul_f32(1.2))
        );
    }
}
