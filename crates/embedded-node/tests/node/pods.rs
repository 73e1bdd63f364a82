//! Pods: start, failure, end, adoption by the next node, removal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    pin::pin,
    time::Instant,
};

use embedded_node::teardown_all;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodStatus, Secret};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::{wait::await_condition, watcher},
};
use serde_json::{Value, json};

use super::{Environment, NoNetwork, TIMEOUT, environment::AT_ONCE};

#[test]
fn pod_runs_and_is_removed_without_leftovers() {
    let env = Environment::new("runs");
    let began = Instant::now();
    env.create("a", json!({"terminationGracePeriodSeconds": 1}));
    let pod = env.wait_phase("a", "Running");
    println!("create to Running: {:?}", began.elapsed());
    let status = serde_json::to_value(&pod.status).unwrap();
    assert_eq!(
        pod.spec.as_ref().unwrap().node_name.as_deref(),
        Some("here")
    );
    assert_eq!(status["podIP"], "10.9.8.7");
    assert_eq!(status["hostIP"], "127.0.0.1");
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["containerStatuses"][0]["ready"], true);
    let process = env.process(&pod);
    assert!(process.is_alive());
    env.delete_and_wait("a");
    env.assert_no_leftovers(&pod);
    assert!(!process.is_alive());
    env.wait_for_events(
        &pod,
        &["Scheduled", "Pulled", "Created", "Started", "Killing"],
    );
}

#[test]
fn pod_start_takes_few_writes() {
    let env = Environment::new("writes");
    env.create("w", json!({}));
    let versions = async {
        let config = watcher::Config::default();
        let mut events = pin!(watcher(env.pods(), config));
        let mut versions = BTreeMap::new();
        while let Some(event) = events.next().await {
            if let watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) = event.unwrap() {
                let status = pod.status.unwrap_or_default();
                let is_running = status.phase.as_deref() == Some("Running");
                versions.insert(pod.metadata.resource_version, status);
                if is_running {
                    break;
                }
            }
        }
        versions
    };
    let versions = env.wait(versions);
    // Created, bound, running.
    let is_waiting = |status: &&PodStatus| {
        status.phase.as_deref() == Some("Pending") && status.start_time.is_some()
    };
    let waiting: Vec<&PodStatus> = versions.values().filter(is_waiting).collect();
    assert!(versions.len() - waiting.len() <= 3, "{versions:#?}");
    // A slow start is reported, but no status of it twice: without network, with it, with the image, and
    // with the container.
    assert!(waiting.len() <= 4, "{waiting:#?}");
    for (n, status) in waiting.iter().enumerate() {
        assert!(!waiting[..n].contains(status), "{waiting:#?}");
    }
}

#[test]
fn exit_code_decides_phase_and_logs_are_served() {
    let env = Environment::new("exits");
    env.script("good", "echo hello; echo world >&2", "Never");
    env.script("bad", "echo -n why > /dev/termination-log; exit 3", "Never");
    env.wait_phase("good", "Succeeded");
    let bad = serde_json::to_value(env.wait_phase("bad", "Failed").status).unwrap();
    let end = &bad["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&end["exitCode"], &end["reason"]),
        (&json!(3), &json!("Error"))
    );
    assert_eq!(end["message"], "why");
    let (code, text) = env.log("/containerLogs/default/good/main");
    assert_eq!(code, 200);
    let lines: BTreeSet<&str> = text.lines().collect();
    assert_eq!(lines, ["hello", "world"].into());
    let (_, text) = env.log("/containerLogs/default/good/main?tailLines=1&timestamps=true");
    assert!(text.contains("Z ") && text.lines().count() == 1, "{text}");
    let (code, text) = env.log("/containerLogs/default/good/other");
    assert_eq!(
        (code.as_u16(), &*text),
        (400, "container other is not valid for pod good")
    );
    assert_eq!(env.log("/healthz").1, "ok");
}

