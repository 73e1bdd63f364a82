//! Documents about the server: health, version, discovery, `OpenAPI`.
//!
//! Invariant: generated for each request, not cached; clients cache them.

use std::collections::HashMap;

use apimachinery::{
    Resource,
    discovery::{self, Half},
    openapi,
};
use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    api::Api,
    error::ApiError,
    health, metrics,
    registry::{Origin, document_schema},
    request::negotiate,
    router,
    store::{Collection, Scope},
    tokens,
    verbs::read::json_response,
};

const VERSION: &str = "v1.33.0+ferrovirt";

/// None for paths that are not documents.
pub(crate) async fn serve(
    api: &Api,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Result<Option<Response>, ApiError> {
    if *method != Method::GET && *method != Method::HEAD {
        return Ok(None);
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let aggregated = negotiate::wants_aggregated_discovery(headers);
    let found = match parts.as_slice() {
        [endpoint @ ("healthz" | "livez" | "readyz"), check @ ..] => {
            return Ok(Some(health::serve(api, endpoint, check, query).await));
        }
        ["metrics"] => return metrics::serve(api).await.map(Some),
        ["version"] => Some(version()),
        [".well-known", "openid-configuration"] => Some(tokens::discovery_document()),
        ["openid", "v1", "jwks"] => Some(api.tokens.keys_document()),
        ["api"] if aggregated => return Ok(Some(aggregate(api, Half::Core))),
        ["apis"] if aggregated => return Ok(Some(aggregate(api, Half::Groups))),
        ["api"] => Some(discovery::core_versions("")),
        ["apis"] => Some(discovery::group_list(&api.registry.resources())),
        ["apis", group] => discovery::group(&api.registry.resources(), group),
        ["api", version] => discovery::resource_list(&api.registry.resources(), "", version),
        ["apis", group, version] => {
            discovery::resource_list(&api.registry.resources(), group, version)
        }
        ["openapi", "v2"] => return openapi_v2(api, headers).await.map(Some),
        ["openapi", "v3"] => Some(openapi_index(api).await?),
        ["openapi", "v3", "api", version] => openapi_v3(api, "", version).await?,
        ["openapi", "v3", "apis", group, version] => openapi_v3(api, group, version).await?,
        _ => return Ok(None),
    };
    match found {
        Some(document) => Ok(Some(json_response(
            StatusCode::OK,
            Body::from(document.to_string()),
        ))),
        None => Ok(Some(router::no_such_path())),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "33", "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

fn aggregate(api: &Api, half: Half) -> Response {
    let document = discovery::aggregated(&api.registry.resources(), half);
    let mut response = json_response(StatusCode::OK, Body::from(document.to_string()));
    let media = HeaderValue::from_static(discovery::AGGREGATED_MEDIA_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// kubectl asks for protobuf, as the document is large.
async fn openapi_v2(api: &Api, headers: &HeaderMap) -> Result<Response, ApiError> {
    let mut document = openapi::v2(&described(api, None).await?, VERSION);
    for one in api.registry.all_aggregated() {
        let prefix = format!("/apis/{}/{}/", one.group, one.version);
        openapi::merge(&mut document, &one.documents.v2, &prefix);
    }
    if !negotiate::prefers(headers, &openapi::V2_PROTOBUF) {
        return Ok(json_response(
            StatusCode::OK,
            Body::from(document.to_string()),
        ));
    }
    let body = openapi::to_protobuf(&document);
    let mut response = Response::new(Body::from(body));
    let media = HeaderValue::from_static(openapi::V2_PROTOBUF[0]);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

async fn openapi_index(api: &Api) -> Result<Value, ApiError> {
    let mut index = openapi::v3_index(&described(api, None).await?);
    let aggregated = api.registry.all_aggregated();
    let described = aggregated.iter().filter(|one| !one.documents.v3.is_null());
    let others = openapi::index_of(described.map(|one| {
        let path = format!("apis/{}/{}", one.group, one.version);
        (path, one.documents.v3.to_string())
    }));
    for (path, entry) in others["paths"].as_object().into_iter().flatten() {
        index["paths"][path] = entry.clone();
    }
    Ok(index)
}

async fn openapi_v3(api: &Api, group: &str, version: &str) -> Result<Option<Value>, ApiError> {
    if let Some(other) = api.registry.aggregated(group, version) {
        let document = &other.documents.v3;
        return Ok((!document.is_null()).then(|| document.clone()));
    }
    let resources = described(api, Some(GroupVersion { group, version })).await?;
    Ok(openapi::v3(&resources, group, version, VERSION))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GroupVersion<'a> {
    group: &'a str,
    version: &'a str,
}

/// The resources with their schemas, optionally of one group and version only.
async fn described(api: &Api, only: Option<GroupVersion<'_>>) -> Result<Vec<Resource>, ApiError> {
    let schemas = definitions(api, only).await?;
    let wanted = |group: &str, version: &str| {
        only.is_none_or(|only| only == GroupVersion { group, version })
    };
    let mut resources = api.registry.own_resources(|kind| match &kind.origin {
        _ if !wanted(&kind.group, &kind.version) => Value::Null,
        Origin::BuiltIn(_) => document_schema(kind),
        Origin::Custom(custom) => schemas
            .get(&(custom.definition.clone(), kind.version.clone()))
            .cloned()
            .unwrap_or(Value::Null),
    });
    resources.retain(|resource| wanted(&resource.group, &resource.version));
    Ok(resources)
}

/// Schemas of CRDs, by name and version.
async fn definitions(
    api: &Api,
    only: Option<GroupVersion<'_>>,
) -> Result<HashMap<(String, String), Value>, ApiError> {
    let collection = Collection::new("apiextensions.k8s.io", "customresourcedefinitions");
    let page = api.store.list(&Scope::all(collection), None, None).await?;
    let mut out = HashMap::new();
    for stored in page.items {
        let mut definition = stored.parse()?;
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        if only.is_some_and(|only| only.group != group) {
            continue;
        }
        let name = apimachinery::meta::name(&definition).to_owned();
        let Value::Array(versions) = definition["spec"]["versions"].take() else {
            continue;
        };
        for mut version in versions {
            let key = (
                name.clone(),
                version["name"].as_str().unwrap_or_default().to_owned(),
            );
            out.insert(key, version["schema"]["openAPIV3Schema"].take());
        }
    }
    Ok(out)
}
