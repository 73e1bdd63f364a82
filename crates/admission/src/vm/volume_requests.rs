//! Pending requests in a VM's status to hot-plug and unplug volumes.

use std::collections::BTreeSet;

use kubevirt_api::{
    disks::Disk, subresource_bodies::AddVolumeOptions, vm_status::VirtualMachineVolumeRequest,
    vmi::VirtualMachineInstanceSpec, vmi_status::VirtualMachineInstanceStatus, volumes::Volume,
};
use validation::Violation;

use super::{input::Input, template};
use crate::checks::hotplugged_disk_problems;

pub(super) fn requests(input: &Input<'_>) -> Vec<Violation> {
    let status = input.vm.status.as_ref();
    let requests = status.map_or(&[][..], |status| &status.volume_requests);
    let mut found = Vec::new();
    if !requests.is_empty() && is_migrating(input) {
        let detail = "the guest is migrating; retry after the migration";
        found.push(Violation::not_supported("status.volumeRequests", detail));
    }
    let mut names = BTreeSet::new();
    for (i, request) in requests.iter().enumerate() {
        let path = format!("status.volumeRequests[{i}]");
        match name_of(request) {
            None => {
                let detail = "give exactly one of addVolumeOptions and removeVolumeOptions";
                found.push(Violation::not_supported(path, detail));
            }
            Some(name) if !names.insert(name) => {
                let detail = format!("another request for {name:?} is pending; wait for it");
                found.push(Violation::not_supported(path, detail));
            }
            Some(_) => {
                let add = request.add_volume_options.as_ref();
                let problems = add.map(|add| add_problems(input, add)).unwrap_or_default();
                found.extend(problems.into_iter().map(|problem| {
                    let field = format!("{path}.addVolumeOptions.{}", problem.field);
                    Violation::not_supported(field, problem.detail)
                }));
            }
        }
    }
    if found.is_empty() && !requests.is_empty() {
        found = result_problems(input, requests);
    }
    found
}

/// Violations that only the guest after all requests would have.
fn result_problems(input: &Input<'_>, requests: &[VirtualMachineVolumeRequest]) -> Vec<Violation> {
    let mut vm = input.vm.clone();
    let Some(spec) = &mut vm.spec.template.spec else {
        return Vec::new();
    };
    for request in requests {
        execute(request, spec);
    }
    let before = template::violations(input);
    let after = template::violations(&Input { vm: &vm, ..*input });
    after
        .into_iter()
        .filter(|violation| !before.contains(violation))
        .map(|violation| {
            let detail = format!(
                "the resulting guest would be invalid: {}",
                violation.message
            );
            Violation::not_supported("status.volumeRequests", detail)
        })
        .collect()
}

fn execute(request: &VirtualMachineVolumeRequest, spec: &mut VirtualMachineInstanceSpec) {
    let Some(name) = name_of(request) else {
        return;
    };
    spec.volumes.retain(|volume| volume.name != name);
    let disks = &mut spec.domain.devices.disks;
    disks.retain(|disk| disk.name != name);
    if let Some(add) = &request.add_volume_options {
        disks.push(Disk {
            name: name.to_owned(),
            ..add.disk.clone()
        });
        spec.volumes.push(Volume {
            name: name.to_owned(),
            persistent_volume_claim: add.volume_source.persistent_volume_claim.clone(),
            data_volume: add.volume_source.data_volume.clone(),
            ..Volume::default()
        });
    }
}

fn name_of(request: &VirtualMachineVolumeRequest) -> Option<&str> {
    let add = request.add_volume_options.as_ref();
    match (add, &request.remove_volume_options) {
        (Some(add), None) => Some(&add.name),
        (None, Some(remove)) => Some(&remove.name),
        _ => None,
    }
}

struct Problem {
    /// Path below the options.
    field: String,
    detail: String,
}

fn add_problems(input: &Input<'_>, add: &AddVolumeOptions) -> Vec<Problem> {
    let mut found: Vec<_> = hotplugged_disk_problems(&add.disk)
        .into_iter()
        .map(|problem| Problem {
            field: match problem.field {
                "" => "disk".to_owned(),
                field => format!("disk.{field}"),
            },
            detail: problem.detail,
        })
        .collect();
    let source = &add.volume_source;
    if source.persistent_volume_claim.is_some() == source.data_volume.is_some() {
        found.push(Problem {
            field: "volumeSource".to_owned(),
            detail: "give exactly one of persistentVolumeClaim and dataVolume".to_owned(),
        });
    }
    let own = input.template().map_or(&[][..], |spec| &spec.volumes);
    let running = input.found.vmi.map_or(&[][..], |vmi| &vmi.spec.volumes);
    let others = own.iter().chain(running);
    if others
        .filter(|volume| volume.name == add.name)
        .any(|volume| !is_same(volume, add))
    {
        let detail = format!(
            "another volume has the name {:?}; use another one",
            add.name
        );
        found.push(Problem {
            field: "name".to_owned(),
            detail,
        });
    }
    found
}

/// Whether a volume has the requested PVC or `DataVolume` as its source.
fn is_same(volume: &Volume, add: &AddVolumeOptions) -> bool {
    let source = &add.volume_source;
    let claims = [
        &volume.persistent_volume_claim,
        &source.persistent_volume_claim,
    ];
    let data_volumes = [&volume.data_volume, &source.data_volume];
    match (claims, data_volumes) {
        ([Some(one), Some(other)], _) => one.claim_name == other.claim_name,
        (_, [Some(one), Some(other)]) => one.name == other.name,
        _ => false,
    }
}

fn is_migrating(input: &Input<'_>) -> bool {
    let status = input.found.vmi.and_then(|one| one.status.as_ref());
    let migration = |status: &VirtualMachineInstanceStatus| {
        let state = status.migration_state.as_ref()?;
        Some(state.completed != Some(true) && state.failed != Some(true))
    };
    status.and_then(migration).unwrap_or(false)
}
