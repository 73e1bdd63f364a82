//! Group `cdi.kubevirt.io`: the kinds of the importer. On clusters CDI may define them instead, so they are
//! not in the list of our kinds; the label on the definition of data volumes shows who made it, and decides for all.

use crate::{
    cdi_config::CDIConfig,
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        rules, structural,
    },
    data_import_cron::{DataImportCron, DataImportCronSpec, DataImportCronStatus},
    data_source::{DataSource, DataSourceSpec, DataSourceStatus},
    data_volume::DataVolumeSpec,
    data_volume_status::{DataVolume, DataVolumeStatus},
    labels,
    storage_profile::{StorageProfile, StorageProfileSpec, StorageProfileStatus},
};

pub(super) fn rows() -> Vec<Definition> {
    vec![
        config(),
        data_import_crons(),
        data_sources(),
        data_volumes(),
        storage_profiles(),
    ]
}

/// Only what clients read, and the one setting that is followed. Other settings of CDI are unknown fields here, as nothing would follow them.
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
    let spec = serde_json::json!({
        "type": "object",
        "properties": {
            "uploadProxyURLOverride": {
                "description": "Address at which clients reach the upload proxy of a cluster.",
                "type": "string",
            },
        },
    });
    let schema =
        Object::new("Where clients find the upload proxy; there is one object, named config.")
            .optional("spec", spec)
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

fn data_import_crons() -> Definition {
    let mut spec = structural::of_spec::<DataImportCronSpec>();
    spec["required"] = serde_json::json!(["managedDataSource", "schedule", "template"]);
    let schema = Object::new("An image that is imported again whenever it changes.")
        .required("spec", spec)
        .optional("status", structural::of_status::<DataImportCronStatus>())
        .schema();
    Definition {
        group: DataImportCron::GROUP,
        kind: DataImportCron::KIND,
        plural: DataImportCron::PLURAL,
        singular: "dataimportcron",
        short_names: &["dic", "dics"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: None,
        versions: vec![Version::stored(DataImportCron::VERSION, &schema)],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("Format", ".status.sourceFormat"),
            Column::age(),
        ],
    }
}

fn data_sources() -> Definition {
    let mut spec = structural::of_spec::<DataSourceSpec>();
    spec["properties"]["source"]["x-kubernetes-validations"] =
        serde_json::json!([rules::at_most_one(&["pvc", "snapshot", "dataSource"])]);
    let schema = Object::new("A name for the claim or snapshot that new disks are made from.")
        .required("spec", spec)
        .optional("status", structural::of_status::<DataSourceStatus>())
        .schema();
    Definition {
        group: DataSource::GROUP,
        kind: DataSource::KIND,
        plural: DataSource::PLURAL,
        singular: "datasource",
        short_names: &["das"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: None,
        versions: vec![Version::stored(DataSource::VERSION, &schema)],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("Ready", ".status.conditions[?(@.type==\"Ready\")].status"),
            Column::age(),
        ],
    }
}

fn storage_profiles() -> Definition {
    let schema =
        Object::new("What a storage class can do; there is one of its name for each class.")
            .required("spec", structural::of_spec::<StorageProfileSpec>())
            .optional("status", structural::of_status::<StorageProfileStatus>())
            .schema();
    Definition {
        group: StorageProfile::GROUP,
        kind: StorageProfile::KIND,
        plural: StorageProfile::PLURAL,
        singular: "storageprofile",
        short_names: &[],
        categories: &[],
        scope: Scope::Cluster,
        label: None,
        versions: vec![Version::stored(StorageProfile::VERSION, &schema)],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("Provisioner", ".status.provisioner"),
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
