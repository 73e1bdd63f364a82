//! What pods expect of every kubelet: hooks, host ports, names, variables and volumes that follow
//! changes.

use std::{fs, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

use super::Environment;

fn shared(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "busybox:1", "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
}

/// A host directory that the pod writes to.
fn shared_volume(dir: &tempfile::TempDir) -> Value {
    json!([{"name": "v", "hostPath": {"path": dir.path()}}])
}

#[test]
fn hooks_run_after_start_and_before_the_end() {
    let env = Environment::new("hooks");
    let dir = tempfile::tempdir().unwrap();
    let command = |script: &str| json!({"exec": {"command": ["sh", "-c", script]}});
    let mut main = shared(
        "main",
        "trap 'echo term >> /v/log; exit 0' TERM; touch /v/up; while true; do sleep 0.05; done",
    );
    // The container is not running before its hook has ended.
    main["lifecycle"] = json!({
        "postStart": command("while ! ls /v/go; do sleep 0.05; done; echo started >> /v/log"),
        "preStop": command("echo stopping >> /v/log"),
    });
    let mut other = shared("other", "sleep 1000");
    other["lifecycle"] = json!({"preStop": command("exit 3")});
    env.create(
        "h",
        json!({
            "terminationGracePeriodSeconds": 5,
            "volumes": shared_volume(&dir), "containers": [main, other],
        }),
    );
    env.until("started", || dir.path().join("up").exists());
    let pod = env.wait_until("h", "start", |status| {
        status["containerStatuses"][1]["state"]["running"].is_object()
    });
    let status = serde_json::to_value(&pod.status).unwrap();
    let main = &status["containerStatuses"][0];
    assert_eq!(main["state"]["waiting"]["reason"], "ContainerCreating");
    fs::write(dir.path().join("go"), "").unwrap();
    env.wait_until("h", "readiness", |status| {
        status["containerStatuses"][0]["ready"] == true
    });
    env.delete_and_wait("h");
    env.assert_no_leftovers(&pod);
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert_eq!(log, "started\nstopping\nterm\n");
    env.wait_for_events(&pod, &["FailedPreStopHook"]);
}

#[test]
fn failed_start_hook_ends_the_container() {
    let env = Environment::new("bad-hook");
    env.create(
        "h",
        json!({
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "busybox:1",
                "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "exit 4"]}}},
            }],
        }),
    );
    let pod = env.wait_phase("h", "Failed");
    env.wait_for_events(&pod, &["FailedPostStartHook", "Killing"]);
}

#[test]
fn shorter_grace_period_interrupts_a_stop_hook() {
    let env = Environment::new("interrupted");
    env.create(
        "h",
        json!({"terminationGracePeriodSeconds": 600, "containers": [{
            "name": "main", "image": "busybox:1",
            "lifecycle": {"preStop": {"sleep": {"seconds": 500}}},
        }]}),
    );
    let pod = env.wait_phase("h", "Running");
    env.wait(env.pods().delete("h", &DeleteParams::default()))
        .unwrap();
    env.wait_for_events(&pod, &["Killing"]);
    assert!(env.process(&pod).is_alive());
    let now = DeleteParams {
        grace_period_seconds: Some(1),
        ..DeleteParams::default()
    };
    env.wait(env.pods().delete("h", &now)).unwrap();
    env.wait(await_condition(env.pods(), "h", |pod: Option<&Pod>| {
        pod.is_none()
    }))
    .unwrap();
    env.assert_no_leftovers(&pod);
}

#[test]
fn forbidden_sysctl_fails_the_pod() {
    let env = Environment::new("sysctl");
    let sysctl = |name: &str, value: &str| {
        json!({
            "restartPolicy": "Never",
            "securityContext": {"sysctls": [{"name": name, "value": value}]},
            "containers": [{"name": "main", "image": "busybox:1",
                "command": ["cat", "/proc/sys/kernel/shm_rmid_forced"]}],
        })
    };
    env.create("bad", sysctl("kernel.msgmax", "1"));
    env.create("good", sysctl("kernel/shm_rmid_forced", "1"));
    let pod = env.wait_phase("bad", "Failed");
    let status = serde_json::to_value(&pod.status).unwrap();
    assert_eq!(status["reason"], "SysctlForbidden");
    assert_eq!(
        status["message"],
        "Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted"
    );
    env.wait_for_events(&pod, &["SysctlForbidden"]);
    env.wait_phase("good", "Succeeded");
    assert_eq!(env.log("/containerLogs/default/good/main").1, "1\n");
}

#[test]
fn taken_host_port_keeps_a_pod_waiting() {
    let env = Environment::new("host-port");
    let spec = || {
        json!({"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": "busybox:1",
            "ports": [{"containerPort": 80, "hostPort": 30_999}],
        }]})
    };
    env.create("first", spec());
    env.wait_phase("first", "Running");
    env.create("second", spec());
    env.wait_until("second", "message", |status| {
        status["conditions"][0]["message"]
            == "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod \
                ports"
    });
    env.delete_and_wait("first");
    env.wait_phase("second", "Running");
}

