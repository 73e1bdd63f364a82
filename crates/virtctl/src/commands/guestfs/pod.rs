//! The pod with the tools, and what its start depends on: pure.

use serde_json::{Value, json};

use super::cli::Guestfs;
use crate::{failure::Usage, objects::text};

pub(super) const CONTAINER: &str = "libguestfs";
const CLAIM: &str = "volume";
const TEMPORARY: &str = "libguestfs-tmp-dir";
const HOME: &str = "guestfs";
const DIRECTORY: &str = "/disk";
const DEVICE: &str = "/dev/vda";

pub(super) fn name(claim: &str) -> String {
    format!("libguestfs-tools-{claim}")
}

/// Where the pod has the claim.
pub(super) fn place(claim: &Value) -> &'static str {
    if is_block(claim) { DEVICE } else { DIRECTORY }
}

fn is_block(claim: &Value) -> bool {
    text(claim, "/spec/volumeMode") == Some("Block")
}

/// The image that the server names, by the parts of its answer.
pub(super) fn image(answer: &Value) -> Result<String, Usage> {
    let part = |name: &str| answer[name].as_str().filter(|part| !part.is_empty());
    if let Some(image) = part("gsImage") {
        return Ok(image.to_owned());
    }
    let name = format!(
        "{}libguestfs-tools",
        part("imagePrefix").unwrap_or_default()
    );
    let version = match (part("digest"), part("tag")) {
        (Some(digest), _) => format!("@{digest}"),
        (None, Some(tag)) => format!(":{tag}"),
        (None, None) => {
            return Err(Usage::new(
                "the server names no version of the image: give one with --image",
            ));
        }
    };
    let registry = part("registry").map_or_else(String::new, |registry| format!("{registry}/"));
    Ok(format!("{registry}{name}{version}"))
}

/// The pod that uses the claim, if any. One that has ended does not.
pub(super) fn user<'a>(pods: &'a [Value], claim: &str) -> Option<&'a str> {
    let has_ended =
        |pod: &Value| matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"));
    let uses = |pod: &&Value| {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let mut names =
            volumes.filter_map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
        !has_ended(pod) && names.any(|name| name == claim)
    };
    let pod = pods.iter().find(uses)?;
    text(pod, "/metadata/name")
}

/// The pod, on a node for this VM if there is one. The VM's labels stay out, so that no service for the
/// guest selects the pod.
pub(super) fn pod(flags: &Guestfs, image: &str, claim: &Value, vm: Option<&Value>) -> Value {
    let variables = json!([
        {"name": "LIBGUESTFS_BACKEND", "value": "direct"},
        {"name": "LIBGUESTFS_PATH", "value": "/usr/local/lib/guestfs/appliance"},
        {"name": "LIBGUESTFS_TMPDIR", "value": "/tmp/guestfs"},
        {"name": "HOME", "value": "/home/guestfs"},
    ]);
    let mut container = json!({
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": flags.pull_policy.name(),
        "command": ["/entrypoint.sh"],
        "env": variables,
        "stdin": true,
        "tty": true,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": TEMPORARY, "mountPath": "/tmp/guestfs"},
            {"name": HOME, "mountPath": "/home/guestfs"},
        ],
    });
    if flags.kvm {
        container["resources"] = json!({"limits": {"devices.kubevirt.io/kvm": "1"}});
    }
    if is_block(claim) {
        container["volumeDevices"] = json!([{"name": CLAIM, "devicePath": DEVICE}]);
    } else {
        container["workingDir"] = DIRECTORY.into();
        if let Some(mounts) = container["volumeMounts"].as_array_mut() {
            mounts.push(json!({"name": CLAIM, "mountPath": DIRECTORY}));
        }
    }
    let mut spec = json!({
        "restartPolicy": "Never",
        "securityContext": security(flags),
        "containers": [container],
        "volumes": [
            {"name": CLAIM, "persistentVolumeClaim": {"claimName": flags.pvc}},
            {"name": TEMPORARY, "emptyDir": {}},
            {"name": HOME, "emptyDir": {}},
        ],
    });
    let template = vm.and_then(|vm| vm.pointer("/spec/template/spec"));
    for field in ["nodeSelector", "affinity", "tolerations"] {
        if let Some(value) = template.and_then(|template| template.get(field)) {
            spec[field] = value.clone();
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name(&flags.pvc)},
        "spec": spec,
    })
}

