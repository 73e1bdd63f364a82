//! What uploads need: the registration of the API that issues tokens, and the object that tells clients where the upload
//! proxy is.
//!
//! The registration names a service of the installation. An API server with a registration whose service is gone cannot
//! delete namespaces, so it belongs to a registration of the manifest, and goes with that.

use std::time::Duration;

use k8s_openapi::{
    ByteString, api::core::v1::ConfigMap,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{Api, ResourceExt as _};
use kubevirt_api::{cdi_config::CDIConfig, upload};
use reconcile::{Key, Requeue, WriteError, create, delete_unchanged, merge};
use serde_json::{Value, json};

use super::{AUTHORITY, Controller, INTERVAL, ImporterError};
use crate::{
    MANAGER,
    components::{API, API_SERVICE},
    view::ImporterConfig,
};

/// The only object of its kind.
const CONFIG: &str = "config";
/// The key of the config map's bundle.
const BUNDLE: &str = "ca-bundle";
/// How soon to look again for something that another process is about to create.
const SOON: Duration = Duration::from_secs(2);

/// What the registration has to say.
struct Wanted<'a> {
    namespace: &'a str,
    authority: &'a str,
    /// The UID of the registration that it belongs to.
    owner: &'a str,
}

impl Controller {
    pub(super) async fn keep_uploads(&self) -> Result<Requeue, ImporterError> {
        let Some(authority) = self.authority().await? else {
            return Ok(Requeue::After(SOON));
        };
        if !self.register(&authority).await? || !self.publish(&authority).await? {
            return Ok(Requeue::After(SOON));
        }
        Ok(Requeue::After(INTERVAL))
    }

    /// CDI registers its own service.
    pub(super) async fn leave_uploads(&self) -> Result<Requeue, ImporterError> {
        let api: Api<APIService> = Api::all(self.client.clone());
        let found = api.get_opt(&registered()).await;
        let found = found.map_err(ImporterError::read)?;
        if let Some(found) = found.filter(|found| is_ours(found, &self.namespace)) {
            let key = Key::new("", registered());
            let deleted = delete_unchanged(&api, &key, &found.metadata).await;
            deleted.map_err(ImporterError::Register)?;
        }
        Ok(Requeue::After(INTERVAL))
    }

    /// `None` until virt-api has published it.
    async fn authority(&self) -> Result<Option<String>, ImporterError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.get_opt(AUTHORITY).await.map_err(ImporterError::read)?;
        let bundle = found.and_then(|found| found.data?.remove(BUNDLE));
        Ok(bundle.filter(|bundle| !bundle.is_empty()))
    }

    /// False if it has to wait.
    async fn register(&self, authority: &str) -> Result<bool, ImporterError> {
        let api: Api<APIService> = Api::all(self.client.clone());
        let owner = api.get_opt(API_SERVICE).await;
        let owner = owner.map_err(ImporterError::read)?;
        let Some(owner) = owner.and_then(|owner| owner.metadata.uid) else {
            return Ok(false);
        };
        let key = Key::new("", registered());
        let found = api.get_opt(&key.name).await.map_err(ImporterError::read)?;
        let wanted = Wanted {
            namespace: &self.namespace,
            authority,
            owner: &owner,
        };
        let mut object = registration(&wanted);
        let written = match &found {
            None => create(&api, MANAGER, &key, &object).await,
            Some(found) if !is_ours(found, &self.namespace) => {
                tracing::warn!(
                    name = key.name,
                    "the registration names the service of another installation: no tokens for uploads are issued \
                     until it is deleted"
                );
                return Ok(true);
            }
            Some(found) if is_current(found, &wanted) => return Ok(true),
            Some(found) => {
                object["metadata"]["resourceVersion"] = json!(found.metadata.resource_version);
                merge(&api, MANAGER, &key, &object).await
            }
        };
        written.map_err(ImporterError::Register)?;
        Ok(true)
    }

    /// False if the kind is not served yet.
    async fn publish(&self, authority: &str) -> Result<bool, ImporterError> {
        let api: Api<ImporterConfig> = Api::all(self.client.clone());
        let found = api.get_opt(CONFIG).await.map_err(ImporterError::read)?;
        let key = Key::new("", CONFIG);
        let written = match &found {
            None => {
                let object = json!({
                    "apiVersion": format!("{}/{}", CDIConfig::GROUP, CDIConfig::VERSION),
                    "kind": CDIConfig::KIND,
                    "metadata": {"name": CONFIG},
                    "status": {"uploadProxyCA": authority},
                });
                create(&api, MANAGER, &key, &object).await
            }
            Some(found) => match difference(found, authority) {
                None => return Ok(true),
                Some(patch) => merge(&api, MANAGER, &key, &patch).await,
            },
        };
        match written {
            Ok(_) => Ok(true),
            Err(WriteError::NotFound { .. }) => Ok(false),
            Err(error) => Err(ImporterError::Publish(error)),
        }
    }
}

