//! The secondary networks of a pod, from its annotations, and the report of them: pure.
//!
//! Annotations and report have the formats of the multi-network standard of Kubernetes.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::annotations;
use reasons::Reason;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Failure;

/// Definitions in this namespace are for pods of all namespaces.
const SHARED_NAMESPACE: &str = "default";
/// The pod's interface on its default network.
pub(crate) const DEFAULT_INTERFACE: &str = "eth0";
/// The name of the pod network in the report.
const POD_NETWORK: &str = "ferrovirt";
/// More are a mistake, and would take long.
const MAX_NETWORKS: usize = 64;
/// The longest name of an object.
const MAX_NAME: usize = 253;

/// A network that the pod names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The interface's name in the pod.
    pub(crate) interface: String,
    pub(crate) mac: Option<String>,
}

/// The networks of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Networks {
    /// Takes the place of the pod network.
    pub(crate) default: Option<Selection>,
    pub(crate) secondary: Vec<Selection>,
}

/// An interface that a pod has on a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Joined {
    /// `namespace/name` of the definition.
    pub(crate) network: String,
    pub(crate) interface: String,
    pub(crate) mac: String,
    pub(crate) ips: Vec<IpAddr>,
}

/// An item of the annotation. Other members concern plugins of other hosts.
#[derive(Debug, Deserialize)]
struct Item {
    name: String,
    namespace: Option<String>,
    interface: Option<String>,
    mac: Option<String>,
    #[serde(rename = "cni-args")]
    arguments: Option<Value>,
    ips: Option<Vec<String>>,
}

impl Networks {
    pub(crate) fn of(pod: &Pod) -> Result<Self, Failure> {
        let own = pod.metadata.namespace.as_deref().unwrap_or("default");
        let annotation = |key: &str| {
            let annotations = pod.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(key)).map(String::as_str)
        };
        let default = annotation(annotations::MULTUS_DEFAULT_NETWORK);
        let default = default.map(|text| {
            let (namespace, name) = split(text.trim(), own);
            Selection {
                namespace,
                name,
                interface: DEFAULT_INTERFACE.to_owned(),
                mac: None,
            }
        });
        let text = annotation(annotations::CNI_NETWORKS).unwrap_or_default();
        let networks = Self {
            default,
            secondary: selections(text.trim(), own)?,
        };
        networks.check(own)?;
        Ok(networks)
    }

    fn check(&self, own: &str) -> Result<(), Failure> {
        let mut names = vec![DEFAULT_INTERFACE];
        for one in &self.secondary {
            if names.contains(&&*one.interface) {
                let message = format!(
                    "two networks of the pod have the interface {}",
                    one.interface
                );
                return Err(invalid(message));
            }
            names.push(&one.interface);
        }
        if names.len() > MAX_NETWORKS {
            let message = format!("the pod has more than {MAX_NETWORKS} networks");
            return Err(invalid(message));
        }
        let mut all = self.default.iter().chain(&self.secondary);
        if let Some(odd) = all.find(|one| !is_name(&one.name) || !is_name(&one.namespace)) {
            let message = format!("{:?} is not the name of an object", odd.full_name());
            return Err(invalid(message));
        }
        let foreign = self.default.iter().chain(&self.secondary);
        let mut foreign =
            foreign.filter(|one| one.namespace != own && one.namespace != SHARED_NAMESPACE);
        foreign.next().map_or(Ok(()), |one| {
            let message = format!(
                "network {} is in another namespace than the pod: create it in {own} or in \
                 {SHARED_NAMESPACE}",
                one.full_name()
            );
            Err(Failure::new(Reason::NetworkDefinitionMissing, message))
        })
    }
}

impl Selection {
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Whether an object can have this name; another one must not get into the path of a request.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_inner = !part.starts_with('-') && !part.ends_with('-');
        !part.is_empty() && is_inner && part.bytes().all(plain)
    };
    name.len() <= MAX_NAME && name.split('.').all(is_part)
}

fn invalid(message: String) -> Failure {
    Failure::new(Reason::NetworkDefinitionInvalid, message)
}

/// From a JSON list, or from `namespace/name@interface` separated by commas.
fn selections(text: &str, own: &str) -> Result<Vec<Selection>, Failure> {
    let items = if text.starts_with(['[', '{']) {
        let items: Vec<Item> = serde_json::from_str(text).map_err(|error| {
            invalid(format!("annotation {}: {error}", annotations::CNI_NETWORKS))
        })?;
        items
    } else {
        let names = text.split(',').map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(short_item)
            .collect()
    };
    let all = items.into_iter().enumerate();
    all.map(|(index, item)| item.select(index, own)).collect()
}

fn short_item(text: &str) -> Item {
    let (name, interface) = match text.split_once('@') {
        Some((name, interface)) => (name, Some(interface.to_owned())),
        None => (text, None),
    };
    let (namespace, name) = match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, name),
    };
    Item {
        name: name.to_owned(),
        namespace,
        interface,
        mac: None,
        arguments: None,
        ips: None,
    }
}

