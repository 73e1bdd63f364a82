//! The periodic report: heartbeat, labels, and warnings about missing requirements. It is repeated
//! at once when the cluster's configuration changes.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use cluster_config::ClusterConfig;
use cluster_view::Configuration;
use error_chain::error_chain;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kubevirt_api::annotations;
use reconcile::{Clock, Key, Recorder, WriteError};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    ObsoleteModels,
    heartbeat::Schedulable,
    labels::{self, Facts},
    requirements::{self, Host, MissingRequirement},
    warnings::Warnings,
};
use crate::{
    capabilities::NodeFacts,
    failure_log::FailureLog,
    guest::{ClientHandle, Reach},
};

/// The field manager of the node's fields. It differs from the VMIs' manager, so that no fragment
/// contains both.
pub(super) const MANAGER: &str = "virt-handler-node";
/// Interval of heartbeats. virt-controller marks a node unschedulable after five minutes without.
pub(super) const HEARTBEAT: Duration = Duration::from_mins(1);
/// Upper bound of the delay that spreads the heartbeats of many nodes.
const SPREAD_SECONDS: u32 = 12;
/// Wait after a failed heartbeat.
const RETRY: Duration = Duration::from_secs(2);
/// How long the first labels wait for the configuration, which may be unavailable.
const CONFIGURATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the final update, on shutdown.
const FINAL_UPDATE_TIMEOUT: Duration = Duration::from_secs(2);
const REALTIME_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// The operation in the log.
const REPORT: &str = "update the node";

#[derive(Debug)]
pub(crate) struct ReportParts {
    pub(crate) client: ClientHandle,
    pub(crate) node: String,
    pub(crate) address: SocketAddr,
    pub(crate) facts: NodeFacts,
    /// The kubelet's directory, such as `/var/lib/kubelet`.
    pub(crate) kubelet_dir: PathBuf,
    pub(crate) cluster: Configuration,
    /// Where guests of the node can move.
    pub(crate) reach: Reach,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

/// The cluster's configuration, as it changes.
type Config = watch::Receiver<Arc<ClusterConfig>>;

/// Publishes the report.
#[derive(Debug)]
pub(crate) struct NodeReport {
    pub(super) parts: ReportParts,
    warnings: Warnings,
}

impl NodeReport {
    pub(crate) fn new(parts: ReportParts) -> Self {
        Self {
            parts,
            warnings: Warnings::default(),
        }
    }

    /// Reports until stopped, then marks the node unschedulable.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut config = self.parts.cluster.changes();
        let mut failures = FailureLog::default();
        loop {
            let reported = tokio::select! {
                () = stop.cancelled() => break,
                reported = self.report(&mut config) => reported,
            };
            let wait = match reported {
                Ok(()) => {
                    failures.succeeded(REPORT);
                    HEARTBEAT + spread(&self.parts.node)
                }
                Err(error) => {
                    failures.failed(REPORT, &error);
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
        let update = self.beat(Schedulable::No);
        match tokio::time::timeout(FINAL_UPDATE_TIMEOUT, update).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::info!(error = error_chain(&error), "final node update failed");
            }
            Err(_elapsed) => tracing::info!("final node update timed out"),
        }
    }

    pub(super) async fn report(&self, config: &mut Config) -> Result<(), WriteError> {
        let node = self.beat(Schedulable::Yes).await?;
        let missing = self.missing_requirements();
        self.warnings.publish(&self.parts.recorder, &node, missing);
        let annotations = node.metadata.annotations.unwrap_or_default();
        if annotations.contains_key(annotations::SKIP_NODE_LABELLER) {
            return Ok(());
        }
        // Otherwise each start would briefly restore labels of obsolete models.
        let ready = self.parts.cluster.ready();
        if tokio::time::timeout(CONFIGURATION_TIMEOUT, ready)
            .await
            .is_err()
        {
            tracing::warn!("cannot read the configuration: labels follow the last known one");
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

    pub(super) fn missing_requirements(&self) -> Vec<MissingRequirement> {
        let cluster = self.parts.cluster.now();
        let migrations = cluster.written.migrations.as_ref();
        let network = migrations.and_then(|migrations| migrations.network.as_deref());
        let network =
            network.filter(|name| !name.is_empty() && self.parts.reach == Reach::OtherNodes);
        requirements::missing(&self.parts.facts, &Host::observe(network), &self.parts.node)
    }

    pub(super) fn api(&self) -> Api<Node> {
        Api::all(self.parts.client.0.clone())
    }
}

/// A delay that is constant for a node and differs between nodes.
pub(super) fn spread(node: &str) -> Duration {
    let sum = node.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    Duration::from_secs((sum % SPREAD_SECONDS).into())
}

pub(super) fn is_realtime(runtime: &str) -> bool {
    runtime.trim() == "-1"
}
