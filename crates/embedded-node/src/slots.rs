//! CPU, memory, host ports and pod slots of the node: a pod is bound only if its requests fit.
//!
//! **Invariant.** An admitted pod counts at once, before the watch delivers that it is bound: pods
//! admitted at the same time never exceed the capacity together.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Container, Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use kubevirt_api::quantity::Amount;
use parking_lot::Mutex;

use crate::{
    host_ports::{self, HostPort},
    resources::{Side, amount},
};

/// The counted resources beside pods, in thousandths.
const COUNTED: [&str; 2] = ["cpu", "memory"];
const PODS: &str = "pods";

/// The amounts of [`COUNTED`].
type Amounts = [u128; COUNTED.len()];

/// What a pod occupies.
#[derive(Debug, Clone)]
struct Slot {
    amounts: Amounts,
    ports: Vec<HostPort>,
}

impl Slot {
    fn of(pod: &Pod) -> Self {
        Self {
            amounts: requests(pod),
            ports: host_ports::of(pod),
        }
    }
}

/// Pods that were admitted and are not yet observed as bound, by UID.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<HashMap<String, Slot>>);

impl Slots {
    /// Admits a pod, or returns a scheduler's message about the missing resource. May be repeated for
    /// the same pod.
    pub(crate) fn admit(&self, pod: &Pod, node: &Node, pods: &[Arc<Pod>]) -> Result<(), String> {
        let own = uid(pod);
        let bound = pods.iter().filter(|pod| is_bound(pod) && uid(pod) != own);
        let waiting: HashSet<&str> = pods
            .iter()
            .filter(|pod| !is_bound(pod) && !has_ended(pod))
            .map(|pod| uid(pod))
            .collect();
        let mut admitted = self.0.lock();
        admitted.retain(|uid, _| uid != own && waiting.contains(uid.as_str()));
        let mut all: Vec<Slot> = bound.map(|pod| Slot::of(pod)).collect();
        all.extend(admitted.values().cloned());
        let slot = Slot::of(pod);
        if all
            .iter()
            .any(|other| host_ports::conflict(&slot.ports, &other.ports))
        {
            let message = "0/1 nodes are available: 1 node(s) didn't have free ports for the \
                           requested pod ports";
            return Err(message.into());
        }
        all.push(slot.clone());

        let allocatable = node.status.as_ref();
        let allocatable = allocatable.and_then(|status| status.allocatable.as_ref());
        let limit = |name: &str| {
            let quantity = allocatable.and_then(|all| all.get(name));
            quantity.map_or(0, millis)
        };
        if all.len() as u128 * 1000 > limit(PODS) {
            return Err("0/1 nodes are available: 1 Too many pods".into());
        }
        for (at, name) in COUNTED.into_iter().enumerate() {
            let sum: u128 = all.iter().map(|slot| slot.amounts[at]).sum();
            if slot.amounts[at] > 0 && sum > limit(name) {
                return Err(format!("0/1 nodes are available: 1 Insufficient {name}"));
            }
        }
        admitted.insert(own.to_owned(), slot);
        Ok(())
    }

    /// The admitted pod could not be bound.
    pub(crate) fn release(&self, pod: &Pod) {
        self.0.lock().remove(uid(pod));
    }
}

/// Whether the pod has ended and occupies no resources.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_ref());
    phase.is_some_and(|phase| phase == "Succeeded" || phase == "Failed")
}

fn is_bound(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_some_and(|node| !node.is_empty()) && !has_ended(pod)
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// All containers together, or the largest init container if that is more, plus the pod's overhead.
fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else {
        return Amounts::default();
    };
    let (mut beside, mut before) = (Amounts::default(), Amounts::default());
    for container in spec.init_containers.iter().flatten() {
        let requested = container_requests(container);
        for at in 0..COUNTED.len() {
            let now = beside[at] + requested[at];
            before[at] = before[at].max(now);
            if container.restart_policy.as_deref() == Some("Always") {
                beside[at] = now;
            }
        }
    }
    for container in &spec.containers {
        let requested = container_requests(container);
        for at in 0..COUNTED.len() {
            beside[at] += requested[at];
        }
    }
    let overhead = spec.overhead.as_ref();
    let overhead = |name| overhead.and_then(|all| all.get(name)).map_or(0, millis);
    let mut sum = Amounts::default();
    for (at, name) in COUNTED.into_iter().enumerate() {
        sum[at] = beside[at].max(before[at]) + overhead(name);
    }
    sum
}

/// An unreadable quantity counts as zero: the container then fails to start with the reason.
fn container_requests(container: &Container) -> Amounts {
    COUNTED.map(|name| {
        let of = |side| amount(container, side, name).ok().flatten();
        let requested = of(Side::Requests).or_else(|| of(Side::Limits));
        requested.map_or(0, |amount| u128::from(amount.millis()))
    })
}

