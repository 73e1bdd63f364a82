//! `start`, `stop`, `restart`, `pause`, `unpause`.

use anyhow::{Result, bail};
use kube::Api;
use kubevirt_api::{
    VirtualMachine,
    subresource_bodies::{PauseOptions, RestartOptions, StartOptions, StopOptions, UnpauseOptions},
};

use crate::{
    cli::{DryRun, Grace, Kind, Target},
    connect::Cluster,
    printer::Printer,
    subresource::{path, plain, put},
};

pub(crate) async fn start(
    cluster: &Cluster,
    printer: Printer,
    vm: &str,
    (paused, dry_run): (bool, DryRun),
) -> Result<()> {
    let options = StartOptions {
        paused: paused.then_some(true),
        dry_run: words(dry_run),
        ..Default::default()
    };
    put(
        cluster,
        &path(cluster, "virtualmachines", vm, "start"),
        &options,
    )
    .await?;
    scheduled(printer, "VM", vm, "start", dry_run);
    Ok(())
}

pub(crate) async fn stop(
    cluster: &Cluster,
    printer: Printer,
    vm: &str,
    (grace, dry_run): (Grace, DryRun),
) -> Result<()> {
    let options = StopOptions {
        grace_period: forced(grace)?,
        dry_run: words(dry_run),
        ..Default::default()
    };
    put(
        cluster,
        &path(cluster, "virtualmachines", vm, "stop"),
        &options,
    )
    .await?;
    scheduled(printer, "VM", vm, "stop", dry_run);
    Ok(())
}

pub(crate) async fn restart(
    cluster: &Cluster,
    printer: Printer,
    vm: &str,
    (grace, dry_run): (Grace, DryRun),
) -> Result<()> {
    let options = RestartOptions {
        grace_period_seconds: forced(grace)?,
        dry_run: words(dry_run),
        ..Default::default()
    };
    put(
        cluster,
        &path(cluster, "virtualmachines", vm, "restart"),
        &options,
    )
    .await?;
    scheduled(printer, "VM", vm, "restart", dry_run);
    Ok(())
}

pub(crate) async fn pause(
    cluster: &Cluster,
    printer: Printer,
    target: &Target,
    dry_run: DryRun,
) -> Result<()> {
    let vmi = vmi_of(cluster, target).await?;
    let options = PauseOptions {
        dry_run: words(dry_run),
        ..Default::default()
    };
    put(
        cluster,
        &path(cluster, "virtualmachineinstances", &vmi, "pause"),
        &options,
    )
    .await?;
    scheduled(printer, "VMI", &vmi, "pause", dry_run);
    Ok(())
}

pub(crate) async fn unpause(
    cluster: &Cluster,
    printer: Printer,
    target: &Target,
    dry_run: DryRun,
) -> Result<()> {
    let vmi = vmi_of(cluster, target).await?;
    let options = UnpauseOptions {
        dry_run: words(dry_run),
        ..Default::default()
    };
    put(
        cluster,
        &path(cluster, "virtualmachineinstances", &vmi, "unpause"),
        &options,
    )
    .await?;
    scheduled(printer, "VMI", &vmi, "unpause", dry_run);
    Ok(())
}

/// The VMI of a VM has the VM's name; the VM must exist all the same.
async fn vmi_of(cluster: &Cluster, target: &Target) -> Result<String> {
    if target.kind == Kind::Vm {
        let vms: Api<VirtualMachine> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        vms.get_metadata(&target.name).await.map_err(plain)?;
    }
    Ok(target.name.clone())
}

fn forced(grace: Grace) -> Result<Option<i64>> {
    match (grace.grace_period, grace.force) {
        (-1, false) => Ok(None),
        (-1, true) => bail!("--force needs --grace-period: say how long the guest may take"),
        (0, false) => bail!("--grace-period 0 switches the guest off; confirm it with --force"),
        (seconds, _) => Ok(Some(seconds)),
    }
}

fn words(dry_run: DryRun) -> Vec<String> {
    if dry_run.dry_run {
        vec!["All".to_owned()]
    } else {
        vec![]
    }
}

fn scheduled(printer: Printer, kind: &str, name: &str, verb: &str, dry_run: DryRun) {
    let dry = if dry_run.dry_run {
        " (dry run: nothing was changed)"
    } else {
        ""
    };
    printer.line(&format!("{kind} {name} was scheduled to {verb}{dry}"));
}
