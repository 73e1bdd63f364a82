//! Pods: defaults and validation.

use apimachinery::{Violation, names};
use serde_json::{Value, json};

use super::{
    DeletionResponse, InitialStatus, Strategy, amounts,
    fields::{check_enum, each, fill, fill_absent},
};

pub(crate) const POD: Strategy = Strategy {
    default: |pod| {
        default(pod);
        complete_status(pod);
    },
    validate,
    initial_status: InitialStatus::Dropped,
    deletion: DeletionResponse::Object,
    ..Strategy::PLAIN
};

fn default(pod: &mut Value) {
    if !pod["spec"].is_object() {
        return;
    }
    for (field, value) in [
        ("restartPolicy", "Always"),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ] {
        fill(&mut pod["spec"], field, value);
    }
    for (field, value) in [
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
    ] {
        fill_absent(&mut pod["spec"], field, value);
    }
    for list in ["containers", "initContainers"] {
        each(&mut pod["spec"], list, default_container);
    }
    each(&mut pod["spec"], "volumes", |volume| {
        for (source, mode) in [("configMap", 420), ("secret", 420), ("downwardAPI", 420)] {
            if volume[source].is_object() {
                fill_absent(&mut volume[source], "defaultMode", mode);
            }
        }
        if volume["downwardAPI"].is_object() {
            each(&mut volume["downwardAPI"], "items", |item| {
                if item["fieldRef"].is_object() {
                    fill(&mut item["fieldRef"], "apiVersion", "v1");
                }
            });
        }
        if volume["hostPath"].is_object() {
            fill_absent(&mut volume["hostPath"], "type", "");
        }
        if volume["image"].is_object() {
            let policy = pull_policy(volume["image"]["reference"].as_str().unwrap_or_default());
            fill(&mut volume["image"], "pullPolicy", policy);
        }
    });
    let class = qos_class(pod);
    fill(
        pod,
        "status",
        json!({"phase": "Pending", "qosClass": class}),
    );
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    fill(container, "imagePullPolicy", policy);
    fill(container, "resources", json!({}));
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    each(container, "ports", |port| fill(port, "protocol", "TCP"));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[probe].is_object() {
            default_probe(&mut container[probe]);
        }
    }
    each(container, "env", |variable| {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field, "apiVersion", "v1");
        }
    });
    for part in ["limits", "requests"] {
        amounts::as_text(container["resources"].get_mut(part));
    }
    // Limits are the default of requests.
    let limits = container["resources"]["limits"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for (name, amount) in limits {
        if container["resources"]["requests"][&name].is_null() {
            container["resources"]["requests"][&name] = amount;
        }
    }
}

fn default_probe(probe: &mut Value) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        fill(probe, field, value);
    }
    if probe["httpGet"].is_object() {
        fill(&mut probe["httpGet"], "path", "/");
        fill(&mut probe["httpGet"], "scheme", "HTTP");
    }
    if probe["grpc"].is_object() {
        fill_absent(&mut probe["grpc"], "service", "");
    }
}

/// Status fields that are always visible, even if unset.
fn complete_status(pod: &mut Value) {
    each(&mut pod["status"], "conditions", |condition| {
        for field in ["lastProbeTime", "lastTransitionTime"] {
            fill(condition, field, Value::Null);
        }
    });
    // The first address is in two fields.
    if let Some(first) = pod.pointer("/status/podIPs/0/ip").cloned() {
        fill(&mut pod["status"], "podIP", first);
    }
}

fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    if name.contains('@') {
        return "IfNotPresent";
    }
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

