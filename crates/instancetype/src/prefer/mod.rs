//! The values that a preference fills into a template, one rule each. Only fields that the template
//! leaves unset are filled in, except ACPI and `disableHotplug`, which are overridden.

mod devices;
mod disks;
mod features;
mod firmware;

use validation::{Rule, Subject};

use crate::target::{Preference, Target, fill, fill_string};

pub use devices::autoattach;

pub type Apply = fn(&mut Target<'_>, &Preference);

/// All rules, in the order they are applied.
#[rustfmt::skip]
pub const ALL: &[Rule<Apply>] = &[
    Rule::new("prefer.cpu-features", Subject::AppliedPreference, "CPU features that the template does not list", add_cpu_features),
    Rule::new("prefer.autoattach", Subject::AppliedPreference, "autoattach settings of devices", autoattach),
    Rule::new("prefer.hotplug", Subject::AppliedPreference, "whether disks can be hot-plugged; overrides the template", devices::set_hotplug),
    Rule::new("prefer.devices", Subject::AppliedPreference, "transitional devices, queues, random numbers, TPM", devices::set_devices),
    Rule::new("prefer.video", Subject::AppliedPreference, "type of the video device", devices::set_video),
    Rule::new("prefer.sound", Subject::AppliedPreference, "model of the sound device", devices::set_sound),
    Rule::new("prefer.inputs", Subject::AppliedPreference, "bus and type of inputs", devices::set_inputs),
    Rule::new("prefer.interfaces", Subject::AppliedPreference, "model and binding of interfaces", devices::set_interfaces),
    Rule::new("prefer.panic", Subject::AppliedPreference, "panic device", devices::set_panic),
    Rule::new("prefer.gpu-options", Subject::AppliedPreference, "display of virtual GPUs", devices::set_gpu_options),
    Rule::new("prefer.disks", Subject::AppliedPreference, "bus, cache, I/O and block size of disks", disks::set_disks),
    Rule::new("prefer.drives", Subject::AppliedPreference, "bus of CD-ROM drives and LUNs", disks::set_drives),
    Rule::new("prefer.acpi", Subject::AppliedPreference, "ACPI; overrides the template", features::set_acpi),
    Rule::new("prefer.features", Subject::AppliedPreference, "APIC, KVM, spin locks, SMM", features::set_features),
    Rule::new("prefer.hyperv", Subject::AppliedPreference, "Hyper-V enlightenments, each by itself", features::set_hyperv),
    Rule::new("prefer.firmware", Subject::AppliedPreference, "BIOS or EFI", firmware::set_bootloader),
    Rule::new("prefer.machine", Subject::AppliedPreference, "machine type", set_machine),
    Rule::new("prefer.clock", Subject::AppliedPreference, "clock offset and timers", set_clock),
    Rule::new("prefer.pod", Subject::AppliedPreference, "subdomain and grace period", set_pod),
    Rule::new("prefer.architecture", Subject::AppliedPreference, "architecture", set_architecture),
    Rule::new("prefer.launch-security", Subject::AppliedPreference, "launch security", set_launch_security),
    Rule::new("prefer.annotations", Subject::AppliedPreference, "annotations that the template does not set", add_annotations),
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
        fill_string(&mut machine.type_, Some(wanted));
    }
}

fn set_clock(target: &mut Target<'_>, preference: &Preference) {
    let Some(wanted) = &preference.clock else {
        return;
    };
    let clock = target.spec.domain.clock.get_or_insert_default();
    // utc and timezone are alternatives.
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
    fill_string(&mut spec.subdomain, preference.preferred_subdomain.as_ref());
    fill(
        &mut spec.termination_grace_period_seconds,
        preference
            .preferred_termination_grace_period_seconds
            .as_ref(),
    );
}

fn set_architecture(target: &mut Target<'_>, preference: &Preference) {
    fill_string(
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
