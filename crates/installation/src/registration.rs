//! The registration of virt-api with API servers: its service, the aggregated groups, the webhooks.

use serde_json::{Value, json};

use crate::webhooks::{EVICT, MUTATE, SERVICE, VALIDATE, Webhook};

/// The port that pods of virt-api serve on.
pub const PORT: u16 = 8443;
/// The service to which clients upload disks.
pub const UPLOAD_SERVICE: &str = "virt-uploadproxy";
/// The service from which clients download exports, by the name that `KubeVirt` has for it.
pub const EXPORT_SERVICE: &str = "virt-exportproxy";
/// The port of virt-api's pods behind both: the default of `--transfer-port`. Administrators serve the web console on 8444,
/// as the guide says.
pub const TRANSFER_PORT: u16 = 8445;

/// An aggregated API that virt-api serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregated {
    pub group: &'static str,
    /// Served versions, preferred first; all serve the same.
    pub versions: &'static [&'static str],
}

/// Verbs of VMs and VMIs.
pub const SUBRESOURCES: Aggregated = Aggregated {
    group: "subresources.kubevirt.io",
    versions: &["v1", "v1alpha3"],
};
/// Verbs of templates of VMs.
pub const TEMPLATE_SUBRESOURCES: Aggregated = Aggregated {
    group: "subresources.template.kubevirt.io",
    versions: &["v1beta1", "v1alpha1"],
};
/// All aggregated APIs of an installation.
pub const AGGREGATED: [Aggregated; 2] = [SUBRESOURCES, TEMPLATE_SUBRESOURCES];

impl Aggregated {
    /// The name of the object that registers a version.
    pub fn service_name(self, version: &str) -> String {
        format!("{version}.{}", self.group)
    }
}

const METRICS_SERVICE: &str = "kubevirt-prometheus-metrics";
/// Of pods that serve metrics.
pub(crate) const METRICS_LABEL: &str = "prometheus.kubevirt.io";
/// Their port, by name.
pub(crate) const METRICS_PORT: &str = "metrics";

/// The service of virt-api's pods.
pub fn service(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": SERVICE, "namespace": namespace,
            "labels": {"kubevirt.io": SERVICE},
        },
        "spec": {
            "selector": {"kubevirt.io": SERVICE},
            "ports": [{"name": "https", "port": 443, "targetPort": PORT, "protocol": "TCP"}],
        },
    })
}

/// The proxies of uploads and exports, which virt-api serves on a port of their own: users may be let to these services
/// from outside of the cluster, and not to virt-api's other paths.
pub(crate) fn transfer_services(namespace: &str) -> [Value; 2] {
    [UPLOAD_SERVICE, EXPORT_SERVICE].map(|name| {
        let port =
            json!({"name": "https", "port": 443, "targetPort": TRANSFER_PORT, "protocol": "TCP"});
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": {"kubevirt.io": name},
            },
            "spec": {"selector": {"kubevirt.io": SERVICE}, "ports": [port]},
        })
    })
}

/// The service behind which Prometheus finds the metrics of all components.
pub(crate) fn metrics_service(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": METRICS_SERVICE, "namespace": namespace,
            "labels": {"kubevirt.io": "", METRICS_LABEL: "true"},
        },
        "spec": {
            "clusterIP": "None",
            "selector": {METRICS_LABEL: "true"},
            "ports": [{
                "name": METRICS_PORT, "port": 443, "targetPort": METRICS_PORT, "protocol": "TCP",
            }],
        },
    })
}

/// The aggregated groups, in each version; virt-api adds its authority.
pub(crate) fn api_services(namespace: &str) -> Vec<Value> {
    let one = |api: Aggregated, version: &str| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": api.service_name(version)},
            "spec": {
                "group": api.group, "version": version,
                "groupPriorityMinimum": 1000, "versionPriority": 15,
                "service": {"name": SERVICE, "namespace": namespace, "port": 443},
            },
        })
    };
    let all = AGGREGATED.into_iter();
    all.flat_map(|api| api.versions.iter().map(move |version| one(api, version)))
        .collect()
}

/// The webhook configurations, with one `more` validating webhook; virt-api adds its authority.
pub(crate) fn webhook_configurations(namespace: &str, more: Value) -> Vec<Value> {
    let listed = |list: &[Webhook]| -> Vec<Value> {
        list.iter().map(|one| one.registration(namespace)).collect()
    };
    let configuration = |kind: &str, name: &str, webhooks: Vec<Value>| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks,
        })
    };
    let validating = [listed(VALIDATE), listed(EVICT), vec![more]].concat();
    vec![
        configuration(
            "MutatingWebhookConfiguration",
            "virt-api-mutator",
            listed(MUTATE),
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            "virt-api-validator",
            validating,
        ),
    ]
}
