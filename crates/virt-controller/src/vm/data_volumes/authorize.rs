//! Checks that the service account of a VM may copy from another namespace.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kubevirt_api::data_source::{DataSource, DataSourceSource};
use reconcile::Key;
use serde_json::Value;

use super::{DataVolumeError, GROUP};
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
        let account = format!("system:serviceaccount:{own}:{}", account(vm));
        for (group, resource, part) in [(GROUP, "datavolumes", "source"), ("", "pods", "")] {
            let request = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(account.clone()),
                    groups: Some(vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{own}"),
                        "system:authenticated".to_owned(),
                    ]),
                    resource_attributes: Some(ResourceAttributes {
                        namespace: Some(namespace.clone()),
                        verb: Some("create".to_owned()),
                        group: Some(group.to_owned()),
                        resource: Some(resource.to_owned()),
                        subresource: Some(part.to_owned()).filter(|part| !part.is_empty()),
                        ..ResourceAttributes::default()
                    }),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let api = Api::<SubjectAccessReview>::all(self.client.clone());
            let review = api.create(&PostParams::default(), &request).await;
            let review = review.map_err(|source| DataVolumeError::Source {
                name: name.to_owned(),
                source: Box::new(source),
            })?;
            if review.status.is_some_and(|status| status.allowed) {
                return Ok(());
            }
        }
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
    named.and_then(Value::as_str).unwrap_or("default")
}
