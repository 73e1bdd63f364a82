//! Conflicts: fields that both the instance type and the template set.

use std::collections::BTreeMap;

use kubevirt_api::{
    domain::{Cpu, DiskIoThreads, Memory},
    instancetype::VirtualMachineInstancetypeSpec,
    vmi::VirtualMachineInstanceSpec,
};
use validation::Violation;

use crate::target::TEMPLATE_PATH;

type Spec = VirtualMachineInstanceSpec;
type Size = VirtualMachineInstancetypeSpec;

/// Whether template and instance type both set the field.
type Conflicts = fn(&Spec, &Size) -> bool;

/// Fields below the spec of the template.
#[rustfmt::skip]
const FIELDS: &[(&str, Conflicts)] = &[
    ("domain.cpu.sockets", |spec, _| counts(spec, |cpu| cpu.sockets)),
    ("domain.cpu.cores", |spec, _| counts(spec, |cpu| cpu.cores)),
    ("domain.cpu.threads", |spec, _| counts(spec, |cpu| cpu.threads)),
    ("domain.resources.requests.cpu", |spec, _| requests(spec, "cpu")),
    ("domain.resources.limits.cpu", |spec, _| limits(spec, "cpu")),
    ("domain.cpu.model", |spec, size| size.cpu.model.is_some() && cpu(spec, |cpu| cpu.model.as_ref().is_some_and(|model| !model.is_empty()))),
    ("domain.cpu.dedicatedCpuPlacement", |spec, size| size.cpu.dedicated_cpu_placement.is_some() && cpu(spec, |cpu| cpu.dedicated_cpu_placement == Some(true))),
    ("domain.cpu.isolateEmulatorThread", |spec, size| size.cpu.isolate_emulator_thread.is_some() && cpu(spec, |cpu| cpu.isolate_emulator_thread == Some(true))),
    ("domain.cpu.numa", |spec, size| size.cpu.numa.is_some() && cpu(spec, |cpu| cpu.numa.is_some())),
    ("domain.cpu.realtime", |spec, size| size.cpu.realtime.is_some() && cpu(spec, |cpu| cpu.realtime.is_some())),
    ("domain.memory.guest", |spec, _| memory(spec, |memory| memory.guest.is_some())),
    ("domain.resources.requests.memory", |spec, _| requests(spec, "memory")),
    ("domain.resources.limits.memory", |spec, _| limits(spec, "memory")),
    ("domain.memory.hugepages", |spec, size| size.memory.hugepages.is_some() && memory(spec, |memory| memory.hugepages.is_some())),
    ("domain.memory.maxGuest", |spec, size| size.memory.max_guest.is_some() && memory(spec, |memory| memory.max_guest.is_some())),
    ("domain.devices.gpus", |spec, size| !size.gpus.is_empty() && !spec.domain.devices.gpus.is_empty()),
    ("domain.devices.hostDevices", |spec, size| !size.host_devices.is_empty() && !spec.domain.devices.host_devices.is_empty()),
    ("domain.ioThreadsPolicy", |spec, size| size.io_threads_policy.is_some() && spec.domain.io_threads_policy.is_some()),
    ("domain.ioThreads.supplementalPoolThreadCount", |spec, size| pool(size.io_threads.as_ref()) && pool(spec.domain.io_threads.as_ref())),
    ("domain.launchSecurity", |spec, size| size.launch_security.is_some() && spec.domain.launch_security.is_some()),
    ("nodeSelector", |spec, size| !size.node_selector.is_empty() && !spec.node_selector.is_empty()),
    ("schedulerName", |spec, size| is_set(size.scheduler_name.as_deref()) && is_set(spec.scheduler_name.as_deref())),
];

/// All conflicts between the template of a VM and its instance type.
pub fn find(
    spec: &VirtualMachineInstanceSpec,
    annotations: &BTreeMap<String, String>,
    size: &VirtualMachineInstancetypeSpec,
) -> Vec<Violation> {
    // Tools search messages for the first words.
    let detail = "conflicts with selected instance type, which sets it; leave it out, or choose another \
                  instance type";
    let fields = FIELDS.iter().filter(|(_, conflicts)| conflicts(spec, size));
    let fields =
        fields.map(|(field, _)| Violation::invalid(format!("{TEMPLATE_PATH}.{field}"), detail));
    let differs =
        |(key, value): &(&String, &String)| annotations.get(*key).is_some_and(|own| own != *value);
    let keys = size.annotations.iter().filter(differs);
    let keys = keys.map(|(key, value)| {
        let detail = format!(
            "conflicts with selected instance type, which sets it to {value:?}; leave it out"
        );
        Violation::invalid(format!("spec.template.metadata.annotations.{key}"), detail)
    });
    fields.chain(keys).collect()
}

