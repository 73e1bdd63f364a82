//! A panic in the task of a pod ends that task alone, and the next one takes over the pod.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use embedded_node::{Addresses, Failure, Network, SecondaryInterface};
use futures::future::BoxFuture;
use pod_network::Attachment;
use serde_json::json;

use super::{Environment, NoNetwork};

/// Panics at the first address.
struct PanicsOnce(AtomicU32);

impl Network for PanicsOnce {
    fn add<'a>(
        &'a self,
        uid: &'a str,
        namespace: &'a Path,
    ) -> BoxFuture<'a, Result<Addresses, Failure>> {
        let earlier = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(earlier > 0, "a bug of the network");
        NoNetwork.add(uid, namespace)
    }

    fn attach<'a>(
        &'a self,
        namespace: &'a Path,
        attachment: Attachment,
    ) -> BoxFuture<'a, Result<SecondaryInterface, Failure>> {
        NoNetwork.attach(namespace, attachment)
    }

    fn delete<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        NoNetwork.delete(uid)
    }
}

#[test]
fn pod_whose_task_panics_runs_after_all() {
    let network = Arc::new(PanicsOnce(AtomicU32::new(0)));
    let env = Environment::with_network("panics", Arc::clone(&network) as Arc<dyn Network>);
    env.create("a", json!({"terminationGracePeriodSeconds": 0}));
    let pod = env.wait_phase("a", "Running");
    assert_eq!(network.0.load(Ordering::Relaxed), 2);
    env.wait_for_events(&pod, &["ReconcilePanicked", "Started"]);
    env.create("b", json!({"terminationGracePeriodSeconds": 0}));
    env.wait_phase("b", "Running");
    env.delete_and_wait("a");
    env.assert_no_leftovers(&pod);
}
