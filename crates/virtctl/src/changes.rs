//! Waits until something about a VM may have changed.

use std::{pin::Pin, time::Duration};

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt as _, watcher},
};
use kubevirt_api::{VirtualMachine, VirtualMachineInstance, labels};
use serde::de::DeserializeOwned;

use crate::connect::Cluster;

/// Objects without a watch, and causes that follow from the time alone, are looked at this often.
const AT_LEAST: Duration = Duration::from_secs(5);
/// Several objects change at once; they are read once, this long after the first.
const TOGETHER: Duration = Duration::from_millis(200);

/// The changes of a VM and its VMI, their events, and their pods.
pub(crate) struct Changes {
    all: Pin<Box<dyn Stream<Item = ()> + Send>>,
}

impl Changes {
    pub(crate) fn of(cluster: &Cluster, name: &str) -> Self {
        let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let about = watcher::Config::default().fields(&format!("involvedObject.name={name}"));
        let label = format!("{}={name}", labels::VM_NAME);
        let pods = watcher::Config::default().labels(&label);
        let all = [
            changes::<VirtualMachine>(cluster, named.clone()),
            changes::<VirtualMachineInstance>(cluster, named),
            changes::<Event>(cluster, about),
            changes::<Pod>(cluster, pods),
        ];
        Self {
            all: Box::pin(stream::select_all(all)),
        }
    }

    /// Waits for the next change, or for as long as a change may go unnoticed.
    pub(crate) async fn next(&mut self) {
        let change = tokio::time::timeout(AT_LEAST, self.all.next()).await;
        if !matches!(change, Ok(Some(()))) {
            return;
        }
        let more = async { while self.all.next().await.is_some() {} };
        // The time-out is the normal end.
        let _ended = tokio::time::timeout(TOGETHER, more).await.is_ok();
    }
}

/// The changes of one kind. A user who may not watch it gets none of them and learns of a change a little
/// later; the watch is retried with back-off.
fn changes<T>(cluster: &Cluster, config: watcher::Config) -> Pin<Box<dyn Stream<Item = ()> + Send>>
where
    T: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    T: Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<T> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let events = watcher(api, config).default_backoff();
    let changes = events.filter_map(|event| async move {
        let is_change = matches!(
            event,
            // The objects may have changed before the watch began.
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone)
        );
        is_change.then_some(())
    });
    Box::pin(changes)
}
