//! Endpoints and endpoint slices of services.
//!
//! - [`pods`] reads the pods behind a service, [`subsets`] makes its Endpoints of them;
//! - [`slices`] makes endpoint slices of pods, or of Endpoints that a user wrote;
//! - [`namespace`] compares one namespace with what is stored, and writes the differences.
//!
//! Invariants: Endpoints of a service without a selector belong to users; nothing is written into a
//! namespace that is being deleted, or when nothing changed.

mod namespace;
mod pods;
mod slices;
mod subsets;

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;
use tokio::{
    sync::broadcast::error::{RecvError, TryRecvError},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::namespace::reconcile;
use crate::{
    api::Api,
    error::ApiError,
    fairness::panics::confine_pass,
    store::{Collection, Event, EventKind, Scope},
};

const RETRY: Duration = Duration::from_secs(5);

/// What has to be compared.
#[derive(Debug, Default)]
struct Work {
    everything: bool,
    namespaces: BTreeSet<String>,
    /// Deleted services: their Endpoints are deleted too, even those that users created.
    deleted: BTreeSet<(String, String)>,
}

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut live = api.store.live();
    let mut work = Work {
        everything: true,
        ..Work::default()
    };
    loop {
        let retry = match act(&api, &mut work).await {
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(%error, "updating endpoints failed, will retry");
                Some(Instant::now() + RETRY)
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            event = live.recv() => match event {
                Ok(event) => work.note(&event),
                Err(RecvError::Lagged(_)) => work.everything = true,
                Err(RecvError::Closed) => return,
            },
        }
        // Many pods change together.
        loop {
            match live.try_recv() {
                Ok(event) => work.note(&event),
                Err(TryRecvError::Lagged(_)) => work.everything = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
    }
}

impl Work {
    fn note(&mut self, event: &Event) {
        let key = &event.key;
        let collection = (&*key.collection.group, &*key.collection.plural);
        let is_relevant = match collection {
            ("", "pods") => pods::is_relevant(&event.body, event.previous.as_deref()),
            ("", "services") => {
                if event.kind == EventKind::Deleted {
                    let name = (key.namespace.to_string(), key.name.to_string());
                    self.deleted.insert(name);
                }
                true
            }
            ("", "endpoints") | ("discovery.k8s.io", "endpointslices") => true,
            _ => false,
        };
        if is_relevant {
            self.namespaces.insert(key.namespace.to_string());
        }
    }
}

/// Does the work, and removes what is done.
async fn act(api: &Api, work: &mut Work) -> Result<(), ApiError> {
    if work.everything {
        for plural in ["services", "endpoints"] {
            let scope = Scope::all(Collection::new("", plural));
            for stored in api.store.list(&scope, None, None).await?.items {
                let object: Value = stored.parse()?;
                let namespace = apimachinery::meta::namespace(&object).to_owned();
                work.namespaces.insert(namespace);
            }
        }
        work.everything = false;
    }
    let mut failure = None;
    for (namespace, name) in std::mem::take(&mut work.deleted) {
        if let Err(error) = confine_pass(namespace::forget(api, &namespace, &name)).await {
            work.deleted.insert((namespace, name));
            failure = Some(error);
        }
    }
    // The failure in one namespace must not block the others.
    for namespace in std::mem::take(&mut work.namespaces) {
        if let Err(error) = confine_pass(reconcile(api, &namespace)).await {
            work.namespaces.insert(namespace);
            failure = Some(error);
        }
    }
    failure.map_or(Ok(()), Err)
}
