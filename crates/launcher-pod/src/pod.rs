//! The pod as a whole.

use k8s_openapi::api::core::v1::{
    LocalObjectReference, Pod, PodReadinessGate, PodResourceClaim, PodSpec,
};
use kubevirt_api::{VirtualMachineInstance, annotations};
use model::{Guest, VolumeSource};

use crate::{
    ContainerDisks, Feature, Input, PodError, Settings, Surroundings, compute::grace_seconds,
    container, hooks, incoming, init, metadata, scheduling, security, volumes,
};

/// Seconds that the pod gets beyond that, so that the launcher can still force a power-off.
const POD_GRACE: i64 = 30;

/// Condition of a pod whose guest is not paused.
const UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";

/// Renders the pod of a VMI.
pub fn pod(
    vmi: &VirtualMachineInstance,
    settings: &Settings,
    surroundings: &Surroundings,
) -> Result<Pod, PodError> {
    let input = Input {
        guest: &Guest::of(vmi),
        settings,
        surroundings,
    };
    let mut pod = Pod {
        metadata: metadata::render(&input)?,
        spec: Some(spec(&input)?),
        status: None,
    };
    if model::awaits_guest(vmi) {
        incoming::receive_from_elsewhere(&mut pod, vmi);
    }
    Ok(pod)
}

/// Renders a pod that only makes the cluster bind the persistent volume claims of a VMI on a node
/// where its guest can run; it ends at once.
pub fn provisioning_pod(
    vmi: &VirtualMachineInstance,
    settings: &Settings,
    surroundings: &Surroundings,
) -> Result<Pod, PodError> {
    let mut pod = pod(vmi, settings, surroundings)?;
    pod.metadata.name = Some(provisioning_pod_name(vmi));
    let annotated = pod.metadata.annotations.get_or_insert_default();
    annotated.insert(
        annotations::EPHEMERAL_PROVISIONING.to_owned(),
        "true".to_owned(),
    );
    let Some(spec) = &mut pod.spec else {
        return Ok(pod);
    };
    // No disk is read, and no guest is changed.
    spec.init_containers = None;
    for container in &mut spec.containers {
        container.command = Some(vec!["/bin/bash".to_owned()]);
        container.args = Some(vec!["-c".to_owned(), "echo bound PVCs".to_owned()]);
        container.readiness_probe = None;
        container.liveness_probe = None;
    }
    Ok(pod)
}

/// Differs from the name of the launcher pod, which is created later.
pub fn provisioning_pod_name(vmi: &VirtualMachineInstance) -> String {
    format!("{}-bind", metadata::pod_name(vmi))
}

fn spec(input: &Input<'_>) -> Result<PodSpec, PodError> {
    let Input {
        guest, settings, ..
    } = input;
    let vmi = guest.vmi;
    let spec = &vmi.spec;
    let storage = volumes::of(input)?;
    let constraints = spec.topology_spread_constraints.clone();
    let gates = settings.has(Feature::UnpausedGate).then(|| {
        vec![PodReadinessGate {
            condition_type: UNPAUSED.to_owned(),
        }]
    });
    let mut init = match settings.container_disks {
        ContainerDisks::ImageVolumes => Vec::new(),
        ContainerDisks::Copied => init::render(input)?,
    };
    init.extend(hooks::render(input, &hooks::of(input)?)?);
    Ok(PodSpec {
        init_containers: Some(init).filter(|all| !all.is_empty()),
        containers: vec![container::render(input, &storage)?],
        volumes: Some(storage.volumes),
        hostname: Some(guest.hostname()),
        subdomain: text(spec.subdomain.as_ref()),
        restart_policy: Some("Never".to_owned()),
        enable_service_links: Some(false),
        automount_service_account_token: Some(needs_token(guest)),
        service_account_name: service_account(guest),
        termination_grace_period_seconds: Some(grace_seconds(vmi).saturating_add(POD_GRACE)),
        security_context: Some(security::pod_context(settings)),
        readiness_gates: gates,
        dns_config: spec.dns_config.clone(),
        dns_policy: text(spec.dns_policy.as_ref()),
        scheduler_name: text(spec.scheduler_name.as_ref()),
        priority_class_name: text(spec.priority_class_name.as_ref()),
        runtime_class_name: text(settings.runtime_class.as_ref()),
        node_selector: Some(scheduling::node_selector(input)),
        affinity: scheduling::affinity(input),
        tolerations: Some(spec.tolerations.clone()).filter(|all| !all.is_empty()),
        topology_spread_constraints: Some(constraints).filter(|all| !all.is_empty()),
        resource_claims: Some(resource_claims(vmi)).filter(|all| !all.is_empty()),
        image_pull_secrets: Some(pull_secrets(guest, settings)).filter(|all| !all.is_empty()),
        ..PodSpec::default()
    })
}

/// Drops an empty string.
fn text(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// The guest reads the token from a disk, or the sidecar of a service mesh uses it.
fn needs_token(guest: &Guest<'_>) -> bool {
    let mut volumes = guest.volumes.iter();
    volumes.any(|volume| matches!(volume.source, VolumeSource::ServiceAccount(_)))
        || annotations::is_true(&guest.vmi.metadata, annotations::ISTIO_INJECT)
}

fn service_account(guest: &Guest<'_>) -> Option<String> {
    let named = text(guest.vmi.spec.service_account_name.as_ref());
    named.or_else(|| {
        guest.volumes.iter().find_map(|volume| match volume.source {
            VolumeSource::ServiceAccount(source) => text(source.service_account_name.as_ref()),
            _ => None,
        })
    })
}

fn pull_secrets(guest: &Guest<'_>, settings: &Settings) -> Vec<LocalObjectReference> {
    let mut names = volumes::pull_secrets(guest);
    names.extend(settings.image_pull_secrets.iter().cloned());
    names.sort();
    names.dedup();
    names
        .into_iter()
        .map(|name| LocalObjectReference { name })
        .collect()
}

fn resource_claims(vmi: &VirtualMachineInstance) -> Vec<PodResourceClaim> {
    let claims = vmi.spec.resource_claims.iter();
    claims
        .map(|claim| PodResourceClaim {
            name: claim.name.clone(),
            resource_claim_name: claim.resource_claim_name.clone(),
            resource_claim_template_name: claim.resource_claim_template_name.clone(),
        })
        .collect()
}
