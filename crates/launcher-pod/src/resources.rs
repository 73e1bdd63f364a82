//! Resources that the pod requests: CPU, memory, disk space, devices.
//!
//! Rules run in order over copies of the user's requests and limits; each works on the result of the
//! previous one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::quantity::Amount;
use model::{Architecture, Binding, DeviceSource, ResourceList};

use crate::guest::{self, supplemental_threads};
use crate::{Acceleration, Feature, Input, PodError, overhead};

const MEMORY: &str = "memory";
const CPU: &str = "cpu";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Logs and sockets of the pod.
const OWN_STORAGE: u64 = 50_000_000;

type Quantities = BTreeMap<String, Quantity>;

/// The lists that the rules change.
#[derive(Debug, Default)]
struct Lists {
    requests: Quantities,
    limits: Quantities,
    claims: Vec<ResourceClaim>,
}

pub(crate) fn render(input: &Input<'_>) -> Result<ResourceRequirements, PodError> {
    let user = input.guest.vmi.spec.domain.resources.as_ref();
    let mut lists = Lists {
        requests: user.map(|user| user.requests.clone()).unwrap_or_default(),
        limits: user.map(|user| user.limits.clone()).unwrap_or_default(),
        claims: Vec::new(),
    };
    add_own_storage(input, &mut lists)?;
    add_devices(input, &mut lists);
    request_guest_memory(input, &mut lists)?;
    if input.guest.has_dedicated_cpus() {
        dedicate_cpus(input, &mut lists);
    } else {
        share_cpus(input, &mut lists);
    }
    add_huge_pages(input, &mut lists)?;
    add_memory_overhead(input, &mut lists)?;
    limit_memory_by_namespace(input, &mut lists)?;
    add_network_resources(input, &mut lists)?;
    add_host_devices(input, &mut lists)?;
    Ok(ResourceRequirements {
        requests: Some(lists.requests),
        limits: Some(lists.limits).filter(|limits| !limits.is_empty()),
        claims: Some(lists.claims).filter(|claims| !claims.is_empty()),
    })
}

fn add_own_storage(input: &Input<'_>, lists: &mut Lists) -> Result<(), PodError> {
    let plus = |amount: Option<Amount>| {
        let units = amount.map_or(0, Amount::units).saturating_add(OWN_STORAGE);
        decimal(units)
    };
    let request = input
        .guest
        .resource(ResourceList::Requests, EPHEMERAL_STORAGE)?;
    lists
        .requests
        .insert(EPHEMERAL_STORAGE.to_owned(), plus(request));
    let limit = input
        .guest
        .resource(ResourceList::Limits, EPHEMERAL_STORAGE)?;
    if let Some(limit) = limit {
        lists
            .limits
            .insert(EPHEMERAL_STORAGE.to_owned(), plus(Some(limit)));
    }
    Ok(())
}

fn add_devices(input: &Input<'_>, lists: &mut Lists) {
    let Input {
        guest, settings, ..
    } = input;
    let domain = &guest.vmi.spec.domain;
    let has_kvm = settings.acceleration == Acceleration::Kvm;
    let interfaces = guest.plugged_interfaces();
    let mut tapped = interfaces.filter(|interface| interface.binding != Binding::Sriov);
    let security = domain.launch_security.as_ref();
    let security = security.filter(|_| guest.architecture != Architecture::S390x);
    let mut disks = guest.disks.iter();
    let uses = [
        ("kvm", has_kvm),
        ("tun", tapped.clone().next().is_some()),
        (
            "vhost-net",
            has_kvm && tapped.any(|interface| interface.emulated_model().is_none()),
        ),
        ("vhost-vsock", domain.devices.autoattach_vsock == Some(true)),
        (
            "sev",
            security.is_some_and(|s| s.sev.is_some() || s.snp.is_some()),
        ),
        ("tdx", security.is_some_and(|s| s.tdx.is_some())),
        (
            "pr-helper",
            disks.any(|disk| guest::reserves(guest, disk.name())),
        ),
        (
            "iommufd",
            settings.has(Feature::Iommufd) && guest.has_passthrough(),
        ),
    ];
    let used = uses.into_iter().filter(|(_, used)| *used);
    let one = || Quantity("1".to_owned());
    lists
        .limits
        .extend(used.map(|(name, _)| (format!("devices.kubevirt.io/{name}"), one())));
}

