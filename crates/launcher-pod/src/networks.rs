//! Secondary networks: what the pod tells the plugin that attaches them.

use std::collections::BTreeMap;

use kubevirt_api::cluster_config::InterfaceBindingPlugin;
use kubevirt_api::network::{Interface, MultusNetwork, Network};
use kubevirt_api::{VirtualMachineInstance, annotations};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{Input, PodError, guest};

/// A bridge of ours, which a service mesh in the pod must know of.
const BRIDGE: &str = "k6t-eth0";

/// Interface of the pod by which the guest joins a secondary network: made from the network's
/// name, so that it stays the same whatever else is attached.
pub fn pod_interface_name(network: &str) -> String {
    let hex = hex::encode(Sha256::digest(network.as_bytes()));
    let digits: String = hex.chars().take(11).collect();
    format!("pod{digits}")
}

/// One network, as the plugin reads it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Attachment<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cni_args: Option<PluginArguments<'a>>,
}

/// What a registered binding's own plugin is told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PluginArguments<'a> {
    logic_network_name: &'a str,
}

pub(crate) fn annotations(input: &Input<'_>) -> Result<BTreeMap<String, String>, PodError> {
    let vmi = input.vmi;
    let mut all = BTreeMap::new();
    let attachments = attachments(input);
    if !attachments.is_empty() {
        let text = serde_json::to_string(&attachments)
            .map_err(|error| PodError::invalid("spec.networks", &error))?;
        all.insert(annotations::CNI_NETWORKS.to_owned(), text);
    }
    let mut multus = vmi.spec.networks.iter().filter_map(|n| n.multus.as_ref());
    if let Some(default) = multus.find(|multus| multus.default == Some(true)) {
        let name = default.network_name.clone();
        all.insert(annotations::MULTUS_DEFAULT_NETWORK.to_owned(), name);
    }
    if guest::interfaces(vmi).any(|interface| interface.masquerade.is_some()) {
        for key in [
            annotations::ISTIO_REROUTE_VIRTUAL_INTERFACES,
            annotations::ISTIO_KUBEVIRT_INTERFACES,
        ] {
            all.insert(key.to_owned(), BRIDGE.to_owned());
        }
    }
    Ok(all)
}

/// Whether something in the pod reads where the devices of its networks are.
pub(crate) fn needs_device_info(input: &Input<'_>) -> bool {
    guest::interfaces(input.vmi).any(|interface| {
        let plugin = plugin_of(input, interface);
        interface.sriov.is_some() || plugin.is_some_and(|plugin| plugin.downward_api.is_some())
    })
}

/// In the order of the VMI's networks: what its binding attaches, then the network itself.
fn attachments<'a>(input: &Input<'a>) -> Vec<Attachment<'a>> {
    let own = input.vmi.metadata.namespace.as_deref().unwrap_or_default();
    let networks = input.vmi.spec.networks.iter();
    let joined = networks.filter_map(|n| Some((n, interface_of(input.vmi, &n.name)?)));
    joined
        .flat_map(|(network, interface)| {
            let plugin = plugin_of(input, interface);
            let definition = plugin.and_then(|p| p.network_attachment_definition.as_deref());
            let of_plugin = definition.map(|definition| attach_plugin(definition, own, network));
            let multus = network.multus.as_ref();
            let secondary = multus.filter(|multus| multus.default != Some(true));
            let of_network = secondary.map(|multus| attach(multus, own, network, interface));
            [of_plugin, of_network].into_iter().flatten()
        })
        .collect()
}

fn attach_plugin<'a>(definition: &'a str, own: &'a str, network: &'a Network) -> Attachment<'a> {
    let (namespace, name) = split(definition, own);
    Attachment {
        name,
        namespace,
        mac: None,
        interface: None,
        cni_args: Some(PluginArguments {
            logic_network_name: &network.name,
        }),
    }
}

fn attach<'a>(
    multus: &'a MultusNetwork,
    own: &'a str,
    network: &Network,
    interface: &'a Interface,
) -> Attachment<'a> {
    let (namespace, name) = split(&multus.network_name, own);
    let mac = interface.mac_address.as_deref();
    Attachment {
        name,
        namespace,
        mac: mac.filter(|mac| !mac.is_empty()),
        interface: Some(pod_interface_name(&network.name)),
        cni_args: None,
    }
}

fn interface_of<'a>(vmi: &'a VirtualMachineInstance, network: &str) -> Option<&'a Interface> {
    guest::interfaces(vmi).find(|interface| interface.name == network)
}

fn plugin_of<'a>(input: &Input<'a>, interface: &Interface) -> Option<&'a InterfaceBindingPlugin> {
    let name = &interface.binding.as_ref()?.name;
    input.settings.binding_plugins.get(name)
}

/// `namespace/name` or a name in our own namespace.
fn split<'a>(name: &'a str, own: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((own, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_follow_from_the_network_and_fit_the_kernel() {
        let name = pod_interface_name("blue");
        assert_eq!(name, pod_interface_name("blue"));
        assert_eq!(name.len(), 14);
        // SHA-256 of "blue" begins with these digits.
        assert_eq!(name, "pod16477688c0e");
    }
}
