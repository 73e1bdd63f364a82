//! CPUs of their own for containers of guaranteed pods.

use std::{fs, thread::available_parallelism};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::{Value, json};

use super::{Environment, environment::RESERVED_CPU};

/// The CPUs that the kernel lets the pod's container use.
fn allowed(env: &Environment, pod: &Pod) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{}/status", env.process(pod).pid)).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    host_cpus::parse_list(line.unwrap().trim()).unwrap()
}

fn with_limits(limits: &Value) -> Value {
    json!({"terminationGracePeriodSeconds": 0, "containers": [{
        "name": "main", "image": "busybox:1", "command": ["sleep", "1000"],
        "resources": {"limits": limits},
    }]})
}

fn asks_for(cpus: usize) -> Value {
    with_limits(&json!({"cpu": cpus.to_string(), "memory": "64Mi"}))
}

#[test]
fn container_has_its_cpus_for_itself_across_restarts() {
    let mut env = Environment::new("cpus");
    let processors = available_parallelism().unwrap().get();
    let node = env.wait(Api::<Node>::all(env.client.clone()).get("here"));
    let status = serde_json::to_value(node.unwrap().status).unwrap();
    assert_eq!(status["capacity"]["cpu"], processors.to_string());
    assert_eq!(status["allocatable"]["cpu"], (processors - 1).to_string());

    let before = env.create("before", with_limits(&json!({})));
    env.wait_phase("before", "Running");
    assert_eq!(allowed(&env, &before).len(), processors);
    let own = env.create("own", asks_for(1));
    env.wait_phase("own", "Running");
    let cpus = allowed(&env, &own);
    assert_eq!(cpus.len(), 1);
    assert_ne!(cpus[0], RESERVED_CPU);
    let is_apart = |env: &Environment, pod: &Pod| {
        let shared = allowed(env, pod);
        shared.len() == processors - 1 && !shared.contains(&cpus[0])
    };
    assert!(is_apart(&env, &before));
    let state = fs::read(env.root().join("cpu_manager_state")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    let uid = own.metadata.uid.clone().unwrap();
    assert_eq!(state["policyName"], "static");
    assert_eq!(state["entries"][uid]["main"], cpus[0].to_string());

    env.kill_node();
    env.start_node();
    let after = env.create("after", with_limits(&json!({})));
    env.wait_phase("after", "Running");
    assert!(is_apart(&env, &after) && is_apart(&env, &before));
    assert_eq!(allowed(&env, &own), cpus);
    let too_many = env.create("too-many", asks_for(processors));
    env.wait_for_events(&too_many, &["FailedScheduling"]);

    env.delete_and_wait("own");
    env.until("shared again", || {
        allowed(&env, &before).len() == processors && allowed(&env, &after).len() == processors
    });
}
