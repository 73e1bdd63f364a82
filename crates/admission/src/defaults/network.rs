//! The network of a guest that names none.

use kubevirt_api::{
    network::{Interface, InterfaceBridge, InterfaceMasquerade, Network, PodNetwork},
    vmi::VirtualMachineInstanceSpec,
};

use crate::{
    ClusterConfig,
    cluster_config::{Binding, Permission},
    violation::Violation,
};

const NAME: &str = "default";

/// Puts the guest on the pod network, unless it names networks or wants none.
pub fn set_default(
    spec: &mut VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    path: &str,
) -> Result<(), Violation> {
    let devices = &mut spec.domain.devices;
    let wants_none = devices.autoattach_pod_interface == Some(false);
    if wants_none || !spec.networks.is_empty() || !devices.interfaces.is_empty() {
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
