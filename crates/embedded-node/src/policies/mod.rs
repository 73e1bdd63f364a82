//! Network policies: which connections pods accept and open on the pod network.
//!
//! [`plan`] decides, this file reconciles. A pod starts once the rules for its address are in place.
//!
//! **Invariants**: no object is written; no packet rule either, unless it is missing.

mod plan;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    networking::v1::NetworkPolicy,
};
use kube::runtime::watcher;
use parking_lot::Mutex;
use pod_network::Restriction;
use reasons::Reason;
use reconcile::{
    EventType, Key, ReconcileError, Reconciler, Requeue, Retry, Store, Triggers, run_controller,
};
use tokio_util::sync::CancellationToken;

use crate::{Failure, node::Shared};
use plan::{Member, Planned, is_on_pod_network};

/// How often the rules are looked at.
const AGAIN: Duration = Duration::from_mins(1);

/// Caches of policies and namespaces, and the rules that follow from them.
pub(crate) struct Policies {
    objects: Store<NetworkPolicy>,
    namespaces: Store<Namespace>,
    triggers: Triggers,
    /// Addresses of pods by their uids, from before their status has them.
    leased: Mutex<HashMap<String, Ipv4Addr>>,
    /// The rules set last. Held while they are set, so that older ones do not follow newer ones.
    restricted: tokio::sync::Mutex<Option<Vec<Restriction>>>,
    /// Namespaces whose policies have the event that they are too large.
    reported: Mutex<BTreeSet<String>>,
}

impl Policies {
    /// With the addresses of the pods that run: their status may lack them.
    pub(crate) fn new(leased: HashMap<String, Ipv4Addr>) -> Self {
        Self {
            objects: Store::new(),
            namespaces: Store::new(),
            triggers: Triggers::new(),
            leased: Mutex::new(leased),
            restricted: tokio::sync::Mutex::default(),
            reported: Mutex::default(),
        }
    }

    /// An object changed on which the rules may depend.
    pub(crate) fn requeue(&self, trigger: &'static str) {
        // All policies are reconciled together, as their rules are set together.
        self.triggers.add(Key::new("", "policies"), trigger);
    }

    /// The pod has no address any more.
    pub(crate) fn forget(&self, uid: &str) {
        if self.leased.lock().remove(uid).is_some() {
            self.requeue("address");
        }
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("objects", &self.objects)
            .finish_non_exhaustive()
    }
}

/// The address of a pod that policies are about.
pub(crate) fn own_address(pod: &Pod, addresses: &[IpAddr]) -> Option<Ipv4Addr> {
    let mut addresses = addresses.iter().filter(|_| is_on_pod_network(pod));
    addresses.find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    })
}

/// Restricts the pod with these addresses as the policies say, before its containers start.
pub(crate) async fn protect(
    shared: &Shared,
    pod: &Pod,
    addresses: &[IpAddr],
) -> Result<(), Failure> {
    let has_policies = shared.settings.network.has_policies();
    let Some(address) = own_address(pod, addresses).filter(|_| has_policies) else {
        return Ok(());
    };
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let state = &shared.policies;
    {
        let mut leased = state.leased.lock();
        // The pod that had the address before is detached, but may not be forgotten yet.
        leased.retain(|_, other| *other != address);
        leased.insert(uid, address);
    }
    tokio::join!(
        state.objects.ready(),
        state.namespaces.ready(),
        shared.pods.ready()
    );
    let Err(failure) = restrict(shared).await else {
        return Ok(());
    };
    // Other pods start: the controller publishes events of the policies, and tries again.
    let restrictions = planned(shared).restrictions;
    if restrictions.iter().any(|one| one.pod == address) {
        return Err(failure);
    }
    Ok(())
}

/// Sets the packet rules, if they changed.
async fn restrict(shared: &Shared) -> Result<(), Failure> {
    let state = &shared.policies;
    let mut restricted = state.restricted.lock().await;
    let Planned {
        restrictions,
        too_large,
    } = planned(shared);
    report(shared, &too_large);
    let network = &shared.settings.network;
    let is_set = restricted.as_ref() == Some(&restrictions);
    if is_set && (restrictions.is_empty() || network.is_restricted().await?) {
        return Ok(());
    }
    // If this fails, what is set is not known.
    *restricted = None;
    network.restrict(restrictions.clone()).await?;
    *restricted = Some(restrictions);
    Ok(())
}

