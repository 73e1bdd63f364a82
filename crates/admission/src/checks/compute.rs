//! CPUs and the machine type.

use kubevirt_api::domain::IoThreadsPolicy;
use model::Topology;
use validation::Violation;

use super::{input::Input, memory::resource};

const FEATURE_POLICIES: &[&str] = &["", "force", "require", "optional", "disable", "forbid"];
/// libvirt counts in 32 bits. A machine type supports far fewer; no node has room for such a guest,
/// so the scheduler reports it.
const MAX_VCPUS: u64 = 2_147_483_647;

pub(super) fn cpu_request(input: &Input<'_>) -> Vec<Violation> {
    let request = resource(input, |resources| &resources.requests, "cpu");
    let limit = resource(input, |resources| &resources.limits, "cpu");
    match (request, limit) {
        (Some(request), Some(limit)) if request > limit => {
            let detail = "above limits.cpu; lower it or raise the limit";
            vec![input.invalid("domain.resources.requests.cpu", detail)]
        }
        _ => Vec::new(),
    }
}

pub(super) fn cpu_features(input: &Input<'_>) -> Vec<Violation> {
    let features = input.cpu().map_or(&[][..], |cpu| &cpu.features);
    let mut found = Vec::new();
    for (i, feature) in features.iter().enumerate() {
        let policy = feature.policy.as_deref().unwrap_or_default();
        if !FEATURE_POLICIES.contains(&policy) {
            let detail =
                format!("{policy:?} is unknown; use force, require, optional, disable or forbid");
            found.push(input.not_supported(&format!("domain.cpu.features[{i}].policy"), detail));
        }
    }
    found
}

pub(super) fn sockets(input: &Input<'_>) -> Vec<Violation> {
    let Some(cpu) = input.cpu() else {
        return Vec::new();
    };
    let (sockets, max) = (cpu.sockets.unwrap_or(0), cpu.max_sockets.unwrap_or(0));
    if max == 0 || sockets <= max {
        return Vec::new();
    }
    let detail = format!("{sockets} sockets, but maxSockets is {max}; raise maxSockets");
    vec![input.invalid("domain.cpu.sockets", detail)]
}

/// Number of virtual CPUs that a guest starts with.
pub(super) fn vcpu_count(input: &Input<'_>) -> u64 {
    Topology::of(input.cpu()).vcpus()
}

pub(super) fn vcpus(input: &Input<'_>) -> Vec<Violation> {
    let vcpus = vcpu_count(input);
    if vcpus <= MAX_VCPUS {
        return Vec::new();
    }
    let detail =
        format!("sockets, cores and threads make {vcpus} vCPUs; at most {MAX_VCPUS} are supported");
    vec![input.invalid("domain.cpu", detail)]
}

pub(super) fn machine(input: &Input<'_>) -> Vec<Violation> {
    let machine = input.spec.domain.machine.as_ref();
    let machine = machine
        .and_then(|machine| machine.type_.as_deref())
        .unwrap_or_default();
    let Some(machines) = input.config.machines_of(input.architecture()) else {
        return Vec::new();
    };
    if machine.is_empty() || machines.allow(machine) {
        return Vec::new();
    }
    let allowed = machines.allowed.join(", ");
    let detail = format!("{machine:?} is not a machine type of this cluster; use {allowed}");
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

pub(super) fn reboot_policy(input: &Input<'_>) -> Vec<Violation> {
    let is_given = input.spec.domain.reboot_policy.is_some();
    let problem = input.needs_gate("domain.rebootPolicy", "RebootPolicy");
    problem.filter(|_| is_given).into_iter().collect()
}
