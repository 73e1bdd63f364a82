//! Admission of services: assignment while no other service can be admitted.

use std::sync::Arc;

use apimachinery::{Status, meta};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    pool::{Pool, Refusal},
    update,
};
use crate::{
    api::Api,
    error::ApiError,
    store::{Collection, Scope},
    verbs::{Call, Live, write},
};

/// Serializes the admission of services.
pub(crate) type Gate = Arc<Mutex<()>>;

/// Assigns addresses and ports to a new or changed service. Hold the returned guard until the
/// service is stored.
pub(crate) async fn admit(
    api: &Api,
    call: &Call,
    live: Option<&Value>,
    service: &mut Value,
) -> Result<Option<OwnedMutexGuard<()>>, ApiError> {
    let is_spec = call.kind.is("", "services") && call.subresource.is_none();
    if !is_spec || !service["spec"].is_object() {
        return Ok(None);
    }
    let gate = Gate::clone(&api.service_gate).lock_owned().await;
    if let Some(live) = live {
        update::keep(&live["spec"], &mut service["spec"]);
    }
    let others = others(api, meta::uid(service)).await?;
    let mut pool = Pool::new(api.services, others.iter());
    let before = live.map(|live| &live["spec"]);
    pool.assign(before, service)
        .map_err(|refusal| match refusal {
            Refusal::Invalid(wrong) => ApiError::from(Status::invalid(
                call.kind.group_kind(),
                meta::name(service),
                &[*wrong],
            )),
            Refusal::Failed(why) => Status::internal(why).into(),
        })?;
    if let Some(live) = live {
        update::drop_unfit(&live["spec"], service);
    }
    Ok(Some(gate))
}

async fn others(api: &Api, uid: &str) -> Result<Vec<Value>, ApiError> {
    let mut all = services(api).await?;
    all.retain(|one| meta::uid(&one.object) != uid);
    Ok(all.into_iter().map(|one| one.object).collect())
}

async fn services(api: &Api) -> Result<Vec<Live>, ApiError> {
    let Some(kind) = api.registry.find("", "v1", "services") else {
        return Ok(Vec::new());
    };
    let scope = Scope::all(Collection::new("", "services"));
    let page = api.store.list(&scope, None, None).await?;
    page.items
        .iter()
        .map(|stored| Live::of(stored, &kind))
        .collect()
}

/// Completes services that an older version stored: without an address or node port, or with the
/// address of the service `kubernetes`.
pub(crate) async fn repair(api: &Api) -> Result<(), ApiError> {
    let Some(kind) = api.registry.find("", "v1", "services") else {
        return Ok(());
    };
    for live in services(api).await? {
        let (namespace, name) = (meta::namespace(&live.object), meta::name(&live.object));
        let call = Call::internal(Arc::clone(&kind), namespace, Some(name));
        let mut before = live.object.clone();
        let is_ours = (namespace, name) == ("default", "kubernetes");
        let is_taken = before["spec"]["clusterIP"] == api.services.first().to_string();
        if is_taken && !is_ours {
            tracing::warn!(
                namespace, name, address = %api.services.first(),
                "service gets another address: its own belongs to the service `kubernetes`"
            );
            before["spec"]["clusterIP"] = json!("");
            before["spec"]["clusterIPs"] = json!([]);
        }
        let mut object = before.clone();
        let _gate = admit(api, &call, Some(&before), &mut object).await?;
        if object != live.object {
            write::put(api, &call, &live, object).await?;
        }
    }
    Ok(())
}
