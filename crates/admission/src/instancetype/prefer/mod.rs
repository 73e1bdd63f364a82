//! What a preference makes of a template, a rule each: what the template leaves open is filled in.
//! ACPI and `disableHotplug` alone are overruled.

mod devices;
mod disks;
mod features;
mod firmware;

use kubevirt_api::preference::VirtualMachinePreferenceSpec;

use super::{Target, fill, fill_word};
use crate::rules::Rule;

pub use devices::autoattach;

type Preference = VirtualMachinePreferenceSpec;
pub type Apply = fn(&mut Target<'_>, &Preference);

/// Everything that is applied, in order.
#[rustfmt::skip]
pub const ALL: &[Rule<Apply>] = &[
    Rule::new("prefer.cpu-features", "D6", "CPU features that are not named", add_cpu_features),
    Rule::new("prefer.autoattach", "D6", "which devices there are when nothing is said", autoattach),
    Rule::new("prefer.hotplug", "D6", "whether disks may be plugged, whatever the template says", devices::set_hotplug),
    Rule::new("prefer.devices", "D6", "transitional devices, queues, random numbers, TPM", devices::set_devices),
    Rule::new("prefer.video", "D6", "kind of the video device", devices::set_video),
    Rule::new("prefer.sound", "D6", "model of the sound device", devices::set_sound),
    Rule::new("prefer.inputs", "D6", "bus and type of inputs", devices::set_inputs),
    Rule::new("prefer.interfaces", "D6", "model and binding of interfaces", devices::set_interfaces),
    Rule::new("prefer.panic", "D6", "panic device", devices::set_panic),
    Rule::new("prefer.gpu-options", "D6", "display of virtual GPUs", devices::set_gpu_options),
    Rule::new("prefer.disks", "D6", "bus, cache, I/O and block size of disks", disks::set_disks),
    Rule::new("prefer.drives", "D6", "bus of CD-ROM drives and LUNs", disks::set_drives),
    Rule::new("prefer.acpi", "D6", "ACPI, whatever the template says", features::set_acpi),
    Rule::new("prefer.features", "D6", "APIC, KVM, spin locks, SMM", features::set_features),
    Rule::new("prefer.hyperv", "D6", "Hyper-V enlightenments, one by one", features::set_hyperv),
    Rule::new("prefer.firmware", "D6", "BIOS or EFI", firmware::set_bootloader),
    Rule::new("prefer.machine", "D6", "machine type", set_machine),
    Rule::new("prefer.clock", "D6", "what the clock shows, and timers", set_clock),
    Rule::new("prefer.pod", "D6", "subdomain and grace period", set_pod),
    Rule::new("prefer.architecture", "D6", "architecture", set_architecture),
    Rule::new("prefer.launch-security", "D6", "launch security", set_launch_security),
    Rule::new("prefer.annotations", "D6", "annotations that are not there", add_annotations),
];

fn add_cpu_features(target: &mut Target<'_>, preference: &Preference) {
    let Some(wanted) = &preference.cpu else {
        return;
    };
    for feature in &wanted.preferred_cpu_features {
        let cpu = target.spec.domain.cpu.get_or_insert_default();
        if cpu.features.iter().all(|own| own.name != feature.name) {
            cpu.features.push(feature.clone());
        }
    }
}

fn set_machine(target: &mut Target<'_>, preference: &Preference) {
    let wanted = preference.machine.as_ref();
    let wanted = wanted.and_then(|machine| machine.preferred_machine_type.as_ref());
    if let Some(wanted) = wanted {
        let machine = target.spec.domain.machine.get_or_insert_default();
        fill_word(&mut machine.type_, Some(wanted));
    }
}

fn set_clock(target: &mut Target<'_>, preference: &Preference) {
    let Some(wanted) = &preference.clock else {
        return;
    };
    let clock = target.spec.domain.clock.get_or_insert_default();
    // Both say what the clock shows, so one of them leaves nothing open.
    if clock.utc.is_none()
        && clock.timezone.is_none()
        && let Some(offset) = &wanted.preferred_clock_offset
    {
        clock.utc.clone_from(&offset.utc);
        clock.timezone.clone_from(&offset.timezone);
    }
    fill(&mut clock.timer, wanted.preferred_timer.as_ref());
}

fn set_pod(target: &mut Target<'_>, preference: &Preference) {
    let spec = &mut *target.spec;
    fill_word(&mut spec.subdomain, preference.preferred_subdomain.as_ref());
    fill(
        &mut spec.termination_grace_period_seconds,
        preference
            .preferred_termination_grace_period_seconds
            .as_ref(),
    );
}

fn set_architecture(target: &mut Target<'_>, preference: &Preference) {
    fill_word(
        &mut target.spec.architecture,
        preference.preferred_architecture.as_ref(),
    );
}

fn set_launch_security(target: &mut Target<'_>, preference: &Preference) {
    fill(
        &mut target.spec.domain.launch_security,
        preference.preferred_launch_security.as_ref(),
    );
}

fn add_annotations(target: &mut Target<'_>, preference: &Preference) {
    for (key, value) in &preference.annotations {
        let own = target.annotations.entry(key.clone());
        own.or_insert_with(|| value.clone());
    }
}
