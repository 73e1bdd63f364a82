//! The container that the guest runs in.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar};
use kubevirt_api::{annotations, labels};
use model::{Guest, paths};

use crate::compute::{CONTAINER, grace_seconds};
use crate::volumes::{Storage, shared_directories};
use crate::{ClaimMode, Input, PodError, guest, probes, resources, security};

/// Seconds that the launcher gets beyond the guest's grace period.
const LAUNCHER_GRACE: i64 = 15;
pub(crate) const ENVIRONMENT: [(&str, &str); 3] = [
    ("XDG_CACHE_HOME", paths::PRIVATE),
    ("XDG_CONFIG_HOME", paths::PRIVATE),
    ("XDG_RUNTIME_DIR", "/var/run"),
];
const DEFAULT_VERBOSITY: u64 = 2;
/// A higher verbosity of the launcher includes the log of libvirt.
const LIBVIRT_LOGS_ABOVE: u64 = 5;
/// Directories that other pods of the guest share: a migrated guest finds its disks and its kept state there.
pub const SHARED_PATHS: &str = "SHARED_FILESYSTEM_PATHS";

pub(crate) fn render(input: &Input<'_>, storage: &Storage) -> Result<Container, PodError> {
    let Input {
        guest, settings, ..
    } = input;
    let spec = &guest.vmi.spec;
    let devices = storage.devices.clone();
    Ok(Container {
        name: CONTAINER.to_owned(),
        image: Some(settings.launcher_image.clone()),
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        command: Some(vec!["/usr/bin/virt-launcher-monitor".to_owned()]),
        args: Some(arguments(guest)),
        env: Some(environment(input)),
        ports: Some(ports(guest)).filter(|ports| !ports.is_empty()),
        resources: Some(resources::render(input)?),
        security_context: Some(security::container_context()),
        volume_mounts: Some(storage.mounts.clone()),
        volume_devices: Some(devices).filter(|devices| !devices.is_empty()),
        readiness_probe: probes::render(guest, spec.readiness_probe.as_ref()),
        liveness_probe: probes::render(guest, spec.liveness_probe.as_ref()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    })
}

fn environment(input: &Input<'_>) -> Vec<EnvVar> {
    let mut all: Vec<EnvVar> = ENVIRONMENT
        .into_iter()
        .map(|(name, value)| variable(name, value))
        .collect();
    let shared = shared_paths(input);
    if !shared.is_empty() {
        all.push(variable(SHARED_PATHS, &shared));
    }
    all.extend(log_variables(input));
    let settings = input.settings.variables.iter();
    all.extend(settings.map(|(name, value)| variable(name, value)));
    all
}

/// How much the launcher and libvirt log: labels and an annotation of the VMI, else the cluster's setting.
fn log_variables(input: &Input<'_>) -> Vec<EnvVar> {
    let meta = &input.guest.vmi.metadata;
    let label = |key: &str| meta.labels.as_ref()?.get(key);
    let verbosity = label(labels::LOG_VERBOSITY).and_then(|level| level.parse().ok());
    let verbosity = verbosity.or(input.settings.log_verbosity);
    let is_debugged = label(labels::DEBUG_LOGS).is_some_and(|value| value == "true")
        || verbosity.is_some_and(|level| level > LIBVIRT_LOGS_ABOVE);
    let filters = meta.annotations.as_ref();
    let filters = filters.and_then(|all| all.get(annotations::LIBVIRT_LOG_FILTERS));
    let verbosity = verbosity.filter(|level| *level != DEFAULT_VERBOSITY);
    let all = [
        (
            "VIRT_LAUNCHER_LOG_VERBOSITY",
            verbosity.map(|level| level.to_string()),
        ),
        ("LIBVIRT_DEBUG_LOGS", is_debugged.then(|| "1".to_owned())),
        ("LIBVIRT_LOG_FILTERS", filters.cloned()),
    ];
    let given = all.into_iter();
    let given = given.filter_map(|(name, value)| Some(variable(name, &value?)));
    given.collect()
}

fn shared_paths(input: &Input<'_>) -> String {
    let disks = guest::volumes(input.guest, input.settings)
        .filter(|volume| !input.guest.is_filesystem(volume.name));
    let directories: BTreeSet<String> = disks
        .filter(|volume| {
            let claim = volume.source.claim();
            let claim = claim.and_then(|claim| input.surroundings.claims.get(claim.name));
            claim.is_some_and(|claim| claim.is_shared() && claim.mode() == ClaimMode::Filesystem)
        })
        .map(|volume| paths::disk_directory(volume.name))
        .chain(shared_directories(input.guest))
        .collect();
    directories.into_iter().collect::<Vec<_>>().join(":")
}

fn arguments(guest: &Guest<'_>) -> Vec<String> {
    let meta = &guest.vmi.metadata;
    let crash = guest::has_annotation(guest.vmi, annotations::FUNC_TEST_VIRT_LAUNCHER_FAIL_FAST);
    let keep = guest::annotation_is_true(guest.vmi, annotations::KEEP_LAUNCHER_AFTER_FAILURE);
    let grace = grace_seconds(guest.vmi)
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
    .chain(crash.then(|| "--simulate-crash".to_owned()))
    .chain(keep.then(|| "--keep-after-failure".to_owned()))
    .collect()
}

pub(crate) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

fn ports(guest: &Guest<'_>) -> Vec<ContainerPort> {
    let interfaces = guest.plugged_interfaces();
    let ports = interfaces.flat_map(|interface| &interface.spec.ports);
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
