//! CPU, memory and the type of the machine.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{domain::IoThreadsPolicy, quantity::Amount};

use super::Input;
use crate::{cluster_config::Rollout, violation::Violation};

const FEATURE_POLICIES: &[&str] = &["", "force", "require", "optional", "disable", "forbid"];
/// Below this a number of bytes is surely meant as megabytes.
const LEAST_MEMORY: u64 = 1_000_000;

pub(super) fn memory_is_given(input: &Input<'_>) -> Vec<Violation> {
    let domain = &input.spec.domain;
    let memory = domain.memory.as_ref();
    let is_given = memory
        .is_some_and(|memory| memory.guest.is_some() || memory.hugepages.is_some())
        || domain
            .resources
            .as_ref()
            .is_some_and(|r| r.requests.contains_key("memory"));
    if is_given {
        return Vec::new();
    }
    let detail = "no size of the memory; set domain.memory.guest, for example to 1Gi";
    vec![input.required("domain.memory", detail)]
}

pub(super) fn memory_quantities(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let request = amount(input, "requests", "memory", &mut found);
    let limit = amount(input, "limits", "memory", &mut found);
    let memory = input.spec.domain.memory.clone().unwrap_or_default();
    let guest = memory
        .guest
        .as_ref()
        .and_then(|guest| number(input, "domain.memory.guest", guest, &mut found));
    if let Some(max) = &memory.max_guest {
        number(input, "domain.memory.maxGuest", max, &mut found);
    }
    for (field, amount) in [
        ("domain.resources.requests.memory", request),
        ("domain.memory.guest", guest),
    ] {
        if amount.is_some_and(|amount| amount < Amount::of(LEAST_MEMORY)) {
            let detail = "less than a megabyte; write the unit, for example 128Mi";
            found.push(input.invalid(field, detail));
        }
    }
    if let (Some(request), Some(limit)) = (request, limit)
        && request > limit
    {
        let detail = "above limits.memory; lower it or raise the limit";
        found.push(input.invalid("domain.resources.requests.memory", detail));
    }
    if let (Some(guest), Some(limit)) = (guest, limit)
        && guest > limit
        && input.config.rollout != Rollout::LiveUpdate
    {
        let detail = "above resources.limits.memory; lower it or raise the limit";
        found.push(input.invalid("domain.memory.guest", detail));
    }
    found
}

pub(super) fn cpu_quantities(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let request = amount(input, "requests", "cpu", &mut found);
    let limit = amount(input, "limits", "cpu", &mut found);
    if let (Some(request), Some(limit)) = (request, limit)
        && request > limit
    {
        let detail = "above limits.cpu; lower it or raise the limit";
        found.push(input.invalid("domain.resources.requests.cpu", detail));
    }
    found
}

pub(super) fn cpu_topology(input: &Input<'_>) -> Vec<Violation> {
    let cpu = input.spec.domain.cpu.clone().unwrap_or_default();
    let (sockets, max) = (cpu.sockets.unwrap_or(0), cpu.max_sockets.unwrap_or(0));
    if max == 0 || sockets <= max {
        return Vec::new();
    }
    let detail = format!("{sockets} sockets, but maxSockets is {max}; raise maxSockets");
    vec![input.invalid("domain.cpu.sockets", detail)]
}

pub(super) fn cpu_features(input: &Input<'_>) -> Vec<Violation> {
    let cpu = input.spec.domain.cpu.clone().unwrap_or_default();
    let mut found = Vec::new();
    for (i, feature) in cpu.features.iter().enumerate() {
        let policy = feature.policy.as_deref().unwrap_or_default();
        if !FEATURE_POLICIES.contains(&policy) {
            let detail =
                format!("{policy:?} is unknown; use force, require, optional, disable or forbid");
            found.push(input.not_supported(&format!("domain.cpu.features[{i}].policy"), detail));
        }
    }
    let model = cpu.model.as_deref().unwrap_or_default();
    if input.architecture() == "arm64" && !["host-passthrough", ""].contains(&model) {
        let detail = format!("{model:?} does not work on arm64; use host-passthrough");
        found.push(input.not_supported("domain.cpu.model", detail));
    }
    found
}

pub(super) fn cpu_isolation(input: &Input<'_>) -> Vec<Violation> {
    let cpu = input.spec.domain.cpu.clone().unwrap_or_default();
    if cpu.isolate_emulator_thread != Some(true) || cpu.dedicated_cpu_placement == Some(true) {
        return Vec::new();
    }
    let detail = "needs dedicatedCpuPlacement: true";
    vec![input.invalid("domain.cpu.isolateEmulatorThread", detail)]
}

pub(super) fn machine(input: &Input<'_>) -> Vec<Violation> {
    let machine = input
        .spec
        .domain
        .machine
        .clone()
        .unwrap_or_default()
        .type_
        .unwrap_or_default();
    let Some(machines) = input.config.machines.get(input.architecture()) else {
        return Vec::new();
    };
    if machine.is_empty() || machines.allow(&machine) {
        return Vec::new();
    }
    let allowed = machines.allowed.join(", ");
    let detail = format!("{machine:?} is not among the machines of this cluster; use {allowed}");
    vec![input.invalid("domain.machine.type", detail)]
}

pub(super) fn io_threads(input: &Input<'_>) -> Vec<Violation> {
    let Some(policy) = &input.spec.domain.io_threads_policy else {
        return Vec::new();
    };
    let threads = input
        .spec
        .domain
        .io_threads
        .as_ref()
        .and_then(|threads| threads.supplemental_pool_thread_count)
        .unwrap_or(0);
    if !policy.is_known() {
        let choices = IoThreadsPolicy::KNOWN.join(", ");
        let detail = format!("{:?} is unknown; use one of {choices}", policy.as_str());
        return vec![input.invalid("domain.ioThreadsPolicy", detail)];
    }
    if *policy == IoThreadsPolicy::SupplementalPool && threads == 0 {
        let detail = "policy supplementalPool needs at least 1 thread here";
        return vec![input.invalid("domain.ioThreads.supplementalPoolThreadCount", detail)];
    }
    Vec::new()
}

/// A request or limit of the pod, as number; what is wrong with it goes to `found`.
fn amount(
    input: &Input<'_>,
    list: &str,
    resource: &str,
    found: &mut Vec<Violation>,
) -> Option<Amount> {
    let resources = input.spec.domain.resources.as_ref()?;
    let values = if list == "limits" {
        &resources.limits
    } else {
        &resources.requests
    };
    let field = format!("domain.resources.{list}.{resource}");
    number(input, &field, values.get(resource)?, found)
}

fn number(
    input: &Input<'_>,
    field: &str,
    quantity: &Quantity,
    found: &mut Vec<Violation>,
) -> Option<Amount> {
    match Amount::parse(quantity) {
        Ok(amount) if amount.is_negative() => {
            let detail = format!("{} is negative; use a positive quantity", quantity.0);
            found.push(input.invalid(field, detail));
            None
        }
        Ok(amount) => Some(amount),
        Err(error) => {
            found.push(input.invalid(field, error));
            None
        }
    }
}
