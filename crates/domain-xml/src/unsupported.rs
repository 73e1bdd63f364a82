//! What a VMI may ask for that is not rendered yet. The list shrinks as the crate grows.

use kubevirt_api::VirtualMachineInstance;

use crate::RenderError;

type Check = (&'static str, fn(&VirtualMachineInstance) -> bool);

/// Field path, and whether the VMI uses it. Fields inside lists are refused where they are
/// rendered, with their index.
const CHECKS: &[Check] = &[
    ("spec.architecture", |vmi| {
        !matches!(vmi.spec.architecture.as_deref(), None | Some("" | "amd64"))
    }),
    ("spec.accessCredentials", |vmi| {
        !vmi.spec.access_credentials.is_empty()
    }),
    ("spec.domain.chassis", |vmi| {
        vmi.spec.domain.chassis.is_some()
    }),
    ("spec.domain.launchSecurity", |vmi| {
        vmi.spec.domain.launch_security.is_some()
    }),
    ("spec.domain.ioThreadsPolicy", |vmi| {
        vmi.spec.domain.io_threads_policy.is_some()
    }),
    ("spec.domain.ioThreads", |vmi| {
        vmi.spec.domain.io_threads.is_some()
    }),
    ("spec.domain.memory.hugepages", |vmi| {
        vmi.spec
            .domain
            .memory
            .as_ref()
            .is_some_and(|memory| memory.hugepages.is_some())
    }),
    ("spec.domain.cpu.dedicatedCpuPlacement", |vmi| {
        cpu(vmi, |cpu| cpu.dedicated_cpu_placement == Some(true))
    }),
    ("spec.domain.cpu.isolateEmulatorThread", |vmi| {
        cpu(vmi, |cpu| cpu.isolate_emulator_thread == Some(true))
    }),
    ("spec.domain.cpu.numa", |vmi| {
        cpu(vmi, |cpu| cpu.numa.is_some())
    }),
    ("spec.domain.cpu.realtime", |vmi| {
        cpu(vmi, |cpu| cpu.realtime.is_some())
    }),
    ("spec.domain.firmware.acpi", |vmi| {
        vmi.spec
            .domain
            .firmware
            .as_ref()
            .is_some_and(|firmware| firmware.acpi.is_some())
    }),
    ("spec.domain.devices.gpus", |vmi| {
        !vmi.spec.domain.devices.gpus.is_empty()
    }),
    ("spec.domain.devices.hostDevices", |vmi| {
        !vmi.spec.domain.devices.host_devices.is_empty()
    }),
    ("spec.domain.devices.filesystems", |vmi| {
        !vmi.spec.domain.devices.filesystems.is_empty()
    }),
    ("spec.domain.devices.clientPassthrough", |vmi| {
        vmi.spec.domain.devices.client_passthrough.is_some()
    }),
    ("spec.domain.devices.downwardMetrics", |vmi| {
        vmi.spec.domain.devices.downward_metrics.is_some()
    }),
    ("spec.domain.devices.autoattachVSOCK", |vmi| {
        vmi.spec.domain.devices.autoattach_vsock == Some(true)
    }),
    ("spec.domain.devices.tpm", |vmi| {
        let tpm = vmi.spec.domain.devices.tpm.as_ref();
        tpm.is_some_and(|tpm| tpm.enabled != Some(false))
    }),
    ("spec.domain.devices.watchdog.diag288", |vmi| {
        let watchdog = vmi.spec.domain.devices.watchdog.as_ref();
        watchdog.is_some_and(|watchdog| watchdog.diag288.is_some())
    }),
];

pub(crate) fn check(vmi: &VirtualMachineInstance) -> Result<(), RenderError> {
    match CHECKS.iter().find(|(_, uses)| uses(vmi)) {
        None => Ok(()),
        Some((field, _)) => Err(RenderError::unsupported(*field)),
    }
}

fn cpu(vmi: &VirtualMachineInstance, uses: fn(&kubevirt_api::domain::Cpu) -> bool) -> bool {
    vmi.spec.domain.cpu.as_ref().is_some_and(uses)
}
