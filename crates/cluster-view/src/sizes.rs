//! The instance type and the preference of a VM: the current object, or a revision of it.

use instancetype::reference::{Reference, Scope, Unreadable, spec_of_revision};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use kubevirt_api::instancetype::VirtualMachineInstancetype;
use serde::de::DeserializeOwned;

/// The spec that a reference resolves to.
#[derive(Clone, Debug)]
pub struct Found<T> {
    pub spec: T,
    pub origin: Origin,
}

/// The object that contains the spec.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The instance type or preference itself.
    Object(Box<DynamicObject>),
    /// A revision of it.
    Revision(Box<ControllerRevision>),
}

/// Why a reference cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{kind} {name} does not exist")]
    NoObject { kind: &'static str, name: String },
    #[error("revision {name} of the {kind} does not exist")]
    NoRevision { kind: &'static str, name: String },
    #[error("use revision {name}")]
    BadRevision {
        name: String,
        #[source]
        source: Unreadable,
    },
    #[error("read the {kind} {name}")]
    BadObject {
        kind: &'static str,
        name: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("look up the {kind} {name}")]
    Unavailable {
        kind: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
}

impl FindError {
    /// Whether the API server was unavailable; all other errors are in the objects.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// Resolves the reference of a VM in the namespace. A revision has precedence over the object.
pub async fn find<T: DeserializeOwned>(
    client: &Client,
    namespace: &str,
    reference: &Reference,
) -> Result<Found<T>, FindError> {
    match &reference.revision {
        Some(name) => in_revision(client, namespace, reference, name).await,
        None => in_object(client, namespace, reference).await,
    }
}

async fn in_revision<T: DeserializeOwned>(
    client: &Client,
    namespace: &str,
    reference: &Reference,
    name: &str,
) -> Result<Found<T>, FindError> {
    let kind = reference.kind();
    let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await;
    let found = found.map_err(|source| FindError::Unavailable {
        kind,
        name: name.to_owned(),
        source: Box::new(source),
    })?;
    let revision = found.ok_or_else(|| FindError::NoRevision {
        kind,
        name: name.to_owned(),
    })?;
    let data = revision.data.as_ref().map(|data| data.0.clone());
    let spec = spec_of_revision(&data.unwrap_or_default(), reference);
    Ok(Found {
        spec: spec.map_err(|source| FindError::BadRevision {
            name: name.to_owned(),
            source,
        })?,
        origin: Origin::Revision(Box::new(revision)),
    })
}

async fn in_object<T: DeserializeOwned>(
    client: &Client,
    namespace: &str,
    reference: &Reference,
) -> Result<Found<T>, FindError> {
    let (kind, name) = (reference.kind(), &reference.name);
    let found = api(client, namespace, reference).get_opt(name).await;
    let found = found.map_err(|source| FindError::Unavailable {
        kind,
        name: name.clone(),
        source: Box::new(source),
    })?;
    let object = found.ok_or_else(|| FindError::NoObject {
        kind,
        name: name.clone(),
    })?;
    let spec = T::deserialize(object.data.get("spec").unwrap_or(&serde_json::Value::Null));
    Ok(Found {
        spec: spec.map_err(|source| FindError::BadObject {
            kind,
            name: name.clone(),
            source,
        })?,
        origin: Origin::Object(Box::new(object)),
    })
}

fn api(client: &Client, namespace: &str, reference: &Reference) -> Api<DynamicObject> {
    let (group, version) = (
        VirtualMachineInstancetype::GROUP,
        VirtualMachineInstancetype::VERSION,
    );
    let kind = GroupVersionKind::gvk(group, version, reference.kind());
    let resource = ApiResource::from_gvk_with_plural(&kind, reference.plural());
    match reference.scope {
        Scope::Namespace => Api::namespaced_with(client.clone(), namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    }
}