fn planned(shared: &Shared) -> Planned {
    let state = &shared.policies;
    let policies = state.objects.list();
    if policies.is_empty() {
        return Planned::default();
    }
    let policies: Vec<&NetworkPolicy> = policies.iter().map(AsRef::as_ref).collect();
    let namespaces = state.namespaces.list();
    let namespaces: Vec<&Namespace> = namespaces.iter().map(AsRef::as_ref).collect();
    let pods = shared.pods.list();
    let leased = state.leased.lock().clone();
    let pods = pods.iter().filter_map(|pod| Member::of(pod, &leased));
    plan::plan(&policies, &namespaces, &pods.collect::<Vec<_>>())
}

/// Publishes the events of namespaces whose policies have become too large.
fn report(shared: &Shared, too_large: &BTreeSet<String>) {
    let state = &shared.policies;
    let before = std::mem::replace(&mut *state.reported.lock(), too_large.clone());
    for namespace in too_large.difference(&before) {
        for policy in state.objects.in_namespace(namespace) {
            let message = format!(
                "the policies of namespace {namespace} need too many packet rules, so its pods with \
                 policies get no connections; use ranges of addresses, or fewer policies"
            );
            let reason = Reason::NetworkPoliciesTooLarge;
            shared
                .recorder
                .publish(&*policy, EventType::Warning, reason, message);
        }
    }
}

pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    if !shared.settings.network.has_policies() {
        return;
    }
    let state = &shared.policies;
    let client = || shared.settings.client.clone();
    let config = watcher::Config::default;
    let reconcile = async {
        tokio::select! {
            () = stop.cancelled() => return,
            () = async {
                tokio::join!(state.objects.ready(), state.namespaces.ready(), shared.pods.ready());
            } => {}
        }
        state.requeue("start");
        let controller = Arc::new(Controller(Arc::clone(&shared)));
        // Policies are reconciled together, so no object could have the event of a panic.
        let on_panic = |_: &Key, _: &panics::Panicked| ();
        let triggers = state.triggers.clone();
        run_controller(controller, triggers, 1, on_panic, stop.clone()).await;
    };
    tokio::join!(
        reconcile::watch(
            client(),
            config(),
            state.objects.clone(),
            |_: &NetworkPolicy| state.requeue("networkpolicy"),
            stop.clone(),
        ),
        reconcile::watch(
            client(),
            config(),
            state.namespaces.clone(),
            |_: &Namespace| state.requeue("namespace"),
            stop.clone(),
        ),
        reconcile,
    );
}

#[derive(Debug, thiserror::Error)]
#[error("carry out network policies: {0}")]
struct PolicyError(Failure);

impl ReconcileError for PolicyError {
    fn reason(&self) -> Reason {
        self.0.reason
    }

    fn retry(&self) -> Retry {
        Retry::BackOff
    }
}

struct Controller(Arc<Shared>);

impl Reconciler for Controller {
    const NAME: &'static str = "networkpolicies";
    type Error = PolicyError;

    async fn reconcile(&self, _: &Key) -> Result<Requeue, PolicyError> {
        let shared = &self.0;
        let guarded = shared.settings.network.guard().await;
        if let Err(failure) = guarded.and(restrict(shared).await) {
            // The users of policies rely on them.
            for policy in shared.policies.objects.list() {
                let message = failure.message.clone();
                let (recorder, kind) = (&shared.recorder, EventType::Warning);
                recorder.publish(&*policy, kind, failure.reason, message);
            }
            return Err(PolicyError(failure));
        }
        // Another program may remove the rules.
        Ok(Requeue::After(AGAIN))
    }

    /// A reconcile is of all policies.
    fn uid_of(&self, _: &Key) -> Option<String> {
        None
    }
}
