//! The network for migrations: the pods of virt-handler get an interface on it.
//!
//! Multus adds the interface to pods with an annotation. The annotation belongs to the administrator as soon as it names
//! anything else: then it is left as it is. A definition that does not exist is never written there, since no pod of
//! virt-handler would start any more.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use kubevirt_api::{MIGRATION_INTERFACE, annotations};
use reasons::Reason;
use reconcile::{EventType, Fragment, Key, Requeue, WriteError, apply};
use serde_json::{Value, json};

use super::{Controller, InstallationError};
use crate::{MANAGER, components::Components, view::Installation};

const HANDLER: &str = "virt-handler";
/// How often a definition is looked for that does not exist.
const SEARCH_INTERVAL: std::time::Duration = std::time::Duration::from_mins(1);

/// What happens to the annotation.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Set(String),
    Remove,
}

/// The network that the administrator names.
fn wanted(object: &Installation) -> Option<&str> {
    let name = object.spec["configuration"]["migrations"]["network"].as_str();
    name.filter(|name| !name.is_empty())
}

/// The change from the annotation that is there.
fn change(wanted: Option<&str>, present: Option<&str>) -> Change {
    let wanted = wanted.map(|name| format!("{name}@{MIGRATION_INTERFACE}"));
    let is_ours = |value: &str| {
        let network = value.strip_suffix(MIGRATION_INTERFACE);
        let name = network.and_then(|network| network.strip_suffix('@'));
        name.is_some_and(|name| !name.contains([',', '{', '@']))
    };
    match (wanted, present) {
        (None, None) => Change::Nothing,
        (_, Some(present)) if !is_ours(present) => Change::Nothing,
        (Some(wanted), present) if present == Some(&wanted) => Change::Nothing,
        (Some(wanted), _) => Change::Set(wanted),
        (None, Some(_)) => Change::Remove,
    }
}

/// Namespace and name of a definition; one without a namespace is in that of the installation.
fn definition<'a>(named: &'a str, installation: &'a str) -> (&'a str, &'a str) {
    named.split_once('/').unwrap_or((installation, named))
}

fn present(handler: &DaemonSet) -> Option<&str> {
    let template = &handler.spec.as_ref()?.template;
    let all = template.metadata.as_ref()?.annotations.as_ref()?;
    all.get(annotations::CNI_NETWORKS).map(String::as_str)
}

impl Controller {
    /// Gives the pods of virt-handler the network, or takes it from them: they are replaced then.
    pub(super) async fn join_migration_network(
        &self,
        object: &Installation,
    ) -> Result<Requeue, InstallationError> {
        // A single host has no other node.
        let Components::Workloads { daemon_sets, .. } = &self.components else {
            return Ok(Requeue::OnChange);
        };
        let key = Key::new(&*self.default.namespace, HANDLER);
        let Some(handler) = daemon_sets.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        let network = match change(wanted(object), present(&handler)) {
            Change::Nothing => return Ok(Requeue::OnChange),
            Change::Remove => None,
            Change::Set(network) => Some(network),
        };
        if let Some(named) = wanted(object)
            && !self.is_defined(named).await?
        {
            let note = format!(
                "migrations.network names the network attachment definition {named:?}, which does not exist: \
                 guests do not migrate to other nodes until it does"
            );
            let reason = Reason::NetworkDefinitionMissing;
            self.recorder
                .publish(object, EventType::Warning, reason, &note);
            return Ok(Requeue::After(SEARCH_INTERVAL));
        }
        tracing::info!(?network, "the migration network of virt-handler changes");
        let api = Api::<DaemonSet>::namespaced(self.client.clone(), &key.namespace);
        let mut body = body(&key, network.as_deref());
        // Without it an apply would create one that was deleted meanwhile.
        body["metadata"]["uid"] = json!(handler.metadata.uid);
        match apply(&api, &Fragment::new(MANAGER, &key, body)).await {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(Requeue::OnChange),
            Err(error) => Err(InstallationError::Join(error)),
        }
    }

    async fn is_defined(&self, named: &str) -> Result<bool, InstallationError> {
        let (namespace, name) = definition(named, &self.default.namespace);
        let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
        let plural = "network-attachment-definitions";
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        // Without the kind there is none, either.
        match api.get_metadata_opt(name).await {
            Ok(found) => Ok(found.is_some()),
            Err(source) => Err(InstallationError::FindNetwork(Box::new(source))),
        }
    }
}

/// Without a network, the annotation that was applied before goes.
fn body(key: &Key, network: Option<&str>) -> Value {
    let mut body = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": key.name, "namespace": key.namespace},
    });
    if let Some(network) = network {
        let annotations = json!({annotations::CNI_NETWORKS: network});
        body["spec"] = json!({"template": {"metadata": {"annotations": annotations}}});
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_follows_the_configuration_unless_the_administrator_owns_it() {
        let set = |network: &str| Change::Set(network.to_owned());
        for (wanted, present, expected) in [
            (None, None, Change::Nothing),
            (Some("fast"), None, set("fast@migration0")),
            (Some("net/fast"), None, set("net/fast@migration0")),
            (Some("fast"), Some("fast@migration0"), Change::Nothing),
            (
                Some("faster"),
                Some("fast@migration0"),
                set("faster@migration0"),
            ),
            (None, Some("fast@migration0"), Change::Remove),
            (Some("fast"), Some("other@net1"), Change::Nothing),
            (Some("fast"), Some("a@net1,b@migration0"), Change::Nothing),
            (None, Some("a@net1,b@migration0"), Change::Nothing),
            (None, Some("[{\"name\": \"a\"}]"), Change::Nothing),
        ] {
            let found = change(wanted, present);
            assert_eq!(found, expected, "{wanted:?} {present:?}");
        }
    }

    #[test]
    fn definition_is_in_the_namespace_of_the_installation_unless_named_with_another() {
        assert_eq!(definition("fast", "kubevirt"), ("kubevirt", "fast"));
        assert_eq!(definition("net/fast", "kubevirt"), ("net", "fast"));
    }

    #[test]
    fn configuration_names_a_network_or_none() {
        let of = |spec: Value| Installation {
            spec,
            ..Installation::default()
        };
        let named = of(json!({"configuration": {"migrations": {"network": "fast"}}}));
        assert_eq!(wanted(&named), Some("fast"));
        let empty = of(json!({"configuration": {"migrations": {"network": ""}}}));
        assert_eq!(wanted(&empty), None);
        assert_eq!(wanted(&of(json!({}))), None);
    }

    #[test]
    fn only_the_annotation_is_applied() {
        let key = Key::new("kubevirt", HANDLER);
        let with = body(&key, Some("fast@migration0"));
        assert_eq!(
            with["spec"],
            json!({"template": {"metadata": {"annotations":
                {"k8s.v1.cni.cncf.io/networks": "fast@migration0"}}}})
        );
        assert_eq!(body(&key, None)["spec"], Value::Null);
    }
}