/// Requests memory for the guest alone.
fn request_guest_memory(input: &Input<'_>, lists: &mut Lists) -> Result<(), PodError> {
    let limit = input.guest.resource(ResourceList::Limits, MEMORY)?;
    let request = input.guest.resource(ResourceList::Requests, MEMORY)?;
    let request = match request.or(limit) {
        Some(amount) => amount.units(),
        None => overcommitted(input, guest_memory(input)?),
    };
    lists.requests.insert(MEMORY.to_owned(), bytes(request));
    Ok(())
}

fn guest_memory(input: &Input<'_>) -> Result<u64, PodError> {
    if let Some(guest) = input.guest.memory()? {
        return Ok(guest);
    }
    match input.guest.page_size() {
        Some(size) => {
            let field = "spec.domain.memory.hugepages.pageSize";
            let size = Amount::parse(&Quantity(size.to_owned()));
            Ok(size
                .map_err(|error| PodError::invalid(field, &error))?
                .units())
        }
        None => Err(PodError::missing("spec.domain.memory.guest")),
    }
}

fn overcommitted(input: &Input<'_>, guest: u64) -> u64 {
    let percent = u128::from(input.settings.memory_overcommit_percent.max(1));
    let shared = (u128::from(guest) * 100).div_ceil(percent);
    u64::try_from(shared).unwrap_or(u64::MAX)
}

/// Requests whole CPUs for the guest, its pool of I/O threads and, if isolated, the emulator; limits
/// memory to its request, since a kubelet dedicates CPUs to guaranteed pods only.
fn dedicate_cpus(input: &Input<'_>, lists: &mut Lists) {
    let vmi = input.guest.vmi;
    let cpu = vmi.spec.domain.cpu.as_ref();
    let vcpus = input.guest.topology.vcpus();
    let mut count = vcpus.saturating_add(supplemental_threads(vmi));
    if cpu.is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true)) {
        let completes = guest::wants_even_cpus(vmi) && count.is_multiple_of(2);
        count = count.saturating_add(if completes { 2 } else { 1 });
    }
    let count = Quantity(count.to_string());
    lists.requests.insert(CPU.to_owned(), count.clone());
    lists.limits.insert(CPU.to_owned(), count);
    if let Some(request) = lists.requests.get(MEMORY).cloned() {
        lists.limits.insert(MEMORY.to_owned(), request);
    }
}

fn share_cpus(input: &Input<'_>, lists: &mut Lists) {
    let vcpus = input.guest.topology.vcpus();
    let count = vcpus.saturating_add(supplemental_threads(input.guest.vmi));
    if !lists.requests.contains_key(CPU) {
        let ratio = u64::from(input.settings.cpu_allocation_ratio.max(1));
        let millis = count.saturating_mul(1000).div_ceil(ratio);
        lists.requests.insert(CPU.to_owned(), cpu_quantity(millis));
    }
    if input.surroundings.namespace.needs_cpu_limit && !lists.limits.contains_key(CPU) {
        let limit = cpu_quantity(count.saturating_mul(1000));
        lists.limits.insert(CPU.to_owned(), limit);
    }
}

/// Huge pages back the guest's memory; memory requested beyond it, and the overhead, is ordinary
/// memory.
fn add_huge_pages(input: &Input<'_>, lists: &mut Lists) -> Result<(), PodError> {
    let Some(size) = input.guest.page_size() else {
        return Ok(());
    };
    let request = amount(&lists.requests, MEMORY)?.unwrap_or(0);
    let guest = input.guest.memory()?.unwrap_or(request);
    let pages = bytes(request.min(guest));
    let name = format!("hugepages-{size}");
    lists.requests.insert(name.clone(), pages.clone());
    lists.limits.insert(name, pages);
    for list in [&mut lists.requests, &mut lists.limits] {
        if let Some(all) = amount(list, MEMORY)? {
            list.insert(MEMORY.to_owned(), bytes(all.saturating_sub(guest)));
        }
    }
    Ok(())
}

