//! Round trips of examples through our types and those of `k8s-openapi`.

use k8s_openapi::{
    Resource,
    api::{
        core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service},
        resource::v1beta2::ResourceClaimTemplate,
        scheduling::v1::PriorityClass,
    },
};
use kubevirt_api::{
    KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstancePreset, VirtualMachineInstanceReplicaSet,
    backup::{VirtualMachineBackup, VirtualMachineBackupTracker},
    backup_restore::VirtualMachineBackupRestore,
    clone::VirtualMachineClone,
    data_source::DataSource,
    export::VirtualMachineExport,
    instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype},
    migration_policy::MigrationPolicy,
    plugin::Plugin,
    pool::VirtualMachinePool,
    preference::{VirtualMachineClusterPreference, VirtualMachinePreference},
    restore::VirtualMachineRestore,
    snapshot::VirtualMachineSnapshot,
    template::{VirtualMachineTemplate, VirtualMachineTemplateRequest},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::catalogue::{examples, kind};

/// Deserializes and serializes a type.
type RoundTrip = fn(&Value) -> Result<Value, String>;

/// Version, kind and type.
type Row = (&'static str, &'static str, RoundTrip);

macro_rules! ours {
    ($($type:ty),* $(,)?) => {
        &[$((<$type>::API_VERSION, <$type>::KIND, round_trip::<$type>)),*]
    };
}

macro_rules! built_in {
    ($($type:ty),* $(,)?) => {
        &[$((<$type as Resource>::API_VERSION, <$type as Resource>::KIND, round_trip::<$type>)),*]
    };
}

const OURS: &[Row] = ours![
    KubeVirt,
    VirtualMachine,
    VirtualMachineInstance,
    VirtualMachineInstanceMigration,
    VirtualMachineInstancePreset,
    VirtualMachineInstanceReplicaSet,
    VirtualMachineBackup,
    VirtualMachineBackupRestore,
    VirtualMachineBackupTracker,
    VirtualMachineClone,
    DataSource,
    VirtualMachineExport,
    VirtualMachineClusterInstancetype,
    VirtualMachineInstancetype,
    MigrationPolicy,
    Plugin,
    VirtualMachinePool,
    VirtualMachineClusterPreference,
    VirtualMachinePreference,
    VirtualMachineRestore,
    VirtualMachineSnapshot,
    VirtualMachineTemplate,
    VirtualMachineTemplateRequest,
];

const BUILT_IN: &[Row] = built_in![
    ConfigMap,
    PersistentVolumeClaim,
    Secret,
    Service,
    PriorityClass,
    ResourceClaimTemplate,
];

/// Versions that have the same type as another.
const SAME_SHAPE: &[(&str, &str)] = &[
    ("kubevirt.io/v1alpha3", "kubevirt.io/v1"),
    (
        "template.kubevirt.io/v1beta1",
        "template.kubevirt.io/v1alpha1",
    ),
    // k8s-openapi's Kubernetes version does not have the first yet.
    ("resource.k8s.io/v1", "resource.k8s.io/v1beta2"),
];

/// Multus publishes no Rust types; `seeds` checks its one field.
const UNTYPED: &str = "NetworkAttachmentDefinition";

#[test]
fn examples_survive_a_round_trip() {
    let mut found = Vec::new();
    for example in examples() {
        for object in &example.objects {
            if let Err(problem) = survives(object) {
                found.push(format!("{}, {}: {problem}", example.file, kind(object)));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn survives(object: &Value) -> Result<(), String> {
    let mut object = object.clone();
    if let Some((_, other)) = SAME_SHAPE
        .iter()
        .find(|(version, _)| object["apiVersion"] == *version)
    {
        object["apiVersion"] = json!(other);
    }
    let row = OURS
        .iter()
        .chain(BUILT_IN)
        .find(|(version, kind, _)| object["apiVersion"] == *version && object["kind"] == *kind);
    let Some((_, _, round_trip)) = row else {
        return match kind(&object) {
            UNTYPED => Ok(()),
            _ => Err(format!("no type for {}", object["apiVersion"])),
        };
    };
    let before = without_nulls(&object);
    let after = without_nulls(&round_trip(&object)?);
    if before == after {
        Ok(())
    } else {
        Err(format!("reads {before}\nwrites {after}"))
    }
}

fn round_trip<T: Serialize + DeserializeOwned>(object: &Value) -> Result<Value, String> {
    let typed: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    serde_json::to_value(&typed).map_err(|error| error.to_string())
}

/// Removes nulls, which are equivalent to absent fields.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}
