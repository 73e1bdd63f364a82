//! Questions about a VMI that several parts of its pod depend on.

use kubevirt_api::domain::IoThreadsPolicy;
use kubevirt_api::network::{Interface, InterfaceState};
use kubevirt_api::quantity::Amount;
use kubevirt_api::volumes::Volume;
use kubevirt_api::{VirtualMachineInstance, annotations};

use crate::{Feature, PodError, Settings};

/// Architecture of a guest that names none.
const USUAL_ARCHITECTURE: &str = "amd64";

pub(crate) fn architecture(vmi: &VirtualMachineInstance) -> &str {
    let named = vmi.spec.architecture.as_deref();
    named
        .filter(|name| !name.is_empty())
        .unwrap_or(USUAL_ARCHITECTURE)
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

pub(crate) fn has_dedicated_cpus(vmi: &VirtualMachineInstance) -> bool {
    let cpu = vmi.spec.domain.cpu.as_ref();
    cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true))
}

pub(crate) fn has_annotation(vmi: &VirtualMachineInstance, key: &str) -> bool {
    let all = vmi.metadata.annotations.as_ref();
    all.is_some_and(|all| all.contains_key(key))
}

/// Whether an annotation is there and says yes, in any spelling of Go's booleans.
pub(crate) fn is_annotated_true(vmi: &VirtualMachineInstance, key: &str) -> bool {
    let all = vmi.metadata.annotations.as_ref();
    let value = all.and_then(|all| all.get(key)).map(String::as_str);
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Interfaces that are there at the start.
pub(crate) fn interfaces(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &Interface> + Clone {
    let all = vmi.spec.domain.devices.interfaces.iter();
    all.filter(|interface| interface.state != Some(InterfaceState::Absent))
}

/// Volumes that the pod brings. One that may come and go follows later, by another pod, where that
/// is done at all; a memory dump always does.
pub(crate) fn volumes<'a>(
    vmi: &'a VirtualMachineInstance,
    settings: &Settings,
) -> impl Iterator<Item = (usize, &'a Volume)> {
    let comes_later = settings.has(Feature::HotplugDisks);
    let all = vmi.spec.volumes.iter().enumerate();
    all.filter(move |(_, volume)| !(comes_later && is_hotpluggable(volume)))
        .filter(|(_, volume)| volume.memory_dump.is_none())
}

fn is_hotpluggable(volume: &Volume) -> bool {
    let claim = volume.persistent_volume_claim.as_ref();
    let data_volume = volume.data_volume.as_ref();
    claim.is_some_and(|claim| claim.hotpluggable == Some(true))
        || data_volume.is_some_and(|source| source.hotpluggable == Some(true))
}

/// The claim that a volume stands on: of that name is also what a data volume makes.
pub fn claim_of(volume: &Volume) -> Option<&str> {
    let ephemeral = volume.ephemeral.as_ref();
    let ephemeral = ephemeral.and_then(|source| source.persistent_volume_claim.as_ref());
    let claim = volume.persistent_volume_claim.as_ref();
    let data_volume = volume.data_volume.as_ref();
    claim
        .map(|claim| claim.claim_name.as_str())
        .or(data_volume.map(|source| source.name.as_str()))
        .or(ephemeral.map(|claim| claim.claim_name.as_str()))
}

/// Volumes that are shared as filesystems and are no disks.
pub(crate) fn is_filesystem(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let shared = &vmi.spec.domain.devices.filesystems;
    shared.iter().any(|filesystem| filesystem.name == volume)
}

/// Volumes whose disk makes persistent reservations.
pub(crate) fn reserves(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let disks = &vmi.spec.domain.devices.disks;
    disks
        .iter()
        .filter(|disk| disk.name == volume)
        .filter_map(|disk| disk.lun.as_ref())
        .any(|lun| lun.reservation == Some(true))
}

/// Devices of the host that the guest drives itself.
pub(crate) fn has_vfio(vmi: &VirtualMachineInstance) -> bool {
    let devices = &vmi.spec.domain.devices;
    !devices.host_devices.is_empty()
        || !devices.gpus.is_empty()
        || interfaces(vmi).any(|interface| interface.sriov.is_some())
}

/// What a guest keeps from run to run on the claim for its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    FirmwareVariables,
    Tpm,
    ChangedBlocks,
}

/// Everything a guest keeps, each with the field that says so.
pub(crate) fn state(vmi: &VirtualMachineInstance) -> Vec<(State, &'static str)> {
    let domain = &vmi.spec.domain;
    let firmware = domain.firmware.as_ref();
    let efi = firmware
        .and_then(|firmware| firmware.bootloader.as_ref())
        .and_then(|bootloader| bootloader.efi.as_ref());
    let tpm = domain.devices.tpm.as_ref();
    let mut disks = domain.devices.disks.iter();
    let uses = [
        (
            State::FirmwareVariables,
            "spec.domain.firmware.bootloader.efi.persistent",
            efi.is_some_and(|efi| efi.persistent == Some(true)),
        ),
        (
            State::Tpm,
            "spec.domain.devices.tpm.persistent",
            has_tpm(vmi) && tpm.is_some_and(|tpm| tpm.persistent == Some(true)),
        ),
        (
            State::ChangedBlocks,
            "spec.domain.devices.disks.changedBlockTracking",
            disks.any(|disk| disk.changed_block_tracking == Some(true)),
        ),
    ];
    uses.into_iter()
        .filter(|(_, _, used)| *used)
        .map(|(state, field, _)| (state, field))
        .collect()
}

pub(crate) fn has_tpm(vmi: &VirtualMachineInstance) -> bool {
    let tpm = vmi.spec.domain.devices.tpm.as_ref();
    tpm.is_some_and(|tpm| tpm.enabled != Some(false))
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

/// Whether the user asked for exactly what the guest may use at most, of CPU and memory.
pub(crate) fn is_guaranteed(vmi: &VirtualMachineInstance) -> Result<bool, PodError> {
    for name in ["cpu", "memory"] {
        let request = user_amount(vmi, "requests", name)?;
        if request.is_none() || request != user_amount(vmi, "limits", name)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes of the guest's memory, as far as the VMI says.
pub(crate) fn memory(vmi: &VirtualMachineInstance) -> Result<Option<u64>, PodError> {
    let field = "spec.domain.memory.guest";
    let memory = vmi.spec.domain.memory.as_ref();
    let guest = memory.and_then(|memory| memory.guest.as_ref());
    let read = |guest| Amount::parse(guest).map_err(|error| PodError::invalid(field, &error));
    Ok(guest.map(read).transpose()?.map(Amount::units))
}

/// Size of the huge pages under the guest's memory, as it is written.
pub(crate) fn page_size(vmi: &VirtualMachineInstance) -> Option<&str> {
    let memory = vmi.spec.domain.memory.as_ref()?;
    let size = memory.hugepages.as_ref()?.page_size.as_deref()?;
    Some(size).filter(|size| !size.is_empty())
}

/// Whether the emulator's threads get as many CPUs as make the whole even.
pub(crate) fn wants_even_cpus(vmi: &VirtualMachineInstance) -> bool {
    has_annotation(vmi, annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY)
}