fn add_memory_overhead(input: &Input<'_>, lists: &mut Lists) -> Result<(), PodError> {
    let user = input.guest.vmi.spec.domain.resources.as_ref();
    let leaves_out = user.is_some_and(|user| user.overcommit_guest_overhead == Some(true));
    let overhead = overhead::of(input.guest, input.settings)?;
    let has_pages = input.guest.page_size().is_some();
    if !leaves_out || has_pages {
        raise(&mut lists.requests, overhead)?;
    }
    raise(&mut lists.limits, overhead)
}

fn raise(list: &mut Quantities, by: u64) -> Result<(), PodError> {
    if let Some(before) = amount(list, MEMORY)? {
        list.insert(MEMORY.to_owned(), bytes(before.saturating_add(by)));
    }
    Ok(())
}

fn limit_memory_by_namespace(input: &Input<'_>, lists: &mut Lists) -> Result<(), PodError> {
    let Some(ratio) = input.surroundings.namespace.memory_limit_ratio else {
        return Ok(());
    };
    if !lists.limits.contains_key(MEMORY)
        && let Some(request) = amount(&lists.requests, MEMORY)?
    {
        let limit = bytes(ratio.of(request));
        lists.limits.insert(MEMORY.to_owned(), limit);
    }
    Ok(())
}

fn add_network_resources(input: &Input<'_>, lists: &mut Lists) -> Result<(), PodError> {
    for network in &input.guest.vmi.spec.networks {
        if let Some(resource) = input.surroundings.network_resources.get(&network.name) {
            lists.add_one(resource)?;
        }
        if let Some(claim) = &network.resource_claim {
            let request = claim.request_name.as_deref();
            if let Some(name) = claim.claim_name.as_deref() {
                lists.add_claim(name, request.filter(|request| !request.is_empty()));
            }
        }
    }
    Ok(())
}

fn add_host_devices(input: &Input<'_>, lists: &mut Lists) -> Result<(), PodError> {
    for device in input.guest.host_devices() {
        let resource = match device.source {
            DeviceSource::Resource(resource) => resource,
            DeviceSource::Claim { claim, request } => {
                lists.add_claim(claim, request);
                continue;
            }
            DeviceSource::Missing => continue,
        };
        let permitted = input.settings.permitted_devices.as_ref();
        if permitted.is_some_and(|permitted| !permitted.contains(resource)) {
            return Err(PodError::ForbiddenDevice {
                field: device.field("deviceName"),
                device: resource.to_owned(),
            });
        }
        lists.add_one(resource)?;
    }
    Ok(())
}

impl Lists {
    fn add_one(&mut self, resource: &str) -> Result<(), PodError> {
        for list in [&mut self.requests, &mut self.limits] {
            let count = amount(list, resource)?.unwrap_or(0).saturating_add(1);
            list.insert(resource.to_owned(), Quantity(count.to_string()));
        }
        Ok(())
    }

    fn add_claim(&mut self, name: &str, request: Option<&str>) {
        let claim = ResourceClaim {
            name: name.to_owned(),
            request: request.map(ToOwned::to_owned),
        };
        if !self.claims.contains(&claim) {
            self.claims.push(claim);
        }
    }
}

/// The current entry of a list; the user may have written text that is not a quantity.
fn amount(list: &Quantities, name: &str) -> Result<Option<u64>, PodError> {
    let read = |quantity| {
        let field = format!("spec.domain.resources[{name}]");
        Amount::parse(quantity).map_err(|error| PodError::invalid(field, &error))
    };
    Ok(list.get(name).map(read).transpose()?.map(Amount::units))
}

fn bytes(value: u64) -> Quantity {
    Amount::of(value).to_binary()
}

fn decimal(units: u64) -> Quantity {
    if units.is_multiple_of(1_000_000) {
        Quantity(format!("{}M", units / 1_000_000))
    } else {
        Quantity(units.to_string())
    }
}

fn cpu_quantity(millis: u64) -> Quantity {
    if millis.is_multiple_of(1000) {
        Quantity((millis / 1000).to_string())
    } else {
        Quantity(format!("{millis}m"))
    }
}
