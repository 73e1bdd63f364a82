//! The columns of the built-in kinds.

use serde_json::Value;

use super::{Column, Layout, Row, age_cell, pod, storage};
use crate::meta;

pub(super) fn layout(group: &str, plural: &str) -> Layout {
    let columns = match (group, plural) {
        ("", "pods") => {
            return Layout {
                columns: pod::columns(),
                conditions: Some(pod::conditions),
            };
        }
        ("", "nodes") => nodes(),
        ("", "namespaces") => vec![
            name(),
            Column::of("Status", "string", 0, |row| {
                text(&row.object["status"]["phase"])
            }),
            age(),
        ],
        ("", "configmaps") => vec![name(), Column::of("Data", "string", 0, data), age()],
        ("", "secrets") => vec![
            name(),
            Column::of("Type", "string", 0, |row| text(&row.object["type"])),
            Column::of("Data", "string", 0, data),
            age(),
        ],
        ("", "serviceaccounts") => vec![
            name(),
            Column::of("Secrets", "string", 0, |row| {
                list(&row.object["secrets"]).len().to_string().into()
            }),
            age(),
        ],
        ("" | "events.k8s.io", "events") => events(),
        ("coordination.k8s.io", "leases") => vec![
            name(),
            Column::of("Holder", "string", 0, |row| {
                text(&row.object["spec"]["holderIdentity"])
            }),
            age(),
        ],
        ("", "services") => services(),
        ("", "endpoints") => vec![
            name(),
            Column::of("Endpoints", "string", 0, endpoints),
            age(),
        ],
        ("", "persistentvolumeclaims") => storage::claims(),
        ("", "persistentvolumes") => storage::volumes(),
        ("storage.k8s.io", "storageclasses") => storage::classes(),
        ("policy", "poddisruptionbudgets") => budgets(),
        ("networking.k8s.io", "networkpolicies") => network_policies(),
        ("discovery.k8s.io", "endpointslices") => slices(),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => bindings(),
        ("apps", "controllerrevisions") => revisions(),
        ("scheduling.k8s.io", "priorityclasses") => priority_classes(),
        ("apiregistration.k8s.io", "apiservices") => api_services(),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => vec![
            name(),
            Column::of("Webhooks", "integer", 0, |row| {
                list(&row.object["webhooks"]).len().into()
            }),
            age(),
        ],
        _ => vec![
            name(),
            Column::of("Created At", "date", 0, |row| {
                text(&row.object["metadata"]["creationTimestamp"])
            }),
        ],
    };
    Layout {
        columns,
        conditions: None,
    }
}

pub(super) fn name() -> Column {
    Column::of("Name", "string", 0, |row| meta::name(row.object).into())
}

pub(super) fn age() -> Column {
    Column::of("Age", "date", 0, age_cell)
}

pub(super) fn text(value: &Value) -> Value {
    value.as_str().unwrap_or_default().into()
}

pub(super) fn or(value: &Value, absent: &str) -> Value {
    value
        .as_str()
        .filter(|text| !text.is_empty())
        .unwrap_or(absent)
        .into()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn data(row: &Row<'_>) -> Value {
    let count = |key: &str| row.object[key].as_object().map_or(0, serde_json::Map::len);
    (count("data") + count("binaryData")).into()
}

fn nodes() -> Vec<Column> {
    fn info(row: &Row<'_>, key: &str) -> Value {
        or(&row.object["status"]["nodeInfo"][key], "<unknown>")
    }
    fn address(row: &Row<'_>, kind: &str) -> Value {
        let found = list(&row.object["status"]["addresses"])
            .iter()
            .find(|a| a["type"] == kind);
        found.map_or_else(|| "<none>".into(), |a| text(&a["address"]))
    }
    vec![
        name(),
        Column::of("Status", "string", 0, node_status),
        Column::of("Roles", "string", 0, node_roles),
        age(),
        Column::of("Version", "string", 0, |row| {
            text(&row.object["status"]["nodeInfo"]["kubeletVersion"])
        }),
        Column::of("Internal-IP", "string", 1, |row| address(row, "InternalIP")),
        Column::of("External-IP", "string", 1, |row| address(row, "ExternalIP")),
        Column::of("OS-Image", "string", 1, |row| info(row, "osImage")),
        Column::of("Kernel-Version", "string", 1, |row| {
            info(row, "kernelVersion")
        }),
        Column::of("Container-Runtime", "string", 1, |row| {
            info(row, "containerRuntimeVersion")
        }),
    ]
}

fn node_status(row: &Row<'_>) -> Value {
    let conditions = list(&row.object["status"]["conditions"]);
    let mut states = vec![match conditions.iter().find(|c| c["type"] == "Ready") {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if row.object["spec"]["unschedulable"] == true {
        states.push("SchedulingDisabled");
    }
    states.join(",").into()
}

fn node_roles(row: &Row<'_>) -> Value {
    let mut roles: Vec<&str> = meta::labels(row.object)
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) if !role.is_empty() => Some(role),
                None if key == "kubernetes.io/role" && !value.is_empty() => Some(value),
                _ => None,
            },
        )
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        "<none>".into()
    } else {
        roles.join(",").into()
    }
}