impl Item {
    fn select(self, index: usize, own: &str) -> Result<Selection, Failure> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let refused = [
            ("cni-args", self.arguments.is_some()),
            ("ips", self.ips.is_some_and(|ips| !ips.is_empty())),
        ];
        if let Some((member, _)) = refused.iter().find(|(_, is_given)| *is_given) {
            let message = format!(
                "annotation {}: {member} of network {} is not supported on a single host",
                annotations::CNI_NETWORKS,
                self.name
            );
            return Err(Failure::new(Reason::NetworkDefinitionNotSupported, message));
        }
        Ok(Selection {
            namespace: given(self.namespace).unwrap_or_else(|| own.to_owned()),
            name: self.name,
            interface: given(self.interface).unwrap_or_else(|| format!("net{}", index + 1)),
            mac: given(self.mac),
        })
    }
}

fn split(name: &str, own: &str) -> (String, String) {
    let (namespace, name) = name.split_once('/').unwrap_or((own, name));
    (namespace.to_owned(), name.to_owned())
}

/// The value of the annotation that reports the networks; `None` for a pod on the pod network alone.
pub(crate) fn report(pod_ips: &[IpAddr], joined: &[Joined]) -> Option<String> {
    (!joined.is_empty()).then(|| list(pod_ips, joined))
}

/// The report of a pod whose networks have changed: it may have had others.
pub(crate) fn list(pod_ips: &[IpAddr], joined: &[Joined]) -> String {
    let has_default = joined.iter().any(|one| one.interface == DEFAULT_INTERFACE);
    let on_pod_network = json!({
        "name": POD_NETWORK, "interface": DEFAULT_INTERFACE, "ips": pod_ips, "default": true, "dns": {},
    });
    let mut all: Vec<Value> = (!has_default)
        .then_some(on_pod_network)
        .into_iter()
        .collect();
    all.extend(joined.iter().map(|one| {
        let mut network = json!({
            "name": one.network, "interface": one.interface, "mac": one.mac, "dns": {},
        });
        if !one.ips.is_empty() {
            network["ips"] = json!(one.ips);
        }
        if one.interface == DEFAULT_INTERFACE {
            network["default"] = true.into();
        }
        network
    }));
    Value::from(all).to_string()
}

/// What a running pod has to do to have the networks that it names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes<'a> {
    pub(crate) leave: Vec<&'a Joined>,
    pub(crate) join: Vec<&'a Selection>,
}

