//! The columns of persistent volumes, claims and storage classes.

use serde_json::Value;

use super::{
    Column, Row,
    built_in::{age, list, name, or, text},
};
use crate::meta;

fn access_modes(modes: &Value) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |long: &str| list(modes).iter().any(|mode| mode == long);
    let modes: Vec<&str> = SHORT
        .iter()
        .filter(|(long, _)| has(long))
        .map(|(_, short)| *short)
        .collect();
    modes.join(",").into()
}

fn phase(row: &Row<'_>) -> Value {
    if meta::is_deleting(row.object) {
        "Terminating".into()
    } else {
        text(&row.object["status"]["phase"])
    }
}

/// The class may be given by the deprecated annotation.
fn class(row: &Row<'_>) -> Value {
    let old = meta::annotation(row.object, "volume.beta.kubernetes.io/storage-class");
    match old {
        Some(class) => class.into(),
        None => text(&row.object["spec"]["storageClassName"]),
    }
}

fn attributes_class(row: &Row<'_>) -> Value {
    let named = row.object["spec"]["volumeAttributesClassName"].as_str();
    named.unwrap_or("<unset>").into()
}

fn is_bound(row: &Row<'_>) -> bool {
    let volume = row.object["spec"]["volumeName"].as_str();
    volume.is_some_and(|volume| !volume.is_empty())
}

fn volume_mode() -> Column {
    Column::of("VolumeMode", "string", 1, |row| {
        or(&row.object["spec"]["volumeMode"], "<unset>")
    })
}

pub(super) fn claims() -> Vec<Column> {
    vec![
        name(),
        Column::of("Status", "string", 0, phase),
        Column::of("Volume", "string", 0, |row| {
            text(&row.object["spec"]["volumeName"])
        }),
        Column::of("Capacity", "string", 0, |row| {
            if is_bound(row) {
                or(&row.object["status"]["capacity"]["storage"], "0")
            } else {
                "".into()
            }
        }),
        Column::of("Access Modes", "string", 0, |row| {
            if is_bound(row) {
                access_modes(&row.object["status"]["accessModes"])
            } else {
                "".into()
            }
        }),
        Column::of("StorageClass", "string", 0, class),
        Column::of("VolumeAttributesClass", "string", 0, attributes_class),
        age(),
        volume_mode(),
    ]
}

pub(super) fn volumes() -> Vec<Column> {
    vec![
        name(),
        Column::of("Capacity", "string", 0, |row| {
            or(&row.object["spec"]["capacity"]["storage"], "0")
        }),
        Column::of("Access Modes", "string", 0, |row| {
            access_modes(&row.object["spec"]["accessModes"])
        }),
        Column::of("Reclaim Policy", "string", 0, |row| {
            text(&row.object["spec"]["persistentVolumeReclaimPolicy"])
        }),
        Column::of("Status", "string", 0, phase),
        Column::of("Claim", "string", 0, |row| {
            let claim = &row.object["spec"]["claimRef"];
            let part = |key: &str| claim[key].as_str().unwrap_or_default();
            if claim.is_object() {
                format!("{}/{}", part("namespace"), part("name")).into()
            } else {
                "".into()
            }
        }),
        Column::of("StorageClass", "string", 0, class),
        Column::of("VolumeAttributesClass", "string", 0, attributes_class),
        Column::of("Reason", "string", 0, |row| {
            text(&row.object["status"]["reason"])
        }),
        age(),
        volume_mode(),
    ]
}

pub(super) fn classes() -> Vec<Column> {
    vec![
        Column::of("Name", "string", 0, |row| {
            let name = meta::name(row.object);
            let default = "storageclass.kubernetes.io/is-default-class";
            match meta::annotation(row.object, default) {
                Some("true") => format!("{name} (default)").into(),
                _ => name.into(),
            }
        }),
        Column::of("Provisioner", "string", 0, |row| {
            text(&row.object["provisioner"])
        }),
        Column::of("ReclaimPolicy", "string", 0, |row| {
            or(&row.object["reclaimPolicy"], "Delete")
        }),
        Column::of("VolumeBindingMode", "string", 0, |row| {
            or(&row.object["volumeBindingMode"], "Immediate")
        }),
        Column::of("AllowVolumeExpansion", "string", 0, |row| {
            row.object["allowVolumeExpansion"]
                .as_bool()
                .unwrap_or_default()
                .into()
        }),
        age(),
    ]
}