fn events() -> Vec<Column> {
    fn involved(row: &Row<'_>) -> Value {
        let about = match &row.object["involvedObject"] {
            Value::Null => &row.object["regarding"],
            about => about,
        };
        about.clone()
    }
    fn object(row: &Row<'_>) -> Value {
        let about = involved(row);
        let kind = about["kind"].as_str().unwrap_or_default().to_lowercase();
        format!("{kind}/{}", about["name"].as_str().unwrap_or_default()).into()
    }
    fn source(row: &Row<'_>) -> Value {
        let event = row.object;
        let from = |source: &Value| {
            let component = source["component"].as_str().filter(|c| !c.is_empty())?;
            let host = source["host"].as_str().filter(|h| !h.is_empty());
            Some(host.map_or_else(
                || component.to_owned(),
                |host| format!("{component}, {host}"),
            ))
        };
        from(&event["source"])
            .or_else(|| from(&event["deprecatedSource"]))
            .unwrap_or_else(|| {
                let key = if event["reportingController"].is_string() {
                    "reportingController"
                } else {
                    "reportingComponent"
                };
                event[key].as_str().unwrap_or_default().to_owned()
            })
            .into()
    }
    vec![
        Column::of("Last Seen", "string", 0, |row| {
            event_time(row, Moment::Last).into()
        }),
        Column::of("Type", "string", 0, |row| text(&row.object["type"])),
        Column::of("Reason", "string", 0, |row| text(&row.object["reason"])),
        Column::of("Object", "string", 0, object),
        Column::of("Subobject", "string", 1, |row| {
            text(&involved(row)["fieldPath"])
        }),
        Column::of("Source", "string", 1, source),
        Column::of("Message", "string", 0, |row| {
            let message = row.object["message"]
                .as_str()
                .or(row.object["note"].as_str());
            message.unwrap_or_default().trim().into()
        }),
        Column::of("First Seen", "string", 1, |row| {
            event_time(row, Moment::First).into()
        }),
        Column::of("Count", "string", 1, |row| {
            let event = row.object;
            let count = event["series"]["count"]
                .as_i64()
                .or(event["count"].as_i64());
            count
                .filter(|count| *count > 0)
                .unwrap_or(1)
                .to_string()
                .into()
        }),
        Column::of("Name", "string", 1, |row| meta::name(row.object).into()),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    First,
    Last,
}

fn event_time(row: &Row<'_>, moment: Moment) -> String {
    let event = row.object;
    let own = if moment == Moment::First {
        "firstTimestamp"
    } else {
        "lastTimestamp"
    };
    let series = match &event["series"]["lastObservedTime"] {
        time if moment == Moment::Last && time.is_string() => Some(time),
        _ => None,
    };
    let times = [series, Some(&event[own]), Some(&event["eventTime"])];
    let found = times.into_iter().flatten().find(|time| time.is_string());
    found.map_or_else(|| "<unknown>".to_owned(), |time| row.since(time))
}

fn services() -> Vec<Column> {
    fn ports(row: &Row<'_>) -> Value {
        let one = |port: &Value| {
            let number = port["port"].as_i64().unwrap_or_default();
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64().filter(|node| *node > 0) {
                Some(node) => format!("{number}:{node}/{protocol}"),
                None => format!("{number}/{protocol}"),
            }
        };
        let all: Vec<String> = list(&row.object["spec"]["ports"]).iter().map(one).collect();
        if all.is_empty() {
            "<none>".into()
        } else {
            all.join(",").into()
        }
    }
    fn external(row: &Row<'_>) -> Value {
        let (spec, status) = (&row.object["spec"], &row.object["status"]);
        let ips = list(&spec["externalIPs"]).iter().filter_map(Value::as_str);
        let ingress = list(&status["loadBalancer"]["ingress"]).iter();
        let ingress = ingress.filter_map(|i| i["ip"].as_str().or(i["hostname"].as_str()));
        let balanced = spec["type"] == "LoadBalancer";
        let all: Vec<&str> = ingress.filter(|_| balanced).chain(ips).collect();
        match (spec["type"].as_str(), all.is_empty()) {
            (Some("ExternalName"), _) => text(&spec["externalName"]),
            (_, false) => all.join(",").into(),
            (Some("LoadBalancer"), true) => "<pending>".into(),
            (_, true) => "<none>".into(),
        }
    }
    vec![
        name(),
        Column::of("Type", "string", 0, |row| text(&row.object["spec"]["type"])),
        Column::of("Cluster-IP", "string", 0, |row| {
            or(&row.object["spec"]["clusterIP"], "<none>")
        }),
        Column::of("External-IP", "string", 0, external),
        Column::of("Port(s)", "string", 0, ports),
        age(),
        Column::of("Selector", "string", 1, |row| {
            let pairs = row.object["spec"]["selector"]
                .as_object()
                .into_iter()
                .flatten();
            let mut pairs: Vec<String> = pairs
                .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
                .collect();
            pairs.sort();
            if pairs.is_empty() {
                "<none>".into()
            } else {
                pairs.join(",").into()
            }
        }),
    ]
}

fn endpoints(row: &Row<'_>) -> Value {
    const SHOWN: usize = 3;
    let mut all = Vec::new();
    for subset in list(&row.object["subsets"]) {
        for address in list(&subset["addresses"]) {
            let ip = address["ip"].as_str().unwrap_or_default();
            let ports = list(&subset["ports"]);
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(
                ports
                    .iter()
                    .filter_map(|p| p["port"].as_i64())
                    .map(|p| format!("{ip}:{p}")),
            );
        }
    }
    match all.len() {
        0 => "<none>".into(),
        count if count > SHOWN => {
            let first = all
                .iter()
                .take(SHOWN)
                .cloned()
                .collect::<Vec<_>>()
                .join(",");
            format!("{first} + {} more...", count - SHOWN).into()
        }
        _ => all.join(",").into(),
    }
}

fn api_services() -> Vec<Column> {
    vec![
        name(),
        Column::of("Service", "string", 0, |row| {
            let service = &row.object["spec"]["service"];
            let part = |key: &str| service[key].as_str().unwrap_or_default();
            if service.is_object() {
                format!("{}/{}", part("namespace"), part("name")).into()
            } else {
                "Local".into()
            }
        }),
        Column::of("Available", "string", 0, |row| {
            let conditions = list(&row.object["status"]["conditions"]);
            match conditions.iter().find(|c| c["type"] == "Available") {
                Some(c) if c["status"] == "True" => "True".into(),
                Some(c) => {
                    let part = |key: &str| c[key].as_str().unwrap_or_default();
                    format!("{} ({})", part("status"), part("reason")).into()
                }
                None => "Unknown".into(),
            }
        }),
        age(),
    ]
}

fn network_policies() -> Vec<Column> {
    vec![
        name(),
        Column::of("Pod-Selector", "string", 0, |row| {
            selector(&row.object["spec"]["podSelector"]).into()
        }),
        age(),
    ]
}

/// A label selector in the form that `kubectl --selector` reads.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object();
    let labels = labels.into_iter().flatten().map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        format!("{key}={value}")
    });
    let expressions = list(&selector["matchExpressions"]).iter().map(|one| {
        let key = one["key"].as_str().unwrap_or_default();
        let values = list(&one["values"]).iter().filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        match one["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    });
    let all: Vec<String> = labels.chain(expressions).collect();
    if all.is_empty() {
        "<none>".to_owned()
    } else {
        all.join(",")
    }
}

fn budgets() -> Vec<Column> {
    fn amount(row: &Row<'_>, field: &str) -> Value {
        match &row.object["spec"][field] {
            Value::Null => "N/A".into(),
            Value::Number(number) => number.to_string().into(),
            other => other.clone(),
        }
    }
    vec![
        name(),
        Column::of("Min Available", "string", 0, |row| {
            amount(row, "minAvailable")
        }),
        Column::of("Max Unavailable", "string", 0, |row| {
            amount(row, "maxUnavailable")
        }),
        Column::of("Allowed Disruptions", "integer", 0, |row| {
            let allowed = &row.object["status"]["disruptionsAllowed"];
            allowed.as_i64().unwrap_or_default().into()
        }),
        age(),
    ]
}

fn slices() -> Vec<Column> {
    const SHOWN: usize = 3;
    fn short(all: &[String]) -> Value {
        let first = all.iter().take(SHOWN).cloned().collect::<Vec<_>>();
        match all.len() {
            0 => "<unset>".into(),
            count if count > SHOWN => {
                format!("{} + {} more...", first.join(","), count - SHOWN).into()
            }
            _ => first.join(",").into(),
        }
    }
    vec![
        name(),
        Column::of("AddressType", "string", 0, |row| {
            text(&row.object["addressType"])
        }),
        Column::of("Ports", "string", 0, |row| {
            let one = |port: &Value| match (port["port"].as_i64(), port["name"].as_str()) {
                (Some(number), _) => number.to_string(),
                (None, Some(name)) => name.to_owned(),
                (None, None) => "*".to_owned(),
            };
            let ports: Vec<String> = list(&row.object["ports"]).iter().map(one).collect();
            short(&ports)
        }),
        Column::of("Endpoints", "string", 0, |row| {
            let addresses = list(&row.object["endpoints"]).iter();
            let addresses = addresses.flat_map(|endpoint| list(&endpoint["addresses"]));
            let found: Vec<String> = addresses
                .filter_map(Value::as_str)
                .map(ToOwned::to_owned)
                .collect();
            short(&found)
        }),
        age(),
    ]
}

fn bindings() -> Vec<Column> {
    fn subjects(row: &Row<'_>, kind: &str) -> Value {
        let one = |subject: &Value| {
            let part = |key: &str| subject[key].as_str().unwrap_or_default();
            match kind {
                "ServiceAccount" => format!("{}/{}", part("namespace"), part("name")),
                _ => part("name").to_owned(),
            }
        };
        let found: Vec<String> = list(&row.object["subjects"])
            .iter()
            .filter(|subject| subject["kind"] == kind)
            .map(one)
            .collect();
        found.join(", ").into()
    }
    vec![
        name(),
        Column::of("Role", "string", 0, |row| {
            let role = &row.object["roleRef"];
            let part = |key: &str| role[key].as_str().unwrap_or_default();
            format!("{}/{}", part("kind"), part("name")).into()
        }),
        Column::of("Age", "string", 0, age_cell),
        Column::of("Users", "string", 1, |row| subjects(row, "User")),
        Column::of("Groups", "string", 1, |row| subjects(row, "Group")),
        Column::of("ServiceAccounts", "string", 1, |row| {
            subjects(row, "ServiceAccount")
        }),
    ]
}

fn revisions() -> Vec<Column> {
    vec![
        name(),
        Column::of("Controller", "string", 0, |row| {
            let owner = meta::owner_references(row.object).find(|owner| owner.controller);
            let Some(owner) = owner else {
                return "<none>".into();
            };
            let (group, _) = crate::resource::split_api_version(owner.api_version);
            let kind = owner.kind.to_lowercase();
            if group.is_empty() {
                format!("{kind}/{}", owner.name).into()
            } else {
                format!("{kind}.{group}/{}", owner.name).into()
            }
        }),
        Column::of("Revision", "string", 0, |row| {
            row.object["revision"].clone()
        }),
        age(),
    ]
}

fn priority_classes() -> Vec<Column> {
    vec![
        name(),
        Column::of("Value", "integer", 0, |row| {
            row.object["value"].as_i64().unwrap_or_default().into()
        }),
        Column::of("Global-Default", "boolean", 0, |row| {
            let default = row.object["globalDefault"].as_bool();
            default.unwrap_or_default().into()
        }),
        age(),
        Column::of("PreemptionPolicy", "string", 0, |row| {
            or(&row.object["preemptionPolicy"], "PreemptLowerPriority")
        }),
    ]
}
