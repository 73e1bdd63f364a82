//! What the pod asks for: CPU, memory, disk space, devices.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::network::InterfaceState;
use kubevirt_api::quantity::Amount;

use crate::{Acceleration, PodError, Settings, memory_overhead};

const MEMORY: &str = "memory";
const CPU: &str = "cpu";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Logs and sockets of the pod.
const OWN_STORAGE: u64 = 50_000_000;

type Quantities = BTreeMap<String, Quantity>;

pub(crate) fn render(
    vmi: &VirtualMachineInstance,
    settings: &Settings,
) -> Result<ResourceRequirements, PodError> {
    let user = vmi.spec.domain.resources.as_ref();
    let mut requests = user.map(|user| user.requests.clone()).unwrap_or_default();
    let mut limits = user.map(|user| user.limits.clone()).unwrap_or_default();

    add_storage(vmi, &mut requests, &mut limits)?;
    if !requests.contains_key(CPU) {
        let ratio = u64::from(settings.cpu_allocation_ratio.max(1));
        let millis = (vcpus(vmi) * 1000).div_ceil(ratio);
        requests.insert(CPU.to_owned(), cpu_quantity(millis));
    }
    let overhead = memory_overhead(vmi, settings)?;
    let requested = memory_request(vmi, settings)?;
    let is_overcommitted = user.is_some_and(|user| user.overcommit_guest_overhead == Some(true));
    let request = if is_overcommitted {
        requested
    } else {
        requested + overhead
    };
    requests.insert(MEMORY.to_owned(), bytes(request));
    if let Some(limit) = user_amount(vmi, "limits", MEMORY)? {
        limits.insert(MEMORY.to_owned(), bytes(limit.units() + overhead));
    }
    for device in devices(vmi, settings) {
        limits.insert(
            format!("devices.kubevirt.io/{device}"),
            Quantity("1".to_owned()),
        );
    }
    Ok(ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits).filter(|limits| !limits.is_empty()),
        claims: None,
    })
}

/// Virtual CPUs the guest starts with.
pub(crate) fn vcpus(vmi: &VirtualMachineInstance) -> u64 {
    let count = |value: Option<u32>| u64::from(value.unwrap_or(1).max(1));
    vmi.spec.domain.cpu.as_ref().map_or(1, |cpu| {
        count(cpu.sockets)
            .saturating_mul(count(cpu.cores))
            .saturating_mul(count(cpu.threads))
    })
}

/// An amount that the user wrote under `requests` or `limits`.
pub(crate) fn user_amount(
    vmi: &VirtualMachineInstance,
    list: &'static str,
    name: &str,
) -> Result<Option<Amount>, PodError> {
    let Some(user) = &vmi.spec.domain.resources else {
        return Ok(None);
    };
    let quantities = if list == "limits" {
        &user.limits
    } else {
        &user.requests
    };
    let Some(quantity) = quantities.get(name) else {
        return Ok(None);
    };
    Amount::parse(quantity)
        .map(Some)
        .map_err(|error| PodError::invalid(format!("spec.domain.resources.{list}[{name}]"), &error))
}

/// Memory asked for the guest alone, in bytes.
fn memory_request(vmi: &VirtualMachineInstance, settings: &Settings) -> Result<u64, PodError> {
    for list in ["requests", "limits"] {
        if let Some(amount) = user_amount(vmi, list, MEMORY)? {
            return Ok(amount.units());
        }
    }
    let memory = vmi.spec.domain.memory.as_ref();
    let field = "spec.domain.memory.guest";
    let guest = memory.and_then(|memory| memory.guest.as_ref());
    let guest = guest.ok_or_else(|| PodError::missing(field))?;
    let guest = Amount::parse(guest)
        .map_err(|error| PodError::invalid(field, &error))?
        .units();
    let percent = u128::from(settings.memory_overcommit_percent.max(1));
    let shared = (u128::from(guest) * 100).div_ceil(percent);
    Ok(u64::try_from(shared).unwrap_or(u64::MAX))
}

fn add_storage(
    vmi: &VirtualMachineInstance,
    requests: &mut Quantities,
    limits: &mut Quantities,
) -> Result<(), PodError> {
    let plus = |amount: Option<Amount>| {
        let units = amount.map_or(0, Amount::units).saturating_add(OWN_STORAGE);
        Amount::of(units)
    };
    let request = user_amount(vmi, "requests", EPHEMERAL_STORAGE)?;
    requests.insert(EPHEMERAL_STORAGE.to_owned(), decimal(plus(request)));
    if let Some(limit) = user_amount(vmi, "limits", EPHEMERAL_STORAGE)? {
        limits.insert(EPHEMERAL_STORAGE.to_owned(), decimal(plus(Some(limit))));
    }
    Ok(())
}

fn devices(vmi: &VirtualMachineInstance, settings: &Settings) -> Vec<&'static str> {
    let interfaces = &vmi.spec.domain.devices.interfaces;
    let mut present = interfaces
        .iter()
        .filter(|interface| interface.state != Some(InterfaceState::Absent));
    let has_kvm = settings.acceleration == Acceleration::Kvm;
    let is_virtio = |model: Option<&str>| model.is_none_or(|m| m.is_empty() || m == "virtio");
    let uses = [
        ("kvm", has_kvm),
        ("tun", present.clone().next().is_some()),
        (
            "vhost-net",
            has_kvm && present.any(|i| is_virtio(i.model.as_deref())),
        ),
    ];
    uses.into_iter()
        .filter(|(_, used)| *used)
        .map(|(name, _)| name)
        .collect()
}

fn bytes(value: u64) -> Quantity {
    Amount::of(value).to_binary()
}

fn decimal(amount: Amount) -> Quantity {
    let units = amount.units();
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
