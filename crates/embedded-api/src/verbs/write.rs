//! The way of every write: defaults, webhooks, checks, field owners, store.
//!
//! Invariant: nothing is stored that was not checked in the form in which it is stored.

use apimachinery::{
    Status,
    apply::{Writer, managed},
    meta,
};
use serde_json::Value;

use super::{Call, Live, Written, is_free, prepare};
use crate::{
    access::escalation,
    admission::{self, Operation, Review},
    api::Api,
    error::ApiError,
    plugins, quota,
    registry::convert,
};

/// Whether the owners of fields were worked out already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// By server-side apply.
    Known,
    Compute,
}

/// Stores `object`, which is complete and named, as a new one.
pub(crate) async fn create(
    api: &Api,
    call: &Call,
    mut object: Value,
    owners: Owners,
) -> Result<Written, ApiError> {
    let mut warnings = prepare::prune(api, call, &mut object)?;
    prepare::begin(api, call, &mut object)?;
    prepare::default(call, &mut object);
    let name = meta::name(&object).to_owned();
    prepare::check_namespace(api, call, &name).await?;
    // What the server and webhooks add from here on belongs to nobody.
    if owners == Owners::Compute {
        own(api, call, None, &mut object);
    }
    prepare::furnish(api, call, &mut object);
    plugins::complete(api, call, &mut object).await?;
    escalation::check(api, call, None, &object).await?;
    warnings.extend(prepare::warnings(call, None, &object));
    let review = Review {
        operation: Operation::Create,
        old: None,
        dry_run: call.query.dry_run,
    };
    let mutated = admission::mutate(api, call, &review, &mut object, &mut warnings).await?;
    if mutated {
        prepare::prune(api, call, &mut object)?;
        prepare::default(call, &mut object);
    }
    prepare::settle(api, call, &mut object);
    if let Err(error) = prepare::validate(api, call, None, &object) {
        return Err(error.with_warnings(warnings));
    }
    if let Err(error) = admission::validate(api, call, &review, &object, &mut warnings).await {
        return Err(error.with_warnings(warnings));
    }
    // Nobody else is let in until this one is stored.
    let _gate = match quota::admit(api, call, &object).await {
        Ok(gate) => gate,
        Err(error) => return Err(error.with_warnings(warnings)),
    };
    if call.query.dry_run {
        return Ok(Written {
            object,
            created: true,
            warnings,
        });
    }
    convert::to_version(&mut object, &call.kind.storage_api_version);
    let (mut object, _) = api
        .store
        .create(&call.key(&name), object)
        .await
        .map_err(|error| ApiError::about(error, call.kind.resource(), &name))?;
    convert::to_version(&mut object, &call.kind.api_version());
    api.stored(&call.kind).await?;
    Ok(Written {
        object,
        created: true,
        warnings,
    })
}

/// Stores `object` in place of `live`. The last finalizer gone, a deleted object goes.
pub(crate) async fn update(
    api: &Api,
    call: &Call,
    live: &Live,
    mut object: Value,
    owners: Owners,
) -> Result<Written, ApiError> {
    let mut warnings = prepare::prune(api, call, &mut object)?;
    prepare::default(call, &mut object);
    prepare::carry_over(call, &live.object, &mut object);
    if owners == Owners::Compute && call.subresource.as_deref() != Some("finalize") {
        own(api, call, Some(&live.object), &mut object);
    }
    escalation::check(api, call, Some(&live.object), &object).await?;
    warnings.extend(prepare::warnings(call, Some(&live.object), &object));
    let review = Review {
        operation: Operation::Update,
        old: Some(&live.object),
        dry_run: call.query.dry_run,
    };
    let mutated = admission::mutate(api, call, &review, &mut object, &mut warnings).await?;
    if mutated {
        prepare::prune(api, call, &mut object)?;
        prepare::default(call, &mut object);
        prepare::carry_over(call, &live.object, &mut object);
    }
    prepare::settle(api, call, &mut object);
    if let Err(error) = prepare::validate(api, call, Some(live), &object) {
        return Err(error.with_warnings(warnings));
    }
    if let Err(error) = admission::validate(api, call, &review, &object, &mut warnings).await {
        return Err(error.with_warnings(warnings));
    }
    let object = put(api, call, live, object).await?;
    Ok(Written {
        object,
        created: false,
        warnings,
    })
}

/// Puts a checked object in place of `live`, or removes both if nothing holds them any more.
pub(crate) async fn put(
    api: &Api,
    call: &Call,
    live: &Live,
    mut object: Value,
) -> Result<Value, ApiError> {
    let name = meta::name(&live.object).to_owned();
    meta::set(&mut object, "resourceVersion", live.revision.to_string());
    let goes = meta::is_deleting(&object) && is_free(&object) && !waits(&object);
    if call.query.dry_run
        || (!goes && !meta::differs(&live.object, &object) && same_owners(&live.object, &object))
    {
        return Ok(object);
    }
    convert::to_version(&mut object, &call.kind.storage_api_version);
    let key = call.key(&name);
    let stored = if goes {
        api.store.delete(&key, live.revision, object).await
    } else {
        api.store
            .update(&key, live.revision, object)
            .await
            .map(|(object, _)| object)
    };
    let mut object = stored.map_err(|error| ApiError::about(error, call.kind.resource(), &name))?;
    convert::to_version(&mut object, &call.kind.api_version());
    api.stored(&call.kind).await?;
    Ok(object)
}

/// Taking over fields without changing them is a change, too; a new time alone is none.
fn same_owners(live: &Value, object: &Value) -> bool {
    fn owners(object: &Value) -> Vec<(&Value, &Value, &Value)> {
        let entries = object["metadata"]["managedFields"].as_array();
        entries
            .into_iter()
            .flatten()
            .map(|entry| (&entry["manager"], &entry["operation"], &entry["fieldsV1"]))
            .collect()
    }
    owners(live) == owners(object)
}

/// Pods have a time to end, and namespaces their contents to lose.
fn waits(object: &Value) -> bool {
    object["metadata"]["deletionGracePeriodSeconds"]
        .as_u64()
        .unwrap_or_default()
        > 0
        || (meta::kind(object) == "Namespace"
            && object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|held| !held.is_empty()))
}

/// The writer of this call, for the bookkeeping of field owners.
pub(crate) fn writer<'a>(api: &Api, call: &'a Call, api_version: &'a str) -> Writer<'a> {
    let reset: &[&str] = match call.subresource.as_deref() {
        Some("status") => &["spec", "metadata"],
        _ if call.kind.has_subresource("status") => &["status"],
        _ => &[],
    };
    Writer {
        manager: call.manager(),
        api_version,
        subresource: call.subresource.as_deref().unwrap_or_default(),
        ty: call.kind.shape(),
        reset,
        now: api.clock.now(),
    }
}

/// Notes which fields this call is the owner of.
pub(crate) fn own(api: &Api, call: &Call, live: Option<&Value>, object: &mut Value) {
    let api_version = call.kind.api_version();
    managed::update(&writer(api, call, &api_version), live, object);
}

/// Refuses bodies for kinds that cannot be written so.
pub(crate) fn check_verb(call: &Call, verb: &str) -> Result<(), ApiError> {
    if call.kind.verbs.contains(&verb) {
        return Ok(());
    }
    Err(Status::method_not_allowed(call.kind.resource(), verb).into())
}
