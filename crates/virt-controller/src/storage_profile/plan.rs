//! Pure planning: the profile of a storage class, from the settings of an administrator and what is known of
//! provisioners.

use std::sync::Arc;

use kubevirt_api::storage_profile::{
    CdiCloneStrategy, ClaimPropertySet, DataImportCronSourceFormat, StorageProfile,
    StorageProfileSpec, StorageProfileStatus,
};

use crate::view::StorageClass;

/// What claims of a provisioner can be, best first, as access mode and volume mode.
const KNOWN: &[(&str, &[(&str, &str)])] = &[(
    "ferrovirt.io/local",
    &[
        ("ReadWriteOnce", "Filesystem"),
        ("ReadWriteOnce", "Block"),
        ("ReadWriteMany", "Filesystem"),
    ],
)];

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) name: String,
    pub(super) class: Arc<StorageClass>,
    pub(super) profile: Option<Arc<StorageProfile>>,
    /// The snapshot class of its provisioner, if there is just one or a default.
    pub(super) snapshot_class: Option<String>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Create,
    WriteStatus(Box<StorageProfileStatus>),
    Nothing,
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let is_leaving = observed.class.metadata.deletion_timestamp.is_some();
    match &observed.profile {
        None if is_leaving => Plan::Nothing,
        None => Plan::Create,
        Some(profile) => {
            let wanted = status(observed, &profile.spec);
            if profile.status.as_ref() == Some(&wanted) {
                Plan::Nothing
            } else {
                Plan::WriteStatus(Box::new(wanted))
            }
        }
    }
}

/// The settings of an administrator go before everything else.
fn status(observed: &Observed, spec: &StorageProfileSpec) -> StorageProfileStatus {
    let provisioner = &observed.class.provisioner;
    let sets = if spec.claim_property_sets.is_empty() {
        known(provisioner)
    } else {
        spec.claim_property_sets.clone()
    };
    let strategy = spec.clone_strategy.clone();
    let annotated = observed.class.clone_strategy.clone();
    let format = spec.data_import_cron_source_format.clone();
    StorageProfileStatus {
        storage_class: Some(observed.name.clone()),
        provisioner: Some(provisioner.clone()),
        clone_strategy: strategy.or(annotated).or(Some(CdiCloneStrategy::Copy)),
        claim_property_sets: sets,
        data_import_cron_source_format: format.or(Some(DataImportCronSourceFormat::Pvc)),
        snapshot_class: spec
            .snapshot_class
            .clone()
            .or_else(|| observed.snapshot_class.clone()),
    }
}

fn known(provisioner: &str) -> Vec<ClaimPropertySet> {
    let rows = KNOWN.iter().find(|(name, _)| *name == provisioner);
    let rows = rows.map_or(&[][..], |(_, rows)| rows);
    rows.iter()
        .map(|(access, volume)| ClaimPropertySet {
            access_modes: vec![(*access).to_owned()],
            volume_mode: (*volume).to_owned(),
        })
        .collect()
}

/// The first set that has all these access modes and this volume mode, as far as they are given.
pub(crate) fn choose<'a>(
    sets: &'a [ClaimPropertySet],
    access_modes: &[String],
    volume_mode: Option<&str>,
) -> Option<&'a ClaimPropertySet> {
    sets.iter().find(|set| {
        access_modes
            .iter()
            .all(|mode| set.access_modes.contains(mode))
            && volume_mode.is_none_or(|mode| mode == set.volume_mode)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn observed(class: Value, profile: Option<Value>) -> Observed {
        let mut whole = class;
        whole["metadata"]["name"] = json!("fast");
        Observed {
            name: "fast".to_owned(),
            class: Arc::new(serde_json::from_value(whole).unwrap()),
            profile: profile.map(|profile| Arc::new(serde_json::from_value(profile).unwrap())),
            snapshot_class: Some("copies".to_owned()),
        }
    }

    fn written(class: Value, spec: &Value) -> Value {
        let profile = json!({"metadata": {"name": "fast"}, "spec": spec});
        match plan(&observed(class, Some(profile))) {
            Plan::WriteStatus(status) => json!(status),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn own_class_has_its_modes_and_others_have_none() {
        let found = written(json!({"provisioner": "ferrovirt.io/local"}), &json!({}));
        let expected = json!({
            "storageClass": "fast", "provisioner": "ferrovirt.io/local", "cloneStrategy": "copy",
            "claimPropertySets": [
                {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"},
                {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"},
                {"accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem"},
            ],
            "dataImportCronSourceFormat": "pvc", "snapshotClass": "copies",
        });
        assert_eq!(found, expected);
        let found = written(json!({"provisioner": "example.com/disks"}), &json!({}));
        assert_eq!(found["claimPropertySets"], Value::Null);
    }

    #[test]
    fn settings_of_the_administrator_win() {
        let class = json!({
            "metadata": {"annotations": {"cdi.kubevirt.io/clone-strategy": "csi-clone"}},
            "provisioner": "ferrovirt.io/local",
        });
        assert_eq!(
            written(class.clone(), &json!({}))["cloneStrategy"],
            "csi-clone"
        );
        let spec = json!({
            "cloneStrategy": "snapshot", "dataImportCronSourceFormat": "snapshot",
            "claimPropertySets": [{"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}],
            "snapshotClass": "mine",
        });
        let mut expected = spec.clone();
        expected["storageClass"] = json!("fast");
        expected["provisioner"] = json!("ferrovirt.io/local");
        assert_eq!(written(class, &spec), expected);
    }

    #[test]
    fn profile_is_created_once_and_written_only_when_it_differs() {
        let class = || json!({"provisioner": "ferrovirt.io/local"});
        assert_eq!(plan(&observed(class(), None)), Plan::Create);
        let leaving = json!({"provisioner": "a", "metadata": {
            "deletionTimestamp": "2026-11-25T12:00:00Z"}});
        assert_eq!(plan(&observed(leaving, None)), Plan::Nothing);
        let status = written(class(), &json!({}));
        let profile = json!({"metadata": {"name": "fast"}, "spec": {}, "status": status});
        assert_eq!(plan(&observed(class(), Some(profile))), Plan::Nothing);
    }

    #[test]
    fn modes_follow_from_what_is_given() {
        let sets = known("ferrovirt.io/local");
        let check = |access: &[&str], volume: Option<&str>, expected: Option<(&str, &str)>| {
            let access: Vec<String> = access.iter().map(|it| (*it).to_owned()).collect();
            let found = choose(&sets, &access, volume);
            let found = found.map(|it| (it.access_modes[0].as_str(), it.volume_mode.as_str()));
            assert_eq!(found, expected, "{access:?} {volume:?}");
        };
        check(&[], None, Some(("ReadWriteOnce", "Filesystem")));
        check(&[], Some("Block"), Some(("ReadWriteOnce", "Block")));
        check(
            &["ReadWriteMany"],
            None,
            Some(("ReadWriteMany", "Filesystem")),
        );
        check(&["ReadWriteMany"], Some("Block"), None);
        check(&["ReadOnlyMany"], None, None);
    }
}
