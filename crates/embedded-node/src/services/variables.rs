//! The environment variables that name services to containers. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};

/// The service of the API server, which every pod gets.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// The variables of the API server's service and, unless the pod declines them, of all services in the
/// pod's namespace.
pub(crate) fn of<'a>(
    pod: &Pod,
    services: impl Iterator<Item = &'a Service>,
) -> BTreeMap<String, String> {
    let spec = pod.spec.as_ref();
    let links = spec.and_then(|spec| spec.enable_service_links) != Some(false);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    // By name: a service of the namespace takes precedence over the API server's.
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services {
        let meta = &service.metadata;
        let (Some(own), Some(name)) = (meta.namespace.as_deref(), meta.name.as_deref()) else {
            continue;
        };
        if links && own == namespace {
            chosen.insert(name, service);
        } else if (own, name) == API_SERVER {
            chosen.entry(name).or_insert(service);
        }
    }
    chosen
        .into_iter()
        .flat_map(|(name, service)| of_service(name, service))
        .collect()
}

fn of_service(name: &str, service: &Service) -> Vec<(String, String)> {
    let spec = service.spec.as_ref();
    let address = spec.and_then(|spec| spec.cluster_ip.as_deref());
    let address = address.filter(|address| !matches!(*address, "" | "None"));
    let ports = spec
        .and_then(|spec| spec.ports.as_deref())
        .unwrap_or_default();
    let (Some(address), Some(first)) = (address, ports.first()) else {
        return Vec::new();
    };
    let prefix = variable_name(name);
    let mut all = vec![
        (format!("{prefix}_SERVICE_HOST"), address.to_owned()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
        (format!("{prefix}_PORT"), url(address, first)),
    ];
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let name = variable_name(name);
            all.push((
                format!("{prefix}_SERVICE_PORT_{name}"),
                port.port.to_string(),
            ));
        }
        let own = format!("{prefix}_PORT_{}_{}", port.port, protocol(port));
        all.extend([
            (format!("{own}_PROTO"), protocol(port).to_lowercase()),
            (format!("{own}_PORT"), port.port.to_string()),
            (format!("{own}_ADDR"), address.to_owned()),
            (own, url(address, port)),
        ]);
    }
    all
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

fn protocol(port: &ServicePort) -> String {
    let named = port.protocol.as_deref().unwrap_or("TCP");
    named.to_uppercase()
}

fn url(address: &str, port: &ServicePort) -> String {
    format!(
        "{}://{address}:{}",
        protocol(port).to_lowercase(),
        port.port
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(namespace: &str, name: &str, spec: &Value) -> Service {
        let meta = json!({"name": name, "namespace": namespace});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn variables(namespace: &str, links: Option<bool>) -> BTreeMap<String, String> {
        let meta = json!({"name": "p", "namespace": namespace});
        let spec = json!({"containers": [], "enableServiceLinks": links});
        let pod = serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap();
        let all = [
            service(
                "default",
                "kubernetes",
                &json!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}),
            ),
            service(
                "n",
                "my-db",
                &json!({"clusterIP": "10.96.0.2", "ports": [
                    {"name": "sql-1", "port": 5432}, {"name": "dns", "port": 53, "protocol": "UDP"}]}),
            ),
            service(
                "n",
                "each",
                &json!({"clusterIP": "None", "ports": [{"port": 1}]}),
            ),
            service("n", "new", &json!({"ports": [{"port": 1}]})),
            service(
                "other",
                "far",
                &json!({"clusterIP": "10.96.0.3", "ports": [{"port": 1}]}),
            ),
        ];
        of(&pod, all.iter())
    }

    #[test]
    fn services_of_the_namespace_become_variables() {
        let found = variables("n", None);
        for (name, expected) in [
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
            ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
            ("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
            ("MY_DB_SERVICE_HOST", "10.96.0.2"),
            ("MY_DB_SERVICE_PORT", "5432"),
            ("MY_DB_SERVICE_PORT_SQL_1", "5432"),
            ("MY_DB_SERVICE_PORT_DNS", "53"),
            ("MY_DB_PORT", "tcp://10.96.0.2:5432"),
            ("MY_DB_PORT_5432_TCP", "tcp://10.96.0.2:5432"),
            ("MY_DB_PORT_5432_TCP_PROTO", "tcp"),
            ("MY_DB_PORT_5432_TCP_PORT", "5432"),
            ("MY_DB_PORT_5432_TCP_ADDR", "10.96.0.2"),
            ("MY_DB_PORT_53_UDP", "udp://10.96.0.2:53"),
        ] {
            assert_eq!(
                found.get(name).map(String::as_str),
                Some(expected),
                "{name}"
            );
        }
        assert!(
            found
                .keys()
                .all(|name| { name.starts_with("KUBERNETES_") || name.starts_with("MY_DB_") })
        );
    }

    #[test]
    fn pod_without_service_links_finds_the_api_server_only() {
        for (namespace, links) in [("n", Some(false)), ("empty", None)] {
            let found = variables(namespace, links);
            assert_eq!(found["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
            assert!(found.keys().all(|name| name.starts_with("KUBERNETES_")));
        }
    }
}
