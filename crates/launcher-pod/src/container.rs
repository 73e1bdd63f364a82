//! The container that the guest runs in.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar};
use kubevirt_api::VirtualMachineInstance;

use crate::pod::{CONTAINER, grace_seconds};
use crate::volumes::{self, Storage};
use crate::{ClaimMode, Input, PodError, guest, probes, resources, security};

/// Between the guest's grace and the launcher's own.
const LAUNCHER_GRACE: i64 = 15;
const ENVIRONMENT: [(&str, &str); 3] = [
    ("XDG_CACHE_HOME", "/var/run/kubevirt-private"),
    ("XDG_CONFIG_HOME", "/var/run/kubevirt-private"),
    ("XDG_RUNTIME_DIR", "/var/run"),
];
/// Directories that other nodes see, too: a guest that moves finds its disks there.
const SHARED_PATHS: &str = "SHARED_FILESYSTEM_PATHS";

pub(crate) fn render(input: &Input<'_>, storage: &Storage) -> Result<Container, PodError> {
    let Input { vmi, settings, .. } = input;
    let spec = &vmi.spec;
    let devices = storage.devices.clone();
    Ok(Container {
        name: CONTAINER.to_owned(),
        image: Some(settings.launcher_image.clone()),
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        command: Some(vec!["/usr/bin/virt-launcher-monitor".to_owned()]),
        args: Some(arguments(vmi)),
        env: Some(environment(input)),
        ports: Some(ports(vmi)).filter(|ports| !ports.is_empty()),
        resources: Some(resources::render(input)?),
        security_context: Some(security::of_container()),
        volume_mounts: Some(storage.mounts.clone()),
        volume_devices: Some(devices).filter(|devices| !devices.is_empty()),
        readiness_probe: probes::render(vmi, spec.readiness_probe.as_ref()),
        liveness_probe: probes::render(vmi, spec.liveness_probe.as_ref()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    })
}

fn environment(input: &Input<'_>) -> Vec<EnvVar> {
    let mut all: Vec<EnvVar> = ENVIRONMENT.into_iter().map(variable).collect();
    let shared = shared_paths(input);
    if !shared.is_empty() {
        all.push(variable((SHARED_PATHS, &shared)));
    }
    all
}

fn shared_paths(input: &Input<'_>) -> String {
    let disks = guest::volumes(input.vmi, input.settings)
        .filter(|(_, volume)| !guest::is_filesystem(input.vmi, &volume.name));
    let paths: BTreeSet<String> = disks
        .filter(|(_, volume)| {
            let claim = guest::claim_of(volume);
            let claim = claim.and_then(|claim| input.around.claims.get(claim));
            claim.is_some_and(|claim| claim.is_shared() && claim.mode() == ClaimMode::Filesystem)
        })
        .map(|(_, volume)| volumes::disk_directory(&volume.name))
        .collect();
    paths.into_iter().collect::<Vec<_>>().join(":")
}

fn arguments(vmi: &VirtualMachineInstance) -> Vec<String> {
    let meta = &vmi.metadata;
    let grace = grace_seconds(vmi)
        .saturating_add(LAUNCHER_GRACE)
        .to_string();
    [
        ("--name", meta.name.clone().unwrap_or_default()),
        ("--uid", meta.uid.clone().unwrap_or_default()),
        ("--namespace", meta.namespace.clone().unwrap_or_default()),
        ("--grace-period-seconds", grace),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

fn variable((name, value): (&str, &str)) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

fn ports(vmi: &VirtualMachineInstance) -> Vec<ContainerPort> {
    let interfaces = guest::interfaces(vmi);
    let ports = interfaces.flat_map(|interface| &interface.ports);
    ports
        .map(|port| ContainerPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            protocol: port
                .protocol
                .clone()
                .filter(|protocol| !protocol.is_empty())
                .or_else(|| Some("TCP".to_owned())),
            container_port: port.port,
            ..ContainerPort::default()
        })
        .collect()
}
