//! From a request to whoever answers it.

use apimachinery::Status;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{Method, StatusCode, header};

use crate::{
    aggregate,
    api::Api,
    auth::{self, Identity},
    documents,
    error::ApiError,
    logs,
    request::{Format, Payload, Query, Representation, ResourcePath},
    verbs::{self, Call},
};

pub(crate) fn router(api: Api) -> Router {
    Router::new().fallback(answer).with_state(api)
}

async fn answer(State(api): State<Api>, request: Request) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match Box::pin(route(&api, request)).await {
        Ok(response) => response,
        Err(error) => {
            if error.code() >= 500 {
                tracing::warn!(%method, path, %error, "request failed");
            }
            error.into_response()
        }
    }
}

async fn route(api: &Api, request: Request) -> Result<Response, ApiError> {
    let identity = auth::authenticate(&request)?;
    let path = request.uri().path();
    if let Some(aggregated) = aggregate::owner(api, path) {
        return aggregate::proxy(api, &identity, &aggregated, request).await;
    }
    if let Some(response) = documents::serve(api, request.method(), path, request.headers()).await?
    {
        return Ok(response);
    }
    let Some(path) = ResourcePath::parse(path) else {
        return Err(no_such_path(path));
    };
    let Some(kind) = api.registry.find(&path.group, &path.version, &path.plural) else {
        return Err(no_such_path(request.uri().path()));
    };
    if !path.namespace.is_empty() && !kind.namespaced {
        return Err(no_such_path(request.uri().path()));
    }
    let call = call(kind, path, identity, &request)?;
    dispatch(api, call, request).await
}

fn no_such_path(path: &str) -> ApiError {
    if path.starts_with("/api/") || path.starts_with("/apis/") {
        return Status::no_such_resource().into();
    }
    ApiError::foreign(
        404,
        "NotFound",
        "the server could not find the requested resource",
    )
}

fn call(
    kind: std::sync::Arc<crate::registry::Served>,
    path: ResourcePath,
    identity: Identity,
    request: &Request,
) -> Result<Call, ApiError> {
    let query = Query::parse(request.uri())?;
    let mut representation = Representation::negotiate(request.headers());
    if query.table {
        representation = Ok(Representation::Table);
    }
    // Logs are text, whatever is asked for.
    if path.subresource.as_deref() == Some("log") {
        representation = Ok(Representation::Object);
    }
    let user_agent = request.headers().get(header::USER_AGENT);
    Ok(Call {
        kind,
        namespace: path.namespace,
        name: path.name,
        subresource: path.subresource,
        query,
        representation: representation?,
        identity,
        user_agent: user_agent
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
    })
}

async fn dispatch(api: &Api, mut call: Call, request: Request) -> Result<Response, ApiError> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let (parts, body) = request.into_parts();
    if call.kind.is("", "pods")
        && let Some(subresource @ ("log" | "exec" | "attach" | "portforward")) =
            call.subresource.as_deref()
    {
        return match subresource {
            "log" => logs::stream(api, &call, &uri).await,
            other => Err(ApiError::not_implemented(&format!(
                "{other} is not available on this API server yet"
            ))),
        };
    }
    let payload = Payload::read(&parts.headers, body).await?;
    if verbs::reviews::is_review(&call) {
        write_only(&call, &method)?;
        return verbs::reviews::answer(&call, &payload);
    }
    match (call.name.is_some(), call.subresource.as_deref()) {
        (false, _) => collection(api, call, &method, &payload).await,
        (true, None | Some("status")) => {
            if call.subresource.is_some() && !call.kind.has_subresource("status") {
                return Err(Status::no_such_resource().into());
            }
            if call.query.watch && method == Method::GET {
                return verbs::watch::watch(api, call);
            }
            object(api, call, &method, &payload).await
        }
        (true, Some("scale")) => verbs::scale::serve(api, &call, &method, &payload).await,
        (true, Some("binding")) if call.kind.is("", "pods") => {
            write_only(&call, &method)?;
            verbs::bind::bind(api, &mut call, &payload).await
        }
        (true, Some("eviction")) if call.kind.is("", "pods") => {
            write_only(&call, &method)?;
            verbs::bind::evict(api, call, &payload).await
        }
        (true, Some("finalize")) if call.kind.is("", "namespaces") => {
            object(api, call, &method, &payload).await
        }
        (true, Some(_)) => Err(Status::no_such_resource().into()),
    }
}

async fn collection(
    api: &Api,
    call: Call,
    method: &Method,
    payload: &Payload,
) -> Result<Response, ApiError> {
    match *method {
        Method::GET if call.query.watch => {
            verbs::write::check_verb(&call, "watch")?;
            verbs::watch::watch(api, call)
        }
        Method::GET => {
            verbs::write::check_verb(&call, "list")?;
            verbs::read::list(api, &call).await
        }
        Method::POST if call.kind.namespaced && call.namespace.is_empty() => {
            Err(Status::method_not_allowed(call.kind.resource(), "create").into())
        }
        Method::POST => verbs::create::create(api, &call, payload).await,
        Method::DELETE => verbs::delete::delete_collection(api, call, payload).await,
        _ => Err(Status::method_not_allowed(call.kind.resource(), method.as_str()).into()),
    }
}

async fn object(
    api: &Api,
    call: Call,
    method: &Method,
    payload: &Payload,
) -> Result<Response, ApiError> {
    match *method {
        Method::GET => verbs::read::get(api, &call).await,
        Method::PUT => verbs::update::update(api, &call, payload).await,
        Method::PATCH => {
            if matches!(
                payload.format,
                Format::Json | Format::Yaml | Format::Protobuf
            ) {
                let accepted = [
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                    "application/apply-patch+yaml",
                ];
                return Err(Status::unsupported_media_type(&accepted).into());
            }
            verbs::patch::patch(api, &call, payload).await
        }
        Method::DELETE if call.subresource.is_none() => {
            verbs::delete::delete(api, call, payload).await
        }
        _ => Err(Status::method_not_allowed(call.kind.resource(), method.as_str()).into()),
    }
}

fn write_only(call: &Call, method: &Method) -> Result<(), ApiError> {
    if *method == Method::POST {
        return Ok(());
    }
    Err(Status::method_not_allowed(call.kind.resource(), method.as_str()).into())
}

/// Plain text, as health checks answer.
pub(crate) fn text(code: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
