//! Facts about a VMI that several parts of its pod depend on.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::annotations;
use kubevirt_api::domain::IoThreadsPolicy;
use model::{Guest, InvalidQuantity, ResourceList, Target, Volume};

use crate::{Feature, Settings};

/// I/O threads that have CPUs of their own.
pub(crate) fn supplemental_threads(vmi: &VirtualMachineInstance) -> u64 {
    let domain = &vmi.spec.domain;
    if domain.io_threads_policy != Some(IoThreadsPolicy::SupplementalPool) {
        return 0;
    }
    let threads = domain.io_threads.as_ref();
    threads
        .and_then(|threads| threads.supplemental_pool_thread_count)
        .map_or(0, u64::from)
}

pub(crate) fn has_annotation(vmi: &VirtualMachineInstance, key: &str) -> bool {
    let all = vmi.metadata.annotations.as_ref();
    all.is_some_and(|all| all.contains_key(key))
}

/// Whether the annotation has one of the values that `KubeVirt` takes for true.
pub(crate) fn annotation_is_true(vmi: &VirtualMachineInstance, key: &str) -> bool {
    let all = vmi.metadata.annotations.as_ref();
    let value = all.and_then(|all| all.get(key)).map(String::as_str);
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Volumes that the launcher pod itself contains. With hotplug, another pod brings a hotpluggable
/// volume later.
pub(crate) fn volumes<'a>(
    guest: &'a Guest<'a>,
    settings: &Settings,
) -> impl Iterator<Item = &'a Volume<'a>> {
    let has_hotplug = settings.has(Feature::HotplugDisks);
    let all = guest.volumes.iter();
    all.filter(move |volume| !(has_hotplug && guest.is_hotplugged(volume)))
}

/// Whether the volume's disk makes persistent reservations.
pub(crate) fn reserves(guest: &Guest<'_>, volume: &str) -> bool {
    let mut disks = guest.disks.iter().filter(|disk| disk.name() == volume);
    disks.any(|disk| disk.target == Target::Lun { is_reserving: true })
}

/// Whether the user's requests of CPU and memory are also their limits.
pub(crate) fn is_guaranteed(guest: &Guest<'_>) -> Result<bool, InvalidQuantity> {
    for name in ["cpu", "memory"] {
        let request = guest.resource(ResourceList::Requests, name)?;
        if request.is_none() || request != guest.resource(ResourceList::Limits, name)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the emulator's threads get as many CPUs as make the total even.
pub(crate) fn wants_even_cpus(vmi: &VirtualMachineInstance) -> bool {
    has_annotation(vmi, annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY)
}
