//! Dispatches requests.

use apimachinery::Status;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{Method, StatusCode, header};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{
    access::{self, Attributes},
    aggregate,
    api::Api,
    auth::{self, Identity},
    documents, encode,
    error::ApiError,
    fairness::{self, Demand, Level, Seat},
    logs,
    metrics::Labels,
    request::{
        Accepted, Encoding, Format, Offer, Payload, Query, Representation, ResourcePath,
        query::FieldValidation,
    },
    span, tokens,
    verbs::{self, Call},
};

pub(crate) fn router(api: Api) -> Router {
    Router::new().fallback(answer).with_state(api)
}

async fn answer(State(api): State<Api>, request: Request) -> Response {
    let (span, started) = (span::new(&request), Instant::now());
    let labels = Labels::of(&api, &request);
    let mut encoding = Encoding::negotiate(request.headers());
    let served = route(&api, request, &mut encoding);
    let routed = fairness::panics::confine(served)
        .instrument(span.clone())
        .await;
    let (response, seat) = routed.unwrap_or_else(|error| (span::respond(error), None));
    let mut response = encode::respond(response, encoding).await;
    labels.record(response.status(), started.elapsed());
    span::log_response(&span, &mut response, started);
    fairness::seated(response, seat)
}

/// Serves the request when its user has a seat. The seat is that of the response, unless a stream has taken it.
async fn route(
    api: &Api,
    request: Request,
    encoding: &mut Encoding,
) -> Result<(Response, Option<Seat>), ApiError> {
    let caller = auth::authenticate(api, request.extensions(), request.headers()).await?;
    let demand = Demand::of(&caller, &request);
    let seat = api.fairness.admit(demand).await?;
    let served = Box::pin(serve(api, caller, request, encoding));
    let (response, seat) = fairness::current::seat(seat, served).await;
    Ok((response?, seat))
}

/// Sets `encoding` to that of the answer, once the kind is known.
async fn serve(
    api: &Api,
    caller: Identity,
    request: Request,
    encoding: &mut Encoding,
) -> Result<Response, ApiError> {
    let level = Level::of(&caller);
    let identity = access::impersonate(api, caller, request.headers()).await?;
    span::record_user(&identity);
    let wanted = Attributes::of(&request);
    access::authorize(api, &identity, &wanted).await?;
    let path = request.uri().path();
    if let Some(aggregated) = aggregate::owner(api, path) {
        return aggregate::proxy(api, &identity, &aggregated, request).await;
    }
    let query = request.uri().query().unwrap_or_default();
    if let Some(response) =
        documents::serve(api, request.method(), path, query, request.headers()).await?
    {
        return Ok(response);
    }
    let Some(path) = ResourcePath::parse(path) else {
        return Ok(no_such_path());
    };
    let (path, watches) = path.without_watch();
    let Some(kind) = api.registry.find(&path.group, &path.version, &path.plural) else {
        return no_such_resource(api, &path);
    };
    if !path.namespace.is_empty() && !kind.namespaced {
        return no_such_resource(api, &path);
    }
    if kind.is_custom() && kind.namespaced && path.namespace.is_empty() && path.is_write(&request) {
        return Ok(no_such_path());
    }
    let warnings: Vec<String> = kind.deprecation.iter().cloned().collect();
    let call = call(kind, path, (identity, level), &request, watches)?;
    *encoding = call.encoding;
    span::record_call(&call);
    let dispatched = dispatch(api, call, request).await;
    Ok(verbs::warn(
        dispatched.unwrap_or_else(span::respond),
        &warnings,
    ))
}

/// Built-in groups respond with a `Status`, all others with the plain text of an unknown path.
fn no_such_resource(api: &Api, path: &ResourcePath) -> Result<Response, ApiError> {
    if api.registry.has_built_in(&path.group, &path.version) {
        return Err(Status::no_such_resource().into());
    }
    Ok(no_such_path())
}

