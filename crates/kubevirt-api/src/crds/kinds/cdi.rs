//! Group `cdi.kubevirt.io`: the kinds of the importer. On clusters CDI may define them instead, so they are
//! not in the list of our kinds; the label shows who made the definition.

use crate::{
    cdi_config::CDIConfig,
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        rules, structural,
    },
    data_volume::DataVolumeSpec,
    data_volume_status::{DataVolume, DataVolumeStatus},
    labels,
};

pub(super) fn rows() -> Vec<Definition> {
    vec![config(), data_volumes()]
}

/// Only what clients read. Settings of CDI are unknown fields here, as nothing would follow them.
fn config() -> Definition {
    let status = serde_json::json!({
        "type": "object",
        "properties": {
            "uploadProxyURL": {
                "description": "Address of the upload proxy.",
                "type": "string",
            },
            "uploadProxyCA": {
                "description": "Certificates to check it with, as PEM.",
                "type": "string",
            },
        },
    });
    let schema =
        Object::new("Where clients find the upload proxy; there is one object, named config.")
            .optional("spec", serde_json::json!({"type": "object"}))
            .optional("status", status)
            .schema();
    Definition {
        group: CDIConfig::GROUP,
        kind: CDIConfig::KIND,
        plural: CDIConfig::PLURAL,
        singular: "cdiconfig",
        short_names: &[],
        categories: &[],
        scope: Scope::Cluster,
        label: None,
        versions: vec![Version::stored(CDIConfig::VERSION, &schema)],
        status: StatusIs::PartOfObject,
        scale: None,
        columns: vec![
            Column::text("Proxy", ".status.uploadProxyURL"),
            Column::age(),
        ],
    }
}

fn data_volumes() -> Definition {
    let mut spec = structural::of_spec::<DataVolumeSpec>();
    spec["x-kubernetes-validations"] = serde_json::json!([
        rules::immutable(
            "a data volume",
            "delete it and create another, or change the size of its claim",
        ),
        rules::exactly_one(&["pvc", "storage"]),
        rules::exactly_one(&["source", "sourceRef"]),
    ]);
    let schema = Object::new("A claim, and what it is populated with.")
        .required("spec", spec)
        .optional("status", structural::of_status::<DataVolumeStatus>())
        .schema();
    Definition {
        group: DataVolume::GROUP,
        kind: DataVolume::KIND,
        plural: DataVolume::PLURAL,
        singular: "datavolume",
        short_names: &["dv", "dvs"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: Some(labels::OWN_IMPORTER),
        versions: vec![Version::stored(DataVolume::VERSION, &schema)],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("Phase", ".status.phase"),
            Column::text("Progress", ".status.progress"),
            Column::number("Restarts", ".status.restartCount"),
            Column::age(),
        ],
    }
}
