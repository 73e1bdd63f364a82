//! Waiting for changes of one object.

use std::fmt::Debug;

use error_chain::error_chain;
use futures::{Stream, StreamExt as _};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

/// Yields an item at first, after each change and after the deletion of the object. A change during an
/// interruption of the watch is not lost.
pub(crate) fn changes<K>(api: Api<K>, name: &str) -> impl Stream<Item = ()> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let name = name.to_owned();
    let events = watcher(api, only).default_backoff();
    events.filter_map(move |event| {
        let change = match event {
            Ok(Event::Init | Event::InitApply(_)) => None,
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => Some(()),
            // The watch restarts; until then the callers' periodic checks see the changes.
            Err(error) => {
                tracing::debug!(
                    name,
                    error = error_chain(&error),
                    "watch failed, restarting it"
                );
                None
            }
        };
        std::future::ready(change)
    })
}
