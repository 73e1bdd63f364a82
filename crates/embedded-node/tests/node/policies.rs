//! Network policies: what is given to the network, and when.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use embedded_node::{Addresses, Failure, Network, SecondaryInterface};
use futures::future::BoxFuture;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use parking_lot::Mutex;
use pod_network::{Attachment, Connections, Restriction};
use reasons::Reason;
use serde_json::json;

use super::{Environment, NoNetwork};

/// No network, but records the restrictions of pods, or refuses them.
#[derive(Debug, Default)]
struct Restricting {
    refuses: AtomicBool,
    restrictions: Mutex<Vec<Restriction>>,
}

impl Network for Restricting {
    fn add<'a>(
        &'a self,
        uid: &'a str,
        namespace: &'a Path,
    ) -> BoxFuture<'a, Result<Addresses, Failure>> {
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

    fn has_policies(&self) -> bool {
        true
    }

    fn restrict(&self, restrictions: Vec<Restriction>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            if self.refuses.load(Ordering::Relaxed) && !restrictions.is_empty() {
                let message = "load br_netfilter".to_owned();
                return Err(Failure::new(Reason::FailedNetworkPolicies, message));
            }
            *self.restrictions.lock() = restrictions;
            Ok(())
        })
    }
}

#[test]
fn pod_with_a_policy_starts_once_its_connections_are_restricted() {
    let network = Arc::new(Restricting::default());
    let env = Environment::with_network("policies", Arc::clone(&network) as Arc<dyn Network>);
    let policies = Api::<NetworkPolicy>::default_namespaced(env.client.clone());
    let policy: NetworkPolicy = serde_json::from_value(json!({
        "metadata": {"name": "closed"},
        "spec": {"podSelector": {"matchExpressions": [{"key": "open", "operator": "DoesNotExist"}]}},
    }))
    .unwrap();
    let policy = env
        .wait(policies.create(&PostParams::default(), &policy))
        .unwrap();
    network.refuses.store(true, Ordering::Relaxed);
    let pod = env.script("one", "sleep 1000", "Never");
    env.wait_for_reasons(&pod.uid().unwrap(), &["FailedNetworkPolicies"]);
    env.wait_for_reasons(&policy.uid().unwrap(), &["FailedNetworkPolicies"]);
    let phase = env
        .wait(env.pods().get("one"))
        .unwrap()
        .status
        .unwrap()
        .phase;
    assert_eq!(phase.as_deref(), Some("Pending"));

    network.refuses.store(false, Ordering::Relaxed);
    env.wait_phase("one", "Running");
    let restricted = network.restrictions.lock().clone();
    let [only] = restricted.as_slice() else {
        panic!("{restricted:?}");
    };
    assert_eq!(only.pod, std::net::Ipv4Addr::new(10, 9, 8, 7));
    assert_eq!(only.ingress, Connections::Only(vec![]));
    assert_eq!(only.egress, Connections::Free);

    env.wait(policies.delete("closed", &DeleteParams::default()))
        .unwrap();
    env.until("free", || network.restrictions.lock().is_empty());
}
