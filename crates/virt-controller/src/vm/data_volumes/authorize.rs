//! Checks that the service account of a VM may copy from another namespace.

use kube::api::Api;
use kubevirt_api::data_source::{DataSource, DataSourceSource};
use reconcile::Key;
use serde_json::Value;

use super::DataVolumeError;
use crate::permission::{self, Account, DEFAULT_ACCOUNT};
use crate::vm::Controller;
use crate::vm::view::Vm;

/// The longest chain of data sources.
const MOST_SOURCES: usize = 2;

impl Controller {
    /// Fails unless the service account of the VM may copy the source of the template.
    pub(super) async fn authorize(
        &self,
        vm: &Vm,
        name: &str,
        template: &Value,
    ) -> Result<(), DataVolumeError> {
        let own = vm.metadata.namespace.as_deref().unwrap_or_default();
        let source = self.source_namespace(own, name, template).await?;
        let Some(namespace) = source.filter(|namespace| namespace != own) else {
            return Ok(());
        };
        let account = Account {
            namespace: own,
            name: account(vm),
        };
        let allowed = permission::may_copy(&self.client, account, &namespace).await;
        let allowed = allowed.map_err(|source| DataVolumeError::Source {
            name: name.to_owned(),
            source: Box::new(source),
        })?;
        if allowed {
            return Ok(());
        }
        let account = account.user();
        Err(DataVolumeError::Unauthorized { account, namespace })
    }

    /// The namespace of the claim or snapshot that is copied, if the source is one.
    async fn source_namespace(
        &self,
        own: &str,
        name: &str,
        template: &Value,
    ) -> Result<Option<String>, DataVolumeError> {
        let of = |source: &Value, default: &str| {
            let given = source["namespace"].as_str().filter(|it| !it.is_empty());
            given.unwrap_or(default).to_owned()
        };
        let spec = &template["spec"];
        for kind in ["pvc", "snapshot"] {
            if let Some(source) = spec["source"].get(kind).filter(|it| it.is_object()) {
                return Ok(Some(of(source, own)));
            }
        }
        let Some(wanted) = spec.get("sourceRef").filter(|it| it.is_object()) else {
            return Ok(None);
        };
        let wanted_name = wanted["name"].as_str().unwrap_or_default();
        let mut at = Key::new(of(wanted, own), wanted_name);
        for _ in 0..MOST_SOURCES {
            let source = self.data_source(name, &at).await?;
            let copied = source.pvc.map(|claim| claim.namespace);
            let copied = copied.or_else(|| source.snapshot.map(|one| one.namespace));
            if let Some(namespace) = copied {
                let given = Some(namespace).filter(|it| !it.is_empty());
                return Ok(Some(given.unwrap_or_else(|| at.namespace.clone())));
            }
            let Some(next) = source.data_source else {
                break;
            };
            at = Key::new(&next.namespace, &next.name);
        }
        // The source does not exist yet, so access to it cannot be checked.
        Err(DataVolumeError::NoSource {
            name: name.to_owned(),
            wanted: at,
        })
    }

    async fn data_source(&self, name: &str, at: &Key) -> Result<DataSourceSource, DataVolumeError> {
        let api = Api::<DataSource>::namespaced(self.client.clone(), &at.namespace);
        let found = api.get_opt(&at.name).await;
        let found = found.map_err(|source| DataVolumeError::Source {
            name: name.to_owned(),
            source: Box::new(source),
        })?;
        match found {
            Some(found) => Ok(found.spec.source),
            None => Err(DataVolumeError::NoSource {
                name: name.to_owned(),
                wanted: at.clone(),
            }),
        }
    }
}

/// The service account of the guest in its namespace.
fn account(vm: &Vm) -> &str {
    let mut volumes = vm.volumes().iter();
    let named = volumes.find_map(|volume| volume.pointer("/serviceAccount/serviceAccountName"));
    named.and_then(Value::as_str).unwrap_or(DEFAULT_ACCOUNT)
}
