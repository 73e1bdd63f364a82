//! The operations on objects, one file per verb.

pub(crate) mod bind;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod patch;
pub(crate) mod prepare;
pub(crate) mod read;
pub(crate) mod reviews;
pub(crate) mod scale;
pub(crate) mod streams;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;

use std::sync::Arc;

use apimachinery::meta;
use axum::response::Response;
use serde_json::Value;

use crate::{
    api::Api,
    auth::Identity,
    conversion,
    error::ApiError,
    fairness::Level,
    registry::{Served, convert},
    request::{Encoding, Query, Representation},
    store::{Key, Stored},
};

/// A request for a kind in our own store.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub kind: Arc<Served>,
    pub namespace: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    pub query: Query,
    pub representation: Representation,
    pub encoding: Encoding,
    pub identity: Identity,
    /// Whose limits count.
    pub level: Level,
    pub user_agent: String,
}

impl Call {
    /// A call by the server itself.
    pub(crate) fn internal(kind: Arc<Served>, namespace: &str, name: Option<&str>) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.map(ToOwned::to_owned),
            subresource: None,
            query: Query::none(),
            representation: Representation::Object,
            encoding: Encoding::Json,
            identity: Identity::component("system:apiserver"),
            level: Level::System,
            user_agent: "embedded-api".to_owned(),
        }
    }

    pub(crate) fn key(&self, name: &str) -> Key {
        self.kind.collection.key(&self.namespace, name)
    }

    /// The name in the path; lists have none.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The field manager of writes.
    pub(crate) fn manager(&self) -> &str {
        match &self.query.field_manager {
            Some(manager) => manager,
            None => match apimachinery::apply::managed::manager_of_user_agent(&self.user_agent) {
                "" => "unknown",
                manager => manager,
            },
        }
    }
}

/// An object at a revision, in the requested version.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub revision: u64,
    pub object: Value,
}

impl Live {
    /// An object of a built-in kind.
    pub(crate) fn of(stored: &Stored, kind: &Served) -> Result<Self, ApiError> {
        let mut object = stored.parse()?;
        convert::to_version(&mut object, &kind.api_version());
        Ok(Self {
            revision: stored.revision,
            object,
        })
    }

    /// An object of any kind.
    pub(crate) async fn shown(api: &Api, stored: &Stored, kind: &Served) -> Result<Self, ApiError> {
        let object = shown(api, kind, stored.parse()?, stored.revision).await?;
        Ok(Self {
            revision: stored.revision,
            object,
        })
    }
}

/// An object as stored at a revision: with later defaults, in the requested version.
pub(crate) async fn shown(
    api: &Api,
    kind: &Served,
    mut object: Value,
    revision: u64,
) -> Result<Value, ApiError> {
    if let Some(schema) = kind.later_schema(revision) {
        schema.fill_defaults(&mut object);
    }
    conversion::convert(api, kind, object, &kind.api_version()).await
}

/// The result of a write, and warnings for the client.
#[derive(Debug)]
pub(crate) struct Written {
    pub object: Value,
    pub created: bool,
    pub warnings: Vec<String>,
}

/// Adds `Warning` headers.
pub(crate) fn warn(mut response: Response, warnings: &[String]) -> Response {
    for warning in warnings {
        let clean: String = warning
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = http::HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
    response
}

/// The metadata alone.
pub(crate) fn partial(object: &Value) -> Value {
    serde_json::json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// Whether a deleted object can be removed: neither finalizers nor a grace period hold it.
pub(crate) fn is_deletable(object: &Value) -> bool {
    meta::finalizers(object).next().is_none()
}
