//! Hook sidecars: containers that may change the guest before it starts. The tenant names some in an annotation; the
//! others belong to network bindings that the administrator registered.
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
use crate::volumes::{Storage, claim, empty_dir, mount, read_only, sub_path};
use crate::{Input, PodError, guest, networks, security};

const SOCKETS_VOLUME: &str = "hook-sidecar-sockets";
/// Runs the scripts of a sidecar without an image.
const SCRIPT_RUNNER: [&str; 2] = ["/usr/bin/virt-launcher", "sidecar-shim"];
const EXECUTABLE: i32 = 0o755;
/// Where the pod or its namespace needs limits; those of `KubeVirt`.
const BOUNDED: [(&str, &str); 2] = [("cpu", "200m"), ("memory", "64M")];

/// Tells a network binding's sidecar the name under which the binding is registered.
const BINDING_NAME: &str = "NETWORK_BINDING_PLUGIN_NAME";

/// A container with hooks.
#[derive(Debug)]
pub(crate) struct Sidecar {
    hook: HookSidecar,
    /// The network binding that it belongs to.
    binding: Option<String>,
    /// Whether it reads which devices the pod's networks have.
    reads_devices: bool,
}

/// Those of the annotation, then those of the network bindings: with equal priorities, a binding's hook gets the
/// domain that the tenant's have changed.
pub(crate) fn of(input: &Input<'_>) -> Result<Vec<Sidecar>, PodError> {
    let meta = &input.guest.vmi.metadata;
    let annotated = HookSidecar::all(meta.annotations.as_ref()).map_err(|error| {
        let field = format!("metadata.annotations[{}]", annotations::HOOK_SIDECARS);
        PodError::invalid(field, &error)
    })?;
    let annotated = annotated.into_iter().map(|hook| Sidecar {
        hook,
        binding: None,
        reads_devices: false,
    });
    let mut all: Vec<Sidecar> = annotated.collect();
    for (binding, plugin) in networks::used_plugins(input)? {
        let image = plugin.sidecar_image.clone();
        let Some(image) = image.filter(|image| !image.is_empty()) else {
            continue;
        };
        let hook = HookSidecar {
            name: paths::hook_sidecar(all.len()),
            image: Some(image),
            image_pull_policy: Some(input.settings.image_pull_policy.clone()),
            command: Vec::new(),
            args: Vec::new(),
            script: None,
            claim: None,
        };
        all.push(Sidecar {
            hook,
            binding: Some(binding.to_owned()),
            reads_devices: networks::reads_devices(plugin),
        });
    }
    Ok(all)
}

/// The volumes of sidecars, and what of them the guest's own container mounts.
pub(crate) fn add_volumes(all: &mut Storage, sidecars: &[Sidecar]) {
    if sidecars.is_empty() {
        return;
    }
    let sockets = empty_dir(SOCKETS_VOLUME, EmptyDirVolumeSource::default());
    all.volumes.push(sockets);
    all.mounts.push(mount(SOCKETS_VOLUME, paths::HOOKS));
    for sidecar in sidecars.iter().map(|sidecar| &sidecar.hook) {
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

pub(crate) fn render(input: &Input<'_>, sidecars: &[Sidecar]) -> Result<Vec<Container>, PodError> {
    let resources = resources(input)?;
    let render = |sidecar: &Sidecar| Container {
        resources: resources.clone(),
        ..of_sidecar(input, sidecar)
    };
    Ok(sidecars.iter().map(render).collect())
}

fn of_sidecar(input: &Input<'_>, sidecar: &Sidecar) -> Container {
    let settings = input.settings;
    let hook = &sidecar.hook;
    let policy = hook.image_pull_policy.clone();
    let (image, policy, command) = if let Some(image) = &hook.image {
        (image, policy, None)
    } else {
        let command = SCRIPT_RUNNER.map(str::to_owned).to_vec();
        let policy = policy.or_else(|| Some(settings.image_pull_policy.clone()));
        (&settings.launcher_image, policy, Some(command))
    };
    let list = |all: &Vec<String>| Some(all.clone()).filter(|all| !all.is_empty());
    Container {
        name: hook.name.clone(),
        image: Some(image.clone()),
        image_pull_policy: policy,
        command: list(&hook.command).or(command),
        args: list(&hook.args),
        env: Some(environment(sidecar)),
        restart_policy: Some("Always".to_owned()),
        security_context: Some(security::container_context()),
        volume_mounts: Some(mounts(sidecar)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn environment(sidecar: &Sidecar) -> Vec<EnvVar> {
    let directories = container::ENVIRONMENT.into_iter();
    let directories = directories.map(|(name, value)| container::variable(name, value));
    let own = container::variable("CONTAINER_NAME", &sidecar.hook.name);
    let binding = sidecar.binding.as_ref();
    let binding = binding.map(|binding| container::variable(BINDING_NAME, binding));
    directories.chain([own]).chain(binding).collect()
}

fn mounts(sidecar: &Sidecar) -> Vec<VolumeMount> {
    let hook = &sidecar.hook;
    let socket = sub_path(mount(SOCKETS_VOLUME, paths::HOOKS), &hook.name);
    let script = |script: &HookScript| {
        let of_volume = mount(&config_volume(hook), &script.path);
        sub_path(of_volume, &script.key)
    };
    let claim = |claim: &HookClaim| mount(&claim_volume(hook), &claim.path);
    let script = hook.script.as_ref().map(script);
    let claim = hook.claim.as_ref().map(claim);
    let devices = sidecar.reads_devices.then(|| {
        let file = mount(networks::DEVICE_INFO_VOLUME, networks::DEVICE_INFO_PATH);
        read_only(file)
    });
    [Some(socket), script, claim, devices]
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
