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

use std::{collections::HashSet, sync::Arc};

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

/// Characters of all warnings of a response, as at kube-apiserver. If there are more, each is cut.
const MAX_WARNINGS: usize = 4096;
/// Characters of a warning that is cut.
const CUT_WARNING: usize = 256;

/// Adds `Warning` headers.
pub(crate) fn warn(mut response: Response, warnings: &[String]) -> Response {
    for warning in bounded(warnings) {
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

/// The different warnings within the limits: a body can cause hundreds of thousands.
fn bounded(warnings: &[String]) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut seen = HashSet::new();
    let mut total = 0_usize;
    let mut all: Vec<&str> = Vec::new();
    for warning in warnings {
        // The rest could not be shown even if each were cut.
        if all.len() > MAX_WARNINGS {
            break;
        }
        if !warning.is_empty() && seen.insert(warning.as_str()) {
            total = total.saturating_add(length(warning));
            all.push(warning);
        }
    }
    if total <= MAX_WARNINGS {
        return all.into_iter().map(ToOwned::to_owned).collect();
    }
    let mut left = MAX_WARNINGS;
    let mut cut = Vec::new();
    for warning in all {
        if left == 0 {
            break;
        }
        let short: String = warning.chars().take(CUT_WARNING).collect();
        left = left.saturating_sub(length(&short));
        cut.push(short);
    }
    cut
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_a_response_are_bounded() {
        let many: Vec<String> = (0..500_000)
            .map(|n| format!("unknown field \"f{n}\""))
            .collect();
        let long = |count: usize| vec!["x".repeat(5000), "y".repeat(count)];
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (warnings, number, characters) in [
            (vec![], 0, 0),
            (texts(&["a", "b", "a", ""]), 2, 2),
            (vec!["z".repeat(4096)], 1, 4096),
            (long(3), 2, 259),
            (long(300), 2, 512),
        ] {
            let found = bounded(&warnings);
            let total: usize = found.iter().map(String::len).sum();
            assert_eq!((found.len(), total), (number, characters));
        }
        let found = bounded(&many);
        let total: usize = found.iter().map(String::len).sum();
        assert!((4096..4096 + CUT_WARNING).contains(&total), "{total}");
    }
}
