//! The names of a pod: its host name, and its domain name below a headless service. Pure.

use k8s_openapi::api::core::v1::Pod;
use reasons::Reason;

use crate::{Failure, services::DOMAIN};

/// The kernel's limit of a host name.
const MAX_KERNEL_NAME: usize = 64;
/// The limit of a label in DNS.
const MAX_LABEL: usize = 63;

/// The pod's host name without a domain.
pub(crate) fn short(pod: &Pod) -> String {
    let own = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    let name = own
        .filter(|name| !name.is_empty())
        .or_else(|| pod.metadata.name.clone())
        .unwrap_or_default();
    let cut: String = name.chars().take(MAX_LABEL).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// The domain name of a pod with a subdomain.
pub(crate) fn full(pod: &Pod) -> Option<String> {
    let subdomain = pod.spec.as_ref()?.subdomain.as_deref();
    let subdomain = subdomain.filter(|subdomain| !subdomain.is_empty())?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    Some(format!(
        "{}.{subdomain}.{namespace}.svc.{DOMAIN}",
        short(pod)
    ))
}

/// The host name of the pod's containers.
pub(crate) fn of_kernel(pod: &Pod) -> Result<String, Failure> {
    let spec = pod.spec.as_ref();
    let wants_full = spec.and_then(|spec| spec.set_hostname_as_fqdn) == Some(true);
    let Some(name) = full(pod).filter(|_| wants_full) else {
        return Ok(short(pod));
    };
    if name.len() <= MAX_KERNEL_NAME {
        return Ok(name);
    }
    let message = format!(
        "Failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long \
         ({MAX_KERNEL_NAME} characters is the max, {} characters requested)",
        name.len()
    );
    Err(Failure::new(Reason::FailedCreatePodSandBox, message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        let mut spec = spec.clone();
        spec["containers"] = json!([]);
        let meta = json!({"name": "p", "namespace": "n"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    #[test]
    fn host_name_follows_the_specification() {
        let long = "x".repeat(62) + "-y";
        for (spec, short_name, full_name, kernel) in [
            (json!({}), "p", None, "p"),
            (json!({"hostname": "h"}), "h", None, "h"),
            (
                json!({"hostname": long}),
                &*"x".repeat(62),
                None,
                &*"x".repeat(62),
            ),
            (
                json!({"hostname": "h", "subdomain": "s"}),
                "h",
                Some("h.s.n.svc.cluster.local"),
                "h",
            ),
            (
                json!({"subdomain": "s", "setHostnameAsFQDN": true}),
                "p",
                Some("p.s.n.svc.cluster.local"),
                "p.s.n.svc.cluster.local",
            ),
            (json!({"setHostnameAsFQDN": true}), "p", None, "p"),
        ] {
            let pod = pod(&spec);
            assert_eq!(short(&pod), short_name, "{spec}");
            assert_eq!(full(&pod).as_deref(), full_name, "{spec}");
            assert_eq!(of_kernel(&pod).unwrap(), kernel, "{spec}");
        }
    }

    #[test]
    fn full_name_beyond_the_kernels_limit_is_an_error() {
        let spec = json!({"hostname": "x".repeat(50), "subdomain": "s", "setHostnameAsFQDN": true});
        let failure = of_kernel(&pod(&spec)).unwrap_err();
        assert_eq!(failure.reason, Reason::FailedCreatePodSandBox);
        assert!(
            failure.message.contains("64 characters is the max, 72"),
            "{failure}"
        );
    }
}