/// The name of the registration.
fn registered() -> String {
    format!("{}.{}", upload::VERSION, upload::GROUP)
}

fn registration(wanted: &Wanted<'_>) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {
            "name": registered(),
            "ownerReferences": [{
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "name": API_SERVICE, "uid": wanted.owner,
            }],
        },
        "spec": {
            "group": upload::GROUP, "version": upload::VERSION,
            "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"name": API, "namespace": wanted.namespace, "port": 443},
            "caBundle": ByteString(wanted.authority.as_bytes().to_vec()),
        },
    })
}

/// Whether it names the service of this installation.
fn is_ours(found: &APIService, namespace: &str) -> bool {
    let service = found.spec.as_ref().and_then(|spec| spec.service.as_ref());
    service.is_some_and(|service| {
        service.name.as_deref() == Some(API) && service.namespace.as_deref() == Some(namespace)
    })
}

fn is_current(found: &APIService, wanted: &Wanted<'_>) -> bool {
    let bundle = found.spec.as_ref().and_then(|spec| spec.ca_bundle.as_ref());
    let mut owners = found.owner_references().iter();
    bundle.is_some_and(|bundle| bundle.0 == wanted.authority.as_bytes())
        && owners.any(|owner| owner.uid == wanted.owner)
}

/// The administrator's address of the proxy becomes the one in effect, as with CDI.
fn difference(found: &ImporterConfig, authority: &str) -> Option<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let url = text(&found.spec["uploadProxyURLOverride"]);
    let is_same = text(&found.status["uploadProxyURL"]) == url
        && text(&found.status["uploadProxyCA"]) == authority;
    let url = (!url.is_empty()).then_some(url);
    (!is_same).then(|| {
        json!({
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "status": {"uploadProxyURL": url, "uploadProxyCA": authority},
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registration_is_current_until_owner_or_authority_change() {
        let wanted = Wanted {
            namespace: "kubevirt",
            authority: "PEM",
            owner: "u",
        };
        let found: APIService =
            serde_json::from_value(registration(&wanted)).expect("an APIService");
        assert!(is_ours(&found, "kubevirt"));
        assert!(!is_ours(&found, "second"));
        assert!(is_current(&found, &wanted));
        let renewed = Wanted {
            authority: "PEM PEM",
            ..wanted
        };
        assert!(!is_current(&found, &renewed));
        let other = Wanted {
            authority: "PEM",
            owner: "v",
            ..renewed
        };
        assert!(!is_current(&found, &other));
    }

    #[test]
    fn address_of_the_administrator_is_in_effect() {
        let config = |spec: Value, status: Value| ImporterConfig {
            spec,
            status,
            ..ImporterConfig::default()
        };
        let set = json!({"uploadProxyURLOverride": "https://upload.example"});
        let in_effect = json!({"uploadProxyURL": "https://upload.example", "uploadProxyCA": "PEM"});
        let status = |spec: Value, status: Value| {
            let patch = difference(&config(spec, status), "PEM");
            patch.map(|mut patch| patch["status"].take())
        };
        assert_eq!(status(set.clone(), in_effect.clone()), None);
        assert_eq!(
            status(Value::Null, json!({"uploadProxyCA": "PEM"})),
            None,
            "no address is no difference"
        );
        assert_eq!(status(set, Value::Null), Some(in_effect.clone()));
        let removed = json!({"uploadProxyURL": null, "uploadProxyCA": "PEM"});
        assert_eq!(status(Value::Null, in_effect), Some(removed));
    }
}
