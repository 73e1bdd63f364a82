//! Volume snapshots of Kubernetes (`snapshot.storage.k8s.io`): copies of the data of claims.
//!
//! On a cluster the CSI snapshot controller defines and serves these kinds; on a single host the node does.

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
};
use serde::{Deserialize, Serialize};

use crate::{annotations::DEFAULT_SNAPSHOT_CLASS, resource::kind, tolerant::null_as_default};

/// A copy of the data of a claim, kept under a name in its namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshot {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VolumeSnapshotSpec,
    pub status: Option<VolumeSnapshotStatus>,
}

kind!(VolumeSnapshot {
    group: "snapshot.storage.k8s.io",
    version: "v1",
    plural: "volumesnapshots",
    scope: NamespaceResourceScope,
    spec: VolumeSnapshotSpec,
    status: VolumeSnapshotStatus,
});

/// What to copy, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub source: VolumeSnapshotSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// One of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotSource {
    /// The claim to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// An existing copy to adopt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// The moment of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The smallest size of a claim that is made from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
}

/// The last failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The copy behind a volume snapshot.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContent {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VolumeSnapshotContentSpec,
    pub status: Option<VolumeSnapshotContentStatus>,
}

kind!(VolumeSnapshotContent {
    group: "snapshot.storage.k8s.io",
    version: "v1",
    plural: "volumesnapshotcontents",
    scope: ClusterResourceScope,
    spec: VolumeSnapshotContentSpec,
    status: VolumeSnapshotContentStatus,
});

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentSpec {
    /// `Delete` or `Retain`.
    #[serde(deserialize_with = "null_as_default")]
    pub deletion_policy: String,
    #[serde(deserialize_with = "null_as_default")]
    pub driver: String,
    #[serde(deserialize_with = "null_as_default")]
    pub source: VolumeSnapshotContentSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub volume_snapshot_ref: ObjectReference,
}

/// One of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentSource {
    /// The volume to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
    /// An existing copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The moment of the copy, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
}

/// How snapshots of a driver's volumes are taken. The kind has no `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotClass {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub driver: String,
    /// `Delete` or `Retain`.
    #[serde(deserialize_with = "null_as_default")]
    pub deletion_policy: String,
}

impl kube::Resource for VolumeSnapshotClass {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "VolumeSnapshotClass".into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        VolumeSnapshot::GROUP.into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        VolumeSnapshot::VERSION.into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "volumesnapshotclasses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The class of snapshots of a driver's volumes: the only one, or the only one that is marked as default.
pub fn class_of_driver<'a>(
    classes: impl IntoIterator<Item = &'a VolumeSnapshotClass>,
    driver: &str,
) -> Option<&'a VolumeSnapshotClass> {
    let of_driver = classes.into_iter().filter(|class| class.driver == driver);
    let all: Vec<&VolumeSnapshotClass> = of_driver.collect();
    let only = |list: &[&'a VolumeSnapshotClass]| match list {
        [one] => Some(*one),
        _ => None,
    };
    let is_default = |class: &&VolumeSnapshotClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(DEFAULT_SNAPSHOT_CLASS))
            .is_some_and(|value| value == "true")
    };
    only(&all).or_else(|| only(&all.iter().copied().filter(is_default).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, driver: &str, default: &str) -> VolumeSnapshotClass {
        let annotations = json!({DEFAULT_SNAPSHOT_CLASS: default});
        let metadata = json!({"name": name, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "driver": driver})).unwrap()
    }

    #[test]
    fn class_is_the_only_or_the_default_one_of_the_driver() {
        let (a, b, c) = (
            class("a", "x", "false"),
            class("b", "x", "true"),
            class("c", "y", "false"),
        );
        for (classes, expected) in [
            (vec![], None),
            (vec![&c], None),
            (vec![&a, &c], Some("a")),
            (vec![&a, &b, &c], Some("b")),
            (vec![&a, &a], None),
            (vec![&b, &b], None),
        ] {
            let found = class_of_driver(classes, "x");
            assert_eq!(found.and_then(|one| one.metadata.name.as_deref()), expected);
        }
    }
}
