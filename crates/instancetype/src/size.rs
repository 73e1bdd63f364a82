//! The values that an instance type sets in a template, one rule each. Fields that the template
//! already sets are conflicts, which are reported before.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{
    domain::Cpu, instancetype::VirtualMachineInstancetypeSpec,
    preference::VirtualMachinePreferenceSpec, quantity::Amount,
};
use validation::{Rule, Subject};

use crate::{
    target::Target,
    topology::{Layout, Topology},
};

type Size = VirtualMachineInstancetypeSpec;
type Preference<'a> = Option<&'a VirtualMachinePreferenceSpec>;
pub type Apply = fn(&mut Target<'_>, &Size, Preference<'_>);

/// All rules, in the order they are applied.
#[rustfmt::skip]
pub const ALL: &[Rule<Apply>] = &[
    Rule::new("size.vcpus", Subject::AppliedInstancetype, "sockets, cores and threads", set_vcpus),
    Rule::new("size.cpu", Subject::AppliedInstancetype, "CPU model, dedicated CPUs, NUMA, realtime, maximum of sockets", set_cpu),
    Rule::new("size.memory", Subject::AppliedInstancetype, "guest memory, huge pages and maximum", set_memory),
    Rule::new("size.overcommit", Subject::AppliedInstancetype, "memory request below the guest's memory", set_overcommit),
    Rule::new("size.host-devices", Subject::AppliedInstancetype, "GPUs and host devices", set_host_devices),
    Rule::new("size.io-threads", Subject::AppliedInstancetype, "I/O threads", set_io_threads),
    Rule::new("size.launch-security", Subject::AppliedInstancetype, "launch security", set_launch_security),
    Rule::new("size.placement", Subject::AppliedInstancetype, "node selector and scheduler", set_placement),
    Rule::new("size.annotations", Subject::AppliedInstancetype, "annotations", set_annotations),
];

fn set_vcpus(target: &mut Target<'_>, size: &Size, preference: Preference<'_>) {
    let Topology {
        sockets,
        cores,
        threads,
    } = Layout::of(preference).topology(size.cpu.guest);
    let cpu = target.spec.domain.cpu.get_or_insert_default();
    cpu.sockets = Some(sockets);
    cpu.cores = Some(cores);
    cpu.threads = Some(threads);
}

fn set_cpu(target: &mut Target<'_>, size: &Size, _: Preference<'_>) {
    let cpu: &mut Cpu = target.spec.domain.cpu.get_or_insert_default();
    let size = &size.cpu;
    set(&mut cpu.model, size.model.as_ref());
    set(
        &mut cpu.dedicated_cpu_placement,
        size.dedicated_cpu_placement.as_ref(),
    );
    set(
        &mut cpu.isolate_emulator_thread,
        size.isolate_emulator_thread.as_ref(),
    );
    set(&mut cpu.numa, size.numa.as_ref());
    set(&mut cpu.realtime, size.realtime.as_ref());
    set(&mut cpu.max_sockets, size.max_sockets.as_ref());
}

fn set_memory(target: &mut Target<'_>, size: &Size, _: Preference<'_>) {
    let memory = target.spec.domain.memory.get_or_insert_default();
    memory.guest = Some(size.memory.guest.clone());
    set(&mut memory.hugepages, size.memory.hugepages.as_ref());
    set(&mut memory.max_guest, size.memory.max_guest.as_ref());
}

fn set_overcommit(target: &mut Target<'_>, size: &Size, _: Preference<'_>) {
    let percent = size.memory.overcommit_percent.unwrap_or(0);
    let percent = u16::try_from(percent).unwrap_or(0);
    if percent == 0 {
        return;
    }
    if let Some(request) = reduce_by_percent(&size.memory.guest, percent) {
        let resources = target.spec.domain.resources.get_or_insert_default();
        resources.requests.insert("memory".to_owned(), request);
    }
}

/// A quantity reduced by a percentage, in whole bytes; `None` for a malformed quantity, which
/// another rule reports. In single precision, as `KubeVirt` computes it: 15 percent less than 128Mi are
/// 114085072 bytes, three more than by exact arithmetic.
fn reduce_by_percent(guest: &Quantity, percent: u16) -> Option<Quantity> {
    let bytes = Amount::parse(guest).ok()?.units();
    // By way of text, which is rounded to the nearest number.
    let bytes: f32 = bytes.to_string().parse().ok()?;
    let rest = bytes * (1.0 - f32::from(percent.min(100)) / 100.0);
    let rest = format!("{:.0}", rest.trunc()).parse().ok()?;
    Some(Amount::of(rest).to_binary())
}

fn set_host_devices(target: &mut Target<'_>, size: &Size, _: Preference<'_>) {
    let devices = &mut target.spec.domain.devices;
    if !size.gpus.is_empty() {
        devices.gpus.clone_from(&size.gpus);
    }
    if !size.host_devices.is_empty() {
        devices.host_devices.clone_from(&size.host_devices);
    }
}

fn set_io_threads(target: &mut Target<'_>, size: &Size, _: Preference<'_>) {
    let domain = &mut target.spec.domain;
    set(
        &mut domain.io_threads_policy,
        size.io_threads_policy.as_ref(),
    );
    set(&mut domain.io_threads, size.io_threads.as_ref());
}

fn set_launch_security(target: &mut Target<'_>, size: &Size, _: Preference<'_>) {
    let security = &mut target.spec.domain.launch_security;
    set(security, size.launch_security.as_ref());
}

fn set_placement(target: &mut Target<'_>, size: &Size, _: Preference<'_>) {
    if !size.node_selector.is_empty() {
        target.spec.node_selector.clone_from(&size.node_selector);
    }
    let scheduler = size.scheduler_name.as_ref();
    set(
        &mut target.spec.scheduler_name,
        scheduler.filter(|name| !name.is_empty()),
    );
}

fn set_annotations(target: &mut Target<'_>, size: &Size, _: Preference<'_>) {
    target.annotations.extend(size.annotations.clone());
}

fn set<T: Clone>(field: &mut Option<T>, value: Option<&T>) {
    if let Some(value) = value {
        *field = Some(value.clone());
    }
}
