//! The one container.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, SecurityContext, VolumeMount,
};
use kubevirt_api::VirtualMachineInstance;

use crate::pod::{CONTAINER, RUNTIME_USER, grace_seconds};
use crate::{PodError, Settings, probes, resources};

/// Between the guest's grace and the launcher's own.
const LAUNCHER_GRACE: i64 = 15;
const ENVIRONMENT: [(&str, &str); 3] = [
    ("XDG_CACHE_HOME", "/var/run/kubevirt-private"),
    ("XDG_CONFIG_HOME", "/var/run/kubevirt-private"),
    ("XDG_RUNTIME_DIR", "/var/run"),
];

pub(crate) fn render(
    vmi: &VirtualMachineInstance,
    settings: &Settings,
    mounts: Vec<VolumeMount>,
) -> Result<Container, PodError> {
    let spec = &vmi.spec;
    Ok(Container {
        name: CONTAINER.to_owned(),
        image: Some(settings.launcher_image.clone()),
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        command: Some(vec!["/usr/bin/virt-launcher-monitor".to_owned()]),
        args: Some(arguments(vmi)),
        env: Some(ENVIRONMENT.into_iter().map(variable).collect()),
        ports: Some(ports(vmi)).filter(|ports| !ports.is_empty()),
        resources: Some(resources::render(vmi, settings)?),
        security_context: Some(security()),
        volume_mounts: Some(mounts),
        readiness_probe: probes::render("spec.readinessProbe", spec.readiness_probe.as_ref())?,
        liveness_probe: probes::render("spec.livenessProbe", spec.liveness_probe.as_ref())?,
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    })
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
    let interfaces = &vmi.spec.domain.devices.interfaces;
    let ports = interfaces.iter().flat_map(|interface| &interface.ports);
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

fn security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            add: None,
            drop: Some(vec!["ALL".to_owned()]),
        }),
        run_as_user: Some(RUNTIME_USER),
        run_as_group: Some(RUNTIME_USER),
        run_as_non_root: Some(true),
        ..SecurityContext::default()
    }
}