/// From the networks that the pod has to those that it names. The network in place of the pod network stays: the
/// pod's address is on it. An interface whose network is another one now is removed first.
pub(crate) fn changes<'a>(joined: &'a [Joined], wanted: &'a Networks) -> Changes<'a> {
    let is_same = |one: &Joined, other: &Selection| {
        one.interface == other.interface && one.network == other.full_name()
    };
    let is_wanted = |one: &&Joined| wanted.secondary.iter().any(|other| is_same(one, other));
    let own = joined
        .iter()
        .filter(|one| one.interface != DEFAULT_INTERFACE);
    let is_joined = |other: &&Selection| joined.iter().any(|one| is_same(one, other));
    Changes {
        leave: own.filter(|one| !is_wanted(one)).collect(),
        join: wanted
            .secondary
            .iter()
            .filter(|one| !is_joined(one))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &Value) -> Pod {
        let pod = json!({"metadata": {"namespace": "ns", "annotations": annotations}});
        serde_json::from_value(pod).unwrap()
    }

    fn with_networks(text: &str) -> Pod {
        pod(&json!({annotations::CNI_NETWORKS: text}))
    }

    fn selection(namespace: &str, name: &str, interface: &str, mac: Option<&str>) -> Selection {
        Selection {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            interface: interface.to_owned(),
            mac: mac.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn networks_are_read_from_both_forms() {
        let list = json!([
            {"name": "a", "namespace": "ns", "interface": "podabc", "mac": "02:00:00:00:00:0b"},
            {"name": "b", "namespace": "default"},
        ]);
        let from_list = [
            selection("ns", "a", "podabc", Some("02:00:00:00:00:0b")),
            selection("default", "b", "net2", None),
        ];
        let from_names = [
            selection("ns", "a", "net1", None),
            selection("default", "b", "x0", None),
        ];
        for (text, expected) in [
            (list.to_string(), &from_list[..]),
            ("a, default/b@x0".to_owned(), &from_names[..]),
            (" ".to_owned(), &[]),
        ] {
            let found = Networks::of(&with_networks(&text)).unwrap();
            assert_eq!(found.secondary, expected, "{text}");
            assert_eq!(found.default, None);
        }
        assert_eq!(Networks::of(&Pod::default()).unwrap(), Networks::default());
        let instead = Networks::of(&pod(
            &json!({annotations::MULTUS_DEFAULT_NETWORK: "default/a"}),
        ));
        let expected = Some(selection("default", "a", "eth0", None));
        assert_eq!(instead.unwrap().default, expected);
    }

    #[test]
    fn what_cannot_be_joined_is_refused_with_a_reason() {
        use Reason::{
            NetworkDefinitionInvalid, NetworkDefinitionMissing, NetworkDefinitionNotSupported,
        };
        let item = |more: Value| {
            let mut item = json!({"name": "a"});
            item.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!([item]).to_string()
        };
        for (text, reason, named) in [
            (
                "[1]".to_owned(),
                NetworkDefinitionInvalid,
                "k8s.v1.cni.cncf.io/networks",
            ),
            (
                "{}".to_owned(),
                NetworkDefinitionInvalid,
                "k8s.v1.cni.cncf.io/networks",
            ),
            ("a@x0,b@x0".to_owned(), NetworkDefinitionInvalid, "x0"),
            ("a@eth0".to_owned(), NetworkDefinitionInvalid, "eth0"),
            (vec!["a"; 65].join(","), NetworkDefinitionInvalid, "64"),
            ("ns/..".to_owned(), NetworkDefinitionInvalid, "\"ns/..\""),
            ("a?x=y".to_owned(), NetworkDefinitionInvalid, "\"ns/a?x=y\""),
            ("ns/a/b".to_owned(), NetworkDefinitionInvalid, "\"ns/a/b\""),
            ("Ns/a".to_owned(), NetworkDefinitionInvalid, "\"Ns/a\""),
            ("-n/a".to_owned(), NetworkDefinitionInvalid, "\"-n/a\""),
            ("ns/a-".to_owned(), NetworkDefinitionInvalid, "\"ns/a-\""),
            (
                "ns/a.-b".to_owned(),
                NetworkDefinitionInvalid,
                "\"ns/a.-b\"",
            ),
            (
                "other/a".to_owned(),
                NetworkDefinitionMissing,
                "other/a is in another namespace",
            ),
            (
                item(json!({"cni-args": {"logicNetworkName": "x"}})),
                NetworkDefinitionNotSupported,
                "cni-args",
            ),
            (
                item(json!({"ips": ["10.0.0.1"]})),
                NetworkDefinitionNotSupported,
                "ips",
            ),
        ] {
            let failure = Networks::of(&with_networks(&text)).unwrap_err();
            assert_eq!(failure.reason, reason, "{text}");
            assert!(failure.message.contains(named), "{}", failure.message);
        }
    }

    #[test]
    fn running_pod_leaves_and_joins_networks_by_interface() {
        let joined = |network: &str, interface: &str| Joined {
            network: network.to_owned(),
            interface: interface.to_owned(),
            mac: String::new(),
            ips: Vec::new(),
        };
        let check = |before: &[Joined], text: &str, expected: (&[&str], &[&str])| {
            let wanted = Networks::of(&with_networks(text)).unwrap();
            let found = changes(before, &wanted);
            let leave: Vec<_> = found.leave.iter().map(|one| &*one.interface).collect();
            let join: Vec<_> = found.join.iter().map(|one| &*one.interface).collect();
            assert_eq!((&*leave, &*join), expected, "{text}");
        };
        let has = [joined("ns/a", "x0"), joined("default/d", "eth0")];
        check(&has, "a@x0", (&[], &[]));
        check(&has, "a@x0,b@x1", (&[], &["x1"]));
        check(&has, "", (&["x0"], &[]));
        check(&has, "b@x0", (&["x0"], &["x0"]));
        check(&[], "a@x0", (&[], &["x0"]));
        let ips = ["10.244.0.5".parse().unwrap()];
        let empty: Value = serde_json::from_str(&list(&ips, &[])).unwrap();
        assert_eq!(empty[0]["interface"], "eth0");
        assert_eq!(empty.as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn report_has_the_format_of_the_standard() {
        let joined = |network: &str, interface: &str, ips: &[&str]| Joined {
            network: network.to_owned(),
            interface: interface.to_owned(),
            mac: "02:00:00:00:00:0b".to_owned(),
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        };
        let read =
            |text: Option<String>| -> Value { serde_json::from_str(&text.unwrap()).unwrap() };
        let ips = ["10.244.0.5".parse().unwrap()];
        assert_eq!(report(&ips, &[]), None);
        assert_eq!(
            read(report(&ips, &[joined("ns/a", "podabc", &[])])),
            json!([
                {"name": "ferrovirt", "interface": "eth0", "ips": ["10.244.0.5"], "default": true, "dns": {}},
                {"name": "ns/a", "interface": "podabc", "mac": "02:00:00:00:00:0b", "dns": {}},
            ])
        );
        assert_eq!(
            read(report(&ips, &[joined("ns/a", "eth0", &["10.244.0.5"])])),
            json!([{"name": "ns/a", "interface": "eth0", "mac": "02:00:00:00:00:0b", "dns": {},
                "ips": ["10.244.0.5"], "default": true}])
        );
    }
}
