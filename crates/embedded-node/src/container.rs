//! From a container of a pod to what its supervisor starts. Reads of the image's user table aside,
//! pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use image_store::{Image, ImageConfig};
use k8s_openapi::api::core::v1::{
    Container, PodSecurityContext, PodSpec, SecurityContext, VolumeMount,
};
use pod_supervisor::model::{
    Access, ContainerSpec, Device, Escalation, Isolation, Mount, RestartPolicy, Seccomp, Security,
    User,
};
use reasons::Reason;

use crate::{
    Failure,
    devices::Given,
    environment::{self, Facts, expand},
    resources,
    volumes::{self, Content, Volumes},
};

const CONFIG: Reason = Reason::CreateContainerConfigError;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What containers get that do not say otherwise: enough to be root inside, not outside.
const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub(crate) struct Parts<'a> {
    pub(crate) facts: Facts<'a>,
    pub(crate) container: &'a Container,
    pub(crate) image: &'a Image,
    pub(crate) volumes: &'a Volumes,
    pub(crate) given: &'a Given,
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
    environment.extend(parts.given.environment.clone());
    let user = user(parts.image, &own, &pods)?;
    for (name, value) in [
        ("PATH", DEFAULT_PATH),
        ("HOME", if user.uid == 0 { "/root" } else { "/" }),
        ("HOSTNAME", &hostname(&parts.facts)),
    ] {
        environment
            .entry(name.to_owned())
            .or_insert_with(|| value.to_owned());
    }
    let expanded = |words: &Option<Vec<String>>| -> Vec<String> {
        words
            .iter()
            .flatten()
            .map(|word| expand(word, &environment))
            .collect()
    };
    let (command, arguments) = (expanded(&container.command), expanded(&container.args));
    let args = match (command.is_empty(), arguments.is_empty()) {
        (true, true) => [config.entrypoint.clone(), config.cmd.clone()].concat(),
        (true, false) => [config.entrypoint.clone(), arguments].concat(),
        (false, _) => [command, arguments].concat(),
    };
    if args.is_empty() {
        let message = "no command: neither the container nor its image names a program to run";
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
            parts.given.devices.clone(),
            volume_devices(parts, &user, &pods)?,
        ]
        .concat(),
        security: security(&own, &pods)?,
        resources: resources::for_kernel(container)?,
        rlimits: vec![],
        termination_message_path: container
            .termination_message_path
            .as_deref()
            .unwrap_or("/dev/termination-log")
            .into(),
        restart: parts.restart,
    })
}