fn cpu(spec: &Spec, sets: fn(&Cpu) -> bool) -> bool {
    spec.domain.cpu.as_ref().is_some_and(sets)
}

fn counts(spec: &Spec, part: fn(&Cpu) -> Option<u32>) -> bool {
    let count = spec.domain.cpu.as_ref().and_then(part);
    count.unwrap_or(0) != 0
}

fn memory(spec: &Spec, sets: fn(&Memory) -> bool) -> bool {
    spec.domain.memory.as_ref().is_some_and(sets)
}

fn requests(spec: &Spec, resource: &str) -> bool {
    let resources = spec.domain.resources.as_ref();
    resources.is_some_and(|resources| resources.requests.contains_key(resource))
}

fn limits(spec: &Spec, resource: &str) -> bool {
    let resources = spec.domain.resources.as_ref();
    resources.is_some_and(|resources| resources.limits.contains_key(resource))
}

fn pool(threads: Option<&DiskIoThreads>) -> bool {
    threads.is_some_and(|threads| threads.supplemental_pool_thread_count.is_some())
}

fn is_set(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Sets every field of an instance type.
    fn complete() -> VirtualMachineInstancetypeSpec {
        let size = json!({
            "nodeSelector": { "a": "b" }, "schedulerName": "s", "annotations": { "k": "v" },
            "cpu": {
                "guest": 2, "model": "host-model", "dedicatedCPUPlacement": true, "numa": {},
                "isolateEmulatorThread": true, "realtime": {}, "maxSockets": 4,
            },
            "memory": { "guest": "1Gi", "hugepages": {}, "maxGuest": "2Gi" },
            "gpus": [{ "name": "g" }], "hostDevices": [{ "name": "h" }],
            "ioThreadsPolicy": "auto", "ioThreads": { "supplementalPoolThreadCount": 1 },
            "launchSecurity": {},
        });
        serde_json::from_value(size).expect("an instance type")
    }

    fn spec() -> VirtualMachineInstanceSpec {
        let quantities = json!({ "cpu": "1", "memory": "1Gi" });
        let spec = json!({
            "nodeSelector": { "a": "b" }, "schedulerName": "s",
            "domain": {
                "cpu": {
                    "sockets": 1, "cores": 1, "threads": 1, "model": "host-model",
                    "dedicatedCpuPlacement": true, "numa": {}, "isolateEmulatorThread": true,
                    "realtime": {}, "maxSockets": 4,
                },
                "memory": { "guest": "1Gi", "hugepages": {}, "maxGuest": "2Gi" },
                "resources": { "requests": quantities, "limits": quantities },
                "devices": { "gpus": [{ "name": "g" }], "hostDevices": [{ "name": "h" }] },
                "ioThreadsPolicy": "auto", "ioThreads": { "supplementalPoolThreadCount": 1 },
                "launchSecurity": {},
            },
        });
        serde_json::from_value(spec).expect("a spec")
    }

    #[test]
    fn every_field_set_by_both_is_reported() {
        let annotations = BTreeMap::from([("k".to_owned(), "other".to_owned())]);
        let found = find(&spec(), &annotations, &complete());
        let fields: Vec<&str> = found.iter().map(|one| &*one.field).collect();
        let mut wanted: Vec<String> = FIELDS
            .iter()
            .map(|(field, _)| format!("spec.template.spec.{field}"))
            .collect();
        wanted.push("spec.template.metadata.annotations.k".to_owned());
        assert_eq!(fields, wanted);
    }

    #[test]
    fn field_set_by_one_is_no_conflict() {
        let none = BTreeMap::new();
        let open = VirtualMachineInstanceSpec::default();
        assert_eq!(find(&open, &none, &complete()), []);
        // An instance type always sets CPUs and memory.
        let small = VirtualMachineInstancetypeSpec::default();
        let found = find(&spec(), &none, &small);
        let fields: Vec<&str> = found.iter().map(|one| &*one.field).collect();
        let always = [
            "cpu.sockets",
            "cpu.cores",
            "cpu.threads",
            "resources.requests.cpu",
            "resources.limits.cpu",
            "memory.guest",
            "resources.requests.memory",
            "resources.limits.memory",
        ];
        let always = always.map(|field| format!("spec.template.spec.domain.{field}"));
        assert_eq!(fields, always);
    }
}
