//! Waits for the states of a volume.

use std::time::Duration;

use anyhow::{Result, bail};
use kubevirt_api::annotations;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cli::Kind;
use crate::{
    connect::Cluster,
    objects::{self, text},
};

const POLL: Duration = Duration::from_secs(1);
/// Large images take hours to convert; an upload does not wait for ever.
const PROCESSING: Duration = Duration::from_hours(24);

/// Waits until data can be sent to the volume.
pub(super) async fn until_writable(
    cluster: &Cluster,
    kind: Kind,
    name: &str,
    limit: Duration,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        let state = match kind {
            Kind::DataVolume => {
                let path = objects::DATA_VOLUME.named(&cluster.namespace, name);
                let volume = objects::find(cluster, &path).await?;
                volume
                    .as_ref()
                    .and_then(|one| text(one, "/status/phase"))
                    .map(ToOwned::to_owned)
            }
            Kind::Claim => claim_annotation(cluster, name, annotations::CDI_POD_READY).await?,
        };
        match (kind, state.as_deref()) {
            (Kind::DataVolume, Some("UploadReady")) | (Kind::Claim, Some("true")) => return Ok(()),
            (Kind::DataVolume, Some("WaitForFirstConsumer" | "PendingPopulation")) => bail!(
                "data volume {name} waits for its first pod, as its storage class demands: delete it \
                 and upload again with --force-bind"
            ),
            (Kind::DataVolume, Some("Succeeded")) => bail!(
                "data volume {name} has its data already: choose another name, or delete it first"
            ),
            (Kind::DataVolume, Some("Failed")) => {
                bail!("data volume {name} failed: see `kubectl describe dv {name}`")
            }
            _ if Instant::now() >= deadline => bail!(
                "{name} cannot be written after {} s (state {:?}): see `kubectl describe pvc {name}`, or \
                 wait longer with --wait-secs",
                limit.as_secs(),
                state.unwrap_or_default()
            ),
            _ => sleep(POLL).await,
        }
    }
}

/// Waits until the data that was sent is on the volume.
pub(super) async fn until_processed(cluster: &Cluster, name: &str) -> Result<()> {
    let deadline = Instant::now() + PROCESSING;
    loop {
        let path = objects::CLAIM.named(&cluster.namespace, name);
        let Some(claim) = objects::find(cluster, &path).await? else {
            bail!("claim {name} was deleted before the uploaded data was processed");
        };
        if has_data(&claim) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("{name} was not processed within a day: see `kubectl describe pvc {name}`");
        }
        sleep(POLL).await;
    }
}

/// Whether the data that was sent is on the volume.
pub(super) async fn is_processed(cluster: &Cluster, name: &str) -> Result<bool> {
    let path = objects::CLAIM.named(&cluster.namespace, name);
    let claim = objects::find(cluster, &path).await?;
    Ok(claim.is_some_and(|claim| has_data(&claim)))
}

fn has_data(claim: &Value) -> bool {
    claim["metadata"]["annotations"][annotations::CDI_POD_PHASE] == "Succeeded"
}

async fn claim_annotation(
    cluster: &Cluster,
    name: &str,
    annotation: &str,
) -> Result<Option<String>> {
    let path = objects::CLAIM.named(&cluster.namespace, name);
    let claim = objects::find(cluster, &path).await?.unwrap_or(Value::Null);
    let value = claim["metadata"]["annotations"][annotation].as_str();
    Ok(value.map(ToOwned::to_owned))
}