#[test]
fn only_the_api_server_may_use_the_endpoint() {
    let env = Environment::new("callers");
    env.create("c", json!({"terminationGracePeriodSeconds": 0}));
    env.wait_phase("c", "Running");
    // Names of certificates that the same authority signs.
    for name in ["virt-api", "virt-handler.here", "here"] {
        for path in [
            "/containerLogs/default/c/main",
            "/exec/default/c/main?command=id",
            "/attach/default/c/main",
            "/portForward/default/c",
            "/healthz",
        ] {
            let (code, text) = env.get_as(name, path);
            assert_eq!(
                (code.as_u16(), &*text),
                (403, "the node accepts requests from the API server only"),
                "{name} {path}"
            );
        }
    }
    assert_eq!(env.log("/containerLogs/default/c/main").0, 200);
}

#[test]
fn pod_with_users_of_its_own_runs_as_none_of_the_host() {
    let env = Environment::new("users");
    for name in ["u", "v"] {
        env.create(
            name,
            json!({"hostUsers": false, "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sleep", "1000"],
            }]}),
        );
    }
    let pods = ["u", "v"].map(|name| env.wait_phase(name, "Running"));
    let users = pods.each_ref().map(|pod| {
        let process = format!("/proc/{}", env.process(pod).pid);
        fs::metadata(process).unwrap().uid()
    });
    assert!(users.iter().all(|user| *user >= 1 << 30), "{users:?}");
    assert_ne!(users[0], users[1]);
    env.delete_and_wait("u");
}

#[test]
fn followed_log_ends_with_its_container() {
    let env = Environment::new("follow");
    env.script(
        "f",
        "echo one; while ! ls /tmp/go; do sleep 0.01; done 2> /dev/null; echo two",
        "Never",
    );
    let pod = env.wait_phase("f", "Running");
    let process = env.process(&pod);
    let go = format!("/proc/{}/root/tmp/go", process.pid);
    std::thread::scope(|scope| {
        let log = scope.spawn(|| env.log("/containerLogs/default/f/main?follow=true").1);
        fs::write(go, "").unwrap();
        assert_eq!(log.join().unwrap(), "one\n/tmp/go\ntwo\n");
    });
}