fn millis(quantity: &Quantity) -> u128 {
    Amount::parse(quantity).map_or(0, |amount| u128::from(amount.millis()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> Node {
        let all = json!({"cpu": "2", "memory": "4Gi", "pods": "3"});
        serde_json::from_value(json!({"status": {"allocatable": all}})).unwrap()
    }

    fn pod(uid: &str, spec: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
    }

    fn wants(cpu: &str, memory: &str) -> Value {
        let resources = json!({"requests": {"cpu": cpu, "memory": memory}});
        json!({"containers": [{"name": "c", "resources": resources}]})
    }

    fn bound(mut pod: Pod, phase: &str) -> Arc<Pod> {
        pod.spec.as_mut().unwrap().node_name = Some("here".into());
        pod.status.get_or_insert_default().phase = Some(phase.into());
        Arc::new(pod)
    }

    #[test]
    fn pods_are_admitted_while_they_fit() {
        let check = |others: &[Arc<Pod>], spec: Value, message: &str| {
            let got = Slots::default().admit(&pod("new", &spec), &node(), others);
            let got = got.err().unwrap_or_default();
            assert!(got.ends_with(message), "{spec}: {got:?}");
            assert_eq!(got.is_empty(), message.is_empty(), "{spec}: {got}");
        };
        let big = || pod("big", &wants("1500m", "3Gi"));
        let runs = [bound(big(), "Running")];
        check(&[], wants("2", "4Gi"), "");
        check(&[], wants("2001m", "1"), "Insufficient cpu");
        check(&runs, wants("500m", "1Gi"), "");
        check(&runs, wants("500m", "1025Mi"), "Insufficient memory");
        check(&runs, wants("501m", "1Gi"), "Insufficient cpu");
        check(&[bound(big(), "Failed")], wants("2", "4Gi"), "");
        check(&[Arc::new(big())], wants("2", "4Gi"), "");
        let crowd = ["a", "b", "c"].map(|uid| bound(pod(uid, &wants("0", "0")), "Running"));
        check(&crowd, wants("0", "0"), "Too many pods");
        let limits =
            json!({"containers": [{"name": "c", "resources": {"limits": {"memory": "5Gi"}}}]});
        check(&[], limits, "Insufficient memory");
        let mut first = wants("0", "1Gi");
        first["initContainers"] =
            json!([{"name": "i", "resources": {"requests": {"memory": "5Gi"}}}]);
        check(&[], first.clone(), "Insufficient memory");
        first["initContainers"][0]["resources"]["requests"]["memory"] = "3584Mi".into();
        check(&[], first.clone(), "");
        first["initContainers"][0]["restartPolicy"] = "Always".into();
        check(&[], first, "Insufficient memory");
        let mut heavy = wants("0", "4Gi");
        heavy["overhead"] = json!({"memory": "1Mi"});
        check(&[], heavy, "Insufficient memory");
        // A pod without requests is admitted on an overcommitted node.
        let full = [bound(pod("full", &wants("9", "9Gi")), "Running")];
        check(&full, wants("0", "0"), "");
    }

    #[test]
    fn taken_host_port_keeps_a_pod_unscheduled() {
        let spec = |port: u16| {
            let port = json!({"containerPort": 80, "hostPort": port});
            json!({"containers": [{"name": "c", "ports": [port]}]})
        };
        let slots = Slots::default();
        let (one, two) = (pod("one", &spec(80)), pod("two", &spec(80)));
        let waiting = [Arc::new(one.clone()), Arc::new(two.clone())];
        slots.admit(&one, &node(), &waiting).unwrap();
        let message = slots.admit(&two, &node(), &waiting).unwrap_err();
        assert_eq!(
            message,
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports"
        );
        let (runs, ended) = (bound(one.clone(), "Running"), bound(one, "Succeeded"));
        slots.admit(&two, &node(), &[runs]).unwrap_err();
        slots.admit(&two, &node(), &[ended]).unwrap();
        slots.admit(&pod("three", &spec(81)), &node(), &[]).unwrap();
    }

    #[test]
    fn admitted_pod_counts_before_it_is_bound() {
        let slots = Slots::default();
        let one = Arc::new(pod("one", &wants("1", "3Gi")));
        let two = Arc::new(pod("two", &wants("1", "3Gi")));
        let waiting = [Arc::clone(&one), Arc::clone(&two)];
        slots.admit(&one, &node(), &waiting).unwrap();
        slots.admit(&one, &node(), &waiting).unwrap();
        slots.admit(&two, &node(), &waiting).unwrap_err();
        let one = bound(Pod::clone(&one), "Running");
        slots
            .admit(&two, &node(), &[one, Arc::clone(&two)])
            .unwrap_err();
        // The first pod is gone; an admitted pod that could not be bound does not count either.
        slots.admit(&two, &node(), &[Arc::clone(&two)]).unwrap();
        slots.release(&two);
        let three = pod("three", &wants("2", "4Gi"));
        slots.admit(&three, &node(), &[two]).unwrap();
    }
}
