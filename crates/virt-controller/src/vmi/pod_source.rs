//! What pods are rendered from besides their VMI: the settings of the installation, the administrator's
//! configuration, the nodes and the namespace.

use std::collections::BTreeMap;

use cluster_view::Configuration;
use launcher_pod::{Acceleration, Settings, Surroundings};
use reconcile::{Key, Store};

use super::namespace::{Namespace, Quotas};
use super::networks::Definitions;
use super::rules;
use crate::AccelerationPolicy;
use crate::view::Host;

/// The gate of clusters that add resources of networks themselves.
const INJECTION: &str = "ExternalNetResourceInjection";

#[derive(Debug, Clone)]
pub(crate) struct PodSource {
    pub(crate) launcher: Settings,
    /// The administrator's configuration of pods.
    pub(crate) cluster: Configuration,
    pub(crate) policy: AccelerationPolicy,
    pub(crate) hosts: Store<Host>,
    pub(crate) namespaces: Store<Namespace>,
    pub(crate) quotas: Quotas,
}

impl PodSource {
    pub(crate) fn settings(&self, acceleration: Acceleration) -> Settings {
        let (config, hosts) = (self.cluster.now(), self.hosts.list());
        rules::settings(&self.launcher, acceleration, &config, &hosts)
    }

    /// Whether volumes can be attached to running guests.
    pub(crate) fn has_hotplug(&self) -> bool {
        rules::has_hotplug(&self.cluster.now())
    }

    /// The surroundings of all pods of a namespace, without the claims of one of them.
    pub(crate) fn surroundings(&self, namespace: &str) -> Surroundings {
        let found = self.namespaces.get(&Key::new("", namespace));
        let (config, quotas) = (self.cluster.now(), self.quotas.of(namespace));
        Surroundings {
            namespace: rules::of_namespace(&config, found.as_deref(), &quotas),
            ..Surroundings::default()
        }
    }

    /// The resources that pods ask for because of their networks. Usually a webhook of the cluster adds them.
    pub(crate) fn network_resources(&self, found: Definitions) -> BTreeMap<String, String> {
        if self.cluster.now().has_gate(INJECTION) {
            return BTreeMap::new();
        }
        found.resources
    }

    /// How guests are accelerated; `None` while no node has reported.
    pub(crate) fn acceleration(&self) -> Option<Acceleration> {
        match self.policy {
            AccelerationPolicy::Kvm => Some(Acceleration::Kvm),
            AccelerationPolicy::Emulation => Some(Acceleration::Emulation),
            AccelerationPolicy::ByNodes => {
                let hosts = self.hosts.list();
                let has_kvm = hosts.iter().any(|host| host.has_kvm);
                match (hosts.is_empty(), has_kvm) {
                    (true, _) => None,
                    (false, true) => Some(Acceleration::Kvm),
                    (false, false) => Some(Acceleration::Emulation),
                }
            }
        }
    }
}
