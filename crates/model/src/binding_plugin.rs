//! Network bindings that the administrator registered.

use std::collections::BTreeMap;

use kubevirt_api::annotations;
use kubevirt_api::cluster_config::{
    DomainAttachmentType, InterfaceBindingPlugin, KubeVirtConfiguration, MigrationMethod,
};
use serde::{Deserialize, Serialize};

/// The bindings as the administrator has registered them now, by name.
pub type RegisteredBindings = BTreeMap<String, InterfaceBindingPlugin>;

/// The bindings of a pod, by name.
pub type BindingPlugins = BTreeMap<String, BindingPlugin>;

/// How a binding was registered when a pod with it was created. The pod keeps it as an annotation, since it was made
/// for this registration: a later one does not change how a guest is connected that may be running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingPlugin {
    pub attachment: Attachment,
    /// Whether the guest's link goes down and up after a move to this pod, so that the guest asks for its address
    /// again.
    #[serde(rename = "linkRefresh", default)]
    pub refreshes_link: bool,
}

/// Who connects the guest's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
            refreshes_link: method == Some(&MigrationMethod::LinkRefresh),
        }
    }

    /// Those of a pod with these annotations.
    pub fn of_pod(annotated: Option<&BTreeMap<String, String>>) -> BindingPlugins {
        let written = annotated.and_then(|all| all.get(annotations::NETWORK_BINDINGS));
        // virt-controller writes it. With an unreadable one a guest is refused that has such an interface.
        written
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }
}

/// Those of the cluster's configuration.
pub fn registered_bindings(settings: &KubeVirtConfiguration) -> &RegisteredBindings {
    static NONE: RegisteredBindings = RegisteredBindings::new();
    let network = settings.network.as_ref();
    network.map_or(&NONE, |network| &network.binding)
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
        let settings: KubeVirtConfiguration = serde_json::from_value(settings).expect("settings");
        let registered = registered_bindings(&settings).iter();
        let found = registered.map(|(name, written)| (name.as_str(), BindingPlugin::of(written)));
        let plugin = |name, attachment, refreshes_link| {
            let plugin = BindingPlugin {
                attachment,
                refreshes_link,
            };
            (name, plugin)
        };
        let expected = [
            plugin("empty", Attachment::Sidecar, false),
            plugin("managed", Attachment::ManagedTap, true),
            plugin("sidecar", Attachment::Sidecar, false),
            plugin("taps", Attachment::Tap, false),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert!(registered_bindings(&KubeVirtConfiguration::default()).is_empty());
    }

    #[test]
    fn bindings_of_a_pod_are_those_that_were_recorded() {
        assert!(BindingPlugin::of_pod(None).is_empty());
        let of = |text: &str| {
            let key = annotations::NETWORK_BINDINGS.to_owned();
            BindingPlugin::of_pod(Some(&BTreeMap::from([(key, text.to_owned())])))
        };
        let plugin = |attachment, refreshes_link| BindingPlugin {
            attachment,
            refreshes_link,
        };
        let all = BTreeMap::from([
            ("a".to_owned(), plugin(Attachment::ManagedTap, true)),
            ("b".to_owned(), plugin(Attachment::Sidecar, false)),
            ("c".to_owned(), plugin(Attachment::Tap, false)),
        ]);
        let written = json!({
            "a": {"attachment": "managedTap", "linkRefresh": true},
            "b": {"attachment": "sidecar", "linkRefresh": false},
            "c": {"attachment": "tap", "linkRefresh": false},
        });
        assert_eq!(json!(all), written);
        assert_eq!(of(&written.to_string()), all);
        assert!(of("[]").is_empty());
        assert!(of(r#"{"a": {"attachment": "socket"}}"#).is_empty());
    }
}
