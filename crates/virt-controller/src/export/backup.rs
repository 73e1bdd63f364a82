//! Exports of backups of mode `Pull`: the server reads the disks from QEMU, at a socket in the claim of the backup.

use k8s_openapi::api::core::v1::Toleration;
use kube::Api;
use kubevirt_api::backup::{BackupMode, VirtualMachineBackup};
use kubevirt_api::export::VirtualMachineExport;
use model::{backup_directory, backup_volume};
use reconcile::Key;

use super::observe::{Source, unreadable};
use super::{Controller, ExportError};
use crate::view::Guest;

/// Disks that a guest offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Offer {
    pub(super) claim: String,
    /// In the claim.
    pub(super) directory: String,
    /// Where the guest runs: a socket cannot be reached from another node.
    pub(super) node: String,
    /// Of the guest, whose node the pod has to run on.
    pub(super) tolerations: Vec<Toleration>,
    /// The volumes of its disks.
    pub(super) volumes: Vec<String>,
}

impl Controller {
    pub(super) async fn observe_backup(
        &self,
        key: &Key,
        name: &str,
        export: &VirtualMachineExport,
    ) -> Result<Source, ExportError> {
        let api = Api::<VirtualMachineBackup>::namespaced(self.client.clone(), &key.namespace);
        let backup = api.get_opt(name).await;
        let Some(backup) = backup.map_err(unreadable("the backup"))? else {
            return Ok(Source::Missing);
        };
        let guests = self.guests.in_namespace(&key.namespace);
        let mut offers = guests.iter().filter_map(|guest| offer(guest, &backup));
        Ok(match refusal(&backup, export) {
            Some(why) => Source::NotOffered(why),
            None => match offers.next() {
                Some(offer) => Source::Backup(offer),
                None => Source::NotOffered(format!(
                    "the disks of VirtualMachineBackup {name} are not offered"
                )),
            },
        })
    }
}

/// Why the export gets nothing of the backup.
fn refusal(backup: &VirtualMachineBackup, export: &VirtualMachineExport) -> Option<String> {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    if backup.spec.mode != Some(BackupMode::Pull) {
        return Some(format!(
            "VirtualMachineBackup {name} has the mode Push: read its claim instead"
        ));
    }
    let mut owners = export.metadata.owner_references.iter().flatten();
    let is_own = owners.any(|owner| {
        owner.controller == Some(true) && Some(&owner.uid) == backup.metadata.uid.as_ref()
    });
    (!is_own).then(|| {
        format!("VirtualMachineBackup {name} has an export of its own, of the same name: use that")
    })
}

