//! Checks that the service account of a VM may copy from another namespace.

use apimachinery::names::is_subdomain;
use cluster_view::{DEFAULT_ACCOUNT, Subject};
use kube::api::Api;
use kubevirt_api::data_source::{DataSource, DataSourceSource};
use reconcile::Key;
use serde_json::Value;

use super::DataVolumeError;
use crate::data_source::Target;
use crate::vm::Controller;
use crate::vm::view::Vm;

/// The longest chain of data sources.
const MOST_SOURCES: usize = 2;

/// What is copied, and the namespaces through which it was found.
struct Copied {
    target: Target,
    namespaces: Vec<String>,
}

impl Controller {
    /// Fails unless the service account of the VM may copy the source of the template; returns a source in another
    /// namespace.
    pub(super) async fn authorize(
        &self,
        vm: &Vm,
        name: &str,
        template: &Value,
    ) -> Result<Option<Target>, DataVolumeError> {
        let own = vm.metadata.namespace.as_deref().unwrap_or_default();
        let source = self.source(own, name, template).await?;
        let Some(source) = source else {
            return Ok(None);
        };
        let account = Subject::account(own, account(vm));
        for namespace in source.namespaces.iter().filter(|one| *one != own) {
            let allowed = account.may_copy(&self.client, namespace).await;
            let allowed = allowed.map_err(|source| DataVolumeError::Source {
                name: name.to_owned(),
                source: Box::new(source),
            })?;
            if !allowed {
                return Err(DataVolumeError::Unauthorized {
                    account: account.name().to_owned(),
                    namespace: namespace.clone(),
                });
            }
        }
        Ok(Some(source.target).filter(|target| target.key().namespace != own))
    }

    /// The claim or snapshot that is copied, if the source is one.
    async fn source(
        &self,
        own: &str,
        name: &str,
        template: &Value,
    ) -> Result<Option<Copied>, DataVolumeError> {
        let of = |source: &Value| {
            let given = source["namespace"].as_str().filter(|it| !it.is_empty());
            let namespace = given.unwrap_or(own);
            Key::new(namespace, source["name"].as_str().unwrap_or_default())
        };
        let spec = &template["spec"];
        for (kind, target) in [
            ("pvc", Target::Claim as fn(Key) -> Target),
            ("snapshot", Target::Snapshot as fn(Key) -> Target),
        ] {
            if let Some(source) = spec["source"].get(kind).filter(|it| it.is_object()) {
                let at = of(source);
                return Ok(Some(Copied {
                    namespaces: vec![at.namespace.clone()],
                    target: target(at),
                }));
            }
        }
        let Some(wanted) = spec.get("sourceRef").filter(|it| it.is_object()) else {
            return Ok(None);
        };
        let mut at = of(wanted);
        let mut namespaces = vec![at.namespace.clone()];
        for _ in 0..MOST_SOURCES {
            let source = self.data_source(name, &at).await?;
            let key = |namespace: &str, name: &str| {
                let given = Some(namespace).filter(|it| !it.is_empty());
                Key::new(given.unwrap_or(&at.namespace), name)
            };
            let copied = source
                .pvc
                .map(|it| Target::Claim(key(&it.namespace, &it.name)));
            let copied = copied.or_else(|| {
                let it = source.snapshot?;
                Some(Target::Snapshot(key(&it.namespace, &it.name)))
            });
            if let Some(target) = copied {
                namespaces.push(target.key().namespace.clone());
                return Ok(Some(Copied { target, namespaces }));
            }
            let Some(next) = source.data_source else {
                break;
            };
            at = key(&next.namespace, &next.name);
            namespaces.push(at.namespace.clone());
        }
        // The source does not exist yet, so access to it cannot be checked.
        Err(DataVolumeError::NoSource {
            name: name.to_owned(),
            wanted: at,
        })
    }

    async fn data_source(&self, name: &str, at: &Key) -> Result<DataSourceSource, DataVolumeError> {
        if !is_subdomain(&at.namespace) || !is_subdomain(&at.name) {
            return Err(DataVolumeError::NoSource {
                name: name.to_owned(),
                wanted: at.clone(),
            });
        }
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
