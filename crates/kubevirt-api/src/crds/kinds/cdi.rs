//! Group `cdi.kubevirt.io`: the kinds of the importer. On clusters CDI may define them instead, so they are
//! not in the list of our kinds; the label shows who made the definition.

use crate::{
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        rules, structural,
    },
    data_volume::DataVolumeSpec,
    data_volume_status::{DataVolume, DataVolumeStatus},
    labels,
};

pub(super) fn rows() -> Vec<Definition> {
    vec![data_volumes()]
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
