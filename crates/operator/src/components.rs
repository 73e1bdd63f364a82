//! Which components run: read from their workloads on a cluster; on a single host, where they are tasks of one
//! process, from what they report.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::Node,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Resource, ResourceExt as _};
use kubevirt_api::{kubevirt::GenerationStatus, labels};
use reconcile::{Key, Store};

/// Its deployment and its service.
pub(crate) const API: &str = "virt-api";
const CONTROLLER: &str = "virt-controller";
const HANDLER: &str = "virt-handler";
/// The workloads of the components.
pub(crate) const SELECTOR: &str = "kubevirt.io in (virt-api, virt-controller, virt-handler)";
/// Reports on a single host whether virt-api answers.
pub(crate) const API_SERVICE: &str = "v1.subresources.kubevirt.io";

/// Where the components run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Environment {
    /// As pods, in the namespace of the installation.
    Cluster,
    /// In this process, with this node.
    Host { node: String },
}

/// The objects from which the state of the components is read.
#[derive(Clone)]
pub(crate) enum Components {
    Workloads {
        deployments: Store<Deployment>,
        daemon_sets: Store<DaemonSet>,
    },
    Host {
        node: String,
        nodes: Store<Node>,
        services: Store<APIService>,
    },
}

/// The state of one component.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Component {
    pub(crate) name: &'static str,
    pub(crate) rollout: Rollout,
    pub(crate) ready: i32,
    pub(crate) wanted: i32,
    /// The generation of its workload.
    pub(crate) generation: Option<GenerationStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// The workload does not exist.
    Missing,
    /// Pods of the current version are still to be started, or older ones to be stopped.
    Running,
    Complete,
}

impl Component {
    fn missing(name: &'static str) -> Self {
        Self {
            name,
            rollout: Rollout::Missing,
            ready: 0,
            wanted: 1,
            generation: None,
        }
    }

    /// A component of a single host.
    fn task(name: &'static str, is_ready: bool) -> Self {
        Self {
            rollout: Rollout::Complete,
            ready: i32::from(is_ready),
            ..Self::missing(name)
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.rollout == Rollout::Complete && self.ready >= self.wanted
    }

    /// Whether it does its work, though perhaps with fewer pods than wanted.
    pub(crate) fn is_available(&self) -> bool {
        self.rollout != Rollout::Missing && (self.ready > 0 || self.wanted == 0)
    }
}

impl Components {
    pub(crate) fn new(environment: &Environment) -> Self {
        match environment {
            Environment::Cluster => Self::Workloads {
                deployments: Store::new(),
                daemon_sets: Store::new(),
            },
            Environment::Host { node } => Self::Host {
                node: node.clone(),
                nodes: Store::new(),
                services: Store::new(),
            },
        }
    }

    pub(crate) async fn ready(&self) {
        match self {
            Self::Workloads {
                deployments,
                daemon_sets,
            } => {
                deployments.ready().await;
                daemon_sets.ready().await;
            }
            Self::Host {
                nodes, services, ..
            } => {
                nodes.ready().await;
                services.ready().await;
            }
        }
    }

