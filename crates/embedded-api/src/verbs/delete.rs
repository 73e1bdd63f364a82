//! Delete: immediately, or by marking the object until its finalizers are removed.

use apimachinery::{Status, Violation, meta};
use axum::{body::Body, response::Response};
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    Call, Live, is_deletable,
    read::{self, json_response},
    update::ATTEMPTS,
    write,
};
use crate::{
    admission::{self, Operation, Review},
    api::Api,
    conversion,
    error::ApiError,
    kinds::DeletionResponse,
    request::{Payload, query},
};

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// The options of a deletion, from the query or the body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub grace_period: Option<u64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<Propagation>,
}

/// What happens to the dependents of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

impl Options {
    pub(crate) fn read(call: &mut Call, payload: &Payload) -> Result<Self, ApiError> {
        let body = if payload.is_empty() {
            Value::Null
        } else {
            payload.value()?
        };
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        if body["dryRun"]
            .as_array()
            .is_some_and(|all| all.contains(&json!("All")))
        {
            call.query.dry_run = true;
        }
        let policy =
            text(&body["propagationPolicy"]).or_else(|| call.query.propagation_policy.clone());
        if let Some(policy) = policy
            .as_deref()
            .filter(|_| !body["orphanDependents"].is_null())
        {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let wrong = Violation::invalid("propagationPolicy", policy, why);
            return Err(query::invalid("DeleteOptions", wrong).into());
        }
        let propagation = match policy.as_deref() {
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            None if body["orphanDependents"] == json!(true) => Some(Propagation::Orphan),
            None => None,
            Some(other) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                let wrong = Violation::not_supported("propagationPolicy", other, known);
                return Err(query::invalid("DeleteOptions", wrong).into());
            }
        };
        Ok(Self {
            grace_period: body["gracePeriodSeconds"]
                .as_i64()
                .map(query::grace)
                .or(call.query.grace_period),
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            propagation,
        })
    }
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Outcome {
    Deleted(Value),
    /// Marked, and held by finalizers or a grace period.
    Terminating(Value),
}

pub(crate) async fn delete(
    api: &Api,
    mut call: Call,
    payload: &Payload,
) -> Result<Response, ApiError> {
    let options = Options::read(&mut call, payload)?;
    let name = call.name().to_owned();
    let outcome = Box::pin(delete_named(api, &call, &name, &options)).await?;
    let returns_object = call
        .kind
        .strategy()
        .is_some_and(|strategy| strategy.deletion == DeletionResponse::Object);
    Ok(match outcome {
        Outcome::Terminating(object) => read::respond(api, &call, StatusCode::OK, object),
        Outcome::Deleted(object) if returns_object => {
            read::respond(api, &call, StatusCode::OK, object)
        }
        Outcome::Deleted(object) => {
            let status = Status::deleted(call.kind.resource(), &name, meta::uid(&object));
            json_response(StatusCode::OK, Body::from(status.to_string()))
        }
    })
}

/// Deletes the objects that match the selectors.
pub(crate) async fn delete_collection(
    api: &Api,
    mut call: Call,
    payload: &Payload,
) -> Result<Response, ApiError> {
    let options = Options::read(&mut call, payload)?;
    call.kind.check_fields(&call.query.fields)?;
    let page = api.store.list(&read::scope(&call), None, None).await?;
    let mut items = Vec::new();
    for stored in page.items {
        if !read::matches(api, &call, &stored.body, stored.revision).await? {
            continue;
        }
        let object = Live::shown(api, &stored, &call.kind).await?.object;
        let mut one = call.clone();
        meta::namespace(&object).clone_into(&mut one.namespace);
        let name = meta::name(&object).to_owned();
        match Box::pin(delete_named(api, &one, &name, &options)).await {
            Ok(Outcome::Deleted(object) | Outcome::Terminating(object)) => items.push(object),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    if !call.kind.is_custom() {
        items.iter_mut().for_each(read::without_type);
    }
    let kind = &call.kind;
    let mut list = json!({
        "kind": kind.list_kind, "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": api.store.revision().await?.to_string()},
        "items": items,
    });
    if kind.is_custom() {
        list["metadata"]["continue"] = "".into();
    }
    Ok(json_response(StatusCode::OK, Body::from(list.to_string())))
}

pub(crate) async fn delete_named(
    api: &Api,
    call: &Call,
    name: &str,
    options: &Options,
) -> Result<Outcome, ApiError> {
    let mut attempt = 1;
    let mut reviewed = false;
    loop {
        let live = Live::shown(api, &read::load(api, call, name).await?, &call.kind).await?;
        check_preconditions(call, &live, name, options)?;
        if !reviewed {
            review(api, call, &live).await?;
            reviewed = true;
        }
        match delete_live(api, call, &live, options).await {
            Err(error)
                if error.is_conflict()
                    && options.resource_version.is_none()
                    && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            done => return done,
        }
    }
}

fn check_preconditions(
    call: &Call,
    live: &Live,
    name: &str,
    options: &Options,
) -> Result<(), ApiError> {
    let kind = call.kind.group_kind();
    let (uid, version) = (meta::uid(&live.object), live.revision.to_string());
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(Status::uid_precondition(kind, name, wanted, uid).into());
    }
    if let Some(wanted) = options
        .resource_version
        .as_deref()
        .filter(|wanted| *wanted != version)
    {
        return Err(Status::version_precondition(kind, name, wanted, &version).into());
    }
    Ok(())
}

