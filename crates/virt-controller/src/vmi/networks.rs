//! The network attachment definitions that a VMI names: whether they exist, and which resource of a node
//! a pod needs for them.

use std::collections::BTreeMap;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::{Client, ResourceExt as _};
use kubevirt_api::{VirtualMachineInstance, annotations};
use model::{Guest, Network};

/// What was found of the definitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Definitions {
    /// `namespace/name` of those that do not exist.
    pub(crate) missing: Vec<String>,
    /// The resource of a device plugin by network.
    pub(crate) resources: BTreeMap<String, String>,
}

impl Definitions {
    /// Why the VMI gets no pod.
    pub(super) fn problem(&self) -> Option<String> {
        let named = self.missing.join(", ");
        (!named.is_empty()).then(|| {
            format!("there is no NetworkAttachmentDefinition {named}, which the networks name")
        })
    }

    /// Reads the definitions. Without the kind none of them exists.
    pub(crate) async fn read(
        client: &Client,
        vmi: &VirtualMachineInstance,
    ) -> Result<Self, kube::Error> {
        let mut found = Self::default();
        for named in named(vmi) {
            let Some((namespace, name)) = named.key else {
                found.missing.push(named.name);
                continue;
            };
            match definition(client, &namespace, &name).await? {
                None => found.missing.push(format!("{namespace}/{name}")),
                Some(definition) => {
                    let resource = definition.annotations().get(annotations::CNI_RESOURCE_NAME);
                    let resource = resource.map(|resource| (named.network, resource.clone()));
                    found.resources.extend(resource);
                }
            }
        }
        Ok(found)
    }
}

/// `None` if there is no such definition, or no such kind.
async fn definition(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<PartialObjectMeta<DynamicObject>>, kube::Error> {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let plural = "network-attachment-definitions";
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    let all = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    match all.get_metadata(name).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the definition exists that a VMI in the namespace `own` names.
pub(crate) async fn has_definition(
    client: &Client,
    own: &str,
    network_name: &str,
) -> Result<bool, kube::Error> {
    let Some((namespace, name)) = model::definition_key(network_name, own) else {
        return Ok(false);
    };
    Ok(definition(client, namespace, name).await?.is_some())
}

/// A definition that a network of the VMI names.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    network: String,
    name: String,
    /// Namespace and name; `None` if there can be no such object.
    key: Option<(String, String)>,
}

fn named(vmi: &VirtualMachineInstance) -> Vec<Named> {
    let guest = Guest::of(vmi);
    let plugged = guest.plugged_interfaces();
    let named = plugged.filter_map(|interface| {
        let Some(Network::Multus(multus)) = interface.network else {
            return None;
        };
        let key = model::definition_key(&multus.network_name, guest.namespace());
        Some(Named {
            network: interface.name().to_owned(),
            name: multus.network_name.clone(),
            key: key.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        })
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_of_plugged_interfaces_are_named() {
        let bridge =
            |name: &str, state: Option<&str>| json!({"name": name, "bridge": {}, "state": state});
        let multus =
            |name: &str, network: &str| json!({"name": name, "multus": {"networkName": network}});
        let vmi = json!({
            "metadata": {"namespace": "ns", "name": "a"},
            "spec": {
                "domain": {"devices": {"interfaces": [
                    {"name": "default", "masquerade": {}},
                    bridge("blue", None), bridge("red", Some("down")), bridge("gone", Some("absent")),
                    bridge("odd", None),
                ]}},
                "networks": [
                    {"name": "default", "pod": {}},
                    multus("blue", "blue-net"), multus("red", "other/red-net"),
                    multus("gone", "gone-net"), multus("odd", "a/../b"),
                ],
            },
        });
        let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        let named: Vec<_> = named(&vmi)
            .into_iter()
            .map(|one| {
                let key = one
                    .key
                    .map(|(namespace, name)| format!("{namespace}/{name}"));
                (one.network, key)
            })
            .collect();
        let expected = [
            ("blue", Some("ns/blue-net")),
            ("red", Some("other/red-net")),
            ("odd", None),
        ];
        let owned = |text: &str| text.to_owned();
        assert_eq!(
            named,
            expected.map(|(network, key)| (owned(network), key.map(owned)))
        );
    }
}
