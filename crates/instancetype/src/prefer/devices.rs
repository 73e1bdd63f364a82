//! Preferred devices, except disks.

use kubevirt_api::{
    devices::{Devices, PanicDevice, VideoDevice},
    network::{Interface, InterfaceMasquerade},
    preference::DevicePreferences,
};

use crate::target::{Preference, Target, fill, fill_string};

/// Autoattach settings. Applied before default devices are added, too.
pub fn autoattach(target: &mut Target<'_>, preference: &Preference) {
    let Some((devices, wanted)) = both(target, preference) else {
        return;
    };
    for (own, wanted) in [
        (
            &mut devices.autoattach_graphics_device,
            wanted.preferred_autoattach_graphics_device,
        ),
        (
            &mut devices.autoattach_mem_balloon,
            wanted.preferred_autoattach_mem_balloon,
        ),
        (
            &mut devices.autoattach_pod_interface,
            wanted.preferred_autoattach_pod_interface,
        ),
        (
            &mut devices.autoattach_serial_console,
            wanted.preferred_autoattach_serial_console,
        ),
        (
            &mut devices.autoattach_input_device,
            wanted.preferred_autoattach_input_device,
        ),
    ] {
        fill(own, wanted.as_ref());
    }
}

pub(super) fn set_hotplug(target: &mut Target<'_>, preference: &Preference) {
    if let Some((devices, wanted)) = both(target, preference)
        && wanted.preferred_disable_hotplug.is_some()
    {
        devices.disable_hotplug = wanted.preferred_disable_hotplug;
    }
}

pub(super) fn set_devices(target: &mut Target<'_>, preference: &Preference) {
    let Some((devices, wanted)) = both(target, preference) else {
        return;
    };
    fill(
        &mut devices.use_virtio_transitional,
        wanted.preferred_use_virtio_transitional.as_ref(),
    );
    fill(
        &mut devices.block_multi_queue,
        wanted.preferred_block_multi_queue.as_ref(),
    );
    fill(
        &mut devices.network_interface_multiqueue,
        wanted.preferred_network_interface_multi_queue.as_ref(),
    );
    fill(&mut devices.rng, wanted.preferred_rng.as_ref());
    fill(&mut devices.tpm, wanted.preferred_tpm.as_ref());
}

pub(super) fn set_video(target: &mut Target<'_>, preference: &Preference) {
    let Some((devices, wanted)) = both(target, preference) else {
        return;
    };
    // A guest without graphics must not have a video device.
    let has_graphics = devices.autoattach_graphics_device != Some(false);
    if let Some(type_) = wanted
        .preferred_video_type
        .as_ref()
        .filter(|_| has_graphics)
    {
        devices.video.get_or_insert_with(|| VideoDevice {
            type_: Some(type_.clone()),
        });
    }
}

pub(super) fn set_sound(target: &mut Target<'_>, preference: &Preference) {
    if let Some((devices, wanted)) = both(target, preference)
        && let Some(sound) = &mut devices.sound
    {
        fill_string(&mut sound.model, wanted.preferred_sound_model.as_ref());
    }
}

pub(super) fn set_inputs(target: &mut Target<'_>, preference: &Preference) {
    let Some((devices, wanted)) = both(target, preference) else {
        return;
    };
    for input in &mut devices.inputs {
        let has_bus = input
            .bus
            .as_ref()
            .is_some_and(|bus| !bus.as_str().is_empty());
        if let Some(bus) = wanted.preferred_input_bus.as_ref().filter(|_| !has_bus) {
            input.bus = Some(bus.clone());
        }
        if let Some(type_) = &wanted.preferred_input_type
            && input.type_.as_str().is_empty()
        {
            input.type_ = type_.clone();
        }
    }
}

pub(super) fn set_interfaces(target: &mut Target<'_>, preference: &Preference) {
    let networks = target.spec.networks.iter();
    let pod_networks: Vec<String> = networks
        .filter(|network| network.pod.is_some())
        .map(|network| network.name.clone())
        .collect();
    let Some((devices, wanted)) = both(target, preference) else {
        return;
    };
    for interface in &mut devices.interfaces {
        let model = wanted.preferred_interface_model.as_ref();
        fill_string(&mut interface.model, model);
        let is_open = !has_binding(interface) && pod_networks.contains(&interface.name);
        if wanted.preferred_interface_masquerade.is_some() && is_open {
            interface.masquerade = Some(InterfaceMasquerade {});
        }
    }
}

fn has_binding(interface: &Interface) -> bool {
    interface.bridge.is_some()
        || interface.slirp.is_some()
        || interface.masquerade.is_some()
        || interface.sriov.is_some()
        || interface.macvtap.is_some()
        || interface.passt.is_some()
        || interface.passt_binding.is_some()
        || interface.binding.is_some()
}

pub(super) fn set_panic(target: &mut Target<'_>, preference: &Preference) {
    let Some((devices, wanted)) = both(target, preference) else {
        return;
    };
    let Some(model) = &wanted.preferred_panic_device_model else {
        return;
    };
    if devices.panic_devices.is_empty() {
        devices.panic_devices.push(PanicDevice::default());
    }
    for device in &mut devices.panic_devices {
        fill(&mut device.model, Some(model));
    }
}

pub(super) fn set_gpu_options(target: &mut Target<'_>, preference: &Preference) {
    let Some((devices, wanted)) = both(target, preference) else {
        return;
    };
    for gpu in &mut devices.gpus {
        let options = wanted.preferred_virtual_gpu_options.as_ref();
        fill(&mut gpu.virtual_gpu_options, options);
    }
}

fn both<'t, 'p>(
    target: &'t mut Target<'_>,
    preference: &'p Preference,
) -> Option<(&'t mut Devices, &'p DevicePreferences)> {
    let wanted = preference.devices.as_ref()?;
    Some((&mut target.spec.domain.devices, wanted))
}
