//! `start`, `stop`, `restart`, `pause`, `unpause`, `suspend`, `resume`.

use anyhow::Result;
use kube::Api;
use kubevirt_api::{
    VirtualMachine,
    subresource_bodies::{PauseOptions, RestartOptions, StartOptions, StopOptions, UnpauseOptions},
};

use serde::Serialize;
use serde_json::json;

use crate::{
    cli::{DryRun, Grace, Kind, Target},
    connect::Cluster,
    failure::Usage,
    printer::Printer,
    subresource::{path, plain, put},
};

/// Options of `start`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) paused: bool,
    pub(crate) dry_run: DryRun,
}

/// Options of `stop` and `restart`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) grace: Grace,
    pub(crate) dry_run: DryRun,
}

/// Options of `resume`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    pub(crate) discard_state: bool,
    pub(crate) dry_run: DryRun,
}

pub(crate) async fn start(
    cluster: &Cluster,
    printer: Printer,
    vm: &str,
    Start { paused, dry_run }: Start,
) -> Result<()> {
    let options = StartOptions {
        paused: paused.then_some(true),
        dry_run: dry_run_values(dry_run),
        ..StartOptions::default()
    };
    Update {
        kind: Kind::Vm,
        name: vm,
        verb: "start",
        dry_run,
    }
    .send(cluster, printer, &options)
    .await
}

pub(crate) async fn stop(
    cluster: &Cluster,
    printer: Printer,
    vm: &str,
    Stop { grace, dry_run }: Stop,
) -> Result<()> {
    let options = StopOptions {
        grace_period: forced(grace)?,
        dry_run: dry_run_values(dry_run),
        ..StopOptions::default()
    };
    Update {
        kind: Kind::Vm,
        name: vm,
        verb: "stop",
        dry_run,
    }
    .send(cluster, printer, &options)
    .await
}

pub(crate) async fn restart(
    cluster: &Cluster,
    printer: Printer,
    vm: &str,
    Stop { grace, dry_run }: Stop,
) -> Result<()> {
    let options = RestartOptions {
        grace_period_seconds: forced(grace)?,
        dry_run: dry_run_values(dry_run),
        ..RestartOptions::default()
    };
    let verb = Update {
        kind: Kind::Vm,
        name: vm,
        verb: "restart",
        dry_run,
    };
    verb.send(cluster, printer, &options).await
}

pub(crate) async fn pause(
    cluster: &Cluster,
    printer: Printer,
    target: &Target,
    dry_run: DryRun,
) -> Result<()> {
    let options = PauseOptions {
        dry_run: dry_run_values(dry_run),
        ..PauseOptions::default()
    };
    let name = &vmi_of(cluster, target).await?;
    Update {
        kind: Kind::Vmi,
        name,
        verb: "pause",
        dry_run,
    }
    .send(cluster, printer, &options)
    .await
}

pub(crate) async fn unpause(
    cluster: &Cluster,
    printer: Printer,
    target: &Target,
    dry_run: DryRun,
) -> Result<()> {
    let options = UnpauseOptions {
        dry_run: dry_run_values(dry_run),
        ..UnpauseOptions::default()
    };
    let name = &vmi_of(cluster, target).await?;
    Update {
        kind: Kind::Vmi,
        name,
        verb: "unpause",
        dry_run,
    }
    .send(cluster, printer, &options)
    .await
}

pub(crate) async fn suspend(
    cluster: &Cluster,
    printer: Printer,
    vm: &str,
    dry_run: DryRun,
) -> Result<()> {
    let verb = Update {
        kind: Kind::Vm,
        name: vm,
        verb: "suspend",
        dry_run,
    };
    let options = json!({"dryRun": dry_run_values(dry_run)});
    verb.send(cluster, printer, &options).await
}

pub(crate) async fn resume(
    cluster: &Cluster,
    printer: Printer,
    vm: &str,
    Resume {
        discard_state,
        dry_run,
    }: Resume,
) -> Result<()> {
    let verb = Update {
        kind: Kind::Vm,
        name: vm,
        verb: "resume",
        dry_run,
    };
    let options = json!({"discardState": discard_state, "dryRun": dry_run_values(dry_run)});
    verb.send(cluster, printer, &options).await
}

/// A request to the aggregated API and the line that reports it.
struct Update<'a> {
    kind: Kind,
    name: &'a str,
    verb: &'static str,
    dry_run: DryRun,
}

impl Update<'_> {
    async fn send(
        &self,
        cluster: &Cluster,
        printer: Printer,
        options: &(impl Serialize + Sync),
    ) -> Result<()> {
        let Self {
            kind,
            name,
            verb,
            dry_run,
        } = self;
        let (kind, plural) = match kind {
            Kind::Vm => ("VM", "virtualmachines"),
            Kind::Vmi => ("VMI", "virtualmachineinstances"),
        };
        put(cluster, &path(cluster, plural, name, verb), options).await?;
        let dry = dry_run_note(*dry_run);
        printer.line(&format!("{kind} {name} was scheduled to {verb}{dry}"));
        Ok(())
    }
}

/// The name of the VMI, which is the VM's name; a VM that was named must exist.
async fn vmi_of(cluster: &Cluster, target: &Target) -> Result<String> {
    if target.kind == Kind::Vm {
        let vms: Api<VirtualMachine> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        vms.get_metadata(&target.name).await.map_err(plain)?;
    }
    Ok(target.name.clone())
}

fn forced(grace: Grace) -> Result<Option<i64>, Usage> {
    match (grace.grace_period, grace.force) {
        (-1, false) => Ok(None),
        (-1, true) => Err(Usage::new(
            "--force needs --grace-period: set how long the guest may take",
        )),
        (0, false) => Err(Usage::new(
            "--grace-period 0 switches the guest off; confirm it with --force",
        )),
        (seconds, _) => Ok(Some(seconds)),
    }
}

/// Ends the line that reports a change.
pub(crate) fn dry_run_note(dry_run: DryRun) -> &'static str {
    if dry_run.dry_run {
        " (dry run: nothing was changed)"
    } else {
        ""
    }
}

/// The field `dryRun` of options.
pub(crate) fn dry_run_values(dry_run: DryRun) -> Vec<String> {
    if dry_run.dry_run {
        vec!["All".to_owned()]
    } else {
        vec![]
    }
}