/// The quality-of-service class, which decides which pods are evicted first under memory pressure.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten();
    let (mut any, mut all) = (false, true);
    for container in containers {
        let resources = &container["resources"];
        for name in ["cpu", "memory"] {
            let (limit, request) = (&resources["limits"][name], &resources["requests"][name]);
            any |= !limit.is_null() || !request.is_null();
            all &= !limit.is_null() && limit == request;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn validate(live: Option<&Value>, pod: &Value) -> Vec<Violation> {
    let mut wrong = check_containers(pod);
    if live.is_none() {
        wrong.extend(check_resources(pod));
    }
    wrong.extend(check_sysctls(pod));
    check_enum(
        &pod["spec"],
        "spec",
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        &mut wrong,
    );
    check_enum(
        &pod["spec"],
        "spec",
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        &mut wrong,
    );
    if let Some(live) = live
        && frozen(&live["spec"]) != frozen(&pod["spec"])
    {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        wrong.push(Violation::forbidden("spec", why));
    }
    wrong
}

fn check_resources(pod: &Value) -> Vec<Violation> {
    let of_list = |list: &'static str| {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        let containers = containers.enumerate();
        containers.flat_map(move |(at, container)| {
            let path = format!("spec.{list}[{at}].resources");
            amounts::check_resources(&container["resources"], &path)
        })
    };
    let mut wrong: Vec<Violation> = of_list("containers").collect();
    wrong.extend(of_list("initContainers"));
    wrong
}

/// Names only: whether a sysctl is safe is the node's decision.
fn check_sysctls(pod: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    let sysctls = pod["spec"]["securityContext"]["sysctls"].as_array();
    for (at, sysctl) in sysctls.into_iter().flatten().enumerate() {
        let path = format!("spec.securityContext.sysctls[{at}].name");
        let name = sysctl["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            wrong.push(Violation::required(path, ""));
        } else if !is_sysctl(name) {
            let why = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            wrong.push(Violation::invalid(path, name, why));
        } else if !seen.insert(name) {
            wrong.push(Violation::duplicate(path, name));
        }
    }
    wrong
}

/// Segments between dots or slashes, each of lower-case letters, digits and inner dashes.
fn is_sysctl(name: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_inner = |c: char| is_end(Some(c)) || c == '-' || c == '_';
    let is_segment = |text: &str| {
        is_end(text.chars().next()) && is_end(text.chars().last()) && text.chars().all(is_inner)
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_segment)
}

fn check_containers(pod: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let containers = items(&pod["spec"]["containers"]);
    if containers.is_empty() {
        wrong.push(Violation::required("spec.containers", ""));
    }
    let volumes: Vec<Value> = items(&pod["spec"]["volumes"])
        .iter()
        .map(|volume| volume["name"].clone())
        .collect();
    let mut names = std::collections::BTreeSet::new();
    for (at, container) in containers.iter().enumerate() {
        let path = format!("spec.containers[{at}]");
        let name = container["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            wrong.push(Violation::required(format!("{path}.name"), ""));
        } else {
            let found = names::dns_label(name).into_iter();
            wrong.extend(found.map(|why| Violation::invalid(format!("{path}.name"), name, why)));
            if !names.insert(name) {
                wrong.push(Violation::duplicate(format!("{path}.name"), name));
            }
        }
        if container["image"].as_str().unwrap_or_default().is_empty() {
            wrong.push(Violation::required(format!("{path}.image"), ""));
        }
        check_enum(
            container,
            &path,
            "imagePullPolicy",
            &["Always", "IfNotPresent", "Never"],
            &mut wrong,
        );
        for (index, mount) in items(&container["volumeMounts"]).iter().enumerate() {
            let path = format!("{path}.volumeMounts[{index}]");
            let name = &mount["name"];
            if name.as_str().unwrap_or_default().is_empty() {
                wrong.push(Violation::required(format!("{path}.name"), ""));
            } else if !volumes.contains(name) {
                wrong.push(Violation::not_found(format!("{path}.name"), name.clone()));
            }
            if mount["mountPath"].as_str().unwrap_or_default().is_empty() {
                wrong.push(Violation::required(format!("{path}.mountPath"), ""));
            }
        }
    }
    wrong
}

/// The immutable part of a pod's spec.
fn frozen(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Value::Object(fields) = &mut spec {
        for free in ["activeDeadlineSeconds", "tolerations"] {
            fields.shift_remove(free);
        }
    }
    for list in ["containers", "initContainers"] {
        each(&mut spec, list, |container| {
            if let Value::Object(fields) = container {
                fields.shift_remove("image");
            }
        });
    }
    spec
}
