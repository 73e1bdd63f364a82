//! Writes to the API server, and how they fail.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{
    Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use reasons::Reason;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Fragment, Key, Retry, metrics};

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Another writer was faster; read the object again.
    #[error("write {what}: the object has changed")]
    Conflict { what: String },
    #[error("write {what}: there is no such object")]
    NotFound { what: String },
    #[error("create {what}: it already exists")]
    AlreadyExists { what: String },
    /// The server rejects it, and would reject it later as well.
    #[error("write {what}: {message}")]
    Refused { what: String, message: String },
    /// The server cannot do it now and reports why, such as a webhook that does not respond.
    #[error("write {what}: {message}")]
    ServerError { what: String, message: String },
    /// There was no response.
    #[error("write {what}")]
    Unavailable {
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
}

impl WriteError {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Conflict { .. } => Reason::Conflict,
            Self::NotFound { .. } => Reason::NotFound,
            Self::AlreadyExists { .. } => Reason::AlreadyExists,
            Self::Refused { .. } => Reason::Refused,
            Self::ServerError { .. } | Self::Unavailable { .. } => Reason::ServerUnavailable,
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. } | Self::NotFound { .. } | Self::AlreadyExists { .. } => {
                Retry::Soon
            }
            Self::Refused { .. } | Self::ServerError { .. } | Self::Unavailable { .. } => {
                Retry::BackOff
            }
        }
    }

    fn of(what: String, error: kube::Error) -> Self {
        let error = Self::classify(what, error);
        metrics::WRITE_ERRORS.increment([error.reason().as_str()]);
        error
    }

    fn classify(what: String, error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) => match (status.code, status.reason.as_str()) {
                (_, "AlreadyExists") => Self::AlreadyExists { what },
                (409, _) => Self::Conflict { what },
                (404, _) => Self::NotFound { what },
                // 408 and 429 ask to come back.
                (400..=499, _) if status.code != 408 && status.code != 429 => Self::Refused {
                    what,
                    message: status.message.clone(),
                },
                _ => Self::ServerError {
                    what,
                    message: status.message.clone(),
                },
            },
            _ => Self::Unavailable {
                what,
                source: Box::new(error),
            },
        }
    }
}

/// Applies the fragment, taking over fields that another manager owns. Returns the whole object.
pub async fn apply<K>(api: &Api<K>, fragment: &Fragment<'_>) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams::apply(fragment.manager).force();
    let patch = Patch::Apply(fragment.body());
    let name = &fragment.key.name;
    match fragment.subresource {
        None => api.patch(name, &parameters, &patch).await,
        Some(part) => api.patch_subresource(part, name, &parameters, &patch).await,
    }
    .map_err(|error| WriteError::of(fragment.key.to_string(), error))
}

/// Merges members into an object. Put `metadata.resourceVersion` inside when a list is replaced.
pub async fn merge<K>(api: &Api<K>, manager: &str, key: &Key, body: &Value) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    api.patch(&key.name, &parameters, &Patch::Merge(body))
        .await
        .map_err(|error| WriteError::of(key.to_string(), error))
}

/// The same for the status of a kind that has a subresource for it.
pub async fn merge_status<K>(
    api: &Api<K>,
    manager: &str,
    key: &Key,
    body: &Value,
) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    api.patch_status(&key.name, &parameters, &Patch::Merge(body))
        .await
        .map_err(|error| WriteError::of(key.to_string(), error))
}

/// Creates an object; the body may have fields that `K` does not know.
pub async fn create<K>(
    api: &Api<K>,
    manager: &str,
    key: &Key,
    body: &impl Serialize,
) -> Result<K, WriteError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let error = |error| WriteError::of(key.to_string(), error);
    let parameters = PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    };
    let bytes = serde_json::to_vec(body)
        .map_err(kube::Error::SerdeError)
        .map_err(error)?;
    let mut request = kube::api::Request::new(api.resource_url())
        .create(&parameters, bytes)
        .map_err(kube::Error::BuildRequest)
        .map_err(error)?;
    request.extensions_mut().insert("create");
    api.clone()
        .into_client()
        .request::<K>(request)
        .await
        .map_err(error)
}

/// Deletes the object of that name, whatever its UID; a missing object counts as deleted.
pub async fn delete_named<K>(api: &Api<K>, key: &Key) -> Result<(), WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    remove(api, key, &DeleteParams::background()).await
}

/// Deletes the object with that UID; a missing object counts as deleted.
pub async fn delete<K>(
    api: &Api<K>,
    key: &Key,
    uid: &str,
    grace_seconds: Option<u32>,
) -> Result<(), WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = DeleteParams {
        grace_period_seconds: grace_seconds,
        ..only(Some(uid.to_owned()), None)
    };
    remove(api, key, &parameters).await
}

/// Deletes the object if it has not changed since it was observed: its owner may be another now.
pub async fn delete_unchanged<K>(
    api: &Api<K>,
    key: &Key,
    observed: &ObjectMeta,
) -> Result<(), WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = only(observed.uid.clone(), observed.resource_version.clone());
    remove(api, key, &parameters).await
}

/// The same after its dependents: until they are gone, the object stays and has a deletion timestamp.
pub async fn delete_in_foreground<K>(
    api: &Api<K>,
    key: &Key,
    observed: &ObjectMeta,
) -> Result<(), WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..only(observed.uid.clone(), observed.resource_version.clone())
    };
    remove(api, key, &parameters).await
}

fn only(uid: Option<String>, resource_version: Option<String>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version,
        }),
        ..DeleteParams::background()
    }
}

async fn remove<K>(api: &Api<K>, key: &Key, parameters: &DeleteParams) -> Result<(), WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.delete(&key.name, parameters).await {
        Ok(_) => Ok(()),
        Err(error) => match WriteError::of(key.to_string(), error) {
            WriteError::NotFound { .. } => Ok(()),
            error => Err(error),
        },
    }
}
