//! Warnings about a valid guest spec: deprecated feature gates, unsupported fields and
//! fields without effect.

use cluster_config::{
    ClusterConfig,
    gates::{Gate, Stage},
};
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use model::{Unsupported, unsupported};

/// A guest's spec, of a VMI or of a VM's template.
#[derive(Debug)]
pub(crate) struct Described<'a> {
    pub(crate) spec: &'a VirtualMachineInstanceSpec,
    /// Path of the spec in the object.
    pub(crate) spec_path: &'a str,
}

/// Warnings for the author of a guest.
pub(crate) fn guest_warnings(guest: &Described<'_>, config: &ClusterConfig) -> Vec<String> {
    let mut all = deprecated_gates(guest.spec, config);
    let unsupported = unsupported::in_spec(guest.spec, guest.spec_path);
    all.extend(unsupported.iter().map(Unsupported::warning));
    let without_effect = unsupported::without_effect(guest.spec, guest.spec_path);
    all.extend(without_effect.iter().map(Unsupported::notice));
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
