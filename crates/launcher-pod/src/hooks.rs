//! Hook sidecars: containers of the tenant that may change the guest before it starts.
//!
//! They are init containers that keep running, so that a sidecar which dies is started again, and the pod ends with
//! its guest whether or not a sidecar does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, ResourceRequirements, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::annotations;
use model::{HookClaim, HookScript, HookSidecar, paths};

use crate::container;
use crate::volumes::{Storage, claim, empty_dir, mount, sub_path};
use crate::{Input, PodError, guest, security};

const SOCKETS_VOLUME: &str = "hook-sidecar-sockets";
/// Runs the scripts of a sidecar without an image.
const SCRIPT_RUNNER: [&str; 2] = ["/usr/bin/virt-launcher", "sidecar-shim"];
const EXECUTABLE: i32 = 0o755;
/// Where the pod or its namespace needs limits; those of `KubeVirt`.
const BOUNDED: [(&str, &str); 2] = [("cpu", "200m"), ("memory", "64M")];

pub(crate) fn of(input: &Input<'_>) -> Result<Vec<HookSidecar>, PodError> {
    let meta = &input.guest.vmi.metadata;
    HookSidecar::all(meta.annotations.as_ref()).map_err(|error| {
        let field = format!("metadata.annotations[{}]", annotations::HOOK_SIDECARS);
        PodError::invalid(field, &error)
    })
}

/// The volumes of sidecars, and what of them the guest's own container mounts.
pub(crate) fn add_volumes(all: &mut Storage, sidecars: &[HookSidecar]) {
    if sidecars.is_empty() {
        return;
    }
    let sockets = empty_dir(SOCKETS_VOLUME, EmptyDirVolumeSource::default());
    all.volumes.push(sockets);
    all.mounts.push(mount(SOCKETS_VOLUME, paths::HOOKS));
    for sidecar in sidecars {
        if let Some(script) = &sidecar.script {
            all.volumes.push(script_volume(sidecar, script));
        }
        if let Some(source) = &sidecar.claim {
            let name = claim_volume(sidecar);
            all.volumes.push(claim(&name, &source.claim, false));
            let shared = source.shared_path.as_ref();
            all.mounts
                .extend(shared.map(|shared_path| mount(&name, shared_path)));
        }
    }
}

pub(crate) fn render(
    input: &Input<'_>,
    sidecars: &[HookSidecar],
) -> Result<Vec<Container>, PodError> {
    let resources = resources(input)?;
    let render = |sidecar: &HookSidecar| Container {
        resources: resources.clone(),
        ..of_sidecar(input, sidecar)
    };
    Ok(sidecars.iter().map(render).collect())
}

fn of_sidecar(input: &Input<'_>, sidecar: &HookSidecar) -> Container {
    let settings = input.settings;
    let policy = sidecar.image_pull_policy.clone();
    let (image, policy, command) = if let Some(image) = &sidecar.image {
        (image, policy, None)
    } else {
        let command = SCRIPT_RUNNER.map(str::to_owned).to_vec();
        let policy = policy.or_else(|| Some(settings.image_pull_policy.clone()));
        (&settings.launcher_image, policy, Some(command))
    };
    let list = |all: &Vec<String>| Some(all.clone()).filter(|all| !all.is_empty());
    Container {
        name: sidecar.name.clone(),
        image: Some(image.clone()),
        image_pull_policy: policy,
        command: list(&sidecar.command).or(command),
        args: list(&sidecar.args),
        env: Some(environment(sidecar)),
        restart_policy: Some("Always".to_owned()),
        security_context: Some(security::container_context()),
        volume_mounts: Some(mounts(sidecar)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn environment(sidecar: &HookSidecar) -> Vec<EnvVar> {
    let directories = container::ENVIRONMENT.into_iter();
    let directories = directories.map(|(name, value)| container::variable(name, value));
    let own = container::variable("CONTAINER_NAME", &sidecar.name);
    directories.chain([own]).collect()
}

fn mounts(sidecar: &HookSidecar) -> Vec<VolumeMount> {
    let socket = sub_path(mount(SOCKETS_VOLUME, paths::HOOKS), &sidecar.name);
    let script = |script: &HookScript| {
        let of_volume = mount(&config_volume(sidecar), &script.path);
        sub_path(of_volume, &script.key)
    };
    let claim = |claim: &HookClaim| mount(&claim_volume(sidecar), &claim.path);
    let script = sidecar.script.as_ref().map(script);
    let claim = sidecar.claim.as_ref().map(claim);
    [Some(socket), script, claim]
        .into_iter()
        .flatten()
        .collect()
}

fn script_volume(sidecar: &HookSidecar, script: &HookScript) -> Volume {
    Volume {
        name: config_volume(sidecar),
        config_map: Some(ConfigMapVolumeSource {
            name: script.config_map.clone(),
            default_mode: Some(EXECUTABLE),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn config_volume(sidecar: &HookSidecar) -> String {
    format!("{}-script", sidecar.name)
}

fn claim_volume(sidecar: &HookSidecar) -> String {
    format!("{}-claim", sidecar.name)
}

/// None, unless the pod is guaranteed or its namespace needs limits; the administrator may set others.
fn resources(input: &Input<'_>) -> Result<Option<ResourceRequirements>, PodError> {
    let is_guaranteed = input.guest.has_dedicated_cpus() || guest::is_guaranteed(input.guest)?;
    let namespace = input.surroundings.namespace;
    let is_bounded =
        is_guaranteed || namespace.needs_cpu_limit || namespace.memory_limit_ratio.is_some();
    let bounded = || -> BTreeMap<String, Quantity> {
        let pairs = BOUNDED.into_iter().filter(|_| is_bounded);
        pairs
            .map(|(name, value)| (name.to_owned(), Quantity(value.to_owned())))
            .collect()
    };
    let (mut requests, mut limits) = (bounded(), bounded());
    if let Some(given) = &input.settings.hook_sidecar_resources {
        limits.extend(given.limits.clone());
        requests.extend(given.requests.clone());
    }
    if is_guaranteed {
        requests.extend(limits.clone());
    }
    let rendered = ResourceRequirements {
        requests: Some(requests).filter(|all| !all.is_empty()),
        limits: Some(limits).filter(|all| !all.is_empty()),
        claims: None,
    };
    Ok(Some(rendered).filter(|all| *all != ResourceRequirements::default()))
}
