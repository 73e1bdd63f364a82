//! `migrate`, `migrate-cancel` and `evacuate-cancel`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use kubevirt_api::subresource_bodies::{EvacuateCancelOptions, MigrateOptions};
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use crate::{
    away::{self, Away},
    cli::{DryRun, ObjectOutput},
    commands::power::{dry_run_note, dry_run_values},
    connect::Cluster,
    key_values::KeyValue,
    objects::{self, text},
    printer::Printer,
    subresource::{path, put},
};

/// How often `migrate --watch` looks.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Args)]
pub struct Migrate {
    /// Name of the VM
    pub vm: String,
    /// Labels that the new node must have as well
    #[arg(
        long = "addedNodeSelector",
        alias = "added-node-selector",
        value_name = "KEY=VALUE",
        value_delimiter = ','
    )]
    pub node_selector: Vec<KeyValue>,
    /// Show the phases and how far the copy is, until the migration has ended
    #[arg(short, long)]
    pub watch: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
    /// Print the migration, in this format, instead of a message; with --watch at its end
    #[arg(
        long,
        short,
        value_enum,
        value_name = "FORMAT",
        conflicts_with = "dry_run"
    )]
    pub output: Option<ObjectOutput>,
}

#[derive(Debug, Clone, Args)]
pub struct MigrateCancel {
    /// Name of the VM
    pub vm: String,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Debug, Clone, Args)]
pub struct EvacuateCancel {
    /// The kind of NAME
    #[arg(value_enum, ignore_case = true)]
    pub kind: EvacuatedKind,
    pub name: String,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EvacuatedKind {
    #[value(alias = "virtualmachine")]
    Vm,
    #[value(alias = "virtualmachineinstance")]
    Vmi,
    /// Every VMI that is to leave this node, in the command's namespace
    Node,
}

pub(crate) async fn migrate(cluster: &Cluster, printer: Printer, flags: &Migrate) -> Result<()> {
    let pairs = flags.node_selector.iter();
    let options = MigrateOptions {
        dry_run: dry_run_values(flags.dry_run),
        added_node_selector: pairs
            .map(|one| (one.key.clone(), one.value.clone()))
            .collect(),
        ..MigrateOptions::default()
    };
    put(
        cluster,
        &path(cluster, "virtualmachines", &flags.vm, "migrate"),
        &options,
    )
    .await?;
    let note = dry_run_note(flags.dry_run);
    if flags.output.is_none() {
        printer.line(&format!("VM {} was scheduled to migrate{note}", flags.vm));
    }
    if flags.watch && note.is_empty() {
        return watch(cluster, printer, flags).await;
    }
    let Some(output) = flags.output else {
        return Ok(());
    };
    let all = objects::list(cluster, &of_vm(cluster, &flags.vm)).await?;
    match followed(&all, None) {
        Some(migration) => printer.object(output, &with_kind(migration)),
        None => bail!("the migration of VM {} was cancelled", flags.vm),
    }
}

/// The object with its kind, which items of lists lack.
fn with_kind(migration: &Value) -> Value {
    let mut object = migration.clone();
    object["apiVersion"] = "kubevirt.io/v1".into();
    object["kind"] = "VirtualMachineInstanceMigration".into();
    object
}

/// Follows the migration that was just asked for.
async fn watch(cluster: &Cluster, printer: Printer, flags: &Migrate) -> Result<()> {
    let vm = &flags.vm;
    let path = of_vm(cluster, vm);
    let mut shown = String::new();
    let mut uid = None;
    let mut has_bar = false;
    let mut away = Away::default();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let all = match away::answer(objects::list(cluster, &path)).await {
            Ok(all) => all,
            Err(error) => {
                if std::mem::take(&mut has_bar) {
                    printer.end_of_progress();
                }
                away.pause(printer, error).await?;
                continue;
            }
        };
        away.is_over(printer);
        let Some(migration) = followed(&all, uid.as_deref()) else {
            bail!("the migration of VM {vm} was cancelled");
        };
        uid = text(migration, "/metadata/uid").map(str::to_owned);
        if let Some((done, total)) = copied(migration) {
            printer.progress("Copying", done, total);
            has_bar = true;
        }
        let phase = text(migration, "/status/phase").unwrap_or("Pending");
        if phase == shown {
            continue;
        }
        if has_bar {
            printer.end_of_progress();
            has_bar = false;
        }
        phase.clone_into(&mut shown);
        if let Some(output) = flags.output.filter(|_| is_over(migration)) {
            printer.object(output, &with_kind(migration))?;
        }
        match phase {
            "Succeeded" if flags.output.is_some() => return Ok(()),
            "Succeeded" => {
                printer.line(&format!("Succeeded: VM {vm} runs {}", place(migration)));
                return Ok(());
            }
            "Failed" => {
                let why = text(migration, "/status/migrationState/failureReason");
                let why = why.unwrap_or("its events say why");
                bail!("the migration has failed, and VM {vm} stays in its pod: {why}");
            }
            _ if flags.output.is_some() => {}
            _ => printer.line(phase),
        }
    }
}

