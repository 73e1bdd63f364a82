//! An API server with a node and a `virt-api`, and a running operator.

use std::time::Duration;

use embedded_api::Identity;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams},
};
use operator::{Environment, Settings};
use reconcile::{Clock, Election, Leadership};
use serde_json::{Value, json};
use test_cluster::TestApi;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const NAMESPACE: &str = "kubevirt";
const DEADLINE: Duration = Duration::from_mins(2);
const STEP: Duration = Duration::from_millis(20);

/// What a component reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Up,
    Down,
}

pub(crate) struct World {
    pub(crate) api: TestApi,
    environment: Environment,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl World {
    /// A single host, with components that do not run yet.
    pub(crate) async fn new() -> Self {
        let environment = Environment::Host {
            node: "node1".to_owned(),
        };
        Self::start_in(environment).await
    }

    /// A cluster without CDI.
    pub(crate) async fn on_cluster() -> Self {
        Self::start_in(Environment::Cluster).await
    }

    async fn start_in(environment: Environment) -> Self {
        let api = TestApi::start(Identity::component("test")).await;
        for object in [namespace("other"), node(), service()] {
            api.create(object).await.unwrap();
        }
        let rights = match &environment {
            Environment::Cluster => roles::Environment::Cluster {
                namespace: NAMESPACE,
            },
            Environment::Host { node } => roles::Environment::Host {
                namespace: NAMESPACE,
                node,
            },
        };
        if environment == Environment::Cluster {
            // Which the API server of a single host does not have.
            for kind in ["Deployment", "DaemonSet"] {
                api.create(workload(kind)).await.unwrap();
            }
        }
        for object in roles::objects(rights).unwrap() {
            api.create(object).await.unwrap();
        }
        let mut world = Self {
            api,
            environment,
            running: None,
        };
        world.start();
        world
    }

    pub(crate) fn start(&mut self) {
        let account = Identity::service_account(NAMESPACE, "kubevirt-controller");
        let settings = Settings {
            client: self.api.client_of(account),
            clock: Clock::starting_at(test_cluster::start()),
            namespace: NAMESPACE.to_owned(),
            leadership: Leadership::Elected(Election {
                namespace: NAMESPACE.to_owned(),
                name: "virt-operator".to_owned(),
                identity: "one".to_owned(),
            }),
            environment: self.environment.clone(),
            launcher_image: "registry.example/ferrovirt/virt-launcher:devel".to_owned(),
        };
        let stop = self.api.stop.child_token();
        let running = self.api.tasks.spawn(operator::run(settings, stop.clone()));
        self.running = Some((stop, running));
    }

    pub(crate) async fn stop(&mut self) {
        if let Some((stop, running)) = self.running.take() {
            stop.cancel();
            running.await.unwrap();
        }
    }

    /// Reports whether virt-handler and virt-api run.
    pub(crate) async fn report(&self, handler: Health, api: Health) {
        let label = json!({"metadata": {"labels": {
            "kubevirt.io/schedulable": if handler == Health::Up { "true" } else { "false" },
        }}});
        self.patch(&node(), None, &label).await;
        let condition = json!({
            "type": "Available", "status": if api == Health::Up { "True" } else { "False" },
            "lastTransitionTime": "2026-11-21T12:00:00Z", "reason": "Test", "message": "",
        });
        let status = json!({"status": {"conditions": [condition]}});
        self.patch(&service(), Some("status"), &status).await;
    }

    pub(crate) async fn patch(&self, object: &Value, part: Option<&str>, patch: &Value) {
        let (api, name) = (
            self.of(object),
            object["metadata"]["name"].as_str().unwrap(),
        );
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        match part {
            None => api.patch(name, &parameters, &patch).await.unwrap(),
            Some(part) => {
                let patched = api.patch_subresource(part, name, &parameters, &patch);
                patched.await.unwrap()
            }
        };
    }

    pub(crate) fn of(&self, object: &Value) -> Api<DynamicObject> {
        self.api.api_for(object)
    }

    /// The object as JSON; null if there is none.
    pub(crate) async fn get(&self, object: &Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap();
        json!(self.of(object).get_opt(name).await.unwrap())
    }

    /// Waits until the object has that property.
    pub(crate) async fn wait(&self, object: &Value, holds: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                let found = self.get(object).await;
                if holds(&found) {
                    return found;
                }
                tokio::time::sleep(STEP).await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, wait).await.ok();
        let Some(found) = found else {
            panic!("{object} was not in time: {:#}", self.get(object).await);
        };
        found
    }

    pub(crate) async fn end(mut self) {
        self.stop().await;
        self.api.end().await;
    }
}

/// The object of the installation.
pub(crate) fn kubevirt() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
        "spec": {},
    })
}

/// `Type=Status` of all conditions in their order.
pub(crate) fn conditions(object: &Value) -> String {
    let all = object["status"]["conditions"].as_array().cloned();
    let text = |one: &Value| {
        let (kind, status) = (one["type"].as_str(), one["status"].as_str());
        format!(
            "{}={}",
            kind.unwrap_or_default(),
            status.unwrap_or_default()
        )
    };
    let all: Vec<String> = all.unwrap_or_default().iter().map(text).collect();
    all.join(" ")
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn node() -> Value {
    let node = Node {
        metadata: ObjectMeta {
            name: Some("node1".to_owned()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    json!(node)
}

/// Without a service behind it, the API server does not probe it.
fn service() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.subresources.kubevirt.io"},
        "spec": {
            "group": "subresources.kubevirt.io", "version": "v1",
            "groupPriorityMinimum": 1000, "versionPriority": 15,
        },
    })
}

/// The definition of a kind of workloads.
fn workload(kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.apps")},
        "spec": {
            "group": "apps", "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}
