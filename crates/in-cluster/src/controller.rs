//! `ferrovirt controller`.

use anyhow::Result;
use reconcile::{Clock, Election};
use virt_controller::{AccelerationPolicy, Settings};

use crate::{cli, health, metrics, run::Process};

/// Objects of one kind that are worked on at once.
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
            // A pod runs this program once at a time, so one that comes back need not wait.
            identity: flags.place.pod.clone(),
        },
    };
    virt_controller::run(settings, process.stop.clone()).await;
    Ok(())
}
