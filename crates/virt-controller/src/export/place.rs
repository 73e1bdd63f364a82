//! Where clients that are not in a pod reach exports: at a fixed address, or by an ingress or route of an administrator
//! that leads to the service of the proxy.

use k8s_openapi::api::networking::v1::{Ingress, IngressBackend};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;

use super::observe::unreadable;
use super::{Controller, ExportError};

/// The service of the proxy, and the name of the route to it, as with `KubeVirt`.
const SERVICE: &str = "virt-exportproxy";

/// Where clients that are not in a pod reach all exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportPlace {
    Fixed(ExportProxy),
    /// At the host of an ingress or route in this namespace, which has the service of the proxy.
    Ingress {
        namespace: String,
    },
}

/// The address of the proxy. The path of an export follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportProxy {
    /// Scheme, host and port.
    pub url: String,
    /// The authority of its certificate, in PEM; empty if it is among those of clients.
    pub authority: String,
}

impl Controller {
    pub(super) async fn proxy(&self) -> Result<Option<ExportProxy>, ExportError> {
        let namespace = match &self.place {
            None => return Ok(None),
            Some(ExportPlace::Fixed(proxy)) => return Ok(Some(proxy.clone())),
            Some(ExportPlace::Ingress { namespace }) => namespace,
        };
        let api = Api::<Ingress>::namespaced(self.client.clone(), namespace);
        let all = api.list(&ListParams::default()).await;
        let all = all.map_err(unreadable("the ingresses"))?.items;
        if let Some(host) = all.iter().find_map(host_of) {
            return Ok(Some(at(host)));
        }
        let kind = GroupVersionKind::gvk("route.openshift.io", "v1", "Route");
        let kind = ApiResource::from_gvk(&kind);
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &kind);
        let route = match api.get(SERVICE).await {
            // Clusters without routes do not define them: their answer has no body that tells why.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            found => Some(found.map_err(unreadable("the route"))?),
        };
        Ok(route
            .as_ref()
            .and_then(|route| route_host(&route.data))
            .map(at))
    }
}

/// The certificate there is that of the ingress.
fn at(host: &str) -> ExportProxy {
    ExportProxy {
        url: format!("https://{host}"),
        authority: String::new(),
    }
}

/// The host by which the ingress leads to the proxy.
fn host_of(ingress: &Ingress) -> Option<&str> {
    let spec = ingress.spec.as_ref()?;
    let is_ours = |backend: &IngressBackend| {
        let service = backend.service.as_ref();
        service.is_some_and(|service| service.name == SERVICE)
    };
    let usable = |host: &&str| !host.is_empty() && !host.starts_with('*');
    let rules = || spec.rules.iter().flatten();
    let mut leading = rules().filter(|rule| {
        let paths = rule.http.as_ref().map_or(&[][..], |http| &http.paths);
        paths.iter().any(|path| is_ours(&path.backend))
    });
    let by_rule = leading.find_map(|rule| rule.host.as_deref().filter(usable));
    let by_default = || {
        let backend = spec.default_backend.as_ref()?;
        is_ours(backend).then_some(())?;
        // A host without paths has the default backend.
        let mut plain = rules().filter(|rule| rule.http.is_none());
        let of_rule = plain.find_map(|rule| rule.host.as_deref().filter(usable));
        let hosts = spec.tls.iter().flatten().flat_map(|tls| &tls.hosts);
        let mut hosts = hosts.flatten().map(String::as_str).filter(usable);
        of_rule.or_else(|| hosts.next())
    };
    by_rule.or_else(by_default)
}

/// The host of a route that was admitted.
fn route_host(route: &Value) -> Option<&str> {
    let host = route.pointer("/status/ingress/0/host")?.as_str()?;
    (route["spec"]["to"]["name"] == SERVICE && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ingress_is_used_if_it_leads_to_the_proxy_by_a_name() {
        let backend = |name: &str| json!({"service": {"name": name, "port": {"number": 443}}});
        let rule = |host: Value, name: &str| {
            let path = json!({"path": "/", "pathType": "Prefix", "backend": backend(name)});
            json!({"host": host, "http": {"paths": [path]}})
        };
        for (spec, expected) in [
            (
                json!({"rules": [
                    rule(json!("other.example"), "other"), rule(json!("export.example"), SERVICE),
                ]}),
                Some("export.example"),
            ),
            (
                json!({"rules": [rule(json!("other.example"), "other")]}),
                None,
            ),
            (json!({"rules": [rule(Value::Null, SERVICE)]}), None),
            (json!({"rules": [rule(json!("*.example"), SERVICE)]}), None),
            (
                json!({
                    "defaultBackend": backend(SERVICE),
                    "tls": [{"hosts": ["export.example"], "secretName": "certificate"}],
                }),
                Some("export.example"),
            ),
            (
                json!({
                    "defaultBackend": backend("other"), "tls": [{"hosts": ["other.example"]}],
                }),
                None,
            ),
            (
                json!({
                    "defaultBackend": backend(SERVICE),
                    "rules": [rule(json!("other.example"), "other"), {"host": "export.example"}],
                    "tls": [{"hosts": ["another.example"]}],
                }),
                Some("export.example"),
            ),
            (json!({"defaultBackend": backend(SERVICE)}), None),
        ] {
            let ingress = json!({"metadata": {"name": "one"}, "spec": spec});
            let ingress: Ingress = serde_json::from_value(ingress).expect("an ingress");
            assert_eq!(host_of(&ingress), expected, "{ingress:?}");
        }
    }

    #[test]
    fn route_is_used_once_it_was_admitted() {
        let mut route = json!({
            "spec": {"host": "export.example", "to": {"kind": "Service", "name": SERVICE}},
        });
        assert_eq!(route_host(&route), None);
        route["status"] = json!({"ingress": [{"host": "export.example"}]});
        assert_eq!(route_host(&route), Some("export.example"));
        route["spec"]["to"]["name"] = "other".into();
        assert_eq!(route_host(&route), None);
    }
}
