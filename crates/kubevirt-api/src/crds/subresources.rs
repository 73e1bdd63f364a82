//! Schemas of the bodies that requests to the aggregated APIs take and return, by type.

use serde_json::{Map, Value};

use super::structural::{of_spec, of_status};
use crate::{
    backup, confidential, guest_agent, object_graph, profiler, subresource_bodies, template,
    vm_status,
};

/// Types that users send, and types that components report.
pub fn schemas() -> Map<String, Value> {
    macro_rules! of {
        ($schema:ident: $($module:ident::$name:ident,)*) => {
            [$((stringify!($name).to_owned(), $schema::<$module::$name>()),)*]
        };
    }
    let sent = of![of_spec:
        subresource_bodies::StartOptions,
        subresource_bodies::StopOptions,
        subresource_bodies::RestartOptions,
        subresource_bodies::PauseOptions,
        subresource_bodies::UnpauseOptions,
        subresource_bodies::AddVolumeOptions,
        subresource_bodies::RemoveVolumeOptions,
        subresource_bodies::MigrateOptions,
        subresource_bodies::EvacuateCancelOptions,
        subresource_bodies::FreezeUnfreezeTimeout,
        vm_status::VirtualMachineMemoryDumpRequest,
        object_graph::ObjectGraphOptions,
        backup::BackupOptions,
        backup::BackupCheckpoint,
        confidential::SEVSessionOptions,
        confidential::SEVSecretOptions,
        profiler::ClusterProfilerRequest,
        template::ProcessOptions,
    ];
    let reported = of![of_status:
        guest_agent::VirtualMachineInstanceGuestAgentInfo,
        guest_agent::VirtualMachineInstanceGuestOSUserList,
        guest_agent::VirtualMachineInstanceFileSystemList,
        confidential::SEVPlatformInfo,
        confidential::SEVMeasurementInfo,
        profiler::ClusterProfilerResults,
    ];
    sent.into_iter().chain(reported).collect()
}
