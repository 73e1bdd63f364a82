//! Waiting for changes of one object that is known by name.

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

/// Says that there is something to look at: at first, after each change, and when it is gone. Nothing
/// slips through when the watch is cut.
pub(crate) fn changes<K>(api: Api<K>, name: &str) -> impl Stream<Item = ()> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let name = name.to_owned();
    let events = watcher(api, only).default_backoff();
    events.filter_map(move |event| {
        let news = match event {
            Ok(Event::Init | Event::InitApply(_)) => None,
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => Some(()),
            // It is watched again, and looked at by the clock in the meantime.
            Err(error) => {
                tracing::debug!(name, error = error_chain(&error), "cannot be watched");
                None
            }
        };
        std::future::ready(news)
    })
}
