//! `ferrovirt controller`.

use anyhow::Result;
use reconcile::{Clock, Election};
use virt_controller::{AccelerationPolicy, Settings};

use crate::{cli, health, metrics, run::Process};

/// Concurrent reconciles of each controller.
const CONCURRENCY: usize = 8;

pub(crate) async fn run(process: &Process, flags: &cli::Controller) -> Result<()> {
    health::serve(process, flags.port, metrics::controller()).await?;
    let acceleration = launcher_pod::Acceleration::Kvm;
    let settings = Settings {
        client: process.client.clone(),
        launcher: launcher_pod::Settings::defaults(&flags.launcher_image, acceleration),
        acceleration: AccelerationPolicy::ByNodes,
        clock: Clock::system(),
        concurrency: CONCURRENCY,
        election: Election {
            namespace: process.namespace.clone(),
            name: "virt-controller".to_owned(),
            // A pod runs one process at a time, so a restarted one need not wait for its own lease.
            identity: flags.place.pod.clone(),
        },
    };
    virt_controller::run(settings, process.stop.clone()).await;
    Ok(())
}
