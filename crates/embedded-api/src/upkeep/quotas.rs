//! Updates the usage in the statuses of quotas.

use std::{collections::BTreeSet, time::Duration};

use apimachinery::meta;
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    error::ApiError,
    fairness::panics::confine_pass,
    quota,
    store::{Collection, Key, Scope},
    verbs::{Call, Live, write},
};

const RETRY: Duration = Duration::from_secs(5);

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut live = api.store.live();
    // The affected namespace; all when none is named.
    let mut affected: Option<String> = None;
    // The namespaces with quotas.
    let mut namespaces = BTreeSet::new();
    loop {
        let retry = match confine_pass(count(&api, affected.as_deref(), &mut namespaces)).await {
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(%error, "counting quotas failed, will retry");
                Some(Instant::now() + RETRY)
            }
        };
        affected = loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => break None,
                event = live.recv() => match event {
                    Ok(event) => if is_relevant(&event.key, &namespaces) {
                        // After a failure all namespaces are counted.
                        let namespace = event.key.namespace.to_string();
                        break retry.is_none().then_some(namespace);
                    },
                    Err(RecvError::Lagged(_)) => break None,
                    Err(RecvError::Closed) => return,
                },
            }
        };
    }
}

fn is_relevant(key: &Key, namespaces: &BTreeSet<String>) -> bool {
    let collection = (&*key.collection.group, &*key.collection.plural);
    let is_quota = collection == ("", "resourcequotas");
    let is_never_counted = matches!(&*key.collection.plural, "events" | "leases");
    is_quota || (!is_never_counted && namespaces.contains(&*key.namespace))
}

/// Updates the statuses.
async fn count(
    api: &Api,
    only: Option<&str>,
    namespaces: &mut BTreeSet<String>,
) -> Result<(), ApiError> {
    let Some(kind) = api.registry.find("", "v1", "resourcequotas") else {
        return Ok(());
    };
    let scope = Scope {
        namespace: only.map(str::to_owned),
        ..Scope::all(Collection::new("", "resourcequotas"))
    };
    match only {
        Some(namespace) => {
            namespaces.remove(namespace);
        }
        None => namespaces.clear(),
    }
    for stored in api.store.list(&scope, None, None).await?.items {
        let live = Live::of(&stored, &kind)?;
        let namespace = meta::namespace(&live.object).to_owned();
        let counted = quota::counted(api, &live.object).await?;
        namespaces.insert(namespace.clone());
        if counted["status"] == live.object["status"] {
            continue;
        }
        let name = meta::name(&live.object).to_owned();
        let call = Call::internal(std::sync::Arc::clone(&kind), &namespace, Some(&name));
        match write::put(api, &call, &live, counted).await {
            // The event of the conflicting write triggers another run.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            done => drop(done?),
        }
    }
    Ok(())
}
