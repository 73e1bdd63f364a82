//! Renders a container of a pod for its supervisor. Pure, except that it reads the image's user
//! table and mounts sub-paths.
//!
//! - [`user`]: user and groups. [`security`]: capabilities and isolation.
//! - [`mounts`]: volumes as mounts and devices.

mod mounts;
mod security;
#[cfg(test)]
mod tests;
mod user;

use std::path::{Path, PathBuf};

use image_store::Image;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use pod_supervisor::model::{
    Access, ContainerSpec, MessageSource, Resources, RestartPolicy, Stdin, Terminal,
};
use reasons::Reason;

use crate::{
    Failure,
    devices::Allocation,
    environment::{self, Facts, expand},
    hostname, resources,
    volumes::Volumes,
};

use mounts::{mounts, volume_devices};
use security::security;
pub(crate) use user::id;
use user::user;

const CONFIG: Reason = Reason::CreateContainerConfigError;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The inputs of a rendered container.
pub(crate) struct Parts<'a> {
    pub(crate) facts: Facts<'a>,
    pub(crate) container: &'a Container,
    pub(crate) image: &'a Image,
    pub(crate) volumes: &'a Volumes,
    pub(crate) allocation: &'a Allocation,
    /// The CPUs on which it starts; all if `None`.
    pub(crate) cpus: Option<&'a str>,
    pub(crate) pod_dir: &'a Path,
    pub(crate) restart: RestartPolicy,
}

pub(crate) fn render(parts: &Parts<'_>) -> Result<ContainerSpec, Failure> {
    let container = parts.container;
    let config = &parts.image.config;
    let spec = parts.facts.pod.spec.as_ref();
    let own = container.security_context.clone().unwrap_or_default();
    let pods = spec
        .and_then(|spec| spec.security_context.clone())
        .unwrap_or_default();

    let mut environment = environment::render(&parts.facts, container, &config.env)?;
    environment.extend(parts.allocation.environment.clone());
    let user = user(parts.image, &own, &pods)?;
    let hostname = hostname::of_kernel(parts.facts.pod)?;
    for (name, value) in [
        ("PATH", DEFAULT_PATH),
        ("HOME", if user.uid == 0 { "/root" } else { "/" }),
        ("HOSTNAME", &hostname),
    ] {
        environment
            .entry(name.to_owned())
            .or_insert_with(|| value.to_owned());
    }
    let expanded = |texts: &Option<Vec<String>>| -> Vec<String> {
        texts
            .iter()
            .flatten()
            .map(|text| expand(text, &environment))
            .collect()
    };
    let (command, arguments) = (expanded(&container.command), expanded(&container.args));
    let args = match (command.is_empty(), arguments.is_empty()) {
        (true, true) => [config.entrypoint.clone(), config.cmd.clone()].concat(),
        (true, false) => [config.entrypoint.clone(), arguments].concat(),
        (false, _) => [command, arguments].concat(),
    };
    if args.is_empty() {
        let message = "no command specified: neither the container nor its image has one";
        return Err(Failure::new(CONFIG, message));
    }
    let cwd = [
        container.working_dir.as_deref().unwrap_or_default(),
        &config.working_dir,
        "/",
    ]
    .into_iter()
    .find(|dir| !dir.is_empty())
    .map(PathBuf::from)
    .unwrap_or_default();
    Ok(ContainerSpec {
        name: container.name.clone(),
        args,
        cwd,
        env: environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        user: user.clone(),
        image_root: parts.image.root.clone(),
        root_access: match own.read_only_root_filesystem {
            Some(true) => Access::ReadOnly,
            _ => Access::ReadWrite,
        },
        mounts: mounts(parts, &environment)?,
        devices: [
            parts.allocation.devices.clone(),
            volume_devices(parts, &user, &pods)?,
        ]
        .concat(),
        security: security(&own, &pods)?,
        resources: Resources {
            cpus: parts.cpus.map(ToOwned::to_owned),
            ..resources::for_kernel(container)?
        },
        rlimits: vec![],
        oom_score: resources::oom_score(parts.facts.pod, container, parts.facts.allocatable),
        termination_message_path: container
            .termination_message_path
            .as_deref()
            .unwrap_or("/dev/termination-log")
            .into(),
        termination_message: match container.termination_message_policy.as_deref() {
            Some("FallbackToLogsOnError") => MessageSource::FileOrLog,
            _ => MessageSource::File,
        },
        restart: parts.restart,
        stdin: match (container.stdin, container.stdin_once) {
            (Some(true), Some(true)) => Stdin::Once,
            (Some(true), _) => Stdin::Open,
            _ => Stdin::None,
        },
        terminal: match container.tty {
            Some(true) => Terminal::Own,
            _ => Terminal::None,
        },
    })
}

/// Whether a container runs before or beside the main ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From `initContainers`: an init container or a sidecar.
    Init,
    Main,
}

/// The restart policy that the supervisor applies to this container.
pub(crate) fn restart_policy(spec: &PodSpec, container: &Container, kind: Kind) -> RestartPolicy {
    if kind == Kind::Init && container.restart_policy.as_deref() == Some("Always") {
        return RestartPolicy::Always;
    }
    match (spec.restart_policy.as_deref(), kind) {
        (Some("Never"), _) => RestartPolicy::Never,
        (Some("OnFailure"), _) | (_, Kind::Init) => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}
