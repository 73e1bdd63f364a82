//! Requests to plug and unplug volumes that wait in a VM's status.

use std::collections::BTreeSet;

use kubevirt_api::{
    disks::Disk, subresource_bodies::AddVolumeOptions, vm_status::VirtualMachineVolumeRequest,
    vmi::VirtualMachineInstanceSpec, vmi_status::VirtualMachineInstanceStatus, volumes::Volume,
};

use super::Input;
use crate::{Violation, checks::hotplugged_disk_faults};

pub(super) fn requests(input: &Input<'_>) -> Vec<Violation> {
    let status = input.vm.status.as_ref();
    let requests = status.map_or(&[][..], |status| &status.volume_requests);
    let mut found = Vec::new();
    if !requests.is_empty() && is_migrating(input) {
        let detail = "the guest is migrating; wait for it";
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
                let detail = format!("another request is about {name:?}; wait for it");
                found.push(Violation::not_supported(path, detail));
            }
            Some(_) => {
                let add = request.add_volume_options.as_ref();
                let faults = add.map(|add| add_faults(input, add)).unwrap_or_default();
                found.extend(faults.into_iter().map(|(at, detail)| {
                    let field = format!("{path}.addVolumeOptions{at}");
                    Violation::not_supported(field, detail)
                }));
            }
        }
    }
    if found.is_empty() && !requests.is_empty() {
        found = result_faults(input, requests);
    }
    found
}

/// What is wrong with the guest once all requests are carried out, and is not wrong with it now.
fn result_faults(input: &Input<'_>, requests: &[VirtualMachineVolumeRequest]) -> Vec<Violation> {
    let mut vm = input.vm.clone();
    let Some(spec) = &mut vm.spec.template.spec else {
        return Vec::new();
    };
    for request in requests {
        carry_out(request, spec);
    }
    let before = super::template(input);
    let after = super::template(&Input { vm: &vm, ..*input });
    after
        .into_iter()
        .filter(|violation| !before.contains(violation))
        .map(|violation| {
            let detail = format!("they would end in a bad guest: {}", violation.message);
            Violation::not_supported("status.volumeRequests", detail)
        })
        .collect()
}

fn carry_out(request: &VirtualMachineVolumeRequest, spec: &mut VirtualMachineInstanceSpec) {
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

fn add_faults(input: &Input<'_>, add: &AddVolumeOptions) -> Vec<(String, String)> {
    let mut found: Vec<_> = hotplugged_disk_faults(&add.disk)
        .into_iter()
        .map(|(at, detail)| match at {
            "" => (".disk".to_owned(), detail),
            at => (format!(".disk.{at}"), detail),
        })
        .collect();
    let source = &add.volume_source;
    if source.persistent_volume_claim.is_some() == source.data_volume.is_some() {
        let detail = "give exactly one of persistentVolumeClaim and dataVolume".to_owned();
        found.push((".volumeSource".to_owned(), detail));
    }
    let own = input.template().map_or(&[][..], |spec| &spec.volumes);
    let instance = input.found.instance;
    let running = instance.map_or(&[][..], |instance| &instance.spec.volumes);
    let others = own.iter().chain(running);
    if others
        .filter(|volume| volume.name == add.name)
        .any(|volume| !is_same(volume, add))
    {
        let detail = format!(
            "another volume has the name {:?}; use another one",
            add.name
        );
        found.push((".name".to_owned(), detail));
    }
    found
}

/// Whether a volume shows the same claim or data volume.
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
    let status = input.found.instance.and_then(|one| one.status.as_ref());
    let migration = |status: &VirtualMachineInstanceStatus| {
        let state = status.migration_state.as_ref()?;
        Some(state.completed != Some(true) && state.failed != Some(true))
    };
    status.and_then(migration).unwrap_or(false)
}
