//! The pods of the components.

use serde_json::{Value, json};

use crate::{
    API_ACCOUNT, CONTROLLER_ACCOUNT, HANDLER_ACCOUNT, Settings,
    registration::{METRICS_LABEL, METRICS_PORT, PORT, TRANSFER_PORT},
};

pub const PRIORITY_CLASS: &str = "kubevirt-cluster-critical";
/// The program in its image.
const PROGRAM: &str = "/ferrovirt";
/// An unprivileged user.
const USER: u32 = 1001;
/// The user of guests: the probe runs under the same restrictions.
const GUEST_USER: u32 = 107;
const KUBELET: &str = "/var/lib/kubelet";
const CAPABILITIES: &str = "/capabilities";
/// Where virt-api and other nodes reach virt-handler.
const HANDLER_PORT: u16 = 8186;

/// Deployments, their budgets and the daemon set, and the policy of their network.
pub fn objects(settings: &Settings) -> Vec<Value> {
    let api = Component {
        name: "virt-api",
        account: API_ACCOUNT,
        command: "api",
        env: json!([]),
    };
    let controller = Component {
        name: "virt-controller",
        account: CONTROLLER_ACCOUNT,
        command: "controller",
        env: json!([
            {"name": "LAUNCHER_IMAGE", "value": settings.launcher_image},
        ]),
    };
    vec![
        deployment(settings, &api),
        budget(settings, api.name),
        deployment(settings, &controller),
        budget(settings, controller.name),
        handler(settings),
        network_policy(settings),
    ]
}

/// Pods of the components accept connections to their TLS ports only. Who may use it is decided there: API servers
/// and other nodes have addresses that no policy can name.
fn network_policy(settings: &Settings) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata(settings, "ferrovirt-components"),
        "spec": {
            "podSelector": {"matchLabels": {METRICS_LABEL: "true"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [
                {"port": PORT, "protocol": "TCP"},
                {"port": HANDLER_PORT, "protocol": "TCP"},
                {"port": TRANSFER_PORT, "protocol": "TCP"},
            ]}],
        },
    })
}

struct Component {
    name: &'static str,
    account: &'static str,
    /// The subcommand of the program.
    command: &'static str,
    env: Value,
}

fn deployment(settings: &Settings, component: &Component) -> Value {
    let mut env = own_pod().to_vec();
    env.extend(component.env.as_array().cloned().unwrap_or_default());
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": metadata(settings, component.name),
        "spec": {
            "replicas": settings.replicas,
            "selector": {"matchLabels": selector(component.name)},
            "template": {
                "metadata": {"labels": pod_labels(component.name)},
                "spec": {
                    "serviceAccountName": component.account,
                    "priorityClassName": PRIORITY_CLASS,
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
                    "affinity": apart(component.name),
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": component.name,
                        "image": settings.image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": [PROGRAM, component.command],
                        "env": env,
                        "ports": [metrics_port()],
                        "readinessProbe": healthy(1, 3),
                        "livenessProbe": healthy(10, 8),
                        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    }],
                },
            },
        },
    })
}

fn budget(settings: &Settings, name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": metadata(settings, &format!("{name}-pdb")),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": selector(name)}},
    })
}

/// virt-handler on each node. It is privileged, since it enters the namespaces of pods.
fn handler(settings: &Settings) -> Value {
    let mut env = own_pod().to_vec();
    env.push(from_field("NODE_NAME", "spec.nodeName"));
    env.push(from_field("POD_IP", "status.podIP"));
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": metadata(settings, "virt-handler"),
        "spec": {
            "selector": {"matchLabels": selector("virt-handler")},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": pod_labels("virt-handler")},
                "spec": {
                    "serviceAccountName": HANDLER_ACCOUNT,
                    "priorityClassName": PRIORITY_CLASS,
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
                    // It identifies peers of its sockets by process id.
                    "hostPID": true,
                    "initContainers": [
                        probe(settings, "with-kvm", true),
                        probe(settings, "without-kvm", false),
                    ],
                    "containers": [{
                        "name": "virt-handler",
                        "image": settings.image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            PROGRAM, "handler",
                            "--port", HANDLER_PORT.to_string(),
                            "--capabilities", format!("{CAPABILITIES}/with-kvm"),
                            "--capabilities", format!("{CAPABILITIES}/without-kvm"),
                        ],
                        "env": env,
                        "ports": [metrics_port()],
                        // As much CPU time as a guest: the memory of guests that move goes through it, also on a node
                        // whose guests use all of it. The limit is far above its use: what guests and clients
                        // send cannot exhaust the node.
                        "resources": {
                            "requests": {"cpu": "100m", "memory": "32Mi"},
                            "limits": {"memory": "1Gi"},
                        },
                        "securityContext": {"privileged": true, "runAsUser": 0},
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "volumeMounts": [
                            {
                                "name": "kubelet", "mountPath": KUBELET,
                                "mountPropagation": "HostToContainer",
                            },
                            {"name": "capabilities", "mountPath": CAPABILITIES, "readOnly": true},
                        ],
                    }],
                    "volumes": [
                        {"name": "kubelet", "hostPath": {"path": KUBELET, "type": "Directory"}},
                        {"name": "capabilities", "emptyDir": {}},
                        {"name": "with-kvm", "emptyDir": {}},
                        {"name": "without-kvm", "emptyDir": {}},
                        {"name": "run-with-kvm", "emptyDir": {}},
                        {"name": "run-without-kvm", "emptyDir": {}},
                    ],
                },
            },
        },
    })
}

