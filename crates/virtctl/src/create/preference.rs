//! `create preference`.

use clap::Args;
use serde_json::{Value, json};

use super::{command::Inputs, object::Identity};

/// The values of `preferredCPUTopology`; those with `prefer` are the older names.
const TOPOLOGIES: [&str; 10] = [
    "sockets",
    "cores",
    "threads",
    "spread",
    "any",
    "preferSockets",
    "preferCores",
    "preferThreads",
    "preferSpread",
    "preferAny",
];

#[derive(Debug, Args)]
pub struct Preference {
    /// Name [default: a random one]
    #[arg(long)]
    pub name: Option<String>,
    /// Where instance types put their vCPUs
    #[arg(long, value_name = "TOPOLOGY", value_parser = TOPOLOGIES)]
    pub cpu_topology: Option<String>,
    /// Machine type, such as q35
    #[arg(long, value_name = "TYPE")]
    pub machine_type: Option<String>,
    /// Storage class of data volumes
    #[arg(long, value_name = "CLASS")]
    pub volume_storage_class: Option<String>,
    /// For one namespace instead of the cluster
    #[arg(long)]
    pub namespaced: bool,
}

pub(super) fn manifest(flags: &Preference, inputs: &mut Inputs<'_>) -> Value {
    let mut spec = json!({});
    if let Some(topology) = &flags.cpu_topology {
        spec["cpu"] = json!({"preferredCPUTopology": topology});
    }
    if let Some(machine) = &flags.machine_type {
        spec["machine"] = json!({"preferredMachineType": machine});
    }
    if let Some(class) = &flags.volume_storage_class {
        spec["volumes"] = json!({"preferredStorageClassName": class});
    }
    let (kind, prefix, namespace) = if flags.namespaced {
        ("VirtualMachinePreference", "preference", inputs.namespace)
    } else {
        ("VirtualMachineClusterPreference", "clusterpreference", None)
    };
    let identity = Identity {
        api_version: "instancetype.kubevirt.io/v1beta1",
        kind,
        prefix,
        name: flags.name.as_deref(),
        namespace,
    };
    identity.object(&identity.name_with(inputs.suffix), &spec)
}
