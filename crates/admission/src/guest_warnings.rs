//! Warnings about a valid guest spec: deprecated feature gates, unsupported fields, fields without
//! effect, and network bindings that the cluster does not have yet.

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
    all.extend(unregistered_bindings(guest, config));
    all
}

/// Interfaces whose binding the administrator has not registered. `KubeVirt` accepts them, too.
fn unregistered_bindings(guest: &Described<'_>, config: &ClusterConfig) -> Vec<String> {
    let network = config.written.network.as_ref();
    let is_registered =
        |name: &str| network.is_some_and(|network| network.binding.contains_key(name));
    let path = guest.spec_path;
    let interfaces = guest.spec.domain.devices.interfaces.iter().enumerate();
    let unregistered = interfaces.filter(|(_, interface)| {
        let binding = interface.binding.as_ref();
        binding.is_some_and(|binding| !is_registered(&binding.name))
    });
    unregistered
        .map(|(index, _)| {
            format!(
                "accepted, but {path}.domain.devices.interfaces[{index}].binding.name is no network binding of this \
                 cluster: the guest waits until the administrator registers it"
            )
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn interface_with_an_unregistered_binding_is_named() {
        let bound = |name: &str| json!({"name": "n", "binding": {"name": name}});
        let interfaces = json!([bound("mine"), {"name": "n", "masquerade": {}}, bound("other")]);
        let spec = json!({"domain": {"devices": {"interfaces": interfaces}}});
        let spec = serde_json::from_value(spec).expect("a spec");
        let described = Described {
            spec: &spec,
            spec_path: "spec.template.spec",
        };
        let written = json!({"network": {"binding": {"mine": {"domainAttachmentType": "tap"}}}});
        let written = serde_json::from_value(written).expect("a configuration");
        let config = ClusterConfig::from_kubevirt(&written);
        assert_eq!(
            guest_warnings(&described, &config),
            [
                "accepted, but spec.template.spec.domain.devices.interfaces[2].binding.name is no network binding of \
                 this cluster: the guest waits until the administrator registers it"
            ]
        );
    }
}
