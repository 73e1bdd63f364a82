//! Processors, memory and places of the node: pods are bound as long as what they ask for fits.
//!
//! **Invariant.** Who was let in counts from then on, not only once the watch has told that they are
//! bound: of two that ask at the same time, only as many get in as fit.

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

use crate::resources::{Side, amount};

/// What is counted, beside the pods themselves, in thousandths.
const COUNTED: [&str; 2] = ["cpu", "memory"];
const PODS: &str = "pods";

type Share = [u128; COUNTED.len()];

/// Those who were let in and are not yet seen to be bound, by UID.
#[derive(Debug, Default)]
pub(crate) struct Room(Mutex<HashMap<String, Share>>);

impl Room {
    /// Lets a pod in, or says what is lacking in the words of a scheduler. Once more for the same pod
    /// is no harm.
    pub(crate) fn enter(&self, pod: &Pod, node: &Node, pods: &[Arc<Pod>]) -> Result<(), String> {
        let own = uid(pod);
        let bound = pods.iter().filter(|pod| is_bound(pod) && uid(pod) != own);
        let waiting: HashSet<&str> = pods
            .iter()
            .filter(|pod| !is_bound(pod) && !is_over(pod))
            .map(|pod| uid(pod))
            .collect();
        let mut let_in = self.0.lock();
        let_in.retain(|uid, _| uid != own && waiting.contains(uid.as_str()));
        let mut shares: Vec<Share> = bound.map(|pod| share(pod)).collect();
        shares.extend(let_in.values());
        shares.push(share(pod));

        let allocatable = node.status.as_ref();
        let allocatable = allocatable.and_then(|status| status.allocatable.as_ref());
        let most = |name: &str| {
            let quantity = allocatable.and_then(|all| all.get(name));
            quantity.map_or(0, millis)
        };
        if shares.len() as u128 * 1000 > most(PODS) {
            return Err("0/1 nodes are available: 1 Too many pods".into());
        }
        for (at, name) in COUNTED.into_iter().enumerate() {
            let asked: u128 = shares.iter().map(|share| share[at]).sum();
            let wants = shares.last().is_some_and(|own| own[at] > 0);
            if wants && asked > most(name) {
                return Err(format!("0/1 nodes are available: 1 Insufficient {name}"));
            }
        }
        let_in.insert(own.to_owned(), share(pod));
        Ok(())
    }

    /// It could not be bound after all.
    pub(crate) fn leave(&self, pod: &Pod) {
        self.0.lock().remove(uid(pod));
    }
}

/// Does a pod in this state leave its room to others?
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_ref());
    phase.is_some_and(|phase| phase == "Succeeded" || phase == "Failed")
}

fn is_bound(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_some_and(|node| !node.is_empty()) && !is_over(pod)
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// All containers at once, or the greediest of those that run before them, with what the pod itself
/// takes.
fn share(pod: &Pod) -> Share {
    let Some(spec) = &pod.spec else {
        return Share::default();
    };
    let (mut beside, mut before) = (Share::default(), Share::default());
    for container in spec.init_containers.iter().flatten() {
        let asked = asked(container);
        for at in 0..COUNTED.len() {
            let now = beside[at] + asked[at];
            before[at] = before[at].max(now);
            if container.restart_policy.as_deref() == Some("Always") {
                beside[at] = now;
            }
        }
    }
    for container in &spec.containers {
        let asked = asked(container);
        for at in 0..COUNTED.len() {
            beside[at] += asked[at];
        }
    }
    let overhead = spec.overhead.as_ref();
    let overhead = |name| overhead.and_then(|all| all.get(name)).map_or(0, millis);
    let mut share = Share::default();
    for (at, name) in COUNTED.into_iter().enumerate() {
        share[at] = beside[at].max(before[at]) + overhead(name);
    }
    share
}

/// What cannot be read asks for nothing here; the container then does not start, and says why.
fn asked(container: &Container) -> Share {
    COUNTED.map(|name| {
        let of = |side| amount(container, side, name).ok().flatten();
        let asked = of(Side::Requests).or_else(|| of(Side::Limits));
        asked.map_or(0, |amount| u128::from(amount.millis()))
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
    fn pods_are_let_in_as_long_as_there_is_room() {
        let check = |there: &[Arc<Pod>], asking: Value, lacking: &str| {
            let got = Room::default().enter(&pod("new", &asking), &node(), there);
            let got = got.err().unwrap_or_default();
            assert!(got.ends_with(lacking), "{asking}: {got:?}");
            assert_eq!(got.is_empty(), lacking.is_empty(), "{asking}: {got}");
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
        // Who asks for nothing gets in where too much is asked for already.
        let full = [bound(pod("full", &wants("9", "9Gi")), "Running")];
        check(&full, wants("0", "0"), "");
    }

    #[test]
    fn who_was_let_in_counts_before_they_are_bound() {
        let room = Room::default();
        let one = Arc::new(pod("one", &wants("1", "3Gi")));
        let two = Arc::new(pod("two", &wants("1", "3Gi")));
        let waiting = [Arc::clone(&one), Arc::clone(&two)];
        room.enter(&one, &node(), &waiting).unwrap();
        room.enter(&one, &node(), &waiting).unwrap();
        room.enter(&two, &node(), &waiting).unwrap_err();
        let one = bound(Pod::clone(&one), "Running");
        room.enter(&two, &node(), &[one, Arc::clone(&two)])
            .unwrap_err();
        // Gone, it leaves its room to the other, who could not be bound and is no hindrance either.
        room.enter(&two, &node(), &[Arc::clone(&two)]).unwrap();
        room.leave(&two);
        let three = pod("three", &wants("2", "4Gi"));
        room.enter(&three, &node(), &[two]).unwrap();
    }
}