async fn review(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
    let review = Review {
        operation: Operation::Delete,
        old: Some(&live.object),
        dry_run: call.query.dry_run,
    };
    let mut nothing = Value::Null;
    let mut warnings = Vec::new();
    admission::mutate(api, call, &review, &mut nothing, &mut warnings).await?;
    admission::validate(api, call, &review, &Value::Null, &mut warnings).await
}

async fn delete_live(
    api: &Api,
    call: &Call,
    live: &Live,
    options: &Options,
) -> Result<Outcome, ApiError> {
    let mut object = live.object.clone();
    set_propagation(&mut object, options.propagation);
    let grace = grace(call, &object, options);
    let is_namespace = call.kind.is("", "namespaces");
    if is_deletable(&object) && grace == 0 && !is_namespace {
        if call.query.dry_run {
            return Ok(Outcome::Deleted(object));
        }
        if meta::is_deleting(&object) || call.kind.is("", "pods") {
            mark(api, &mut object, 0);
        }
        let object = conversion::to_storage(api, &call.kind, object).await?;
        let name = meta::name(&object).to_owned();
        let (key, revision) = (call.key(&name), live.revision);
        let deleted = write::commit(api, call, &name, move |store| async move {
            store.delete(&key, revision, object).await
        });
        let deleted = deleted.await?;
        let deleted =
            conversion::convert(api, &call.kind, deleted, &call.kind.api_version()).await?;
        return Ok(Outcome::Deleted(deleted));
    }
    let left = live.object["metadata"]["deletionGracePeriodSeconds"].as_u64();
    if !meta::is_deleting(&live.object) || left.is_some_and(|left| grace < left) {
        mark(api, &mut object, grace);
    }
    if is_namespace {
        object["status"]["phase"] = "Terminating".into();
    }
    Ok(Outcome::Terminating(
        write::put(api, call, live, object).await?,
    ))
}

/// Pods get a grace period, unless none of their containers runs.
fn grace(call: &Call, object: &Value, options: &Options) -> u64 {
    if !call.kind.is("", "pods") {
        return 0;
    }
    let unscheduled = object["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let over = matches!(
        object["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if unscheduled || over {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(30);
    options.grace_period.unwrap_or(own)
}

fn mark(api: &Api, object: &mut Value, grace: u64) {
    let wait = SignedDuration::from_secs(i64::try_from(grace).unwrap_or(i64::MAX));
    let now = api.clock.now();
    let until = now.checked_add(wait).unwrap_or(now);
    if !meta::is_deleting(object) && meta::generation(object) > 0 {
        meta::set(object, "generation", meta::generation(object) + 1);
    }
    meta::set(object, "deletionTimestamp", meta::format_time(until));
    if meta::kind(object) != "Namespace" {
        meta::set(object, "deletionGracePeriodSeconds", grace);
    }
}

fn set_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else {
        return;
    };
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let mut finalizers: Vec<Value> = meta::finalizers(object)
        .filter(|finalizer| ![FOREGROUND, ORPHAN].contains(finalizer))
        .map(Value::from)
        .collect();
    finalizers.extend(wanted.map(Value::from));
    let value = if finalizers.is_empty() {
        Value::Null
    } else {
        Value::Array(finalizers)
    };
    meta::set(object, "finalizers", value);
}