#[test]
fn all_volume_types_are_mounted() {
    let env = Environment::new("volumes");
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"k": "from-map"}}))
            .unwrap();
    let secret: Secret = serde_json::from_value(
        json!({"metadata": {"name": "s"}, "stringData": {"p": "x"}, "data": {"k": "dG9w"}}),
    )
    .unwrap();
    let (maps, secrets) = (
        Api::<ConfigMap>::default_namespaced(env.client.clone()),
        Api::<Secret>::default_namespaced(env.client.clone()),
    );
    env.wait(maps.create(&PostParams::default(), &map)).unwrap();
    env.wait(secrets.create(&PostParams::default(), &secret))
        .unwrap();
    let script = "cat /map/k /secret/k /info/name; echo; echo $FROM; id; \
                  stat -c '%a %g' /empty; stat -f -c %T /memory; ls /image/bin/sh; \
                  touch /image/x 2>&1; ls /dev/null; cat /etc/resolv.conf /etc/hosts; \
                  sleep 1000";
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    env.create(
        "v",
        json!({
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsUser": 107, "runAsGroup": 107, "fsGroup": 4000},
            "volumes": [
                {"name": "map", "configMap": {"name": "m"}},
                {"name": "secret", "secret": {"secretName": "s", "items": [
                    {"key": "k", "path": "k", "mode": 0o400}]}},
                {"name": "info", "downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                {"name": "empty", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "image", "image": {"reference": "busybox:1"}},
            ],
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                "volumeMounts": [mount("map"), mount("secret"), mount("info"), mount("empty"),
                    mount("memory"), mount("image")],
                "env": [{"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "resources": {"limits": {"memory": "64Mi"}},
            }],
        }),
    );
    let pod = env.wait_phase("v", "Running");
    let log = || env.log("/containerLogs/default/v/main").1;
    let deadline = Instant::now() + TIMEOUT;
    let mut text = log();
    while !text.contains("10.9.8.7") {
        assert!(Instant::now() < deadline, "{text}");
        text = log();
    }
    for expected in [
        "from-maptopv\n",
        "\ntop\n",
        "uid=107 gid=107",
        "4000",
        "2770 4000",
        "tmpfs",
        "/image/bin/sh",
        "Read-only file system",
        "nameserver 10.0.0.1",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    let empty = env
        .pod_dir(&pod)
        .join("volumes/kubernetes.io~empty-dir/empty");
    assert_eq!(fs::metadata(empty).unwrap().gid(), 4000);
    env.delete_and_wait("v");
    env.assert_no_leftovers(&pod);
}

#[test]
fn failed_start_is_reported_in_the_status() {
    let env = Environment::new("obstacles");
    env.create(
        "image",
        json!({"containers": [{"name": "main", "image": "missing:1"}]}),
    );
    env.create(
        "volume",
        json!({"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}),
    );
    env.create(
        "image-volume",
        json!({
            "volumes": [{"name": "v", "image": {"reference": "missing:1"}}],
            "containers": [{"name": "main", "image": "busybox:1"}],
        }),
    );
    env.create(
        "config",
        json!({"containers": [{
            "name": "main", "image": "busybox:1",
            "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k"}}}],
        }]}),
    );
    env.create(
        "program",
        json!({"restartPolicy": "Never", "containers": [{
        "name": "main", "image": "busybox:1", "command": ["/bin/nothing"]}]}),
    );
    let waiting = |status: &Value| status["containerStatuses"][0]["state"]["waiting"].clone();
    for name in ["image", "image-volume"] {
        env.wait_until(name, "reason", |s| {
            waiting(s)["reason"] == "ErrImageNeverPull"
        });
    }
    env.wait_until("config", "reason", |s| {
        waiting(s)["reason"] == "CreateContainerConfigError"
    });
    env.wait_until("volume", "message", |s| {
        waiting(s)["message"]
            .as_str()
            .is_some_and(|m| m.contains("type that this node does not support"))
    });
    let failed = env.wait_phase("program", "Failed");
    let status = serde_json::to_value(&failed.status).unwrap();
    let end = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(end["reason"], "StartError");
    assert!(end["message"].as_str().unwrap().contains("/bin/nothing"));
    for name in ["image", "volume", "config", "program"] {
        env.delete_and_wait(name);
    }
}

