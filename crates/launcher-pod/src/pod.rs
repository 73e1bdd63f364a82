//! The pod as a whole.

use k8s_openapi::api::core::v1::{
    LocalObjectReference, Pod, PodResourceClaim, PodSecurityContext, PodSpec, SeccompProfile,
};
use kubevirt_api::VirtualMachineInstance;

use crate::{PodError, Settings, container, hostname, metadata, scheduling, volumes};

/// Name of the one container.
pub const CONTAINER: &str = "compute";
/// User and group that everything in the pod runs as.
pub const RUNTIME_USER: i64 = 107;

/// What a guest gets to shut down that says nothing.
const USUAL_GRACE: i64 = 30;
/// What the pod gets on top, so that a forced power-off is still ours.
const POD_GRACE: i64 = 30;

/// Renders the pod of a VMI.
pub fn pod(vmi: &VirtualMachineInstance, settings: &Settings) -> Result<Pod, PodError> {
    let spec = &vmi.spec;
    let volumes = volumes::of(vmi)?;
    let constraints = spec.topology_spread_constraints.clone();
    let pod_spec = PodSpec {
        containers: vec![container::render(vmi, settings, volumes.mounts)?],
        volumes: Some(volumes.volumes),
        hostname: Some(hostname(vmi)),
        subdomain: spec
            .subdomain
            .clone()
            .filter(|subdomain| !subdomain.is_empty()),
        restart_policy: Some("Never".to_owned()),
        enable_service_links: Some(false),
        automount_service_account_token: Some(false),
        service_account_name: spec.service_account_name.clone(),
        termination_grace_period_seconds: Some(grace_seconds(vmi).saturating_add(POD_GRACE)),
        security_context: Some(security()),
        dns_config: spec.dns_config.clone(),
        dns_policy: spec.dns_policy.clone().filter(|policy| !policy.is_empty()),
        scheduler_name: spec.scheduler_name.clone().filter(|name| !name.is_empty()),
        priority_class_name: spec
            .priority_class_name
            .clone()
            .filter(|name| !name.is_empty()),
        runtime_class_name: settings.runtime_class.clone(),
        node_selector: Some(scheduling::node_selector(vmi, settings)),
        affinity: scheduling::affinity(vmi, settings),
        tolerations: Some(spec.tolerations.clone()).filter(|all| !all.is_empty()),
        topology_spread_constraints: Some(constraints).filter(|all| !all.is_empty()),
        resource_claims: Some(resource_claims(vmi)).filter(|all| !all.is_empty()),
        image_pull_secrets: Some(pull_secrets(vmi, settings)).filter(|all| !all.is_empty()),
        ..PodSpec::default()
    };
    Ok(Pod {
        metadata: metadata::render(vmi)?,
        spec: Some(pod_spec),
        status: None,
    })
}

/// How long the guest may take to shut down.
pub(crate) fn grace_seconds(vmi: &VirtualMachineInstance) -> i64 {
    vmi.spec
        .termination_grace_period_seconds
        .unwrap_or(USUAL_GRACE)
        .max(0)
}

fn security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_user: Some(RUNTIME_USER),
        run_as_group: Some(RUNTIME_USER),
        run_as_non_root: Some(true),
        fs_group: Some(RUNTIME_USER),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

fn pull_secrets(vmi: &VirtualMachineInstance, settings: &Settings) -> Vec<LocalObjectReference> {
    let mut names = volumes::pull_secrets(vmi);
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