/// What the guest offers for the backup, as virt-handler reports it.
fn offer(guest: &Guest, backup: &VirtualMachineBackup) -> Option<Offer> {
    let name = backup.metadata.name.as_deref()?;
    let claim = backup.spec.pvc_name.as_deref()?;
    let report = guest.status.backup.as_deref()?;
    let volume = backup_volume(name);
    let mut targets = guest.utility_volumes.iter();
    let has_target = targets.any(|one| one.name == volume && one.claim_name == claim);
    let is_offered = report.backup_name.as_deref() == Some(name)
        && report.completed != Some(true)
        && !report.volumes.is_empty();
    if guest.is_final() || !has_target || !is_offered {
        return None;
    }
    let volumes = report.volumes.iter();
    Some(Offer {
        claim: claim.to_owned(),
        directory: backup_directory(name, report.start_timestamp.as_ref()?),
        node: guest.status.node_name.clone()?,
        tolerations: guest.tolerations.clone(),
        volumes: volumes.map(|one| one.volume_name.clone()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use cluster_config::ClusterConfig;
    use kubevirt_api::VirtualMachineInstance;
    use launcher_pod::{Acceleration, Settings};
    use serde_json::{Value, json};

    use super::*;
    use crate::export::observe::{Front, Observed};
    use crate::export::pod::{self, Served};
    use crate::export::{links, plan};

    fn backup(changes: &Value) -> VirtualMachineBackup {
        let mut whole = json!({
            "metadata": {"name": "b", "namespace": "n", "uid": "u"},
            "spec": {"mode": "Pull", "pvcName": "c", "tokenSecretRef": "t"},
        });
        json_patch::merge(&mut whole, changes);
        serde_json::from_value(whole).unwrap()
    }

    fn found(changes: &Value) -> Option<Offer> {
        let mut vmi = json!({
            "metadata": {"name": "vm", "namespace": "n"},
            "spec": {
                "domain": {"devices": {}},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "utilityVolumes": [{"name": "b-backup-target-pvc", "claimName": "c", "type": "Backup"}],
            },
            "status": {"phase": "Running", "nodeName": "node", "changedBlockTracking": {
                "state": "", "backupStatus": {
                    "backupName": "b", "startTimestamp": "2026-11-27T02:00:00Z",
                    "volumes": [{"volumeName": "root"}, {"volumeName": "data"}],
                },
            }},
        });
        json_patch::merge(&mut vmi, changes);
        let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        offer(&Guest::from(vmi), &backup(&json!({})))
    }

    #[test]
    fn offer_is_that_of_the_guest_with_the_claim() {
        let expected = Offer {
            claim: "c".to_owned(),
            directory: "b-20261127-020000".to_owned(),
            node: "node".to_owned(),
            tolerations: vec![Toleration {
                key: Some("gpu".to_owned()),
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }],
            volumes: vec!["root".to_owned(), "data".to_owned()],
        };
        assert_eq!(found(&json!({})), Some(expected));
        let report = |members: &Value| json!({"status": {"changedBlockTracking": {"backupStatus": members}}});
        for changes in [
            report(&json!({"volumes": null})),
            report(&json!({"completed": true})),
            report(&json!({"backupName": "other"})),
            json!({"spec": {"utilityVolumes": null}}),
            json!({"status": {"phase": "Failed"}}),
            json!({"status": {"nodeName": null}}),
        ] {
            assert_eq!(found(&changes), None, "{changes}");
        }
    }

    #[test]
    fn server_is_beside_the_guest_and_serves_its_disks() {
        let offer = found(&json!({})).unwrap();
        let export = serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "n", "uid": "e"},
            "spec": {"source": {"kind": "VirtualMachineBackup", "name": "b"}, "tokenSecretRef": "t"},
        }));
        let mut observed = Observed {
            export: std::sync::Arc::new(export.unwrap()),
            source: Source::Backup(offer.clone()),
            front: Front::Ready {
                certificate: "secret-1".to_owned(),
                authority: "PEM".to_owned(),
                token: "t".to_owned(),
            },
            ..Observed::default()
        };
        assert_eq!(plan::plan(&observed).step, Some(plan::Step::Start));
        let rendered = pod::pod(&pod::Input {
            export: &observed.export,
            volumes: &[],
            offer: Some(&offer),
            certificate: "secret-1",
            token: "t",
            manifests: None,
            settings: &Settings::defaults("launcher:1", Acceleration::Kvm),
            config: &ClusterConfig::default(),
        });
        assert_eq!(Some(Served::by(&rendered)), Served::wanted(&observed));
        let rendered = json!(rendered);
        let spec = &rendered["spec"];
        let claim = json!({"claimName": "c", "readOnly": true});
        let mut volumes = spec["volumes"].as_array().unwrap().iter();
        assert!(
            volumes.any(|one| one["persistentVolumeClaim"] == claim),
            "{spec}"
        );
        assert_eq!(spec["tolerations"][0]["key"], "gpu");
        // The guest stays on a node that takes no more pods, and so does its server.
        let mut tolerations = spec["tolerations"].as_array().unwrap().iter();
        assert!(tolerations.any(|one| one["key"] == "node.kubernetes.io/unschedulable"));
        let affinity = spec["affinity"].to_string();
        assert!(
            affinity.contains("kubernetes.io/hostname") && affinity.contains("\"node\""),
            "{affinity}"
        );
        let arguments = spec["containers"][0]["args"].to_string();
        let expected = "\"--backup\",\"/backup/b-20261127-020000\",\"--backup-volume\",\"root\"";
        assert!(arguments.contains(expected), "{arguments}");
        let link = links::of(&observed, None).internal.unwrap();
        assert!(link.volumes.is_empty() && link.manifests.is_empty());
        let map = &link.backups[1].endpoints[1];
        assert_eq!(map.url, "https://virt-export-b.n.svc/exports/data/map");
        // The guest has other disks: the server is replaced.
        observed.source = Source::Backup(Offer {
            volumes: vec!["root".to_owned()],
            ..offer
        });
        assert_ne!(
            Some(Served::by(&serde_json::from_value(rendered).unwrap())),
            Served::wanted(&observed)
        );
        observed.source = Source::NotOffered("why".to_owned());
        assert_eq!(plan::plan(&observed).step, None);
    }

    /// Another export would have another token, and outlive the offer.
    #[test]
    fn only_the_own_export_gets_the_disks() {
        let export = |uid: &str, is_controller: bool| {
            let owner = json!({
                "apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackup",
                "name": "b", "uid": uid, "controller": is_controller,
            });
            serde_json::from_value(json!({
                "metadata": {"name": "b", "namespace": "n", "ownerReferences": [owner]},
                "spec": {"source": {"kind": "VirtualMachineBackup", "name": "b"}},
            }))
            .unwrap()
        };
        let pull = backup(&json!({}));
        assert_eq!(refusal(&pull, &export("u", true)), None);
        assert!(refusal(&pull, &export("other", true)).is_some());
        assert!(refusal(&pull, &export("u", false)).is_some());
        let push = backup(&json!({"spec": {"mode": "Push"}}));
        assert!(refusal(&push, &export("u", true)).is_some());
    }
}
