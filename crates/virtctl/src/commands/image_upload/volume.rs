//! The objects that are made for an upload.

use kubevirt_api::{annotations, labels};
use serde_json::{Map, Value, json};

use super::cli::{ImageUpload, Kind};
use crate::failure::Usage;

const APPLY_STORAGE_PROFILE: &str = "cdi.kubevirt.io/applyStorageProfile";

/// The data volume or claim.
pub(super) fn volume(flags: &ImageUpload) -> Result<Value, Usage> {
    let (kind, name) = flags.kind_and_name()?;
    let size = flags
        .size
        .as_ref()
        .or(flags.pvc_size.as_ref())
        .ok_or_else(|| {
            Usage::new(format!(
                "{name} does not exist, so it needs a size: add --size, such as --size 10Gi"
            ))
        })?;
    quantity::Amount::parse_text(size).map_err(|err| Usage::new(format!("--size: {err}")))?;
    let mut storage = json!({"resources": {"requests": {"storage": size}}});
    let mut set = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            storage[field] = value;
        }
    };
    set(
        "storageClassName",
        flags.storage_class.as_deref().map(Value::from),
    );
    set("volumeMode", flags.volume_mode()?.map(Value::from));
    // A claim has no default; the storage profile of a data volume has.
    let claim_default = (kind == Kind::Claim).then_some("ReadWriteOnce");
    let mode = flags.access_mode.as_deref().or(claim_default);
    set("accessModes", mode.map(|mode| json!([mode])));

    let mut annotations = Map::new();
    if flags.force_bind {
        annotations.insert(
            annotations::CDI_BIND_IMMEDIATE_REQUESTED.to_owned(),
            "".into(),
        );
    }
    let mut labels = default_labels(flags);
    let (api_version, kind, spec) = match kind {
        Kind::DataVolume => {
            let spec = json!({
                "source": {"upload": {}},
                "storage": storage,
                "contentType": flags.content_type(),
            });
            ("cdi.kubevirt.io/v1beta1", "DataVolume", spec)
        }
        Kind::Claim => {
            labels.insert(APPLY_STORAGE_PROFILE.to_owned(), "true".into());
            let content = flags.content_type().into();
            annotations.insert(annotations::CDI_CONTENT_TYPE.to_owned(), content);
            annotations.insert(annotations::CDI_UPLOAD_TARGET.to_owned(), "".into());
            ("v1", "PersistentVolumeClaim", storage)
        }
    };
    let mut metadata = json!({"name": name});
    for (field, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata[field] = map.into();
        }
    }
    Ok(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}))
}

/// The data source of an uploaded volume.
pub(super) fn data_source(flags: &ImageUpload, name: &str, namespace: &str) -> Value {
    let mut metadata = json!({"name": name});
    let labels = default_labels(flags);
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataSource",
        "metadata": metadata,
        "spec": {"source": {"pvc": {"name": name, "namespace": namespace}}},
    })
}

fn default_labels(flags: &ImageUpload) -> Map<String, Value> {
    let labels = [
        (labels::DEFAULT_INSTANCETYPE, &flags.default_instancetype),
        (
            labels::DEFAULT_INSTANCETYPE_KIND,
            &flags.default_instancetype_kind,
        ),
        (labels::DEFAULT_PREFERENCE, &flags.default_preference),
        (
            labels::DEFAULT_PREFERENCE_KIND,
            &flags.default_preference_kind,
        ),
    ];
    let given = labels.into_iter();
    let given = given.filter_map(|(label, value)| {
        let value = value.as_deref()?;
        Some((label.to_owned(), Value::from(value)))
    });
    given.collect()
}

/// Why an existing claim cannot be uploaded into.
pub(super) fn unusable(flags: &ImageUpload, claim: &Value) -> Option<String> {
    let annotation = |name: &str| claim["metadata"]["annotations"][name].as_str();
    if annotation(annotations::CDI_POD_PHASE) == Some("Succeeded") {
        return Some(
            "its data is there already: choose another name, or delete it first".to_owned(),
        );
    }
    if annotation(annotations::CDI_UPLOAD_TARGET).is_none() {
        return Some("it was not made for an upload: choose another name".to_owned());
    }
    let content = annotation(annotations::CDI_CONTENT_TYPE)?;
    (content != flags.content_type()).then(|| {
        let (wanted, flag) = match content {
            "archive" => ("an archive", "--archive-path"),
            _ => ("an image", "--image-path"),
        };
        format!("it was made for {wanted}: use {flag}")
    })
}
