//! Mediated devices that virt-handler makes out of the cards of its node, as the administrator wants them in
//! `mediatedDevicesConfiguration`. The kernel lists in `/sys/class/mdev_bus` which cards can be divided into what.
//!
//! Each pass reads sysfs, plans and carries out single steps, so it may be cut off anywhere. A pass follows each change
//! of the configuration, and there is one every 30 seconds: cards come, labels of nodes change, guests end.
//!
//! **Invariants**: a device that virt-handler did not make is never removed, nor one that a guest has; nothing is
//! made or removed before the configuration is known.

mod cards;
mod plan;
#[cfg(test)]
mod tests;
mod wanted;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use cluster_config::ClusterConfig;
use cluster_view::Configuration;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use self::{
    cards::Effect,
    plan::Step,
    wanted::{Types, Wanted},
};
use super::permitted::DeviceFiles;
use crate::failure_log::FailureLog;

const INTERVAL: Duration = Duration::from_secs(30);
/// How long a response of the API server may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Passes in a row: one removes devices, the next one divides the cards again.
const ROUNDS: usize = 2;

/// Makes and removes mediated devices.
pub struct MediatedDevices {
    pub client: Client,
    /// Name of this node.
    pub node: String,
    pub files: DeviceFiles,
    pub configuration: Configuration,
}

impl std::fmt::Debug for MediatedDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediatedDevices")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
enum MediatedError {
    #[error("read the labels of the node")]
    Labels(#[source] kube::Error),
    #[error("the API server did not return the node in time")]
    TimedOut,
    #[error("read the cards of the node")]
    Cards(#[source] io::Error),
}

/// What a pass did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    created: usize,
    removed: usize,
    /// Steps that failed, or that have to wait.
    problems: Vec<String>,
}

impl MediatedDevices {
    /// Follows configuration and node until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&self) {
        self.configuration.ready().await;
        let mut changes = self.configuration.changes();
        let mut failures = FailureLog::default();
        let mut reported = Vec::new();
        loop {
            let config = Arc::clone(&changes.borrow_and_update());
            let operation = "make mediated devices";
            match self.pass(&config).await {
                Ok(problems) => {
                    failures.succeeded(operation);
                    if problems != reported {
                        for problem in &problems {
                            tracing::warn!(%problem, "mediated device of this node");
                        }
                        reported = problems;
                    }
                }
                Err(error) => failures.failed(operation, &error),
            }
            tokio::select! {
                () = next_change(&mut changes) => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    /// One pass, and another one if it removed devices; returns the problems of the last one.
    async fn pass(&self, config: &ClusterConfig) -> Result<Vec<String>, MediatedError> {
        let labels = if wanted::needs_labels(config) {
            self.labels().await?
        } else {
            BTreeMap::new()
        };
        let Wanted::Types(types) = wanted::of(config, &labels) else {
            return Ok(Vec::new());
        };
        let types = Arc::new(types);
        let mut outcome = Outcome::default();
        for _ in 0..ROUNDS {
            let (files, types) = (self.files.clone(), Arc::clone(&types));
            let work = tokio::task::spawn_blocking(move || pass(&files, &types));
            let ended = work.await.map_err(io::Error::other);
            outcome = ended
                .and_then(|outcome| outcome)
                .map_err(MediatedError::Cards)?;
            let Outcome {
                created, removed, ..
            } = outcome;
            if created + removed > 0 {
                tracing::info!(created, removed, "mediated devices of this node changed");
            }
            if removed == 0 {
                break;
            }
        }
        Ok(outcome.problems)
    }

    async fn labels(&self) -> Result<BTreeMap<String, String>, MediatedError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = tokio::time::timeout(TIMEOUT, nodes.get(&self.node)).await;
        let node = node.map_err(|_| MediatedError::TimedOut)?;
        let node = node.map_err(MediatedError::Labels)?;
        Ok(node.metadata.labels.unwrap_or_default())
    }
}

/// Waits for a change of the configuration.
async fn next_change(changes: &mut tokio::sync::watch::Receiver<Arc<ClusterConfig>>) {
    if changes.changed().await.is_err() {
        // The sender was dropped: the configuration no longer changes.
        std::future::pending::<()>().await;
    }
}

/// Reads the cards, and carries out the steps. A card on which one failed is left until the next pass.
fn pass(files: &DeviceFiles, types: &Types) -> io::Result<Outcome> {
    let cards = cards::read(files)?;
    let mut outcome = Outcome::default();
    let mut failed: Vec<&str> = Vec::new();
    let steps = plan::plan(&cards, types);
    for step in &steps {
        let applied = match step {
            Step::Create { card, .. } if failed.contains(&card.as_str()) => continue,
            step => cards::apply(files, step),
        };
        match (step, applied) {
            (Step::Create { .. }, Ok(_)) => outcome.created += 1,
            (Step::Create { card, kind, .. }, Err(error)) => {
                failed.push(card);
                let problem = format!("cannot make one of type {kind} on {card}: {error}");
                outcome.problems.push(problem);
            }
            (Step::Remove { .. }, Ok(Effect::Done)) => outcome.removed += 1,
            (Step::Remove { uuid }, Ok(Effect::InUse)) => {
                let problem = format!("{uuid} is not wanted any more, but a guest has it");
                outcome.problems.push(problem);
            }
            (Step::Remove { uuid }, Err(error)) => {
                let problem = format!("cannot remove {uuid}: {error}");
                outcome.problems.push(problem);
            }
        }
    }
    Ok(outcome)
}
