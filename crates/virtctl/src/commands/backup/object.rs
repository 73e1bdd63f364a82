//! Backups, trackers and restores as the flags describe them.

use anyhow::Result;
use serde_json::{Value, json};

use super::cli::{Create, Mode, Restore, VolumeMode};
use crate::{failure::Usage, objects::text};

const BACKUPS: &str = "backup.kubevirt.io";
const RESTORES: &str = "backup.ferrovirt.io";

/// A volume of a backup, and the claim that gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) volume: String,
    pub(super) claim: Option<String>,
}

pub(super) fn backup(flags: &Create) -> Value {
    let source = match (&flags.source.vm, &flags.source.tracker) {
        (Some(vm), _) => {
            json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm})
        }
        (None, tracker) => {
            json!({"apiGroup": BACKUPS, "kind": "VirtualMachineBackupTracker", "name": tracker})
        }
    };
    let mode = match flags.mode {
        Mode::Push => "Push",
        Mode::Pull => "Pull",
    };
    let mut spec = json!({"source": source, "mode": mode, "pvcName": flags.pvc});
    if let Some(secret) = &flags.token_secret {
        spec["tokenSecretRef"] = secret.as_str().into();
    }
    if let Some(ttl) = flags.ttl {
        spec["ttlDuration"] = format!("{}s", ttl.as_secs()).into();
    }
    if flags.full {
        spec["forceFullBackup"] = true.into();
    }
    if flags.skip_quiesce {
        spec["skipQuiesce"] = true.into();
    }
    json!({
        "apiVersion": format!("{BACKUPS}/v1alpha1"),
        "kind": "VirtualMachineBackup",
        "metadata": {"name": flags.name},
        "spec": spec,
    })
}

pub(super) fn tracker(name: &str, vm: &str) -> Value {
    json!({
        "apiVersion": format!("{BACKUPS}/v1alpha1"),
        "kind": "VirtualMachineBackupTracker",
        "metadata": {"name": name},
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm}},
    })
}

/// The disks that flags name. Each one that is overwritten needs its claim.
pub(super) fn checked(disks: Vec<Disk>, overwrites: bool) -> Result<Vec<Disk>> {
    let unnamed = disks.iter().find(|one| overwrites && one.claim.is_none());
    match unnamed {
        Some(Disk { volume, .. }) => Err(Usage::new(format!(
            "--overwrite needs the claim of each volume: write --volume {volume}=CLAIM"
        ))
        .into()),
        None => Ok(disks),
    }
}

/// The volumes of a VM with a claim, if the backup includes them.
pub(super) fn disks_of(vm: &Value, included: Option<&[String]>) -> Vec<Disk> {
    let volumes = vm.pointer("/spec/template/spec/volumes");
    let volumes = volumes.and_then(Value::as_array).into_iter().flatten();
    let disk = |volume: &Value| {
        let name = text(volume, "/name")?;
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        let claim = claim.or_else(|| text(volume, "/dataVolume/name"))?;
        let is_included = included.is_none_or(|all| all.iter().any(|one| one == name));
        is_included.then(|| Disk {
            volume: name.to_owned(),
            claim: Some(claim.to_owned()),
        })
    };
    volumes.filter_map(disk).collect()
}

pub(super) fn restore(flags: &Restore, disks: &[Disk]) -> Result<Value> {
    let source = &flags.source;
    let source = match (&source.backup, &source.pvc, &source.directory) {
        (Some(backup), ..) => json!({"backupName": backup}),
        (None, Some(pvc), Some(directory)) => json!({"pvcName": pvc, "directory": directory}),
        (None, ..) => {
            return Err(Usage::new("give --backup, or --pvc and --directory").into());
        }
    };
    let mut spec = json!({"source": source});
    if flags.target.overwrite || flags.target.overwrite_vm.is_some() {
        spec["targetPolicy"] = "Overwrite".into();
    }
    if !disks.is_empty() {
        let disk = |one: &Disk| {
            let mut disk = json!({"name": one.volume});
            if let Some(claim) = &one.claim {
                disk["claimName"] = claim.as_str().into();
            }
            disk
        };
        spec["volumes"] = disks.iter().map(disk).collect();
    }
    let claims = &flags.claims;
    let mut template = json!({});
    if let Some(class) = &claims.storage_class {
        template["storageClassName"] = class.as_str().into();
    }
    if let Some(mode) = &claims.access_mode {
        template["accessModes"] = json!([mode]);
    }
    if let Some(mode) = claims.volume_mode {
        let mode = match mode {
            VolumeMode::Filesystem => "Filesystem",
            VolumeMode::Block => "Block",
        };
        template["volumeMode"] = mode.into();
    }
    if let Some(size) = &claims.size {
        template["size"] = size.as_str().into();
    }
    if template != json!({}) {
        spec["claimTemplate"] = template;
    }
    Ok(json!({
        "apiVersion": format!("{RESTORES}/v1alpha1"),
        "kind": "VirtualMachineBackupRestore",
        "metadata": {"name": flags.name},
        "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_a_vm_that_are_in_the_backup_are_overwritten() {
        let vm = json!({"spec": {"template": {"spec": {"volumes": [
            {"name": "root", "dataVolume": {"name": "wiki-root"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "wiki-data"}},
            {"name": "iso", "persistentVolumeClaim": {"claimName": "wiki-iso"}},
            {"name": "init", "cloudInitNoCloud": {}},
        ]}}}});
        let names = |included: Option<&[String]>| {
            let disks = disks_of(&vm, included).into_iter();
            let pair = |one: Disk| format!("{}={}", one.volume, one.claim.unwrap_or_default());
            disks.map(pair).collect::<Vec<_>>().join(",")
        };
        assert_eq!(names(None), "root=wiki-root,data=wiki-data,iso=wiki-iso");
        let included = ["root", "data", "gone"].map(str::to_owned);
        assert_eq!(names(Some(&included)), "root=wiki-root,data=wiki-data");
        assert_eq!(names(Some(&[])), "");
        assert!(disks_of(&json!({}), None).is_empty());
    }
}
