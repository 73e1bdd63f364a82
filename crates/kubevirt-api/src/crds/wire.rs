//! Types with their own schemas, to compare them with facts: the specs and statuses of
//! kinds, and types outside of definitions, such as bodies of subresources.
//!
//! To add a type: a line in [`types`].

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::{
    access_credentials, backup, cdi_config, clone, cluster_config, confidential, data_source,
    data_volume_status, export, guest_agent, instancetype, kubevirt, migration_policy,
    migration_request, object_graph, plugin, pool, preference, preset, profiler, replica_set,
    restore, snapshot, storage_profile, subresource_bodies, template, vm, vm_status, vmi,
    vmi_status,
};

/// One type: what it is called on the wire, and its schema with everything it refers to.
#[derive(Clone, Copy, Debug)]
pub struct WireType {
    pub group: &'static str,
    /// The stored version.
    pub version: &'static str,
    pub name: &'static str,
    pub schema: fn() -> Value,
}

/// Group, name and values of enumerations that no field of a listed type has.
pub const ENUMERATIONS: &[(&str, &str, &[&str])] = &[
    ("backup.kubevirt.io", "BackupCmd", backup::BackupCmd::KNOWN),
    (
        "backup.kubevirt.io",
        "ConditionType",
        backup::ConditionType::KNOWN,
    ),
    (
        "backup.kubevirt.io",
        "QuiesceStatus",
        backup::QuiesceStatus::KNOWN,
    ),
    (
        "cdi.kubevirt.io",
        "DataVolumeConditionType",
        data_volume_status::DataVolumeConditionType::KNOWN,
    ),
    (
        "kubevirt.io",
        "NetworkInterfaceType",
        cluster_config::DEFAULT_INTERFACES,
    ),
    ("kubevirt.io", "SyncEvent", SYNC_EVENTS),
    (
        "plugin.kubevirt.io",
        "InvocationContext",
        plugin::InvocationContext::KNOWN,
    ),
];

/// Reasons of the events on a VMI, as `KubeVirt` lists them; this version publishes some of them.
const SYNC_EVENTS: &[&str] = &[
    "Created",
    "Deleted",
    "PresetFailed",
    "Override",
    "Started",
    "ShuttingDown",
    "Stopped",
    "PreparingTarget",
    "Migrating",
    "Migrated",
    "SyncFailed",
    "Resumed",
    "AccessCredentialsSyncFailed",
    "AccessCredentialsSyncSuccess",
];

macro_rules! wire_types {
    ($($group:literal / $version:literal { $($module:ident :: $type:ident,)+ })+) => {
        vec![$($(WireType {
            group: $group,
            version: $version,
            name: stringify!($type),
            schema: schema::<$module::$type>,
        },)+)+]
    };
}

