//! Defaults of disks, inputs, the watchdog, images and probes.

use kubevirt_api::{
    devices::{
        Devices, Diag288Watchdog, I6300EsbWatchdog, InputBus, InputType, Watchdog, WatchdogAction,
    },
    disks::{CdRomTarget, DiskBus, DiskTarget, TrayState},
    vmi::{Probe, VirtualMachineInstanceSpec},
};

use crate::machine::architecture;

/// Images without a tag, or tagged `latest`, may change, so they are pulled at every start.
pub(crate) fn set_pull_policies(spec: &mut VirtualMachineInstanceSpec) {
    for disk in spec
        .volumes
        .iter_mut()
        .filter_map(|volume| volume.container_disk.as_mut())
    {
        if disk
            .image_pull_policy
            .as_deref()
            .unwrap_or_default()
            .is_empty()
        {
            disk.image_pull_policy = Some(pull_policy(&disk.image).to_owned());
        }
    }
}

fn pull_policy(image: &str) -> &'static str {
    let may_change = image.ends_with(":latest") || !image.contains([':', '@']);
    if may_change { "Always" } else { "IfNotPresent" }
}

/// A disk without target is of type disk; CD-ROMs are read-only with a closed tray.
pub(crate) fn set_targets(spec: &mut VirtualMachineInstanceSpec) {
    for disk in &mut spec.domain.devices.disks {
        if disk.disk.is_none() && disk.lun.is_none() && disk.cdrom.is_none() {
            disk.disk = Some(DiskTarget::default());
        }
        if let Some(CdRomTarget { readonly, tray, .. }) = &mut disk.cdrom {
            readonly.get_or_insert(true);
            if tray.as_ref().is_none_or(|tray| tray.as_str().is_empty()) {
                *tray = Some(TrayState::Closed);
            }
        }
        let size = disk.block_size.as_mut();
        if let Some(state) = size.and_then(|size| size.match_volume.as_mut()) {
            state.enabled.get_or_insert(true);
        }
    }
}

pub(crate) fn set_buses(spec: &mut VirtualMachineInstanceSpec) {
    let bus = if matches!(architecture(spec), "arm64" | "s390x") {
        DiskBus::Virtio
    } else {
        DiskBus::Sata
    };
    for disk in &mut spec.domain.devices.disks {
        let buses = [
            disk.disk.as_mut().map(|target| &mut target.bus),
            disk.lun.as_mut().map(|target| &mut target.bus),
            disk.cdrom.as_mut().map(|target| &mut target.bus),
        ];
        for own in buses.into_iter().flatten() {
            set_bus(own, &bus);
        }
    }
}

fn set_bus(bus: &mut Option<DiskBus>, default: &DiskBus) {
    if bus.as_ref().is_none_or(|bus| bus.as_str().is_empty()) {
        *bus = Some(default.clone());
    }
}

pub(crate) fn set_inputs(devices: &mut Devices) {
    for input in &mut devices.inputs {
        if input.bus.as_ref().is_none_or(|bus| bus.as_str().is_empty()) {
            input.bus = Some(InputBus::Usb);
        }
        if input.type_.as_str().is_empty() {
            input.type_ = InputType::Tablet;
        }
    }
}

pub(crate) fn set_watchdog(spec: &mut VirtualMachineInstanceSpec) {
    let is_s390x = architecture(spec) == "s390x";
    let Some(watchdog) = &mut spec.domain.devices.watchdog else {
        return;
    };
    let Watchdog {
        i6300esb, diag288, ..
    } = watchdog;
    if i6300esb.is_none() && diag288.is_none() {
        if is_s390x {
            *diag288 = Some(Diag288Watchdog::default());
        } else {
            *i6300esb = Some(I6300EsbWatchdog::default());
        }
    }
    let actions = [
        i6300esb.as_mut().map(|device| &mut device.action),
        diag288.as_mut().map(|device| &mut device.action),
    ];
    for action in actions.into_iter().flatten() {
        action.get_or_insert(WatchdogAction::Reset);
    }
}

pub(crate) fn set_probes(spec: &mut VirtualMachineInstanceSpec) {
    for probe in [&mut spec.liveness_probe, &mut spec.readiness_probe]
        .into_iter()
        .flatten()
    {
        let Probe {
            timeout_seconds,
            period_seconds,
            success_threshold,
            failure_threshold,
            ..
        } = probe;
        for (value, default) in [
            (timeout_seconds, 1),
            (period_seconds, 10),
            (success_threshold, 1),
            (failure_threshold, 3),
        ] {
            if value.unwrap_or(0) < 1 {
                *value = Some(default);
            }
        }
    }
}
