//! Environment variables of a container and the downward API. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    api::core::v1::{Container, EnvVar, EnvVarSource, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use kubevirt_api::quantity::Amount;
use reasons::Reason;

use crate::{
    Failure,
    documents::Documents,
    resources::{Side, amount},
};

/// The pod and the facts about it that its object may not have yet.
#[derive(Debug, Clone)]
pub(crate) struct Facts<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) documents: &'a Documents,
    pub(crate) node_name: &'a str,
    pub(crate) host_ip: IpAddr,
    pub(crate) pod_ips: &'a [IpAddr],
    /// The node's allocatable resources, which stand for a container's missing limits.
    pub(crate) allocatable: &'a BTreeMap<String, Quantity>,
    /// The variables of services.
    pub(crate) services: &'a BTreeMap<String, String>,
}

const CONFIG: Reason = Reason::CreateContainerConfigError;

/// The variables of the image, then of services, then `envFrom`, then `env`; later ones win.
pub(crate) fn render(
    facts: &Facts<'_>,
    container: &Container,
    image: &[String],
) -> Result<BTreeMap<String, String>, Failure> {
    let mut all: BTreeMap<String, String> = image
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    all.extend(facts.services.clone());
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let (found, optional, source) = if let Some(map) = &from.config_map_ref {
            (
                facts.documents.config_map(&map.name),
                map.optional,
                format!("configmap {:?}", map.name),
            )
        } else if let Some(secret) = &from.secret_ref {
            let found = facts.documents.secret(&secret.name);
            (found, secret.optional, format!("secret {:?}", secret.name))
        } else {
            continue;
        };
        match found {
            Some(data) => all.extend(data.into_iter().map(|(key, value)| {
                (
                    format!("{prefix}{key}"),
                    String::from_utf8_lossy(&value).into_owned(),
                )
            })),
            None if optional == Some(true) => {}
            None => return Err(Failure::new(CONFIG, format!("{source} not found"))),
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(facts, container, variable, &all)? {
            all.insert(variable.name.clone(), value);
        }
    }
    Ok(all)
}

fn value(
    facts: &Facts<'_>,
    container: &Container,
    variable: &EnvVar,
    so_far: &BTreeMap<String, String>,
) -> Result<Option<String>, Failure> {
    match &variable.value_from {
        None => Ok(Some(expand(
            variable.value.as_deref().unwrap_or_default(),
            so_far,
        ))),
        Some(source) => referenced_value(facts, container, source),
    }
}

