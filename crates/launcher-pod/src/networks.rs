//! Secondary networks: the annotations for the network plugin that attaches them.

use std::collections::BTreeMap;

use kubevirt_api::annotations;
use kubevirt_api::cluster_config::{
    DomainAttachmentType, InterfaceBindingPlugin, NetworkBindingDownwardApiType,
};
use kubevirt_api::network::{MultusNetwork, Network};
use model::{Binding, BindingPlugin, Interface, pod_interface_name};
use serde::Serialize;

use crate::{Input, PodError};

/// The file with the devices of the pod's networks.
pub(crate) const DEVICE_INFO_VOLUME: &str = "network-info-annotation";
pub(crate) const DEVICE_INFO_PATH: &str = "/etc/podinfo";
/// The bridge in the pod, which a service mesh has to know.
const BRIDGE: &str = "k6t-eth0";

/// One network, in the format of the plugin.
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

/// Arguments for the plugin of a registered binding.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PluginArguments<'a> {
    logic_network_name: &'a str,
}

pub(crate) fn annotations(input: &Input<'_>) -> Result<BTreeMap<String, String>, PodError> {
    let vmi = input.guest.vmi;
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
    let read = device_networks(input);
    if !read.is_empty() {
        let text = serde_json::to_string(&read)
            .map_err(|error| PodError::invalid("spec.networks", &error))?;
        all.insert(annotations::DEVICE_NETWORKS.to_owned(), text);
    }
    let used = used_plugins(input)?.into_iter();
    let used = used.map(|(name, plugin)| (name, BindingPlugin::of(plugin)));
    let used: BTreeMap<&str, BindingPlugin> = used.collect();
    if !used.is_empty() {
        let text = serde_json::to_string(&used)
            .map_err(|error| PodError::invalid("spec.domain.devices.interfaces", &error))?;
        all.insert(annotations::NETWORK_BINDINGS.to_owned(), text);
    }
    if let Some(mac) = guest_mac(input) {
        all.insert(annotations::GUEST_MAC.to_owned(), mac.to_owned());
    }
    let mut interfaces = input.guest.plugged_interfaces();
    if interfaces.any(|interface| interface.binding == Binding::Masquerade) {
        for key in [
            annotations::ISTIO_REROUTE_VIRTUAL_INTERFACES,
            annotations::ISTIO_KUBEVIRT_INTERFACES,
        ] {
            all.insert(key.to_owned(), BRIDGE.to_owned());
        }
    }
    Ok(all)
}

/// The hardware address that the guest chose for the pod network, if its frames get there as they are.
fn guest_mac<'a>(input: &Input<'a>) -> Option<&'a str> {
    let mut interfaces = input.guest.plugged_interfaces();
    let on_pod_network = interfaces.find(|one| matches!(one.network, Some(model::Network::Pod(_))));
    let interface = on_pod_network?;
    let is_direct = matches!(interface.binding, Binding::Bridge | Binding::Plugin(_));
    let mac = interface.spec.mac_address.as_deref();
    mac.filter(|mac| is_direct && !mac.is_empty())
}

/// Whether the pod has a file with the devices of its networks. On the pod network alone it stays empty.
pub(crate) fn needs_device_info(input: &Input<'_>) -> bool {
    let mut interfaces = input.guest.plugged_interfaces();
    interfaces.any(|interface| {
        interface.binding == Binding::Sriov
            || plugin_of(input, interface).is_some_and(reads_devices)
    })
}

/// The secondary networks whose devices the sidecars of their bindings read.
fn device_networks<'a>(input: &Input<'a>) -> Vec<&'a str> {
    let interfaces = input.guest.plugged_interfaces();
    let read = interfaces.filter(|interface| {
        !interface.is_primary() && plugin_of(input, interface).is_some_and(reads_devices)
    });
    read.map(Interface::name).collect()
}

/// Whether the sidecar of the binding gets a file with the devices of its networks.
pub(crate) fn reads_devices(plugin: &InterfaceBindingPlugin) -> bool {
    plugin.downward_api == Some(NetworkBindingDownwardApiType::DeviceInfo)
}

/// The registered bindings that the guest uses, by name.
pub(crate) fn used_plugins<'a>(
    input: &Input<'a>,
) -> Result<BTreeMap<&'a str, &'a InterfaceBindingPlugin>, PodError> {
    let mut found = BTreeMap::new();
    for interface in input.guest.plugged_interfaces() {
        let Binding::Plugin(used) = interface.binding else {
            continue;
        };
        let plugin = input.settings.binding_plugins.get(&used.name);
        let plugin = plugin.ok_or_else(|| PodError::UnknownBinding {
            field: interface.field("binding.name"),
            binding: used.name.clone(),
        })?;
        if let Some(DomainAttachmentType::Other(kind)) = &plugin.domain_attachment_type
            && !kind.is_empty()
        {
            let field = registration_field(&used.name, "domainAttachmentType");
            let problem = format!("{kind:?} is unknown; use tap or managedTap, or leave it out");
            return Err(PodError::invalid(field, &problem));
        }
        found.insert(used.name.as_str(), plugin);
    }
    Ok(found)
}

/// A member of a registered binding, for messages.
pub(crate) fn registration_field(binding: &str, member: &str) -> String {
    format!("spec.configuration.network.binding[{binding}].{member} of the KubeVirt object")
}

/// In the order of the VMI's networks: the network's own attachment, then that of its binding plugin, which finds
/// the interface of the first.
fn attachments<'a>(input: &Input<'a>) -> Vec<Attachment<'a>> {
    let own = input.guest.namespace();
    let networks = input.guest.vmi.spec.networks.iter();
    let joined = networks.filter_map(|n| Some((n, interface_on(input, &n.name)?)));
    joined
        .flat_map(|(network, interface)| {
            let plugin = plugin_of(input, interface);
            let definition = plugin.and_then(|p| p.network_attachment_definition.as_deref());
            let of_plugin = definition.map(|definition| attach_plugin(definition, own, network));
            let multus = network.multus.as_ref();
            let secondary = multus.filter(|multus| multus.default != Some(true));
            let of_network = secondary.map(|multus| attach(multus, own, network, interface));
            [of_network, of_plugin].into_iter().flatten()
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
    interface: &Interface<'a>,
) -> Attachment<'a> {
    let (namespace, name) = split(&multus.network_name, own);
    let mac = interface.spec.mac_address.as_deref();
    Attachment {
        name,
        namespace,
        mac: mac.filter(|mac| !mac.is_empty()),
        interface: Some(pod_interface_name(&network.name)),
        cni_args: None,
    }
}

fn interface_on<'a>(input: &Input<'a>, network: &str) -> Option<&'a Interface<'a>> {
    let mut interfaces = input.guest.plugged_interfaces();
    interfaces.find(|interface| interface.name() == network)
}

fn plugin_of<'a>(
    input: &Input<'a>,
    interface: &Interface<'_>,
) -> Option<&'a InterfaceBindingPlugin> {
    match interface.binding {
        Binding::Plugin(plugin) => input.settings.binding_plugins.get(&plugin.name),
        _ => None,
    }
}

/// `namespace/name`, or a name in the pod's own namespace.
fn split<'a>(name: &'a str, own: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((own, name))
}