#[test]
fn init_containers_run_first_and_in_order() {
    let env = Environment::new("init");
    let step = |name: &str, script: &str| {
        json!({"name": name, "image": "busybox:1", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
    };
    env.create(
        "i",
        json!({
            "restartPolicy": "Never",
            "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [step("one", "echo 1 >> /v/f"), step("two", "echo 2 >> /v/f")],
            "containers": [step("main", "cat /v/f")],
        }),
    );
    env.wait_phase("i", "Succeeded");
    assert_eq!(env.log("/containerLogs/default/i/main").1, "1\n2\n");
}

#[test]
fn failing_container_backs_off() {
    let env = Environment::new("backoff");
    env.script("b", "exit 1", "Always");
    let pod = env.wait_until("b", "back-off", |status| {
        let one = &status["containerStatuses"][0];
        one["state"]["waiting"]["reason"] == "CrashLoopBackOff" && one["restartCount"] == 1
    });
    let status = serde_json::to_value(&pod.status).unwrap();
    assert_eq!(status["phase"], "Running");
    assert_eq!(
        status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"],
        1
    );
    env.delete_and_wait("b");
    env.assert_no_leftovers(&pod);
}

#[test]
fn pods_survive_node_kill_and_are_adopted() {
    let mut env = Environment::new("adopts");
    env.create("stays", json!({}));
    env.create("goes", json!({"terminationGracePeriodSeconds": 0}));
    env.script(
        "ends",
        "while ! ls /tmp/go; do sleep 0.01; done; exit 7",
        "Never",
    );
    let stays = env.wait_phase("stays", "Running");
    let goes = env.wait_phase("goes", "Running");
    let ends = env.wait_phase("ends", "Running");
    let (process, ending) = (env.process(&stays), env.process(&ends));
    env.kill_node();
    assert!(process.is_alive());
    fs::write(format!("/proc/{}/root/tmp/go", ending.pid), "").unwrap();
    env.wait(env.pods().delete("goes", &DeleteParams::default()))
        .unwrap();
    let version = env
        .wait(env.pods().get("stays"))
        .unwrap()
        .metadata
        .resource_version;
    env.start_node();
    // A container that ended meanwhile has its exit code in the status.
    let ended = serde_json::to_value(env.wait_phase("ends", "Failed").status).unwrap();
    assert_eq!(
        ended["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        7
    );
    env.wait(await_condition(env.pods(), "goes", |pod: Option<&Pod>| {
        pod.is_none()
    }))
    .unwrap();
    env.assert_no_leftovers(&goes);
    // The running pod is unchanged, both its process and its object.
    assert_eq!(env.process(&stays), process);
    assert!(process.is_alive());
    let after = env.wait(env.pods().get("stays")).unwrap();
    assert_eq!(after.metadata.resource_version, version);
}

#[test]
fn pod_without_object_is_torn_down() {
    let mut env = Environment::new("vanishes");
    env.create("v", json!({"terminationGracePeriodSeconds": 0}));
    let pod = env.wait_phase("v", "Running");
    let process = env.process(&pod);
    env.kill_node();
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    env.wait(env.pods().delete("v", &now)).unwrap();
    env.start_node();
    env.assert_no_leftovers(&pod);
    assert!(!process.is_alive());
}

#[test]
fn restarted_node_removes_old_pods_with_reused_names() {
    let mut env = Environment::new("back");
    let brief = || json!({"terminationGracePeriodSeconds": 0});
    let before = ["again", "moved"].map(|name| {
        env.create(name, brief());
        env.wait_phase(name, "Running")
    });
    let processes = before.each_ref().map(|pod| env.process(pod));
    env.kill_node();
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    for name in ["again", "moved"] {
        env.wait(env.pods().delete(name, &now)).unwrap();
    }
    env.create("again", brief());
    let mut elsewhere = brief();
    elsewhere["nodeName"] = json!("elsewhere");
    let moved = env.create("moved", elsewhere);
    assert!(
        processes.iter().all(|process| process.is_alive()),
        "pods keep running without a node"
    );

    env.start_node();
    let again = env.wait_phase("again", "Running");
    for (pod, process) in before.iter().zip(&processes) {
        env.assert_no_leftovers(pod);
        assert!(!process.is_alive());
    }
    assert_ne!(again.metadata.uid, before[0].metadata.uid);
    assert!(env.process(&again).is_alive());
    // The pod of another node is ignored, whatever its name.
    let after = env.wait(env.pods().get("moved")).unwrap();
    assert_eq!(
        after.metadata.resource_version,
        moved.metadata.resource_version
    );
    assert!(!env.pod_dir(&moved).exists());
}

#[test]
fn killed_supervisor_is_replaced_while_container_runs() {
    let env = Environment::new("supervisor");
    env.create("s", json!({"terminationGracePeriodSeconds": 0}));
    let pod = env.wait_phase("s", "Running");
    let process = env.process(&pod);
    let old = pod_supervisor::status::read(&env.pod_dir(&pod))
        .unwrap()
        .unwrap()
        .supervisor;
    let number = rustix::process::Pid::from_raw(old.pid).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    env.until("replaced", || {
        let now = pod_supervisor::status::read(&env.pod_dir(&pod))
            .unwrap()
            .unwrap()
            .supervisor;
        now != old && now.is_alive()
    });
    assert_eq!(env.process(&pod), process);
    assert!(process.is_alive());
    env.delete_and_wait("s");
    env.assert_no_leftovers(&pod);
    assert!(!process.is_alive());
}

#[test]
fn teardown_works_without_api_server() {
    let mut env = Environment::new("teardown");
    env.create(
        "t",
        json!({"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}),
    );
    let pod = env.wait_phase("t", "Running");
    let process = env.process(&pod);
    env.kill_node();
    let root = env.root();
    let count = env.wait(teardown_all(&root, &NoNetwork, AT_ONCE)).unwrap();
    assert_eq!(count, 1);
    assert!(!process.is_alive());
    env.assert_no_leftovers(&pod);
}
