//! Requests and limits of containers: in kernel units, the `QoS` class of a pod, and its OOM scores.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use kubevirt_api::quantity::Amount;
use pod_supervisor::model::Resources;
use reasons::Reason;

use crate::Failure;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
/// The minimums of the kernel.
const MIN_SHARES: u64 = 2;
const MIN_QUOTA: i64 = 1000;

pub(crate) fn for_kernel(container: &Container) -> Result<Resources, Failure> {
    let request = amount(container, Side::Requests, CPU)?;
    let limit = amount(container, Side::Limits, CPU)?;
    let memory = amount(container, Side::Limits, MEMORY)?;
    let shares = request
        .or(limit)
        .map_or(MIN_SHARES, |cpu| cpu.millis() * 1024 / 1000);
    Ok(Resources {
        cpu_shares: Some(shares.max(MIN_SHARES)),
        cpu_quota: limit.map(|cpu| {
            i64::try_from(cpu.millis() * 100)
                .unwrap_or(i64::MAX)
                .max(MIN_QUOTA)
        }),
        cpus: None,
        memory_bytes: memory.map(|bytes| i64::try_from(bytes.units()).unwrap_or(i64::MAX)),
        pids: None,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Requests,
    Limits,
}

pub(crate) fn amount(
    container: &Container,
    side: Side,
    name: &str,
) -> Result<Option<Amount>, Failure> {
    quantity(container, side, name)
        .map(|quantity| {
            Amount::parse(quantity)
                .map_err(|error| Failure::of(Reason::CreateContainerConfigError, name, &error))
        })
        .transpose()
}

fn quantity<'a>(container: &'a Container, side: Side, name: &str) -> Option<&'a Quantity> {
    let resources = container.resources.as_ref()?;
    match side {
        Side::Requests => resources.requests.as_ref()?.get(name),
        Side::Limits => resources.limits.as_ref()?.get(name),
    }
}

/// The `QoS` class, as Kubernetes defines it.
pub(crate) fn qos_class(pod: &Pod) -> &'static str {
    let Some(spec) = &pod.spec else {
        return "BestEffort";
    };
    let containers = || {
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
    };
    let value = |container: &Container, side, name| {
        amount(container, side, name)
            .ok()
            .flatten()
            .map(Amount::millis)
    };
    let names = [CPU, MEMORY];
    let any = containers().any(|one| {
        names.iter().any(|name| {
            value(one, Side::Requests, name).is_some() || value(one, Side::Limits, name).is_some()
        })
    });
    if !any {
        return "BestEffort";
    }
    let all = containers().all(|one| {
        names.iter().all(|name| {
            let limit = value(one, Side::Limits, name);
            // A missing request defaults to the limit.
            limit.is_some() && value(one, Side::Requests, name).is_none_or(|r| Some(r) == limit)
        })
    });
    if all { "Guaranteed" } else { "Burstable" }
}

/// The OOM score of a container, as a kubelet sets it: guaranteed pods are ended last, and of the burstable
/// ones those that requested the smallest share of the node's memory are ended first.
pub(crate) fn oom_score(
    pod: &Pod,
    container: &Container,
    allocatable: &BTreeMap<String, Quantity>,
) -> i32 {
    const GUARANTEED: i32 = -997;
    const BEST_EFFORT: i32 = 1000;
    match qos_class(pod) {
        "Guaranteed" => GUARANTEED,
        "BestEffort" => BEST_EFFORT,
        _ => {
            let requested = amount(container, Side::Requests, MEMORY).ok().flatten();
            let requested = requested.map_or(0, Amount::units);
            let memory = allocatable.get(MEMORY).map(Amount::parse);
            let memory = memory.and_then(Result::ok).map_or(0, Amount::units);
            let share = requested.saturating_mul(1000).checked_div(memory);
            let share = share.and_then(|share| i32::try_from(share).ok());
            // Between the two other classes, whatever was requested.
            (BEST_EFFORT - share.unwrap_or(0).clamp(0, BEST_EFFORT))
                .clamp(BEST_EFFORT + GUARANTEED, BEST_EFFORT - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(resources: &serde_json::Value) -> Container {
        serde_json::from_value(json!({"name": "c", "resources": resources})).unwrap()
    }

    #[test]
    fn quantities_are_converted_to_kernel_units() {
        for (resources, shares, quota, memory) in [
            (json!({}), 2, None, None),
            (json!({"requests": {"cpu": "500m"}}), 512, None, None),
            (
                json!({"limits": {"cpu": "2", "memory": "64Mi"}}),
                2048,
                Some(200_000),
                Some(64 << 20),
            ),
            (json!({"limits": {"cpu": "1m"}}), 2, Some(1000), None),
        ] {
            let got = for_kernel(&container(&resources)).unwrap();
            assert_eq!(got.cpu_shares, Some(shares), "{resources}");
            assert_eq!(
                (got.cpu_quota, got.memory_bytes),
                (quota, memory),
                "{resources}"
            );
        }
        let error = for_kernel(&container(&json!({"limits": {"memory": "lots"}}))).unwrap_err();
        assert_eq!(error.reason, "CreateContainerConfigError");
    }

    #[test]
    fn oom_score_follows_class_and_requested_memory() {
        let score = |resources: serde_json::Value, node: Option<&str>| {
            let container = container(&resources);
            let pod = Pod {
                spec: Some(k8s_openapi::api::core::v1::PodSpec {
                    containers: vec![container.clone()],
                    ..Default::default()
                }),
                ..Pod::default()
            };
            let memory = node.map(|node| (MEMORY.to_owned(), Quantity(node.to_owned())));
            oom_score(&pod, &container, &memory.into_iter().collect())
        };
        let memory = |request: &str| json!({"requests": {"memory": request}});
        for (resources, node, expected) in [
            (json!({}), Some("4Gi"), 1000),
            (
                json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
                Some("4Gi"),
                -997,
            ),
            (memory("1Gi"), Some("4Gi"), 750),
            (memory("1Mi"), Some("4Gi"), 999),
            (memory("4Gi"), Some("4Gi"), 3),
            (memory("64Gi"), Some("4Gi"), 3),
            (json!({"requests": {"cpu": "1"}}), Some("4Gi"), 999),
            (memory("1Gi"), None, 999),
        ] {
            assert_eq!(
                score(resources.clone(), node),
                expected,
                "{resources} {node:?}"
            );
        }
    }

    #[test]
    fn qos_class_follows_requests_and_limits() {
        let pod = |resources: serde_json::Value| -> Pod {
            serde_json::from_value(json!({
                "spec": {"containers": [{"name": "c", "resources": resources}]}
            }))
            .unwrap()
        };
        for (resources, expected) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (
                json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
                "Guaranteed",
            ),
            (
                json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
                "Burstable",
            ),
            (
                json!({"limits": {"devices.kubevirt.io/kvm": "1"}}),
                "BestEffort",
            ),
        ] {
            assert_eq!(qos_class(&pod(resources.clone())), expected, "{resources}");
        }
    }
}
