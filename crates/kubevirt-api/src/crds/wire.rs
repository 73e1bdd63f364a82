//! Types with their own schemas, for whoever compares them with facts: the specs and statuses of
//! kinds, and what no definition shows, such as bodies of subresources.
//!
//! To add a type: a line in [`types`].

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::{cluster_config, subresource_bodies, vm, vm_status, vmi, vmi_status};

/// One type: what it is called on the wire, and its schema with everything it refers to.
#[derive(Clone, Copy, Debug)]
pub struct WireType {
    pub group: &'static str,
    /// The stored version.
    pub version: &'static str,
    pub name: &'static str,
    pub schema: fn() -> Value,
}

/// Group, name and words of enumerations that no field of a listed type has.
pub const WORDS: &[(&str, &str, &[&str])] = &[];

macro_rules! wire_types {
    ($($group:literal / $version:literal { $($module:ident :: $type:ident $(as $name:literal)?,)+ })+) => {
        vec![$($(WireType {
            group: $group,
            version: $version,
            name: wire_types!(@name $type $($name)?),
            schema: schema::<$module::$type>,
        },)+)+]
    };
    (@name $type:ident) => { stringify!($type) };
    (@name $type:ident $name:literal) => { $name };
}

/// Every type that is the root of others.
pub fn types() -> Vec<WireType> {
    wire_types! {
        "kubevirt.io" / "v1" {
            cluster_config::KubeVirtConfiguration,
            subresource_bodies::AddVolumeOptions,
            subresource_bodies::PauseOptions,
            subresource_bodies::RestartOptions,
            subresource_bodies::StartOptions,
            subresource_bodies::StopOptions,
            subresource_bodies::RemoveVolumeOptions,
            subresource_bodies::UnpauseOptions,
            vm::VirtualMachineSpec,
            vm_status::VirtualMachineStatus,
            vmi::VirtualMachineInstanceSpec,
            vmi_status::VirtualMachineInstanceStatus,
        }
    }
}

fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}