fn security(flags: &Guestfs) -> Value {
    let root = flags.root.then_some(0);
    let mut context = json!({
        "runAsNonRoot": !flags.root,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    for (field, value) in [
        ("runAsUser", flags.uid),
        ("runAsGroup", flags.gid),
        ("fsGroup", flags.fs_group),
    ] {
        if let Some(value) = value.or(root) {
            context[field] = value.into();
        }
    }
    context
}

/// How far the pod is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// With a reason, if Kubernetes names one.
    Waiting(Option<String>),
    Running,
    Ended(String),
}

pub(super) fn progress(pod: &Value) -> Progress {
    let state = pod.pointer("/status/containerStatuses/0/state");
    let say = |part: &Value| {
        let texts = ["/reason", "/message"].map(|field| text(part, field));
        let texts: Vec<_> = texts.into_iter().flatten().collect();
        (!texts.is_empty()).then(|| texts.join(": "))
    };
    match text(pod, "/status/phase") {
        Some("Running") => Progress::Running,
        Some(phase @ ("Succeeded" | "Failed")) => {
            let reason = state
                .and_then(|state| state.get("terminated"))
                .and_then(say);
            let reason = reason.or_else(|| say(&pod["status"]));
            Progress::Ended(reason.unwrap_or_else(|| phase.to_owned()))
        }
        _ => {
            let waiting = state.and_then(|state| state.get("waiting")).and_then(say);
            let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
            let unscheduled = conditions.into_iter().flatten().find(|condition| {
                text(condition, "/type") == Some("PodScheduled")
                    && text(condition, "/status") == Some("False")
            });
            Progress::Waiting(waiting.or_else(|| unscheduled.and_then(say)))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, ObjectCommand};

    fn made(line: &str, claim: &Value, vm: Option<&Value>) -> Value {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Command::Objects(ObjectCommand::Guestfs(flags)) = &cli.command else {
            panic!("{line}");
        };
        pod(flags, "registry/tools:1", claim, vm)
    }

    fn claim(mode: &str) -> Value {
        json!({"spec": {"volumeMode": mode}})
    }

    #[test]
    fn pod_of_a_file_system() {
        let pod = made("virtctl guestfs data", &claim("Filesystem"), None);
        // It is a pod for the types of Kubernetes, too.
        let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(
            typed.metadata.name.as_deref(),
            Some("libguestfs-tools-data")
        );
        insta::assert_snapshot!(serde_json::to_string_pretty(&pod).unwrap());
    }

    #[test]
    fn pod_of_a_block_device() {
        let pod = made("virtctl guestfs data --kvm=false", &claim("Block"), None);
        let container = &pod["spec"]["containers"][0];
        let device = json!([{"name": "volume", "devicePath": "/dev/vda"}]);
        assert_eq!(container["volumeDevices"], device);
        assert_eq!(container["volumeMounts"].as_array().unwrap().len(), 2);
        assert_eq!(
            (container.get("workingDir"), container.get("resources")),
            (None, None)
        );
        assert_eq!(place(&claim("Block")), "/dev/vda");
        assert_eq!(place(&json!({"spec": {}})), "/disk");
    }

    #[test]
    fn users_and_groups_are_those_of_the_flags() {
        for (flags, expected) in [
            ("", json!({"runAsNonRoot": true})),
            (
                " --root",
                json!({"runAsNonRoot": false, "runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}),
            ),
            (
                " --uid 107 --gid 36 --fsGroup 36",
                json!({"runAsNonRoot": true, "runAsUser": 107, "runAsGroup": 36, "fsGroup": 36}),
            ),
        ] {
            let pod = made(
                &format!("virtctl guestfs data{flags}"),
                &claim("Filesystem"),
                None,
            );
            let mut context = pod["spec"]["securityContext"].clone();
            let seccomp = context.as_object_mut().unwrap().remove("seccompProfile");
            assert_eq!(seccomp, Some(json!({"type": "RuntimeDefault"})));
            assert_eq!(context, expected, "{flags}");
        }
        for wrong in [
            "--root --uid 1",
            "--gid 1",
            "--root --fsGroup 1",
            "--uid -1",
            "--pull-policy Once",
        ] {
            let line = format!("virtctl guestfs data {wrong}");
            Cli::try_parse_from(line.split(' ')).unwrap_err();
        }
    }

    #[test]
    fn pod_runs_where_the_vm_may_run() {
        let spec = json!({
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "virtual", "operator": "Exists"}],
            "domain": {"devices": {}},
        });
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
        let vm = json!({"spec": {"template": template}});
        let pod = made(
            "virtctl guestfs data --vm web",
            &claim("Filesystem"),
            Some(&vm),
        );
        assert_eq!(pod["spec"]["nodeSelector"], spec["nodeSelector"]);
        assert_eq!(pod["spec"]["tolerations"], spec["tolerations"]);
        assert_eq!(pod["spec"].get("affinity"), None);
        assert_eq!(pod["metadata"].get("labels"), None);
    }

    #[test]
    fn image_is_put_together_from_the_answer() {
        let named =
            json!({"registry": "quay.io/kubevirt", "tag": "v1", "imagePrefix": "", "gsImage": ""});
        assert_eq!(
            image(&named).unwrap(),
            "quay.io/kubevirt/libguestfs-tools:v1"
        );
        let by_digest = json!({"imagePrefix": "my-", "digest": "sha256:0", "tag": "v1"});
        assert_eq!(image(&by_digest).unwrap(), "my-libguestfs-tools@sha256:0");
        assert_eq!(
            image(&json!({"gsImage": "a/b:c", "tag": "v1"})).unwrap(),
            "a/b:c"
        );
        image(&json!({"registry": "a"})).unwrap_err();
    }

    #[test]
    fn pods_that_have_ended_do_not_use_the_claim() {
        let pod = |name: &str, phase: &str| {
            json!({
                "metadata": {"name": name},
                "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}, {"emptyDir": {}}]},
                "status": {"phase": phase},
            })
        };
        let pods = [
            pod("a", "Succeeded"),
            pod("b", "Failed"),
            json!({}),
            pod("c", "Pending"),
        ];
        assert_eq!(user(&pods, "data"), Some("c"));
        assert_eq!(user(&pods, "other"), None);
        assert_eq!(user(pods.get(..2).unwrap(), "data"), None);
    }

    #[test]
    fn progress_names_why_the_pod_does_not_run() {
        let waiting = |reason: &str| Progress::Waiting(Some(reason.to_owned()));
        let unscheduled = json!([{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node",
        }]);
        let container = |state: Value| json!([{"state": state}]);
        let pulling = container(json!({"waiting": {"reason": "ErrImagePull"}}));
        let failed = container(json!({"terminated": {"reason": "Error", "message": "no KVM"}}));
        for (status, expected) in [
            (json!({}), Progress::Waiting(None)),
            (json!({"phase": "Running"}), Progress::Running),
            (
                json!({"phase": "Pending", "conditions": unscheduled}),
                waiting("Unschedulable: no node"),
            ),
            (
                json!({"phase": "Pending", "containerStatuses": pulling}),
                waiting("ErrImagePull"),
            ),
            (
                json!({"phase": "Failed", "containerStatuses": failed}),
                Progress::Ended("Error: no KVM".to_owned()),
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted"}),
                Progress::Ended("Evicted".to_owned()),
            ),
            (
                json!({"phase": "Succeeded"}),
                Progress::Ended("Succeeded".to_owned()),
            ),
        ] {
            assert_eq!(progress(&json!({"status": status})), expected, "{status}");
        }
    }
}
