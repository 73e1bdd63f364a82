//! `ferrovirt controller`.

use anyhow::Result;
use operator::Environment;
use reconcile::{Clock, Election, Leadership};
use virt_controller::{AccelerationPolicy, CopyRights, ExportPlace, Settings, Uploads};

use crate::{cli, health, metrics, run::Process};

/// Concurrent reconciles of each controller.
const CONCURRENCY: usize = 8;

pub(crate) async fn run(process: &Process, flags: &cli::Controller) -> Result<()> {
    health::serve(process, flags.port, metrics::controller()).await?;
    let elected = |name: &str| {
        Leadership::Elected(Election {
            namespace: process.namespace.clone(),
            name: name.to_owned(),
            // A pod runs one process at a time, so a restarted one need not wait for its own lease.
            identity: flags.place.pod.clone(),
        })
    };
    let operator = operator::Settings {
        client: process.client.clone(),
        clock: Clock::system(),
        namespace: process.namespace.clone(),
        leadership: elected("virt-operator"),
        environment: Environment::Cluster,
        launcher_image: flags.launcher_image.clone(),
    };
    process
        .tasks
        .spawn(operator::run(operator, process.stop.clone()));
    let acceleration = launcher_pod::Acceleration::Kvm;
    let settings = Settings {
        client: process.client.clone(),
        launcher: launcher_pod::Settings {
            variables: flags.place.log_format.variables(),
            ..launcher_pod::Settings::defaults(&flags.launcher_image, acceleration)
        },
        acceleration: AccelerationPolicy::ByNodes,
        // Without effect where CDI defines data volumes.
        uploads: Uploads::Received,
        copies: CopyRights::OfNamespace,
        exports: Some(ExportPlace::Ingress {
            namespace: process.namespace.clone(),
        }),
        clock: Clock::system(),
        cluster: process.cluster.clone(),
        concurrency: CONCURRENCY,
        leadership: elected("virt-controller"),
    };
    virt_controller::run(settings, process.stop.clone()).await;
    Ok(())
}