/// What the pod calls itself: a name a kernel takes.
pub(crate) fn hostname(facts: &Facts<'_>) -> String {
    let own = facts
        .pod
        .spec
        .as_ref()
        .and_then(|spec| spec.hostname.clone());
    let name = own
        .or_else(|| facts.pod.metadata.name.clone())
        .unwrap_or_default();
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

fn user(image: &Image, own: &SecurityContext, pods: &PodSecurityContext) -> Result<User, Failure> {
    let wanted = own.run_as_user.or(pods.run_as_user).map(id).transpose()?;
    let named = match wanted {
        None => image.clone(),
        // The image's table knows the group of that user.
        Some(uid) => Image {
            config: ImageConfig {
                user: uid.to_string(),
                ..ImageConfig::default()
            },
            ..image.clone()
        },
    };
    let found = named.user().ok_or_else(|| {
        let name = &image.config.user;
        Failure::new(
            CONFIG,
            format!("the image runs as user {name:?}, which it does not have"),
        )
    })?;
    if found.uid == 0 && own.run_as_non_root.or(pods.run_as_non_root) == Some(true) {
        let message = "container has runAsNonRoot and image will run as root: set runAsUser";
        return Err(Failure::new(CONFIG, message));
    }
    let gid = own.run_as_group.or(pods.run_as_group).map(id).transpose()?;
    let groups = pods
        .supplemental_groups
        .iter()
        .flatten()
        .copied()
        .chain(pods.fs_group);
    Ok(User {
        uid: found.uid,
        gid: gid.unwrap_or(found.gid),
        groups: groups
            .map(id)
            .collect::<Result<BTreeSet<u32>, _>>()?
            .into_iter()
            .collect(),
    })
}

pub(crate) fn id(number: i64) -> Result<u32, Failure> {
    u32::try_from(number).map_err(|_| Failure::new(CONFIG, format!("{number} is no user or group")))
}

fn security(own: &SecurityContext, pods: &PodSecurityContext) -> Result<Security, Failure> {
    if own.privileged == Some(true) {
        return Ok(Security {
            capabilities: pod_supervisor::capabilities::all(),
            escalation: Escalation::Allowed,
            seccomp: Seccomp::Unconfined,
            isolation: Isolation::Privileged,
        });
    }
    let profile = own
        .seccomp_profile
        .as_ref()
        .or(pods.seccomp_profile.as_ref());
    let seccomp = match profile.map(|profile| profile.type_.as_str()) {
        Some("RuntimeDefault") => Seccomp::RuntimeDefault,
        None | Some("Unconfined") => Seccomp::Unconfined,
        Some(other) => {
            let message = format!("seccomp profile type {other:?} is not offered on this node");
            return Err(Failure::new(CONFIG, message));
        }
    };
    Ok(Security {
        capabilities: capabilities(own),
        escalation: match own.allow_privilege_escalation {
            Some(false) => Escalation::Denied,
            _ => Escalation::Allowed,
        },
        seccomp,
        isolation: Isolation::Confined,
    })
}

fn capabilities(own: &SecurityContext) -> Vec<String> {
    let full = |name: &str| {
        let upper = name.to_uppercase();
        if upper.starts_with("CAP_") {
            upper
        } else {
            format!("CAP_{upper}")
        }
    };
    let mut all: BTreeSet<String> = DEFAULT_CAPABILITIES.iter().map(|name| full(name)).collect();
    let Some(wanted) = &own.capabilities else {
        return all.into_iter().collect();
    };
    for name in wanted.drop.iter().flatten() {
        match name.as_str() {
            "ALL" => all.clear(),
            name => drop(all.remove(&full(name))),
        }
    }
    for name in wanted.add.iter().flatten() {
        match name.as_str() {
            "ALL" => all.extend(pod_supervisor::capabilities::all()),
            name => drop(all.insert(full(name))),
        }
    }
    all.into_iter().collect()
}

/// Block volumes as device nodes of whoever the container runs as.
fn volume_devices(
    parts: &Parts<'_>,
    user: &User,
    pods: &PodSecurityContext,
) -> Result<Vec<Device>, Failure> {
    let wanted = parts.container.volume_devices.iter().flatten();
    wanted
        .map(|wanted| {
            let name = &wanted.name;
            let volume = parts.volumes.get(name).ok_or_else(|| {
                let message = format!("volumeDevice {name:?} names no volume of the pod");
                Failure::new(CONFIG, message)
            })?;
            if volume.content != Content::Device {
                let message =
                    format!("volume {name:?} has volumeMode Filesystem: mount it by volumeMounts");
                return Err(Failure::new(CONFIG, message));
            }
            Ok(Device {
                host_path: volume.path.clone(),
                path: PathBuf::from("/").join(&wanted.device_path),
                mode: match volume.access {
                    Access::ReadOnly => 0o440,
                    Access::ReadWrite => 0o660,
                },
                uid: user.uid,
                gid: pods.fs_group.map(id).transpose()?.unwrap_or(user.gid),
            })
        })
        .collect()
}

fn mounts(
    parts: &Parts<'_>,
    environment: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, Failure> {
    let mut all = parts.given.mounts.clone();
    for (index, wanted) in parts.container.volume_mounts.iter().flatten().enumerate() {
        all.push(mount(parts, environment, (index, wanted))?);
    }
    for file in ["hosts", "hostname", "resolv.conf"] {
        let destination = Path::new("/etc").join(file);
        if !all.iter().any(|mount| mount.destination == destination) {
            let source = parts.pod_dir.join("etc").join(file);
            all.push(Mount {
                source,
                destination,
                access: Access::ReadWrite,
            });
        }
    }
    Ok(all)
}

fn mount(
    parts: &Parts<'_>,
    environment: &BTreeMap<String, String>,
    (index, wanted): (usize, &VolumeMount),
) -> Result<Mount, Failure> {
    let volume = parts.volumes.get(&wanted.name).ok_or_else(|| {
        Failure::new(
            CONFIG,
            format!("volumeMount {:?} names no volume of the pod", wanted.name),
        )
    })?;
    let named = wanted.sub_path.clone().filter(|part| !part.is_empty());
    let part = match wanted.sub_path_expr.as_deref() {
        None | Some("") => named,
        Some(expression) => Some(expanded_path(expression, environment)?),
    };
    let source = match part {
        None if volume.content == Content::Device => {
            let message = format!(
                "volume {:?} has volumeMode Block: give it to the container by volumeDevices",
                wanted.name
            );
            return Err(Failure::new(CONFIG, message));
        }
        None => volume.path.clone(),
        Some(part) => {
            let aside = parts
                .pod_dir
                .join("volume-subpaths")
                .join(&wanted.name)
                .join(&parts.container.name)
                .join(index.to_string());
            volumes::sub_path(volume, &part, &aside)?
        }
    };
    let read_only = wanted.read_only == Some(true) || volume.access == Access::ReadOnly;
    Ok(Mount {
        source,
        destination: PathBuf::from("/").join(&wanted.mount_path),
        access: if read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
    })
}

/// A path with the container's variables in it, all of which must be known.
fn expanded_path(
    expression: &str,
    environment: &BTreeMap<String, String>,
) -> Result<String, Failure> {
    let path = expand(expression, environment);
    if path.contains("$(") {
        let message = format!("subPathExpr {expression:?} names a variable that is not set");
        return Err(Failure::new(CONFIG, message));
    }
    Ok(path)
}

/// How a supervisor treats the end of this container.
pub(crate) fn restart_policy(
    spec: &PodSpec,
    container: &Container,
    is_init: bool,
) -> RestartPolicy {
    if is_init && container.restart_policy.as_deref() == Some("Always") {
        return RestartPolicy::Always;
    }
    match (spec.restart_policy.as_deref(), is_init) {
        (Some("Never"), _) => RestartPolicy::Never,
        (Some("OnFailure"), _) | (_, true) => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::documents::Documents;

    fn rendered(container: &Value, pod_security: &Value) -> Result<ContainerSpec, Failure> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("etc/passwd"), "qemu:x:107:108::/:/bin/sh\n").unwrap();
        let mut container = container.clone();
        container["name"] = json!("c");
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [container], "securityContext": pod_security},
        }))
        .unwrap();
        let container = serde_json::from_value(container).unwrap();
        let image = Image {
            digest: image_store::Digest::of(b"x"),
            root: dir.path().to_owned(),
            config: ImageConfig {
                entrypoint: vec!["/entry".into()],
                cmd: vec!["cmd".into()],
                ..ImageConfig::default()
            },
        };
        render(&Parts {
            facts: Facts {
                pod: &pod,
                documents: &Documents::default(),
                node_name: "node",
                host_ip: [127, 0, 0, 1].into(),
                pod_ips: &[],
            },
            container: &container,
            image: &image,
            volumes: &Volumes::default(),
            given: &Given::default(),
            pod_dir: Path::new("/pod"),
            restart: RestartPolicy::Never,
        })
    }

    #[test]
    fn command_and_arguments_replace_those_of_the_image() {
        for (container, expected) in [
            (json!({}), vec!["/entry", "cmd"]),
            (json!({"args": ["a"]}), vec!["/entry", "a"]),
            (json!({"command": ["c"]}), vec!["c"]),
            (
                json!({"command": ["c"], "args": ["$(X)"], "env": [{"name": "X", "value": "1"}]}),
                vec!["c", "1"],
            ),
        ] {
            assert_eq!(
                rendered(&container, &json!({})).unwrap().args,
                expected,
                "{container}"
            );
        }
    }

    #[test]
    fn launcher_security_gives_a_powerless_user() {
        let spec = rendered(
            &json!({"securityContext": {
                "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false,
                "runAsNonRoot": true,
            }}),
            &json!({"runAsUser": 107, "fsGroup": 107, "seccompProfile": {"type": "RuntimeDefault"}}),
        )
        .unwrap();
        assert_eq!(
            spec.user,
            User {
                uid: 107,
                gid: 108,
                groups: vec![107]
            }
        );
        assert_eq!(
            spec.security,
            Security {
                capabilities: vec![],
                escalation: Escalation::Denied,
                seccomp: Seccomp::RuntimeDefault,
                isolation: Isolation::Confined,
            }
        );
    }

    #[test]
    fn capabilities_are_dropped_before_they_are_added() {
        let security = json!({"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}});
        let spec = rendered(&json!({"securityContext": security}), &json!({})).unwrap();
        assert_eq!(spec.security.capabilities, ["CAP_NET_ADMIN"]);
    }

    #[test]
    fn what_cannot_be_kept_is_refused_with_a_reason() {
        for (container, pod, part) in [
            (json!({}), json!({"runAsNonRoot": true}), "runAsNonRoot"),
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
                json!({}),
                "no volume",
            ),
            (
                json!({}),
                json!({"seccompProfile": {"type": "Localhost"}}),
                "Localhost",
            ),
            (json!({}), json!({"runAsUser": -1}), "-1"),
        ] {
            let failure = rendered(&container, &pod).unwrap_err();
            assert_eq!(failure.reason, CONFIG);
            assert!(failure.message.contains(part), "{failure}");
        }
    }
}
