//! Network bindings that the administrator registered.

use std::collections::BTreeMap;

use kubevirt_api::cluster_config::{
    DomainAttachmentType, InterfaceBindingPlugin, KubeVirtConfiguration, MigrationMethod,
};

/// The registered bindings by name.
pub type BindingPlugins = BTreeMap<String, BindingPlugin>;

/// What virt-handler has to know about a registered binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingPlugin {
    pub attachment: Attachment,
    /// Whether a guest whose primary interface has the binding can move to another pod.
    pub migrates: bool,
    /// Whether the guest's link goes down and up after such a move, so that the guest asks for its address again.
    pub refreshes_link: bool,
}

/// Who connects the guest's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// The cluster's network plugin: it made a tap or a macvtap in the pod.
    Tap,
    /// virt-handler: a tap on a bridge with the pod's interface. Nothing tells the guest its addresses.
    ManagedTap,
    /// The binding's sidecar, which adds the interface to the domain.
    Sidecar,
}

impl BindingPlugin {
    pub fn of(written: &InterfaceBindingPlugin) -> Self {
        let migration = written.migration.as_ref();
        let method = migration.and_then(|migration| migration.method.as_ref());
        Self {
            attachment: match written.domain_attachment_type {
                Some(DomainAttachmentType::Tap) => Attachment::Tap,
                Some(DomainAttachmentType::ManagedTap) => Attachment::ManagedTap,
                // A pod with another value is not created.
                Some(DomainAttachmentType::Other(_)) | None => Attachment::Sidecar,
            },
            migrates: migration.is_some(),
            refreshes_link: method == Some(&MigrationMethod::LinkRefresh),
        }
    }

    /// Those of the cluster's configuration.
    pub fn all(settings: &KubeVirtConfiguration) -> BindingPlugins {
        let written = settings.network.iter();
        let written = written.flat_map(|network| &network.binding);
        written
            .map(|(name, written)| (name.clone(), Self::of(written)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn registered_bindings_are_read() {
        let settings = json!({"network": {"binding": {
            "sidecar": {"sidecarImage": "registry.example/binding:1", "migration": {}},
            "taps": {"domainAttachmentType": "tap"},
            "managed": {"domainAttachmentType": "managedTap", "migration": {"method": "link-refresh"}},
            "empty": {"domainAttachmentType": "", "migration": null},
        }}});
        let settings = serde_json::from_value(settings).expect("settings");
        let found: Vec<_> = BindingPlugin::all(&settings).into_iter().collect();
        let plugin = |name: &str, attachment, migrates, refreshes_link| {
            let plugin = BindingPlugin {
                attachment,
                migrates,
                refreshes_link,
            };
            (name.to_owned(), plugin)
        };
        let expected = [
            plugin("empty", Attachment::Sidecar, false, false),
            plugin("managed", Attachment::ManagedTap, true, true),
            plugin("sidecar", Attachment::Sidecar, true, false),
            plugin("taps", Attachment::Tap, false, false),
        ];
        assert_eq!(found, expected);
        assert!(BindingPlugin::all(&KubeVirtConfiguration::default()).is_empty());
    }
}