/// Probes the capabilities of the node, with or without `/dev/kvm`: if the device is broken, only the second probe
/// yields results.
fn probe(settings: &Settings, name: &str, with_kvm: bool) -> Value {
    let private = "/var/run/kubevirt-private";
    let security = if with_kvm {
        json!({"privileged": true, "runAsUser": GUEST_USER, "runAsGroup": GUEST_USER})
    } else {
        json!({
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "runAsUser": GUEST_USER, "runAsGroup": GUEST_USER, "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        })
    };
    json!({
        "name": format!("probe-{name}"),
        "image": settings.launcher_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "/usr/bin/virt-launcher", "probe-node", "--output", format!("{CAPABILITIES}/{name}"),
            "--image", settings.launcher_image,
        ],
        "env": [
            {"name": "XDG_CACHE_HOME", "value": private},
            {"name": "XDG_CONFIG_HOME", "value": private},
            {"name": "XDG_RUNTIME_DIR", "value": "/var/run"},
        ],
        "securityContext": security,
        "volumeMounts": [
            {"name": "capabilities", "mountPath": CAPABILITIES},
            {"name": name, "mountPath": private},
            {"name": format!("run-{name}"), "mountPath": "/var/run/libvirt"},
        ],
    })
}

fn selector(name: &str) -> Value {
    json!({"kubevirt.io": name})
}

/// `KubeVirt`'s service monitor selects pods by the second label and scrapes the port `metrics`.
fn pod_labels(name: &str) -> Value {
    json!({"kubevirt.io": name, METRICS_LABEL: "true"})
}

/// One port serves probes, metrics and the API of virt-api: server-side apply does not allow a second
/// name for it.
fn metrics_port() -> Value {
    json!({"name": METRICS_PORT, "containerPort": PORT, "protocol": "TCP"})
}

fn metadata(settings: &Settings, name: &str) -> Value {
    let labels = json!({"kubevirt.io": name, "app.kubernetes.io/name": name});
    json!({"name": name, "namespace": settings.namespace, "labels": labels})
}

/// The environment variables with which a component publishes events about its pod.
fn own_pod() -> [Value; 3] {
    [
        from_field("POD_NAMESPACE", "metadata.namespace"),
        from_field("POD_NAME", "metadata.name"),
        from_field("POD_UID", "metadata.uid"),
    ]
}

fn from_field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

fn healthy(period: u32, failures: u32) -> Value {
    json!({
        "httpGet": {"path": "/livez", "port": PORT, "scheme": "HTTPS"},
        "periodSeconds": period, "timeoutSeconds": 10, "failureThreshold": failures,
    })
}

/// Prefers different nodes for replicas.
fn apart(name: &str) -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 1,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": selector(name)},
        },
    }]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_service_selects_a_named_port_of_every_component() {
        let settings = Settings::usual();
        let service = crate::registration::metrics_service(&settings.namespace);
        assert_eq!(service["metadata"]["name"], "kubevirt-prometheus-metrics");
        let selector = service["spec"]["selector"].as_object().expect("a selector");
        let port = &service["spec"]["ports"][0]["targetPort"];
        let all = objects(&settings);
        let templates = all.iter().map(|object| &object["spec"]["template"]);
        let templates: Vec<&Value> = templates.filter(|template| !template.is_null()).collect();
        assert_eq!(templates.len(), 3);
        for template in templates {
            let labels = &template["metadata"]["labels"];
            assert!(selector.iter().all(|(name, value)| labels[name] == *value));
            assert_eq!(template["spec"]["containers"][0]["ports"][0]["name"], *port);
        }
    }
}
