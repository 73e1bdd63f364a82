//! Dedicated CPUs, and the features that need them.

use kubevirt_api::quantity::Amount;
use validation::Violation;

use super::{compute::vcpu_count, input::Input, memory::resource};

pub(super) fn emulator_thread(input: &Input<'_>) -> Vec<Violation> {
    let is_isolated = input
        .cpu()
        .is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true));
    if !is_isolated || input.has_dedicated_cpus() {
        return Vec::new();
    }
    let detail = "needs dedicatedCpuPlacement: true";
    vec![input.invalid("domain.cpu.isolateEmulatorThread", detail)]
}

pub(super) fn cpus(input: &Input<'_>) -> Vec<Violation> {
    if !input.has_dedicated_cpus() {
        return Vec::new();
    }
    let mut found = memory(input);
    found.extend(numbers(input));
    let threads = input.cpu().and_then(|cpu| cpu.threads).unwrap_or(1);
    if threads > 2 {
        let detail = format!("{threads} threads per core; dedicated cores have at most 2");
        found.push(input.invalid("domain.cpu.threads", detail));
    } else if threads > 1 && input.architecture() == "arm64" {
        let detail = "dedicated cores of arm64 have 1 thread";
        found.push(input.invalid("domain.cpu.threads", detail));
    }
    found
}

/// The kubelet gives dedicated CPUs only to pods of the quality class `Guaranteed`.
fn memory(input: &Input<'_>) -> Vec<Violation> {
    let request = resource(input, |resources| &resources.requests, "memory");
    let limit = resource(input, |resources| &resources.limits, "memory");
    let guest = input.memory().and_then(|memory| memory.guest.as_ref());
    match (request, limit) {
        (None, None) if guest.is_none() => {
            let detail = "dedicated CPUs need a memory size; set memory.guest or this";
            vec![input.invalid("domain.resources.limits.memory", detail)]
        }
        (Some(request), Some(limit)) if request != limit => {
            let detail = "dedicated CPUs need the same request and limit of memory";
            vec![input.invalid("domain.resources.requests.memory", detail)]
        }
        _ => Vec::new(),
    }
}

fn numbers(input: &Input<'_>) -> Vec<Violation> {
    let request = resource(input, |resources| &resources.requests, "cpu");
    let limit = resource(input, |resources| &resources.limits, "cpu");
    let mut found = Vec::new();
    for (list, amount) in [("requests", request), ("limits", limit)] {
        if amount.is_some_and(|amount| !amount.is_whole()) {
            let detail = "dedicated CPUs cannot be fractional; use an integer";
            found.push(input.invalid(&format!("domain.resources.{list}.cpu"), detail));
        }
    }
    let has_topology = input.cpu().is_some_and(|cpu| {
        [cpu.sockets, cpu.cores, cpu.threads]
            .iter()
            .any(|part| part.unwrap_or(0) != 0)
    });
    if request.is_none() && limit.is_none() && !has_topology {
        let detail = "number of dedicated CPUs is missing; set sockets, cores or threads";
        found.push(input.invalid("domain.cpu.dedicatedCpuPlacement", detail));
    }
    if let (Some(request), Some(limit)) = (request, limit)
        && request != limit
    {
        let detail = "dedicated CPUs need the same request and limit of CPUs";
        found.push(input.invalid("domain.resources.requests.cpu", detail));
    }
    let vcpus = Amount::of(vcpu_count(input));
    let given: Vec<_> = [request, limit].into_iter().flatten().collect();
    if has_topology && !given.is_empty() && given.iter().all(|amount| *amount != vcpus) {
        let detail = format!(
            "the topology has {} CPUs, requests and limits differ; give one of them, or equal numbers",
            vcpu_count(input)
        );
        found.push(input.invalid("domain.cpu.dedicatedCpuPlacement", detail));
    }
    found
}

pub(super) fn numa(input: &Input<'_>) -> Vec<Violation> {
    if !maps_numa(input) {
        return Vec::new();
    }
    let field = "domain.cpu.numa.guestMappingPassthrough";
    let has_pages = input
        .memory()
        .is_some_and(|memory| memory.hugepages.is_some());
    let mut found: Vec<_> = input.needs_gate(field, "NUMA").into_iter().collect();
    if !input.has_dedicated_cpus() {
        found.push(input.invalid(field, "needs dedicatedCpuPlacement: true"));
    }
    if !has_pages {
        found.push(input.invalid(field, "needs memory.hugepages"));
    }
    found
}

pub(super) fn realtime(input: &Input<'_>) -> Vec<Violation> {
    if input.cpu().is_none_or(|cpu| cpu.realtime.is_none()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if !input.has_dedicated_cpus() {
        let detail = "realtime needs this to be true";
        found.push(input.required("domain.cpu.dedicatedCpuPlacement", detail));
    }
    if !maps_numa(input) {
        let detail = "realtime needs this; write guestMappingPassthrough: {}";
        found.push(input.required("domain.cpu.numa.guestMappingPassthrough", detail));
    }
    found
}

fn maps_numa(input: &Input<'_>) -> bool {
    let numa = input.cpu().and_then(|cpu| cpu.numa.as_ref());
    numa.is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}
