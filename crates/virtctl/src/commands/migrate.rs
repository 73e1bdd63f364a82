//! `migrate`, `migrate-cancel` and `evacuate-cancel`.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use kubevirt_api::subresource_bodies::{EvacuateCancelOptions, MigrateOptions};

use crate::{
    cli::DryRun,
    commands::power::{dry_run_note, dry_run_values},
    connect::Cluster,
    key_values::KeyValue,
    objects::{self, text},
    printer::Printer,
    subresource::{path, put},
};

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
    #[command(flatten)]
    pub dry_run: DryRun,
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
    printer.line(&format!("VM {} was scheduled to migrate{note}", flags.vm));
    Ok(())
}

pub(crate) async fn cancel(
    cluster: &Cluster,
    printer: Printer,
    flags: &MigrateCancel,
) -> Result<()> {
    let vm = &flags.vm;
    let all = objects::MIGRATION.all(&cluster.namespace);
    let label = launcher_pod::label_value(vm);
    let path = format!("{all}?labelSelector=kubevirt.io%2Fvmi-name%3D{label}");
    let migrations = objects::list(cluster, &path).await?;
    let active = migrations.iter().find(|migration| {
        !matches!(
            text(migration, "/status/phase"),
            Some("Succeeded" | "Failed")
        )
    });
    let Some(name) = active.and_then(|migration| text(migration, "/metadata/name")) else {
        bail!("VM {vm} has no migration that could be cancelled");
    };
    let path = objects::MIGRATION.named(&cluster.namespace, name);
    objects::delete(cluster, &path, dry_run_values(flags.dry_run)).await?;
    let note = dry_run_note(flags.dry_run);
    printer.line(&format!("The migration of VM {vm} was cancelled{note}"));
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
