//! The default network of a guest without networks.

use cluster_config::{Binding, ClusterConfig, Permission};
use kubevirt_api::{
    network::{Interface, InterfaceBridge, InterfaceMasquerade, Network, PodNetwork},
    vmi::VirtualMachineInstanceSpec,
};
use validation::Violation;

const NAME: &str = "default";

/// Attaches the guest to the pod network, unless it has networks or disables the default.
pub(crate) fn set_default(
    spec: &mut VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    path: &str,
) -> Result<(), Violation> {
    let devices = &mut spec.domain.devices;
    let is_disabled = devices.autoattach_pod_interface == Some(false);
    if is_disabled || !spec.networks.is_empty() || !devices.interfaces.is_empty() {
        return Ok(());
    }
    let interface = default_interface(config).map_err(|detail| {
        Violation::invalid(format!("{path}.domain.devices.interfaces"), detail)
    })?;
    devices.interfaces.push(interface);
    spec.networks.push(Network {
        name: NAME.to_owned(),
        pod: Some(PodNetwork::default()),
        ..Network::default()
    });
    Ok(())
}

fn default_interface(config: &ClusterConfig) -> Result<Interface, String> {
    let mut interface = Interface {
        name: NAME.to_owned(),
        ..Interface::default()
    };
    match &config.default_binding {
        Binding::Masquerade => interface.masquerade = Some(InterfaceMasquerade {}),
        Binding::Bridge if config.bridge_on_pod_network == Permission::Allowed => {
            interface.bridge = Some(InterfaceBridge {});
        }
        Binding::Bridge => {
            return Err(
                "the cluster's default binding is bridge, but bridges on the pod network \
                        are not permitted; name an interface with masquerade: {}"
                    .to_owned(),
            );
        }
        Binding::Unknown(name) => {
            return Err(format!(
                "the cluster's default binding {name:?} does not exist; name an interface with \
                 masquerade: {{}}"
            ));
        }
    }
    Ok(interface)
}