pub(crate) fn no_such_path() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn call(
    kind: std::sync::Arc<crate::registry::Served>,
    path: ResourcePath,
    (identity, level): (Identity, Level),
    request: &Request,
    watches: bool,
) -> Result<Call, ApiError> {
    let mut query = Query::parse(request.method(), request.uri())?;
    query.watch |= watches;
    let offer = Offer {
        protobuf: !kind.is_custom() || path.subresource.as_deref() == Some("scale"),
        table: !verbs::reviews::is_review(&kind),
        watch: query.watch && path.name.is_none() && *request.method() == Method::GET,
    };
    // Logs and streams are not objects, so the `Accept` header does not apply.
    let mut accepted = match path.subresource.as_deref() {
        Some("log" | "exec" | "attach" | "portforward") => Accepted::JSON,
        _ => Accepted::negotiate(request.headers(), offer)?,
    };
    if query.table {
        accepted.representation = Representation::Table;
    }
    let user_agent = request.headers().get(header::USER_AGENT);
    Ok(Call {
        kind,
        namespace: path.namespace,
        name: path.name,
        subresource: path.subresource,
        query,
        representation: accepted.representation,
        encoding: accepted.encoding,
        identity,
        level,
        user_agent: user_agent
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
    })
}

async fn dispatch(api: &Api, mut call: Call, request: Request) -> Result<Response, ApiError> {
    let method = request.method().clone();
    if call.kind.is("", "pods")
        && let Some(subresource @ ("log" | "exec" | "attach" | "portforward")) =
            call.subresource.as_deref()
    {
        return match subresource {
            "log" => logs::stream(api, &call, request).await,
            verb => verbs::streams::connect(api, &call, verb, request).await,
        };
    }
    let (parts, body) = request.into_parts();
    let payload = Payload::read(&parts.headers, body).await?;
    if payload.format == Format::Protobuf {
        // Its decoder skips unknown fields.
        call.query.field_validation = FieldValidation::Ignore;
    }
    if verbs::reviews::is_review(&call.kind) {
        write_only(&call, &method)?;
        return verbs::reviews::answer(api, &call, &payload).await;
    }
    match (call.name.is_some(), call.subresource.as_deref()) {
        (false, _) => collection(api, call, &method, &payload).await,
        (true, None | Some("status")) => {
            if call.subresource.is_some() && !call.kind.has_subresource("status") {
                return Err(no_such_subresource(&call));
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
        (true, Some("token")) if call.kind.is("", "serviceaccounts") => {
            write_only(&call, &method)?;
            tokens::issue(api, &call, &payload).await
        }
        (true, Some("finalize")) if call.kind.is("", "namespaces") => {
            object(api, call, &method, &payload).await
        }
        (true, Some(_)) => Err(no_such_subresource(&call)),
    }
}

fn no_such_subresource(call: &Call) -> ApiError {
    if call.kind.is_custom() {
        return Status::not_found(call.kind.resource(), call.name()).into();
    }
    Status::no_such_resource().into()
}

/// Paths of built-in kinds check the method before the kind.
fn method_not_allowed(call: &Call, method: &Method) -> ApiError {
    if call.kind.is_custom() {
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if call.name.is_some() => "delete",
            Method::DELETE => "deletecollection",
            _ => "get",
        };
        return Status::method_not_allowed(call.kind.resource(), verb).into();
    }
    Status::method_unknown_here().into()
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
            Err(method_not_allowed(&call, method))
        }
        Method::POST => verbs::create::create(api, &call, payload).await,
        Method::DELETE if call.kind.verbs.contains(&"deletecollection") => {
            verbs::delete::delete_collection(api, call, payload).await
        }
        _ => Err(method_not_allowed(&call, method)),
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
                return Err(Status::unsupported_patch().into());
            }
            verbs::patch::patch(api, &call, payload).await
        }
        Method::DELETE if call.subresource.is_none() => {
            verbs::delete::delete(api, call, payload).await
        }
        _ => Err(method_not_allowed(&call, method)),
    }
}

fn write_only(call: &Call, method: &Method) -> Result<(), ApiError> {
    if *method == Method::POST {
        return Ok(());
    }
    Err(Status::method_not_allowed(call.kind.resource(), method.as_str()).into())
}

/// Plain text, for health checks.
pub(crate) fn text(code: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = code;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