fn referenced_value(
    facts: &Facts<'_>,
    container: &Container,
    source: &EnvVarSource,
) -> Result<Option<String>, Failure> {
    if let Some(field) = &source.field_ref {
        return field_value(facts, &field.field_path).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        let divisor = resource
            .divisor
            .as_ref()
            .map(|quantity| quantity.0.as_str());
        return resource_value(facts, container, (&resource.resource, divisor)).map(Some);
    }
    let (found, key, optional, ((resource, kind), name)) =
        if let Some(map) = &source.config_map_key_ref {
            (
                facts.documents.config_map(&map.name),
                &map.key,
                map.optional,
                (("configmap", "ConfigMap"), &map.name),
            )
        } else if let Some(secret) = &source.secret_key_ref {
            (
                facts.documents.secret(&secret.name),
                &secret.key,
                secret.optional,
                (("secret", "Secret"), &secret.name),
            )
        } else {
            return Err(Failure::new(
                CONFIG,
                "an environment variable has an empty valueFrom",
            ));
        };
    let known = found.is_some();
    match found.and_then(|mut data| data.remove(key)) {
        Some(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
        None if optional == Some(true) => Ok(None),
        None if !known => Err(Failure::new(
            CONFIG,
            format!("{resource} {name:?} not found"),
        )),
        None => {
            let namespace = facts.pod.metadata.namespace.as_deref().unwrap_or_default();
            let message = format!("couldn't find key {key} in {kind} {namespace}/{name}");
            Err(Failure::new(CONFIG, message))
        }
    }
}

/// The value of a pod field that the downward API supports.
pub(crate) fn field_value(facts: &Facts<'_>, path: &str) -> Result<String, Failure> {
    let meta = &facts.pod.metadata;
    let spec = facts.pod.spec.as_ref();
    let lines = |map: Option<&BTreeMap<String, String>>| {
        let all = map.into_iter().flatten();
        all.map(|(key, value)| format!("{key}={value:?}"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let ips = || {
        facts
            .pod_ips
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    Ok(match path {
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => facts.node_name.to_owned(),
        "spec.serviceAccountName" => spec
            .and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => facts.host_ip.to_string(),
        "status.podIP" => ips().first().cloned().unwrap_or_default(),
        "status.podIPs" => ips().join(","),
        other => {
            let entry = |part: &str, map: Option<&BTreeMap<String, String>>| {
                let key = other
                    .strip_prefix(part)?
                    .strip_prefix("['")?
                    .strip_suffix("']")?;
                Some(
                    map.and_then(|map| map.get(key).cloned())
                        .unwrap_or_default(),
                )
            };
            entry("metadata.labels", meta.labels.as_ref())
                .or_else(|| entry("metadata.annotations", meta.annotations.as_ref()))
                .ok_or_else(|| Failure::new(CONFIG, format!("field {path:?} is not supported")))?
        }
    })
}

/// A container resource such as `limits.cpu`, in units of the divisor. A missing limit is what the node
/// can allocate.
pub(crate) fn resource_value(
    facts: &Facts<'_>,
    container: &Container,
    (path, divisor): (&str, Option<&str>),
) -> Result<String, Failure> {
    let (side, name) = match path.split_once('.') {
        Some(("limits", name)) => (Side::Limits, name),
        Some(("requests", name)) => (Side::Requests, name),
        _ => {
            return Err(Failure::new(
                CONFIG,
                format!("resource {path:?} is not supported"),
            ));
        }
    };
    let own = amount(container, side, name)?
        .map(Amount::millis)
        .filter(|millis| *millis > 0);
    let millis = match (own, side) {
        (Some(millis), _) => millis,
        (None, Side::Requests) => 0,
        (None, Side::Limits) => {
            let node = facts.allocatable.get(name).map(Amount::parse);
            let node = node
                .transpose()
                .map_err(|error| Failure::of(CONFIG, "read the node's resources", &error))?;
            node.map_or(0, Amount::millis)
        }
    };
    let divisor = match divisor {
        None | Some("" | "0") => 1000,
        Some("1m") => 1,
        Some(text) => {
            let quantity = Quantity(text.to_owned());
            Amount::parse(&quantity)
                .map_err(|error| Failure::of(CONFIG, "divisor", &error))?
                .millis()
                .max(1)
        }
    };
    Ok(millis.div_ceil(divisor).to_string())
}

/// Replaces `$(NAME)` by its value; `$$` is a dollar sign, unknown names are kept.
pub(crate) fn expand(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = from.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = from
            .strip_prefix("$(")
            .and_then(|inner| inner.split_once(')'))
        {
            match values.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(from.get(..name.len() + 3).unwrap_or(from)),
            }
            rest = after;
        } else {
            out.push('$');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_expanded() {
        let values = [("A".to_owned(), "1".to_owned())].into();
        for (text, expected) in [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(B)z", "x1y$(B)z"),
            ("$$(A)", "$(A)"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expand(text, &values), expected);
        }
    }

    #[test]
    fn variables_come_from_image_config_maps_and_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}},
        }))
        .unwrap();
        let documents = Documents {
            config_maps: [(
                "m".into(),
                serde_json::from_value(json!({"data": {"k": "v"}})).unwrap(),
            )]
            .into(),
            ..Documents::default()
        };
        let facts = Facts {
            pod: &pod,
            documents: &documents,
            node_name: "node",
            host_ip: [127, 0, 0, 1].into(),
            pod_ips: &[[10, 0, 0, 2].into()],
            allocatable: &BTreeMap::new(),
            services: &[
                ("A".to_owned(), "service".to_owned()),
                ("WEB_SERVICE_HOST".to_owned(), "10.96.0.2".to_owned()),
            ]
            .into(),
        };
        let container: Container = serde_json::from_value(json!({
            "name": "c",
            "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}},
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}],
            "env": [
                {"name": "A", "value": "x-$(P_k)"},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "M", "valueFrom": {"resourceFieldRef":
                    {"resource": "limits.memory", "divisor": "1Mi"}}},
                {"name": "O", "valueFrom": {"secretKeyRef":
                    {"name": "no", "key": "k", "optional": true}}},
            ],
        }))
        .unwrap();
        let got = render(&facts, &container, &["PATH=/bin".into(), "A=image".into()]).unwrap();
        let expected = [
            ("A", "x-v"),
            ("C", "2"),
            ("IP", "10.0.0.2"),
            ("L", "b"),
            ("M", "64"),
            ("NAME", "p"),
            ("PATH", "/bin"),
            ("P_k", "v"),
            ("WEB_SERVICE_HOST", "10.96.0.2"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(got, expected.into());

        let missing: Container = serde_json::from_value(json!({
            "name": "c", "envFrom": [{"configMapRef": {"name": "other"}}],
        }))
        .unwrap();
        let error = render(&facts, &missing, &[]).unwrap_err();
        assert_eq!(
            (error.reason, &*error.message),
            (CONFIG, "configmap \"other\" not found")
        );
    }

    fn with_facts<T>(work: impl FnOnce(&Facts<'_>) -> T) -> T {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n"},
        }))
        .unwrap();
        let map = serde_json::from_value(json!({"data": {"k": "v"}})).unwrap();
        let documents = Documents {
            config_maps: [("m".into(), map)].into(),
            ..Documents::default()
        };
        let node = [("cpu", "4"), ("memory", "8Gi")];
        let node = node.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
        work(&Facts {
            pod: &pod,
            documents: &documents,
            node_name: "node",
            host_ip: [127, 0, 0, 1].into(),
            pod_ips: &[],
            allocatable: &node.into(),
            services: &BTreeMap::new(),
        })
    }

    #[test]
    fn missing_limit_is_what_the_node_can_allocate() {
        let container: Container = serde_json::from_value(json!({
            "name": "c", "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "1"}},
        }))
        .unwrap();
        for (path, divisor, expected) in [
            ("limits.cpu", None, "4"),
            ("limits.cpu", Some("1m"), "4000"),
            ("requests.cpu", None, "1"),
            ("requests.memory", None, "0"),
            ("limits.memory", Some("1Mi"), "64"),
            ("limits.ephemeral-storage", None, "0"),
        ] {
            let found = with_facts(|facts| resource_value(facts, &container, (path, divisor)));
            assert_eq!(found.unwrap(), expected, "{path}");
        }
        let empty: Container = serde_json::from_value(json!({"name": "c"})).unwrap();
        let memory = with_facts(|facts| resource_value(facts, &empty, ("limits.memory", None)));
        assert_eq!(memory.unwrap(), (8_u64 << 30).to_string());
    }

    #[test]
    fn missing_key_is_named_as_by_a_kubelet() {
        for (reference, expected) in [
            (
                json!({"configMapKeyRef": {"name": "m", "key": "x"}}),
                "couldn't find key x in ConfigMap n/m",
            ),
            (
                json!({"secretKeyRef": {"name": "s", "key": "x"}}),
                "secret \"s\" not found",
            ),
        ] {
            let container: Container = serde_json::from_value(json!({
                "name": "c", "env": [{"name": "X", "valueFrom": reference}],
            }))
            .unwrap();
            let error = with_facts(|facts| render(facts, &container, &[])).unwrap_err();
            assert_eq!((error.reason, &*error.message), (CONFIG, expected));
        }
    }
}
