//! The steps of every write: defaults, webhooks, validation, limits, Pod Security, field ownership, store.
//!
//! Invariant: an object is stored only in exactly the form that was validated.

use std::sync::Arc;

use apimachinery::{
    Status,
    apply::{Writer, managed},
    meta,
};
use serde_json::Value;
use tracing::Instrument as _;

use super::{Call, Live, Written, is_deletable, prepare};
use crate::{
    access::escalation,
    admission::{self, Operation, Review},
    api::Api,
    conversion,
    error::ApiError,
    limits, plugins, pod_security, quota, services,
    store::{Store, StoreError},
};

/// Whether field ownership was already determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// By server-side apply.
    Known,
    Compute,
}

/// Stores the complete and named `object` as a new one.
pub(crate) async fn create(
    api: &Api,
    call: &Call,
    mut object: Value,
    ownership: Ownership,
) -> Result<Written, ApiError> {
    let mut warnings = prepare::prune(api, call, &mut object)?;
    if ownership == Ownership::Compute {
        prepare::drop_nulls(call, &mut object);
    }
    prepare::initialize(api, call, &mut object)?;
    prepare::default(call, &mut object);
    let name = meta::name(&object).to_owned();
    prepare::check_namespace(api, call, &name).await?;
    // Fields added by the server and webhooks from here on have no owner.
    if ownership == Ownership::Compute {
        own(api, call, None, &mut object);
    }
    prepare::populate(api, call, &mut object);
    plugins::complete(api, call, &mut object).await?;
    escalation::check(api, call, None, &object).await?;
    warnings.extend(prepare::finalizer_warnings(call, None, &object));
    let review = Review {
        operation: Operation::Create,
        old: None,
        dry_run: call.query.dry_run,
    };
    let mutated = admission::mutate(api, call, &review, &mut object, &mut warnings).await?;
    if mutated {
        prepare::prune(api, call, &mut object)?;
        prepare::drop_nulls(call, &mut object);
        prepare::default(call, &mut object);
        // Webhooks add containers, which get the limits of others.
        limits::complete(api, call, &mut object).await?;
    }
    let _services = match services::admit(api, call, None, &mut object).await {
        Ok(gate) => gate,
        Err(error) => return Err(error.with_warnings(warnings)),
    };
    prepare::accept(api, call, &mut object);
    if let Err(error) = prepare::validate(api, call, None, &object) {
        return Err(error.with_warnings(warnings));
    }
    if let Err(error) = limits::admit(api, call, None, &object).await {
        return Err(error.with_warnings(warnings));
    }
    if let Err(error) = pod_security::admit(api, call, None, &object, &mut warnings).await {
        return Err(error.with_warnings(warnings));
    }
    if let Err(error) = admission::validate(api, call, &review, &object, &mut warnings).await {
        return Err(error.with_warnings(warnings));
    }
    // Serializes quota admission until this object is stored.
    let _gate = match quota::admit(api, call, None, &object).await {
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
    let object = conversion::to_storage(api, &call.kind, object).await?;
    let key = call.key(&name);
    let created = commit(api, call, &name, move |store| async move {
        let created = store.create(&key, object).await;
        created.map(|(object, _)| object)
    });
    let object = created.await?;
    let object = conversion::convert(api, &call.kind, object, &call.kind.api_version()).await?;
    Ok(Written {
        object,
        created: true,
        warnings,
    })
}

/// Replaces `live` by `object`. A deleted object without remaining finalizers is removed.
pub(crate) async fn update(
    api: &Api,
    call: &Call,
    live: &Live,
    mut object: Value,
    ownership: Ownership,
) -> Result<Written, ApiError> {
    let mut warnings = prepare::prune(api, call, &mut object)?;
    if ownership == Ownership::Compute {
        prepare::drop_nulls(call, &mut object);
    }
    prepare::default(call, &mut object);
    prepare::carry_over(call, &live.object, &mut object);
    if ownership == Ownership::Compute && call.subresource.as_deref() != Some("finalize") {
        own(api, call, Some(&live.object), &mut object);
    }
    plugins::complete_update(api, call, &live.object, &mut object).await?;
    escalation::check(api, call, Some(&live.object), &object).await?;
    warnings.extend(prepare::finalizer_warnings(
        call,
        Some(&live.object),
        &object,
    ));
    let review = Review {
        operation: Operation::Update,
        old: Some(&live.object),
        dry_run: call.query.dry_run,
    };
    let mutated = admission::mutate(api, call, &review, &mut object, &mut warnings).await?;
    if mutated {
        prepare::prune(api, call, &mut object)?;
        prepare::drop_nulls(call, &mut object);
        prepare::default(call, &mut object);
        prepare::carry_over(call, &live.object, &mut object);
    }
    let _services = match services::admit(api, call, Some(&live.object), &mut object).await {
        Ok(gate) => gate,
        Err(error) => return Err(error.with_warnings(warnings)),
    };
    prepare::accept(api, call, &mut object);
    if let Err(error) = prepare::validate(api, call, Some(live), &object) {
        return Err(error.with_warnings(warnings));
    }
    let old = Some(&live.object);
    if let Err(error) = limits::admit(api, call, old, &object).await {
        return Err(error.with_warnings(warnings));
    }
    if let Err(error) = pod_security::admit(api, call, old, &object, &mut warnings).await {
        return Err(error.with_warnings(warnings));
    }
    if let Err(error) = admission::validate(api, call, &review, &object, &mut warnings).await {
        return Err(error.with_warnings(warnings));
    }
    let _gate = match quota::admit(api, call, Some(&live.object), &object).await {
        Ok(gate) => gate,
        Err(error) => return Err(error.with_warnings(warnings)),
    };
    let object = put(api, call, live, object).await?;
    Ok(Written {
        object,
        created: false,
        warnings,
    })
}

/// Replaces `live` by a validated object, or removes it if nothing holds it any more.
pub(crate) async fn put(
    api: &Api,
    call: &Call,
    live: &Live,
    mut object: Value,
) -> Result<Value, ApiError> {
    let name = meta::name(&live.object).to_owned();
    meta::set(&mut object, "resourceVersion", live.revision.to_string());
    let is_removed =
        meta::is_deleting(&object) && is_deletable(&object) && !awaits_cleanup(&object);
    if call.query.dry_run
        || (!is_removed
            && !meta::differs(&live.object, &object)
            && same_owners(&live.object, &object))
    {
        return Ok(object);
    }
    let object = conversion::to_storage(api, &call.kind, object).await?;
    let (key, revision) = (call.key(&name), live.revision);
    let stored = commit(api, call, &name, move |store| async move {
        if is_removed {
            return store.delete(&key, revision, object).await;
        }
        let updated = store.update(&key, revision, object).await;
        updated.map(|(object, _)| object)
    });
    let object = stored.await?;
    conversion::convert(api, &call.kind, object, &call.kind.api_version()).await
}

/// Changes the store, and updates what depends on the kind: both, or neither, also if the client goes away
/// in between. A revoked permission would otherwise stay in effect.
pub(crate) async fn commit<F>(
    api: &Api,
    call: &Call,
    name: &str,
    change: impl FnOnce(Store) -> F,
) -> Result<Value, ApiError>
where
    F: Future<Output = Result<Value, StoreError>> + Send + 'static,
{
    let (server, kind, name) = (api.clone(), Arc::clone(&call.kind), name.to_owned());
    let change = change(api.store.clone());
    let both = async move {
        let changed = change.await;
        let object = changed.map_err(|error| ApiError::about(error, kind.resource(), &name))?;
        server.on_write(&kind).await?;
        Ok::<_, ApiError>(object)
    };
    api.tasks
        .spawn(both.in_current_span())
        .await
        .map_err(StoreError::from)?
}

/// A change of ownership is a change, too; a new timestamp alone is not.
fn same_owners(live: &Value, object: &Value) -> bool {
    fn ownership(object: &Value) -> Vec<(&Value, &Value, &Value)> {
        let entries = object["metadata"]["managedFields"].as_array();
        entries
            .into_iter()
            .flatten()
            .map(|entry| (&entry["manager"], &entry["operation"], &entry["fieldsV1"]))
            .collect()
    }
    ownership(live) == ownership(object)
}

/// Pods have a grace period, and namespaces have contents to delete.
fn awaits_cleanup(object: &Value) -> bool {
    object["metadata"]["deletionGracePeriodSeconds"]
        .as_u64()
        .unwrap_or_default()
        > 0
        || (meta::kind(object) == "Namespace"
            && object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|held| !held.is_empty()))
}

/// The writer of this call, for field ownership.
pub(crate) fn writer<'a>(api: &Api, call: &'a Call, api_version: &'a str) -> Writer<'a> {
    let reset: &[&str] = match call.subresource.as_deref() {
        Some("status") if prepare::writes_metadata(call) => &["spec"],
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

/// Records the fields owned by this call.
pub(crate) fn own(api: &Api, call: &Call, live: Option<&Value>, object: &mut Value) {
    let api_version = call.kind.api_version();
    managed::update(&writer(api, call, &api_version), live, object);
}

/// Rejects bodies for kinds that do not support the verb.
pub(crate) fn check_verb(call: &Call, verb: &str) -> Result<(), ApiError> {
    if call.kind.verbs.contains(&verb) {
        return Ok(());
    }
    Err(Status::method_not_allowed(call.kind.resource(), verb).into())
}