/// Where the guest runs after its migration.
fn place(migration: &Value) -> String {
    let state = |name: &str| text(migration, &format!("/status/migrationState/{name}"));
    let node = state("targetNode");
    match state("targetPod").filter(|_| node == state("sourceNode")) {
        Some(pod) => format!("in pod {pod} of its node"),
        None => format!("on {}", node.unwrap_or("its new node")),
    }
}

/// The migration with that UID, which others do not stand in for when it is gone. Before one is known, it is the
/// newest of those that are not over.
fn followed<'a>(all: &'a [Value], uid: Option<&str>) -> Option<&'a Value> {
    if uid.is_some() {
        return all.iter().find(|one| text(one, "/metadata/uid") == uid);
    }
    all.iter()
        .max_by_key(|one| (!is_over(one), text(one, "/metadata/creationTimestamp")))
}

fn is_over(migration: &Value) -> bool {
    matches!(
        text(migration, "/status/phase"),
        Some("Succeeded" | "Failed")
    )
}

/// The migrations of a VM.
fn of_vm(cluster: &Cluster, vm: &str) -> String {
    let all = objects::MIGRATION.all(&cluster.namespace);
    let label = launcher_pod::label_value(vm);
    format!("{all}?labelSelector=kubevirt.io%2Fvmi-name%3D{label}")
}

/// How many bytes were copied, and of how many, from the condition of a migration: its message begins
/// with `81.0 of 96.0 MiB remain`.
fn copied(migration: &Value) -> Option<(u64, u64)> {
    let all = migration.pointer("/status/conditions")?.as_array()?;
    let shown = all
        .iter()
        .find(|one| text(one, "/type") == Some("migrationProgress"))?;
    let mut words = text(shown, "/message")?.split(' ');
    let (remain, of, total) = (words.next()?, words.next()?, words.next()?);
    let bytes = |mib: &str| {
        let (whole, tenth) = mib.split_once('.')?;
        let tenths = whole.parse::<u64>().ok()?.checked_mul(10)?;
        let tenths = tenths.checked_add(tenth.parse().ok()?)?;
        Some(tenths.checked_mul(1 << 20)? / 10)
    };
    let (remain, total) = (bytes(remain)?, bytes(total)?);
    (of == "of").then(|| (total.saturating_sub(remain), total))
}

pub(crate) async fn cancel(
    cluster: &Cluster,
    printer: Printer,
    flags: &MigrateCancel,
) -> Result<()> {
    let vm = &flags.vm;
    let migrations = objects::list(cluster, &of_vm(cluster, vm)).await?;
    let active = migrations.iter().find(|migration| !is_over(migration));
    let Some(name) = active.and_then(|migration| text(migration, "/metadata/name")) else {
        bail!("VM {vm} has no migration that could be cancelled");
    };
    let path = objects::MIGRATION.named(&cluster.namespace, name);
    objects::delete(cluster, &path, dry_run_values(flags.dry_run)).await?;
    let note = dry_run_note(flags.dry_run);
    printer.line(&format!(
        "The migration of VM {vm} is being cancelled{note}"
    ));
    Ok(())
}

pub(crate) async fn cancel_evacuation(
    cluster: &Cluster,
    printer: Printer,
    flags: &EvacuateCancel,
) -> Result<()> {
    let name = &flags.name;
    match flags.kind {
        EvacuatedKind::Vm => one(cluster, printer, "virtualmachines", name, flags.dry_run).await,
        EvacuatedKind::Vmi => {
            one(
                cluster,
                printer,
                "virtualmachineinstances",
                name,
                flags.dry_run,
            )
            .await
        }
        EvacuatedKind::Node => {
            let vmis = objects::list(cluster, &objects::VMI.all(&cluster.namespace)).await?;
            let leaving = vmis
                .iter()
                .filter(|vmi| text(vmi, "/status/evacuationNodeName") == Some(name))
                .filter_map(|vmi| text(vmi, "/metadata/name"));
            let mut count = 0;
            for vmi in leaving {
                one(
                    cluster,
                    printer,
                    "virtualmachineinstances",
                    vmi,
                    flags.dry_run,
                )
                .await?;
                count += 1;
            }
            if count == 0 {
                let namespace = &cluster.namespace;
                printer.line(&format!(
                    "No VMI of namespace {namespace} is to leave node {name}"
                ));
            }
            Ok(())
        }
    }
}

async fn one(
    cluster: &Cluster,
    printer: Printer,
    plural: &str,
    name: &str,
    dry_run: DryRun,
) -> Result<()> {
    let options = EvacuateCancelOptions {
        dry_run: dry_run_values(dry_run),
        ..EvacuateCancelOptions::default()
    };
    put(
        cluster,
        &path(cluster, plural, name, "evacuate/cancel"),
        &options,
    )
    .await?;
    let note = dry_run_note(dry_run);
    printer.line(&format!("The evacuation of {name} was cancelled{note}"));
    Ok(())
}

#[cfg(test)]
mod tests;