/// Every type that is the root of others.
pub fn types() -> Vec<WireType> {
    wire_types! {
        "backup.kubevirt.io" / "v1alpha1" {
            backup::BackupOptions,
            backup::VirtualMachineBackupSpec,
            backup::VirtualMachineBackupStatus,
            backup::VirtualMachineBackupTrackerSpec,
            backup::VirtualMachineBackupTrackerStatus,
        }
        "cdi.kubevirt.io" / "v1beta1" {
            cdi_config::CDIConfig,
            data_source::DataSource,
            data_source::DataSourceRefSourceDataSource,
            data_volume_status::DataVolume,
            storage_profile::StorageProfile,
        }
        "clone.kubevirt.io" / "v1beta1" {
            clone::VirtualMachineCloneSpec,
            clone::VirtualMachineCloneStatus,
        }
        "export.kubevirt.io" / "v1" {
            export::VirtualMachineExportSpec,
            export::VirtualMachineExportStatus,
        }
        "instancetype.kubevirt.io" / "v1beta1" {
            instancetype::VirtualMachineInstancetypeSpec,
            preference::VirtualMachinePreferenceSpec,
        }
        "kubevirt.io" / "v1" {
            access_credentials::AuthorizedKeysFile,
            cluster_config::KubeVirtConfiguration,
            confidential::SEVMeasurementInfo,
            confidential::SEVPlatformInfo,
            confidential::SEVSecretOptions,
            confidential::SEVSessionOptions,
            guest_agent::VirtualMachineInstanceFileSystemInfo,
            guest_agent::VirtualMachineInstanceFileSystemList,
            guest_agent::VirtualMachineInstanceGuestAgentInfo,
            guest_agent::VirtualMachineInstanceGuestOSUserList,
            kubevirt::KubeVirtSpec,
            kubevirt::KubeVirtStatus,
            migration_request::VirtualMachineInstanceMigrationSpec,
            migration_request::VirtualMachineInstanceMigrationStatus,
            object_graph::ObjectGraphNode,
            object_graph::ObjectGraphOptions,
            preset::VirtualMachineInstancePresetSpec,
            profiler::ClusterProfilerRequest,
            profiler::ClusterProfilerResults,
            replica_set::VirtualMachineInstanceReplicaSetSpec,
            replica_set::VirtualMachineInstanceReplicaSetStatus,
            subresource_bodies::AddVolumeOptions,
            subresource_bodies::EvacuateCancelOptions,
            subresource_bodies::FreezeUnfreezeTimeout,
            subresource_bodies::MigrateOptions,
            subresource_bodies::PauseOptions,
            subresource_bodies::RemoveVolumeOptions,
            subresource_bodies::RestartOptions,
            subresource_bodies::ScreenshotOptions,
            subresource_bodies::StartOptions,
            subresource_bodies::StopOptions,
            subresource_bodies::UnpauseOptions,
            subresource_bodies::VSOCKOptions,
            vm::VirtualMachineSpec,
            vm_status::VirtualMachineStatus,
            vmi::VirtualMachineInstanceSpec,
            vmi::VMISelector,
            vmi_status::VirtualMachineInstanceStatus,
        }
        "migrations.kubevirt.io" / "v1alpha1" {
            migration_policy::MigrationPolicySpec,
            migration_policy::MigrationPolicyStatus,
        }
        "plugin.kubevirt.io" / "v1alpha1" {
            plugin::PluginSpec,
            plugin::PluginStatus,
        }
        "pool.kubevirt.io" / "v1beta1" {
            pool::VirtualMachinePoolSpec,
            pool::VirtualMachinePoolStatus,
        }
        "snapshot.kubevirt.io" / "v1beta1" {
            restore::VirtualMachineRestoreSpec,
            restore::VirtualMachineRestoreStatus,
            snapshot::VirtualMachineSnapshotContentSpec,
            snapshot::VirtualMachineSnapshotContentStatus,
            snapshot::VirtualMachineSnapshotSpec,
            snapshot::VirtualMachineSnapshotStatus,
        }
        "template.kubevirt.io" / "v1alpha1" {
            template::VirtualMachineTemplateRequestSpec,
            template::VirtualMachineTemplateRequestStatus,
            template::VirtualMachineTemplateSpec,
            template::VirtualMachineTemplateStatus,
        }
    }
}

fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut root = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    let name = T::schema_name();
    if name_root(&mut root, &format!("#/$defs/{name}")) {
        let itself = root.clone();
        root["$defs"][name.as_ref()] = itself;
    }
    root
}

/// Gives a name to references to the root, which recursive types have; returns whether there
/// were any.
fn name_root(schema: &mut Value, name: &str) -> bool {
    let mut found = false;
    match schema {
        Value::Object(object) => {
            if let Some(reference) = object.get_mut("$ref").filter(|it| *it == "#") {
                *reference = Value::from(name);
                found = true;
            }
            for inner in object.values_mut() {
                found |= name_root(inner, name);
            }
        }
        Value::Array(items) => {
            for inner in items {
                found |= name_root(inner, name);
            }
        }
        _ => {}
    }
    found
}
