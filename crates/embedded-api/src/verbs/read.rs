//! Get and list.
//!
//! Lists always return the latest state. Later chunks of a list carry the revision of its first
//! one, so that a watch from there replays all changes in between.

use apimachinery::{Status, table::IncludeObject};
use axum::{body::Body, response::Response};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::{Call, Live, partial, shown, warn};
use crate::{
    api::Api,
    encode::OwnJson,
    error::ApiError,
    registry::Origin,
    request::Representation,
    store::{More, Position, Scope, StoreError, Stored},
};

pub(crate) async fn get(api: &Api, call: &Call) -> Result<Response, ApiError> {
    let stored = load(api, call, call.name()).await?;
    if call.representation == Representation::Object && is_shown_as_stored(call, &stored) {
        return Ok(json_response(StatusCode::OK, Body::from(stored.body)));
    }
    Ok(respond(
        api,
        call,
        StatusCode::OK,
        Live::shown(api, &stored, &call.kind).await?.object,
    ))
}

/// Whether the stored bytes are the answer: right version, no defaults to fill in.
fn is_shown_as_stored(call: &Call, stored: &Stored) -> bool {
    call.kind.is_storage_version() && call.kind.later_schema(stored.revision).is_none()
}

/// The stored object, or 404.
pub(crate) async fn load(api: &Api, call: &Call, name: &str) -> Result<Stored, ApiError> {
    let found = api.store.get(&call.key(name)).await?;
    found.ok_or_else(|| Status::not_found(call.kind.resource(), name).into())
}

/// One object in the requested representation.
pub(crate) fn respond(api: &Api, call: &Call, code: StatusCode, object: Value) -> Response {
    let body = match call.representation {
        Representation::Object => object,
        Representation::Metadata => partial(&object),
        Representation::Table => {
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            table(api, call, &[object], &metadata)
        }
    };
    json_response(code, Body::from(body.to_string()))
}

/// Like [`respond`], for the result of a write.
pub(crate) fn respond_written(api: &Api, call: &Call, written: super::Written) -> Response {
    let code = if written.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    warn(respond(api, call, code, written.object), &written.warnings)
}

pub(crate) fn table(api: &Api, call: &Call, objects: &[Value], list_meta: &Value) -> Value {
    let include = match call.query.include_object.as_deref() {
        Some("None") => IncludeObject::None,
        Some("Object") => IncludeObject::Object,
        _ => IncludeObject::Metadata,
    };
    let now = api.clock.now();
    match &call.kind.origin {
        Origin::Custom(custom) => custom.columns.render(objects, list_meta, include, now),
        Origin::BuiltIn(kind) => apimachinery::table::Layout::built_in(kind.group, kind.plural)
            .render(objects, list_meta, include, now),
    }
}

pub(crate) fn json_response(code: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response.extensions_mut().insert(OwnJson);
    response
}

/// The objects in the scope of a call.
pub(crate) fn scope(call: &Call) -> Scope {
    let required = call
        .query
        .fields
        .required("metadata.name")
        .map(ToOwned::to_owned);
    let namespace = if call.namespace.is_empty() {
        call.query
            .fields
            .required("metadata.namespace")
            .map(ToOwned::to_owned)
    } else {
        Some(call.namespace.clone())
    };
    Scope {
        collection: call.kind.collection.clone(),
        namespace,
        name: call.name.clone().or(required),
    }
}

pub(crate) async fn list(api: &Api, call: &Call) -> Result<Response, ApiError> {
    call.kind.check_fields(&call.query.fields)?;
    let start = call
        .query
        .continues
        .as_deref()
        .map(Token::parse)
        .transpose()?;
    let (after, first_revision) = match start {
        Some(token) => {
            api.store
                .check_kept(token.revision)
                .await
                .map_err(|error| match error {
                    StoreError::Compacted { .. } => Status::expired_continue_token().into(),
                    other => ApiError::from(other),
                })?;
            (Some(token.after), Some(token.revision))
        }
        None => (None, None),
    };
    let selection = Selection::read(api, call, after).await?;
    check_revision(call, selection.revision)?;
    let revision = first_revision.unwrap_or(selection.revision);
    let metadata = list_metadata(call, revision, selection.more.as_ref());
    render(api, call, selection.items, &metadata).await
}

/// Rejects revisions that only a server with history could serve.
fn check_revision(call: &Call, latest: u64) -> Result<(), ApiError> {
    let Some(wanted) = call.query.resource_version.filter(|wanted| *wanted > 0) else {
        return Ok(());
    };
    if wanted > latest {
        let why = format!("Too large resource version: {wanted}, current: {latest}");
        return Err(Status::timeout(why).retry_after(1).into());
    }
    if call.query.resource_version_match.as_deref() == Some("Exact") && wanted < latest {
        return Err(Status::too_old_resource_version(wanted, latest).into());
    }
    Ok(())
}

struct Selection {
    items: Vec<Stored>,
    revision: u64,
    more: Option<More>,
}

