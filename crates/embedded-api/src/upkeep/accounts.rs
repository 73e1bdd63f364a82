//! Default objects of every namespace: the default service account, and the authority that pods
//! trust for this API server.

use std::{sync::Arc, time::Duration};

use apimachinery::meta;
use serde_json::{Value, json};
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    error::ApiError,
    fairness::panics::confine_pass,
    registry::Served,
    store::{Collection, Key, Scope},
    verbs::{
        Call, Live,
        write::{self, Ownership},
    },
};

const RETRY: Duration = Duration::from_secs(5);
const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const ROOT_CA_DESCRIPTION: &str = "Verifies the API server at its addresses inside of the cluster: the address of the service \
     and kubernetes.default.svc.";

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut live = api.store.live();
    // The affected namespace; all when none is named.
    let mut affected: Option<String> = None;
    loop {
        let retry = match confine_pass(populate(&api, affected.as_deref())).await {
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(%error, "populating namespaces failed, will retry");
                Some(Instant::now() + RETRY)
            }
        };
        affected = loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = api.root_ca_changed.notified() => break None,
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => break None,
                event = live.recv() => match event {
                    Ok(event) => if let Some(namespace) = affected_namespace(&event.key) {
                        // After a failure all namespaces are reconciled.
                        break if retry.is_some() { None } else { Some(namespace) };
                    },
                    Err(RecvError::Lagged(_)) => break None,
                    Err(RecvError::Closed) => return,
                },
            }
        };
    }
}

/// The namespace of an event.
fn affected_namespace(key: &Key) -> Option<String> {
    if !key.collection.group.is_empty() {
        return None;
    }
    match (&*key.collection.plural, &*key.name) {
        ("namespaces", name) => Some(name.to_owned()),
        ("serviceaccounts", ACCOUNT) | ("configmaps", ROOT_CA) => Some(key.namespace.to_string()),
        _ => None,
    }
}

async fn populate(api: &Api, only: Option<&str>) -> Result<(), ApiError> {
    let (Some(accounts), Some(maps)) = (
        api.registry.find("", "v1", "serviceaccounts"),
        api.registry.find("", "v1", "configmaps"),
    ) else {
        return Ok(());
    };
    let scope = Scope {
        name: only.map(ToOwned::to_owned),
        ..Scope::all(Collection::new("", "namespaces"))
    };
    for stored in api.store.list(&scope, None, None).await?.items {
        let namespace = stored.parse()?;
        if meta::is_deleting(&namespace) {
            continue;
        }
        let namespace = meta::name(&namespace);
        let account = json!({"metadata": {"name": ACCOUNT}});
        ensure(api, &accounts, namespace, account).await?;
        let root_ca = api.certificates.read().root_ca.clone();
        if let Some(ca) = root_ca {
            let map = json!({
                "metadata": {"name": ROOT_CA, "annotations": {DESCRIPTION: ROOT_CA_DESCRIPTION}},
                "data": {"ca.crt": ca},
            });
            ensure(api, &maps, namespace, map).await?;
        }
    }
    Ok(())
}

/// Creates the object, or restores its data.
async fn ensure(
    api: &Api,
    kind: &Arc<Served>,
    namespace: &str,
    mut wanted: Value,
) -> Result<(), ApiError> {
    let name = meta::name(&wanted).to_owned();
    let call = Call::internal(Arc::clone(kind), namespace, Some(&name));
    let done = if let Some(stored) = api.store.get(&call.key(&name)).await? {
        let live = Live::of(&stored, kind)?;
        if wanted["data"] == live.object["data"] || wanted["data"].is_null() {
            return Ok(());
        }
        let mut object = live.object.clone();
        object["data"] = wanted["data"].take();
        write::put(api, &call, &live, object).await.map(drop)
    } else {
        wanted["apiVersion"] = "v1".into();
        wanted["kind"] = kind.kind.clone().into();
        meta::set(&mut wanted, "namespace", namespace);
        let written = write::create(api, &call, wanted, Ownership::Compute).await;
        written.map(drop)
    };
    match done {
        // Another writer was first, or the namespace is being deleted.
        Err(error) if error.is_taken() || error.is_conflict() || error.code() == 403 => Ok(()),
        done => done,
    }
}
