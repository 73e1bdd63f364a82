//! `addvolume` and `removevolume`.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use kubevirt_api::subresource_bodies::RemoveVolumeOptions;
use serde_json::{Value, json};

use crate::{
    cli::DryRun,
    commands::power::{dry_run_note, dry_run_values},
    connect::Cluster,
    failure::Usage,
    objects,
    printer::Printer,
    subresource::{path, put},
};

#[derive(Debug, Clone, Args)]
pub struct AddVolume {
    /// Name of the VM or VMI
    pub vmi: String,
    /// Data volume or claim to attach
    #[arg(long, value_name = "NAME")]
    pub volume_name: String,
    /// Name of the volume and its disk in the spec [default: the same as --volume-name]
    #[arg(long, value_name = "NAME")]
    pub disk_name: Option<String>,
    /// Bus of the disk
    #[arg(long, default_value = "scsi", value_parser = ["scsi", "virtio", "sata", "usb"])]
    pub bus: String,
    /// How the host caches the disk
    #[arg(long, value_name = "MODE", value_parser = ["none", "writethrough", "writeback"])]
    pub cache: Option<String>,
    /// Kind of the disk
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        default_value = "disk",
        value_name = "TYPE"
    )]
    pub disk_type: DiskType,
    /// Serial number that the guest sees [default: the same as --volume-name]
    #[arg(long)]
    pub serial: Option<String>,
    /// Has no effect: the volume always becomes part of the VM's spec
    #[arg(long, hide = true)]
    pub persist: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiskType {
    Disk,
    Lun,
}

#[derive(Debug, Clone, Args)]
pub struct RemoveVolume {
    /// Name of the VM or VMI
    pub vmi: String,
    /// Volume to detach
    #[arg(long, value_name = "NAME")]
    pub volume_name: String,
    /// Has no effect: the volume always leaves the VM's spec
    #[arg(long, hide = true)]
    pub persist: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

pub(crate) async fn add(cluster: &Cluster, printer: Printer, flags: &AddVolume) -> Result<()> {
    let volume = &flags.volume_name;
    let disk = disk(flags)?;
    let namespace = &cluster.namespace;
    let found = async |kind: objects::Kind| {
        let found = objects::find_if_served(cluster, &kind.named(namespace, volume)).await?;
        anyhow::Ok(found.is_some())
    };
    let source = if found(objects::DATA_VOLUME).await? {
        json!({"dataVolume": {"name": volume, "hotpluggable": true}})
    } else if found(objects::CLAIM).await? {
        json!({"persistentVolumeClaim": {"claimName": volume, "hotpluggable": true}})
    } else {
        bail!("no data volume and no claim is named {volume:?} in namespace {namespace}");
    };
    let name = flags.disk_name.as_ref().unwrap_or(volume);
    let mut options = json!({"name": name, "disk": disk, "volumeSource": source});
    if flags.dry_run.dry_run {
        options["dryRun"] = dry_run_values(flags.dry_run).into();
    }
    let plural = plural(cluster, &flags.vmi).await?;
    put(
        cluster,
        &path(cluster, plural, &flags.vmi, "addvolume"),
        &options,
    )
    .await?;
    let note = dry_run_note(flags.dry_run);
    printer.line(&format!(
        "Volume {volume} will be attached to {}{note}",
        flags.vmi
    ));
    Ok(())
}

fn disk(flags: &AddVolume) -> Result<Value, Usage> {
    let target = json!({"bus": flags.bus});
    let mut disk = match flags.disk_type {
        DiskType::Disk => json!({"disk": target}),
        DiskType::Lun if flags.bus == "scsi" => json!({"lun": target}),
        DiskType::Lun => {
            let message = format!("--bus {}: a lun needs the bus scsi", flags.bus);
            return Err(Usage::new(message));
        }
    };
    disk["serial"] = flags
        .serial
        .as_ref()
        .unwrap_or(&flags.volume_name)
        .as_str()
        .into();
    if let Some(cache) = &flags.cache {
        disk["cache"] = cache.as_str().into();
    }
    Ok(disk)
}

pub(crate) async fn remove(
    cluster: &Cluster,
    printer: Printer,
    flags: &RemoveVolume,
) -> Result<()> {
    let volume = &flags.volume_name;
    let options = RemoveVolumeOptions {
        name: volume.clone(),
        dry_run: dry_run_values(flags.dry_run),
    };
    let plural = plural(cluster, &flags.vmi).await?;
    put(
        cluster,
        &path(cluster, plural, &flags.vmi, "removevolume"),
        &options,
    )
    .await?;
    let note = dry_run_note(flags.dry_run);
    printer.line(&format!(
        "Volume {volume} will be detached from {}{note}",
        flags.vmi
    ));
    Ok(())
}

/// A VM's own volumes change in its spec; a VMI without a VM is changed itself.
async fn plural(cluster: &Cluster, name: &str) -> Result<&'static str> {
    let path = objects::VM.named(&cluster.namespace, name);
    let vm = objects::find(cluster, &path).await?;
    Ok(if vm.is_some() {
        "virtualmachines"
    } else {
        "virtualmachineinstances"
    })
}
