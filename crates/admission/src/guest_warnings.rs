//! Warnings about a valid guest spec: deprecated feature gates and unsupported fields.

use cluster_config::{
    ClusterConfig,
    gates::{Gate, Stage},
};
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use model::{Unsupported, unsupported};

/// Warnings for the author of a guest; `path` is the path of the spec in the object.
pub(crate) fn guest_warnings(
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    path: &str,
) -> Vec<String> {
    let mut all = deprecated_gates(spec, config);
    let unsupported = unsupported::in_spec(spec, path);
    all.extend(unsupported.iter().map(Unsupported::warning));
    all
}

/// Warnings about deprecated gates that are listed and that the guest uses.
fn deprecated_gates(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) -> Vec<String> {
    let is_hotpluggable = spec.volumes.iter().any(|volume| {
        let claim = volume.persistent_volume_claim.as_ref();
        let data_volume = volume.data_volume.as_ref();
        claim.is_some_and(|claim| claim.hotpluggable == Some(true))
            || data_volume.is_some_and(|source| source.hotpluggable == Some(true))
    });
    let is_foreign = spec
        .architecture
        .as_deref()
        .is_some_and(|own| !own.is_empty() && own != config.default_architecture);
    config
        .gates
        .listed()
        .filter(|gate| gate.stage == Stage::Deprecated)
        .filter(|gate| match gate.name {
            "HotplugVolumes" => is_hotpluggable,
            "MultiArchitecture" => is_foreign,
            _ => false,
        })
        .filter_map(Gate::warning)
        .collect()
}
