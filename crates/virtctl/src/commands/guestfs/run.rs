//! The steps of the command.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    cli::Guestfs,
    pod::{self, Progress},
    shell,
};
use crate::{
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
    signals, subresource,
};

const POLL: Duration = Duration::from_secs(1);
/// For the image to be pulled and the container to start.
const START: Duration = Duration::from_secs(500);

pub(crate) async fn guestfs(cluster: &Cluster, printer: Printer, flags: &Guestfs) -> Result<()> {
    let namespace = &cluster.namespace;
    let name = &flags.pvc;
    let claim = objects::find(cluster, &objects::CLAIM.named(namespace, name)).await?;
    let claim = claim.with_context(|| format!("claim {name} does not exist in {namespace}"))?;
    let pods = objects::list(cluster, &objects::POD.all(namespace)).await?;
    if let Some(pod) = pod::user(&pods, name) {
        bail!("claim {name} is used by pod {pod}: stop the VM or end the pod that uses it");
    }
    let vm = match &flags.vm {
        Some(vm) => Some(objects::get(cluster, &objects::VM.named(namespace, vm)).await?),
        None => None,
    };
    let image = match &flags.image {
        Some(image) => image.clone(),
        None => pod::image(&subresource::guestfs(cluster).await?)?,
    };
    let object = pod::pod(flags, &image, &claim, vm.as_ref());
    objects::create(cluster, &objects::POD.all(namespace), &object).await?;
    let pod = pod::name(name);
    printer.note(&format!("Started pod {pod} with {image}"));
    let session = async {
        until_running(cluster, printer, &pod).await?;
        printer.note(&format!(
            "Claim {name} is at {}. Press Enter if there is no prompt; `exit` ends the session and removes \
             the pod.",
            pod::place(&claim)
        ));
        shell::attach(cluster, &pod).await
    };
    // However the session ends, the pod must not keep the claim.
    let ended = tokio::select! {
        ended = session => ended,
        signal = signals::interrupted() => Err(signal),
    };
    let removed = objects::remove(cluster, &objects::POD.named(namespace, &pod)).await;
    let removed =
        removed.with_context(|| format!("remove pod {pod}, which still uses claim {name}"));
    if let (Err(_), Err(error)) = (&ended, &removed) {
        printer.warn(&format!("{error:#}"));
    }
    ended.and(removed)
}

async fn until_running(cluster: &Cluster, printer: Printer, name: &str) -> Result<()> {
    let path = objects::POD.named(&cluster.namespace, name);
    let deadline = Instant::now() + START;
    let mut shown = None;
    loop {
        let pod: Value = objects::get(cluster, &path).await?;
        if text(&pod, "/metadata/deletionTimestamp").is_some() {
            bail!("pod {name} is being deleted");
        }
        match pod::progress(&pod) {
            Progress::Running => return Ok(()),
            Progress::Ended(reason) => bail!("pod {name} has ended: {reason}"),
            Progress::Waiting(reason) if Instant::now() >= deadline => {
                let reason = reason.unwrap_or_else(|| "no reason is given".to_owned());
                bail!(
                    "pod {name} does not run after {} s: {reason}",
                    START.as_secs()
                );
            }
            Progress::Waiting(reason) => {
                if let Some(reason) = reason
                    .as_ref()
                    .filter(|reason| shown.as_ref() != Some(*reason))
                {
                    printer.note(&format!("Waiting for pod {name}: {reason}"));
                }
                shown = reason;
            }
        }
        sleep(POLL).await;
    }
}
