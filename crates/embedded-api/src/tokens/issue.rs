//! `serviceaccounts/NAME/token`: a token for a service account, optionally bound to a pod.

use apimachinery::{GroupKind, GroupResource, Status, Violation, apply::managed, meta};
use axum::{body::Body, response::Response};
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::{ISSUER, jwt};
use crate::{
    api::Api,
    error::ApiError,
    request::Payload,
    store::Collection,
    verbs::{Call, Live, read, write},
};

const DEFAULT_EXPIRATION: i64 = 3600;
const MIN_EXPIRATION: i64 = 600;
const MAX_EXPIRATION: i64 = 1 << 32;
const API_VERSION: &str = "authentication.k8s.io/v1";
const KIND: GroupKind<'_> = GroupKind {
    group: "authentication.k8s.io",
    kind: "TokenRequest",
};

pub(crate) async fn issue(api: &Api, call: &Call, payload: &Payload) -> Result<Response, ApiError> {
    let mut request = if payload.is_empty() {
        json!({})
    } else {
        payload.value()?
    };
    complete(&mut request)?;
    let account = Live::of(&read::load(api, call, call.name()).await?, &call.kind)?.object;
    let bound = bound(api, call, &request["spec"]["boundObjectRef"]).await?;
    let now = api.clock.now();
    let life = request["spec"]["expirationSeconds"].as_i64();
    let life = SignedDuration::from_secs(life.unwrap_or(DEFAULT_EXPIRATION));
    let end = now.checked_add(life).unwrap_or(now);
    let mut facts = json!({
        "namespace": call.namespace,
        "serviceaccount": {"name": call.name(), "uid": meta::uid(&account)},
    });
    if let Value::Object(facts) = &mut facts {
        facts.extend(bound);
    }
    let claims = json!({
        "aud": request["spec"]["audiences"], "exp": end.as_second(), "iat": now.as_second(),
        "iss": ISSUER, "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": facts, "nbf": now.as_second(),
        "sub": format!("system:serviceaccount:{}:{}", call.namespace, call.name()),
    });
    let token = jwt::encode(&api.tokens.key, &claims).map_err(Status::internal)?;
    request["metadata"] = json!({
        "name": call.name(), "namespace": call.namespace,
        "uid": uuid::Uuid::new_v4().to_string(),
        "creationTimestamp": meta::format_time(now),
    });
    managed::update(&write::writer(api, call, API_VERSION), None, &mut request);
    request["status"] = json!({"token": token, "expirationTimestamp": meta::format_time(end)});
    Ok(read::json_response(
        StatusCode::CREATED,
        Body::from(request.to_string()),
    ))
}

/// Fills in defaults and validates the request.
fn complete(request: &mut Value) -> Result<(), ApiError> {
    if !request.is_object() {
        return Err(Status::bad_request("the body is not a TokenRequest").into());
    }
    request["apiVersion"] = API_VERSION.into();
    request["kind"] = "TokenRequest".into();
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!([ISSUER]);
    }
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = DEFAULT_EXPIRATION.into();
    }
    // The field is always present in the response, even if empty.
    let bound = spec["boundObjectRef"].take();
    spec["boundObjectRef"] = bound;
    let found = spec["expirationSeconds"].clone();
    let at = "spec.expirationSeconds";
    let wrong = match found.as_i64() {
        Some(seconds) if seconds < MIN_EXPIRATION => {
            Violation::invalid(at, found, "may not specify a duration less than 10 minutes")
        }
        Some(seconds) if seconds > MAX_EXPIRATION => {
            let why = "may not specify a duration larger than 2^32 seconds";
            Violation::invalid(at, found, why)
        }
        Some(_) => return Ok(()),
        None => Violation::invalid(at, found, "must be a number of seconds"),
    };
    Err(Status::invalid(KIND, "", &[wrong]).into())
}

/// The claims about the object that bounds the token's lifetime.
async fn bound(api: &Api, call: &Call, wanted: &Value) -> Result<Map<String, Value>, ApiError> {
    let mut facts = Map::new();
    if !wanted.is_object() {
        return Ok(facts);
    }
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let (plural, namespace) = match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => ("pods", call.namespace.as_str()),
        ("v1", "Secret") => ("secrets", call.namespace.as_str()),
        ("v1", "Node") => ("nodes", ""),
        (version, kind) => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why).into());
        }
    };
    let (name, uid) = (text("name"), text("uid"));
    let resource = GroupResource {
        group: "",
        resource: plural,
    };
    let found = load(api, plural, namespace, name).await?;
    let found = found.ok_or_else(|| Status::not_found(resource, name))?;
    let stored = meta::uid(&found);
    if !uid.is_empty() && uid != stored {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        let resource = GroupResource {
            resource: text("kind"),
            ..resource
        };
        return Err(Status::conflict_because(resource, name, &why).into());
    }
    facts.insert(
        plural.trim_end_matches('s').to_owned(),
        json!({"name": name, "uid": stored}),
    );
    if plural != "pods" {
        return Ok(facts);
    }
    let account = found["spec"]["serviceAccountName"].as_str();
    if account.unwrap_or("default") != call.name() {
        let why = format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            call.name()
        );
        return Err(Status::bad_request(why).into());
    }
    let node = found["spec"]["nodeName"].as_str().unwrap_or_default();
    if let Some(node) = load(api, "nodes", "", node).await? {
        let fact = json!({"name": meta::name(&node), "uid": meta::uid(&node)});
        facts.insert("node".to_owned(), fact);
    }
    Ok(facts)
}

pub(super) async fn load(
    api: &Api,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    let key = Collection::new("", plural).key(namespace, name);
    let stored = api.store.get(&key).await?;
    Ok(stored.map(|stored| stored.parse()).transpose()?)
}