    /// The state of all components; `namespace` is that of the installation.
    pub(crate) fn observe(&self, namespace: &str) -> Vec<Component> {
        match self {
            Self::Workloads {
                deployments,
                daemon_sets,
            } => {
                let mut all: Vec<Component> = [API, CONTROLLER]
                    .into_iter()
                    .map(|name| match deployments.get(&Key::new(namespace, name)) {
                        Some(found) => deployment(name, &found),
                        None => Component::missing(name),
                    })
                    .collect();
                all.push(match daemon_sets.get(&Key::new(namespace, HANDLER)) {
                    Some(found) => daemon_set(HANDLER, &found),
                    None => Component::missing(HANDLER),
                });
                all
            }
            Self::Host {
                node,
                nodes,
                services,
            } => {
                let service = services.get(&Key::new("", API_SERVICE));
                let node = nodes.get(&Key::new("", node));
                vec![
                    Component::task(API, service.is_some_and(|service| is_available(&service))),
                    // This code runs in the same process.
                    Component::task(CONTROLLER, true),
                    Component::task(HANDLER, node.is_some_and(|node| is_schedulable(&node))),
                ]
            }
        }
    }
}

fn deployment(name: &'static str, found: &Deployment) -> Component {
    let status = found.status.clone().unwrap_or_default();
    let wanted = found.spec.as_ref().and_then(|spec| spec.replicas);
    let wanted = wanted.unwrap_or(1);
    let updated = status.updated_replicas.unwrap_or(0);
    let is_current = is_observed(found, status.observed_generation)
        && updated >= wanted
        && status.replicas.unwrap_or(0) <= updated;
    Component {
        name,
        rollout: rollout(is_current),
        ready: status.available_replicas.unwrap_or(0),
        wanted,
        generation: Some(generation(found)),
    }
}

fn daemon_set(name: &'static str, found: &DaemonSet) -> Component {
    let status = found.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let is_current = is_observed(found, status.observed_generation)
        && status.updated_number_scheduled.unwrap_or(0) >= wanted;
    Component {
        name,
        rollout: rollout(is_current),
        ready: status.number_available.unwrap_or(0),
        wanted,
        generation: Some(generation(found)),
    }
}

fn rollout(is_complete: bool) -> Rollout {
    if is_complete {
        Rollout::Complete
    } else {
        Rollout::Running
    }
}

/// Whether the status is about the current spec.
fn is_observed<K: Resource>(object: &K, observed: Option<i64>) -> bool {
    observed >= object.meta().generation
}

fn generation<K: Resource<DynamicType = ()>>(object: &K) -> GenerationStatus {
    GenerationStatus {
        group: K::group(&()).into_owned(),
        resource: K::plural(&()).into_owned(),
        namespace: object.namespace(),
        name: object.name_any(),
        last_generation: object.meta().generation.unwrap_or_default(),
        hash: None,
    }
}

fn is_available(service: &APIService) -> bool {
    let conditions = service.status.iter().flat_map(|status| &status.conditions);
    let mut available = conditions.flatten().filter(|one| one.type_ == "Available");
    available.any(|one| one.status == "True")
}

/// Whether virt-handler has reported recently; without its heartbeats, virt-controller removes the label's value.
fn is_schedulable(node: &Node) -> bool {
    let label = node.labels().get(labels::SCHEDULABLE);
    label.is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(status: &Value, expected: (Rollout, bool, bool)) {
        let object = json!({
            "metadata": {"name": "virt-api", "generation": 2},
            "spec": {
                "replicas": 2, "selector": {},
                "template": {"spec": {"containers": []}},
            },
            "status": status,
        });
        let found: Deployment = serde_json::from_value(object).expect("a deployment");
        let found = deployment(API, &found);
        let found = (found.rollout, found.is_ready(), found.is_available());
        assert_eq!(found, expected, "{status}");
    }

    #[test]
    fn rollout_and_readiness_of_a_deployment() {
        use Rollout::{Complete, Running};
        let status = |observed: u8, replicas: u8, updated: u8, available: u8| {
            json!({
                "observedGeneration": observed, "replicas": replicas,
                "updatedReplicas": updated, "availableReplicas": available,
            })
        };
        check(&json!({}), (Running, false, false));
        check(&status(2, 2, 2, 2), (Complete, true, true));
        check(&status(2, 2, 2, 1), (Complete, false, true));
        check(&status(2, 2, 2, 0), (Complete, false, false));
        // The controller has not seen the new template yet.
        check(&status(1, 2, 2, 2), (Running, false, true));
        // An old pod still runs.
        check(&status(2, 3, 2, 3), (Running, false, true));
        check(&status(2, 2, 1, 2), (Running, false, true));
    }
}
