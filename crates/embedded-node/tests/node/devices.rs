//! Devices of device plugins, allocated to pods.

use std::{sync::Arc, time::Instant};

use device_plugin::{
    ContainerAllocateRequest, ContainerAllocateResponse, Device, DeviceSpec, Plugin,
    RegisterRequest, Status,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, runtime::wait::await_condition};
use serde_json::json;
use tokio::sync::watch;

use super::{Environment, TIMEOUT};

/// Provides `/dev/null` under another name.
struct NullDevice;

impl Plugin for NullDevice {
    async fn allocate(
        &self,
        request: &ContainerAllocateRequest,
    ) -> Result<ContainerAllocateResponse, Status> {
        Ok(ContainerAllocateResponse {
            devices: vec![DeviceSpec {
                container_path: "/dev/nothing".into(),
                host_path: "/dev/null".into(),
                permissions: "rw".into(),
            }],
            envs: [("DEVICES".to_owned(), request.device_ids.join(","))].into(),
            ..ContainerAllocateResponse::default()
        })
    }
}

/// Registers a plugin with one device, until the sender is dropped.
pub(crate) fn register_null_device(env: &Environment) -> watch::Sender<device_plugin::Devices> {
    let device = Device {
        id: "null0".into(),
        health: device_plugin::HEALTHY.into(),
        topology: None,
    };
    let (sender, devices) = watch::channel([device].into());
    let dir = env.root().join("device-plugins");
    let stop = env.stop.clone();
    // A starting node removes the sockets of plugins before it listens.
    env.until("listening", || {
        std::os::unix::net::UnixStream::connect(dir.join("kubelet.sock")).is_ok()
    });
    env.wait(async {
        let listener = device_plugin::bind(&dir, "null.sock").unwrap();
        let plugin = Arc::new(NullDevice);
        env.runtime
            .spawn(device_plugin::serve_plugin(listener, plugin, devices, stop));
        let request = RegisterRequest {
            version: device_plugin::VERSION.into(),
            endpoint: "null.sock".into(),
            resource_name: "example.com/null".into(),
            options: None,
        };
        device_plugin::register(&dir, &request).await.unwrap();
    });
    sender
}

fn allocatable(env: &Environment, amount: &str) {
    let published = |node: Option<&Node>| {
        let status = serde_json::to_value(node.and_then(|node| node.status.as_ref())).unwrap();
        status["allocatable"]["example.com/null"] == amount
            && status["capacity"]["example.com/null"] == "1"
    };
    let api = Api::<Node>::all(env.client.clone());
    env.wait(await_condition(api, "here", published)).unwrap();
}

#[test]
fn plugin_device_is_allocated_once_across_restarts() {
    let mut env = Environment::new("devices");
    let spec = json!({"terminationGracePeriodSeconds": 0, "containers": [{
        "name": "main", "image": "busybox:1",
        "command": ["sh", "-c", "ls -l /dev/nothing; echo has $DEVICES; sleep 1000"],
        "resources": {"limits": {"example.com/null": "1"}},
    }]});
    let refused = |env: &Environment, pod: &Pod| {
        env.wait_for_events(pod, &["FailedScheduling"]);
        let pod = env.wait(env.pods().get(pod.metadata.name.as_deref().unwrap()));
        assert_eq!(pod.unwrap().spec.unwrap().node_name, None);
    };
    let first = env.create("a", spec.clone());
    refused(&env, &first);
    let plugin_handle = register_null_device(&env);
    let first = env.wait_phase("a", "Running");
    allocatable(&env, "1");
    let log = || env.log("/containerLogs/default/a/main").1;
    let deadline = Instant::now() + TIMEOUT;
    while !log().contains("has null0") {
        assert!(Instant::now() < deadline, "{}", log());
    }
    assert!(log().contains("crw-rw-rw-"), "{}", log());
    let second = env.create("b", spec);
    refused(&env, &second);

    env.kill_node();
    drop(plugin_handle);
    env.start_node();
    let plugin_handle = register_null_device(&env);
    allocatable(&env, "1");
    env.create("c", json!({}));
    env.wait_phase("c", "Running");
    refused(&env, &second);
    assert!(env.process(&first).is_alive());

    env.delete_and_wait("a");
    env.wait_phase("b", "Running");
    drop(plugin_handle);
    allocatable(&env, "0");
    env.delete_and_wait("b");
}
