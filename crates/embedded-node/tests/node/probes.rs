//! Probes, readiness gates, sidecars and waiting pods, as shown in the status.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::Environment;

fn condition(status: &Value, kind: &str) -> Value {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|one| one["type"] == kind);
    found.unwrap_or_default()
}

fn holds(status: &Value, kind: &str) -> bool {
    condition(status, kind)["status"] == "True"
}

fn file_probe(file: &str) -> Value {
    json!({"exec": {"command": ["ls", file]}, "periodSeconds": 1, "failureThreshold": 1})
}

#[test]
fn readiness_follows_its_probe_and_gate() {
    let mut env = Environment::new("readiness");
    env.create(
        "r",
        json!({
            "terminationGracePeriodSeconds": 0,
            "readinessGates": [{"conditionType": "example.com/gate"}],
            "containers": [{
                "name": "main", "image": "busybox:1", "readinessProbe": file_probe("/tmp/ready"),
            }],
        }),
    );
    let pod = env.wait_until("r", "start", |status| {
        holds(status, "PodReadyToStartContainers")
            && status["containerStatuses"][0]["started"] == true
    });
    let status = serde_json::to_value(&pod.status).unwrap();
    assert_eq!(status["containerStatuses"][0]["ready"], false);
    assert_eq!(
        condition(&status, "ContainersReady")["message"],
        "containers with unready status: [main]"
    );
    let file = format!("/proc/{}/root/tmp/ready", env.process(&pod).pid);
    std::fs::write(&file, "").unwrap();
    env.wait_until("r", "readiness", |status| {
        holds(status, "ContainersReady")
            && condition(status, "Ready")["reason"] == "ReadinessGatesNotReady"
    });
    let gate = json!({"status": {"conditions": [
        {"type": "example.com/gate", "status": "True"},
    ]}});
    let patch = Patch::Strategic(&gate);
    let patched = env.wait(
        env.pods()
            .patch_status("r", &PatchParams::default(), &patch),
    );
    patched.unwrap();
    env.wait_until("r", "open gate", |status| holds(status, "Ready"));
    // A new node process keeps the container ready until its probe fails.
    env.kill_node();
    env.start_node();
    std::fs::remove_file(&file).unwrap();
    env.wait_until("r", "loss", |status| !holds(status, "Ready"));
    env.wait_for_events(&pod, &["Unhealthy"]);
}

#[test]
fn failed_liveness_probe_restarts_the_container() {
    let env = Environment::new("liveness");
    let script = "touch /tmp/alive; sleep 1000";
    env.create(
        "l",
        json!({
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                "startupProbe": {
                    "exec": {"command": ["ls", "/tmp/alive"]},
                    "periodSeconds": 1, "failureThreshold": 30,
                },
                "livenessProbe": file_probe("/tmp/alive"),
            }],
        }),
    );
    let pod = env.wait_until("l", "readiness", |status| holds(status, "Ready"));
    let process = env.process(&pod);
    std::fs::remove_file(format!("/proc/{}/root/tmp/alive", process.pid)).unwrap();
    let again = env.wait_until("l", "restart", |status| {
        status["containerStatuses"][0]["restartCount"] == 1 && holds(status, "Ready")
    });
    let status = serde_json::to_value(&again.status).unwrap();
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert!(
        [137, 143].contains(&last["exitCode"].as_i64().unwrap()),
        "{last}"
    );
    assert!(!process.is_alive());
    env.wait_for_events(&pod, &["Unhealthy", "Killing"]);
}

#[test]
fn sidecar_starts_before_and_runs_beside_main_container() {
    let env = Environment::new("sidecar");
    let container = |name: &str, script: &str| {
        json!({"name": name, "image": "busybox:1", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
    };
    let mut side = container("side", "sleep 0.2; touch /v/up; sleep 1000");
    side["restartPolicy"] = json!("Always");
    side["startupProbe"] = json!({
        "exec": {"command": ["ls", "/v/up"]}, "periodSeconds": 1, "failureThreshold": 30,
    });
    env.create(
        "s",
        json!({
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [side, container("init", "ls /v")],
            "containers": [container("main", "ls /v")],
        }),
    );
    let pod = env.wait_phase("s", "Succeeded");
    assert_eq!(env.log("/containerLogs/default/s/init").1, "up\n");
    assert_eq!(env.log("/containerLogs/default/s/main").1, "up\n");
    env.delete_and_wait("s");
    env.assert_no_leftovers(&pod);
}

#[test]
fn pod_starts_once_its_config_map_exists() {
    let env = Environment::new("repaired");
    env.create(
        "m",
        json!({
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", "echo $X"],
                "env": [{"name": "X", "valueFrom": {
                    "configMapKeyRef": {"name": "late", "key": "k"}}}],
            }],
        }),
    );
    env.wait_until("m", "reason", |status| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "CreateContainerConfigError"
            && waiting["message"] == "configmap \"late\" not found"
    });
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "late"}, "data": {"k": "here"}}))
            .unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(env.client.clone());
    env.wait(maps.create(&PostParams::default(), &map)).unwrap();
    env.wait_phase("m", "Succeeded");
    assert_eq!(env.log("/containerLogs/default/m/main").1, "here\n");
}

#[test]
fn projected_token_is_mounted() {
    let env = Environment::new("token");
    let script = "cat /account/token; echo; cat /account/name";
    env.create(
        "t",
        json!({
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "securityContext": {"runAsUser": 107, "fsGroup": 107},
            "volumes": [{"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
                {"downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}}],
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "v", "mountPath": "/account"}],
            }],
        }),
    );
    env.wait_phase("t", "Succeeded");
    let text = env.log("/containerLogs/default/t/main").1;
    let (token, name) = text.trim().split_once('\n').unwrap();
    assert_eq!((token.split('.').count(), name), (3, "t"));
}

#[test]
fn pod_fails_at_deadline_and_out_of_memory() {
    let env = Environment::new("ends");
    env.create(
        "deadline",
        json!({
            "activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "busybox:1"}],
        }),
    );
    let script = "dd if=/dev/zero of=/dev/null bs=64M count=1";
    env.create(
        "memory",
        json!({
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                "resources": {"limits": {"memory": "16Mi"}},
            }],
        }),
    );
    let late = env.wait_phase("deadline", "Failed").status.unwrap();
    assert_eq!(late.reason.as_deref(), Some("DeadlineExceeded"));
    let ended = env.wait_until("memory", "end", |status| status["phase"] == "Failed");
    let status = serde_json::to_value(&ended.status).unwrap();
    let end = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(end["exitCode"], 137, "{end}");
    assert_eq!(end["reason"], "OOMKilled", "{end}");
}
