//! Tests of rendered containers.

use std::{collections::BTreeMap, path::Path};

use image_store::{Image, ImageConfig};
use pod_supervisor::model::{Escalation, Isolation, Seccomp, Security, User};
use serde_json::{Value, json};

use super::*;
use crate::{
    documents::Documents,
    volumes::{Content, Volume},
};

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
    let tmp = Volume {
        path: dir.path().to_owned(),
        access: Access::ReadWrite,
        content: Content::Files,
    };
    let volumes = Volumes::from([("tmp".to_owned(), tmp)]);
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
            allocatable: &BTreeMap::new(),
            services: &BTreeMap::new(),
        },
        container: &container,
        image: &image,
        volumes: &volumes,
        cpus: None,
        allocation: &Allocation::default(),
        pod_dir: Path::new("/pod"),
        restart: RestartPolicy::Never,
    })
}

#[test]
fn command_and_args_override_the_image() {
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
fn launcher_runs_as_unprivileged_user() {
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
fn device_nodes_can_be_made_by_request_only() {
    for (security, expected) in [
        (json!({}), false),
        (json!({"capabilities": {"add": ["NET_ADMIN"]}}), false),
        (json!({"capabilities": {"add": ["MKNOD"]}}), true),
        (json!({"privileged": true}), true),
    ] {
        let container = json!({"securityContext": security});
        let all = rendered(&container, &json!({})).unwrap().security;
        let found = all.capabilities.iter().any(|one| one == "CAP_MKNOD");
        assert_eq!(found, expected, "{security}");
    }
}

#[test]
fn system_calls_are_filtered_unless_a_profile_says_otherwise() {
    let profile = |name: &str| json!({"seccompProfile": {"type": name}});
    for (own, pods, expected) in [
        (json!({}), json!({}), Seccomp::RuntimeDefault),
        (
            json!({}),
            profile("RuntimeDefault"),
            Seccomp::RuntimeDefault,
        ),
        (json!({}), profile("Unconfined"), Seccomp::Unconfined),
        (profile("Unconfined"), json!({}), Seccomp::Unconfined),
        (
            profile("RuntimeDefault"),
            profile("Unconfined"),
            Seccomp::RuntimeDefault,
        ),
        (json!({"privileged": true}), json!({}), Seccomp::Unconfined),
    ] {
        let container = json!({"securityContext": own});
        let found = rendered(&container, &pods).unwrap().security.seccomp;
        assert_eq!(found, expected, "{own} in {pods}");
    }
}

#[test]
fn unsupported_container_is_refused() {
    for (container, pod, part) in [
        (json!({}), json!({"runAsNonRoot": true}), "runAsNonRoot"),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
            json!({}),
            "not a volume",
        ),
        (
            json!({"volumeMounts": [{"name": "tmp", "mountPath": "/v", "subPath": "../x"}]}),
            json!({}),
            "subPath",
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