#[test]
fn names_and_end_of_log_are_as_with_a_kubelet() {
    let env = Environment::new("names");
    env.create(
        "n",
        json!({
            "restartPolicy": "Never", "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true,
            "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["one", "two"]}],
            "containers": [{
                "name": "main", "image": "busybox:1",
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "command": ["sh", "-c", "cat /etc/hosts; echo $HOSTNAME $CPU; exit 1"],
                "env": [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            }],
        }),
    );
    let status = serde_json::to_value(env.wait_phase("n", "Failed").status).unwrap();
    let end = &status["containerStatuses"][0]["state"]["terminated"];
    let text = end["message"].as_str().unwrap();
    // One is reserved.
    let processors = std::thread::available_parallelism().unwrap().get() - 1;
    for expected in [
        "# Kubernetes-managed hosts file.\n",
        "10.9.8.7\th.s.default.svc.cluster.local\th\n",
        "# Entries added by HostAliases.\n192.0.2.1\tone\ttwo\n",
        &format!("h.s.default.svc.cluster.local {processors}\n"),
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    let (code, text) = env.log("/containerLogs/default/n/main?previous=true");
    assert_eq!(
        (code.as_u16(), &*text),
        (
            400,
            "previous terminated container \"main\" in pod \"n\" not found"
        )
    );
}

#[test]
fn downward_volume_follows_labels_at_once() {
    let env = Environment::new("follows");
    let maps = Api::<ConfigMap>::default_namespaced(env.client.clone());
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"k": "first"}})).unwrap();
    env.wait(maps.create(&PostParams::default(), &map)).unwrap();
    env.create(
        "f",
        json!({
            "terminationGracePeriodSeconds": 0,
            "volumes": [
                {"name": "labels", "downwardAPI": {"items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                {"name": "map", "configMap": {"name": "m"}},
            ],
            "containers": [{"name": "main", "image": "busybox:1", "volumeMounts": [
                {"name": "labels", "mountPath": "/labels"}, {"name": "map", "mountPath": "/map"},
                {"name": "map", "mountPath": "/fixed", "subPath": "k"}]}],
        }),
    );
    let pod = env.wait_phase("f", "Running");
    let root = format!("/proc/{}/root", env.process(&pod).pid);
    let read = |path: &str| fs::read_to_string(format!("{root}{path}")).unwrap_or_default();
    let data = Patch::Merge(json!({"data": {"k": "second"}}));
    env.wait(maps.patch("m", &PatchParams::default(), &data))
        .unwrap();
    // The same update brings both; without a change of the pod it comes within a minute.
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    env.wait(env.pods().patch("f", &PatchParams::default(), &label))
        .unwrap();
    env.until("updated", || {
        read("/labels/labels") == "a=\"b\"" && read("/map/k") == "second"
    });
    assert_eq!(read("/fixed"), "first");
    env.delete_and_wait("f");
    env.assert_no_leftovers(&pod);
}

/// Nothing but the regular update brings these changes: the pod stays as it is.
#[test]
fn volumes_follow_changed_config_maps_and_secrets() {
    let mut env = Environment::new("refreshes");
    env.kill_node();
    env.volume_refresh = Duration::from_millis(100);
    env.start_node();
    let maps = Api::<ConfigMap>::default_namespaced(env.client.clone());
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "first map"}});
    let map = serde_json::from_value(map).unwrap();
    env.wait(maps.create(&PostParams::default(), &map)).unwrap();
    let secrets = Api::<Secret>::default_namespaced(env.client.clone());
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "first secret"}});
    let secret = serde_json::from_value(secret).unwrap();
    env.wait(secrets.create(&PostParams::default(), &secret))
        .unwrap();
    env.create(
        "f",
        json!({
            "terminationGracePeriodSeconds": 0,
            "volumes": [
                {"name": "map", "configMap": {"name": "m"}},
                {"name": "secret", "secret": {"secretName": "s"}},
                {"name": "all", "projected": {"sources": [
                    {"configMap": {"name": "m"}},
                    {"secret": {"name": "s", "items": [{"key": "k", "path": "password"}]}}]}},
            ],
            "containers": [{"name": "main", "image": "busybox:1", "volumeMounts": [
                {"name": "map", "mountPath": "/map"}, {"name": "secret", "mountPath": "/secret"},
                {"name": "all", "mountPath": "/all"}]}],
        }),
    );
    let pod = env.wait_phase("f", "Running");
    let root = format!("/proc/{}/root", env.process(&pod).pid);
    let contents = || {
        ["/map/k", "/secret/k", "/all/k", "/all/password"]
            .map(|path| fs::read_to_string(format!("{root}{path}")).unwrap_or_default())
    };
    let first = ["first map", "first secret", "first map", "first secret"];
    env.until("written", || contents() == first);
    let parameters = PatchParams::default();
    let data = Patch::Merge(json!({"data": {"k": "second map"}}));
    env.wait(maps.patch("m", &parameters, &data)).unwrap();
    let data = Patch::Merge(json!({"stringData": {"k": "second secret"}}));
    env.wait(secrets.patch("s", &parameters, &data)).unwrap();
    let second = first.map(|text| text.replace("first", "second"));
    env.until("updated", || contents() == second);
    env.delete_and_wait("f");
    env.assert_no_leftovers(&pod);
}