impl Selection {
    /// Reads until the limit of matching objects is reached, or the end of the collection.
    async fn read(api: &Api, call: &Call, mut after: Option<Position>) -> Result<Self, ApiError> {
        let scope = scope(call);
        let limit = call.query.limit;
        let mut out = Self {
            items: Vec::new(),
            revision: 0,
            more: None,
        };
        loop {
            let want = limit.map(|limit| limit.saturating_sub(out.items.len()));
            let page = api.store.list(&scope, after.take(), want).await?;
            if out.revision == 0 {
                out.revision = page.revision;
            }
            for stored in page.items {
                if matches(api, call, &stored.body, stored.revision).await? {
                    out.items.push(stored);
                }
            }
            match page.more {
                Some(more) if limit.is_some_and(|limit| out.items.len() < limit) => {
                    after = Some(more.after);
                }
                more => {
                    out.more = more;
                    return Ok(out);
                }
            }
        }
    }
}

/// Whether the selectors of the call match the object.
pub(crate) async fn matches(
    api: &Api,
    call: &Call,
    body: &Bytes,
    revision: u64,
) -> Result<bool, ApiError> {
    let (labels, fields) = (&call.query.labels, &call.query.fields);
    if labels.is_everything() && fields.is_everything() {
        return Ok(true);
    }
    let mut object: Value = serde_json::from_slice(body)?;
    if !fields.is_everything() {
        object = shown(api, &call.kind, object, revision).await?;
    }
    Ok(labels.matches(&object) && fields.matches(&object))
}

fn list_metadata(call: &Call, revision: u64, more: Option<&More>) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if call.kind.is_custom() && more.is_none() && call.representation == Representation::Object {
        // A list of untyped objects includes all fields.
        metadata["continue"] = "".into();
    }
    if let Some(more) = more {
        let token = Token {
            revision,
            after: more.after.clone(),
        };
        metadata["continue"] = token.render().into();
        // With selectors, the number of matches in the rest is unknown.
        if call.query.labels.is_everything() && call.query.fields.is_everything() {
            metadata["remainingItemCount"] = more.remaining.into();
        }
    }
    metadata
}

async fn render(
    api: &Api,
    call: &Call,
    items: Vec<Stored>,
    metadata: &Value,
) -> Result<Response, ApiError> {
    let kind = &call.kind;
    if call.representation == Representation::Object {
        let head = json!({
            "kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata,
        });
        return Ok(json_response(
            StatusCode::OK,
            Body::from(joined(api, call, &head, items).await?),
        ));
    }
    let mut objects = Vec::with_capacity(items.len());
    for stored in &items {
        objects.push(Live::shown(api, stored, kind).await?.object);
    }
    let body = if call.representation == Representation::Table {
        table(api, call, &objects, metadata)
    } else {
        json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata, "items": objects.iter().map(partial).collect::<Vec<_>>(),
        })
    };
    Ok(json_response(StatusCode::OK, Body::from(body.to_string())))
}

/// Stored objects are JSON already: a list is concatenated without parsing them.
async fn joined(
    api: &Api,
    call: &Call,
    head: &Value,
    items: Vec<Stored>,
) -> Result<Bytes, ApiError> {
    let head = head.to_string();
    let size = items
        .iter()
        .map(|stored| stored.body.len() + 1)
        .sum::<usize>();
    let mut out = BytesMut::with_capacity(head.len() + size + 16);
    out.put_slice(head.trim_end_matches('}').as_bytes());
    // The closing brace of the inner object was removed, too.
    out.put_slice(b"},\"items\":[");
    for (at, stored) in items.into_iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        if !is_shown_as_stored(call, &stored) {
            let mut object = Live::shown(api, &stored, &call.kind).await?.object;
            if !call.kind.is_custom() {
                without_type(&mut object);
            }
            out.put_slice(object.to_string().as_bytes());
        } else if call.kind.is_custom() {
            out.put_slice(&stored.body);
        } else {
            // The type comes first in stored objects, so it is cut off without parsing the rest.
            let head = format!(
                "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",",
                call.kind.api_version(),
                call.kind.kind
            );
            if let Some(rest) = stored.body.strip_prefix(head.as_bytes()) {
                out.put_u8(b'{');
                out.put_slice(rest);
            } else {
                let mut object = stored.parse()?;
                without_type(&mut object);
                out.put_slice(object.to_string().as_bytes());
            }
        }
    }
    out.put_slice(b"]}");
    Ok(out.freeze())
}

/// Items of typed lists omit their type.
pub(crate) fn without_type(object: &mut Value) {
    if let Value::Object(fields) = object {
        fields.shift_remove("apiVersion");
        fields.shift_remove("kind");
    }
}

/// The position after a chunk of a list.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    revision: u64,
    after: Position,
}

impl Token {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let wrong = || Status::bad_request("continue key is not valid");
        let raw = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let raw = String::from_utf8(raw).map_err(|_| wrong())?;
        let parts: Vec<&str> = raw.split('\n').collect();
        let [revision, namespace, name] = parts.as_slice() else {
            return Err(wrong().into());
        };
        Ok(Self {
            revision: revision.parse().map_err(|_| wrong())?,
            after: Position {
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
            },
        })
    }

    fn render(&self) -> String {
        let Self { revision, after } = self;
        let Position { namespace, name } = after;
        URL_SAFE_NO_PAD.encode(format!("{revision}\n{namespace}\n{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_round_trips() {
        let token = Token {
            revision: 7,
            after: Position {
                namespace: "a".into(),
                name: "b".into(),
            },
        };
        assert_eq!(Token::parse(&token.render()).unwrap(), token);
        assert!(Token::parse("nonsense").is_err());
    }
}
