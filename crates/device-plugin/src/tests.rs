use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    AllocateRequest, Code, ContainerAllocateRequest, ContainerAllocateResponse, Device, Devices,
    HEALTHY, KUBELET_SOCKET, Kubelet, Plugin, PluginClient, RegisterRequest, Registrations, Status,
    UNHEALTHY, VERSION, bind, register, serve_plugin,
};

const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Clone)]
struct Registered(mpsc::Sender<RegisterRequest>);

impl Registrations for Registered {
    async fn register(&self, request: RegisterRequest) -> Result<(), Status> {
        if request.endpoint == "bad.sock" {
            return Err(Status::new(Code::FailedPrecondition, "100% näy"));
        }
        self.0.send(request).await.unwrap();
        Ok(())
    }
}

struct Null;

impl Plugin for Null {
    async fn allocate(
        &self,
        request: &ContainerAllocateRequest,
    ) -> Result<ContainerAllocateResponse, Status> {
        if request.device_ids.is_empty() {
            return Err(Status::new(Code::InvalidArgument, "no device is requested"));
        }
        Ok(ContainerAllocateResponse {
            envs: HashMap::from([("IDS".to_owned(), request.device_ids.join(","))]),
            ..ContainerAllocateResponse::default()
        })
    }
}

fn request(endpoint: &str) -> RegisterRequest {
    RegisterRequest {
        version: VERSION.into(),
        endpoint: endpoint.into(),
        resource_name: "example.com/null".into(),
        options: None,
    }
}

fn devices(health: &str) -> Devices {
    [Device {
        id: "null0".into(),
        health: health.into(),
        topology: None,
    }]
    .into()
}

async fn with_timeout<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, work).await.unwrap()
}

async fn with_plugin(dir: &Path, devices: watch::Receiver<Devices>, work: impl AsyncFnOnce()) {
    let stop = CancellationToken::new();
    let listener = bind(dir, "null.sock").unwrap();
    let serving = serve_plugin(listener, Arc::new(Null), devices, stop.clone());
    tokio::select! {
        () = serving => panic!("the server ended"),
        () = with_timeout(work()) => {}
    }
}

#[tokio::test]
async fn plugin_registers_and_refusal_carries_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, mut registered) = mpsc::channel(1);
    let kubelet = Kubelet::new(bind(dir.path(), KUBELET_SOCKET).unwrap());
    let stop = CancellationToken::new();
    let serving = kubelet.serve(Registered(sender), stop.clone());
    let registering = with_timeout(async {
        register(dir.path(), &request("null.sock")).await.unwrap();
        assert_eq!(registered.recv().await.unwrap(), request("null.sock"));
        let refused = register(dir.path(), &request("bad.sock"))
            .await
            .unwrap_err();
        assert_eq!(refused.code, Code::FailedPrecondition);
        assert_eq!(refused.message, "100? n?y");
        let mut old = request("null.sock");
        old.version = "v1alpha".into();
        let refused = register(dir.path(), &old).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
        assert!(refused.message.contains("v1alpha"), "{refused}");
    });
    tokio::select! {
        () = serving => panic!("the server ended"),
        () = registering => {}
    }
}

#[tokio::test]
async fn without_a_kubelet_registration_fails_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let refused = register(dir.path(), &request("x.sock")).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
}

#[tokio::test]
async fn health_change_reaches_the_kubelet() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, receiver) = watch::channel(devices(HEALTHY));
    with_plugin(dir.path(), receiver, async || {
        let client = PluginClient::connect(dir.path(), "null.sock")
            .await
            .unwrap();
        let mut list = client.list_and_watch().await.unwrap();
        let first = list.next().await.unwrap().unwrap();
        assert_eq!(first.devices, devices(HEALTHY).to_vec());
        assert!(list.next().now_or_never().is_none());
        sender.send_replace(devices(UNHEALTHY));
        let second = list.next().await.unwrap().unwrap();
        assert_eq!(second.devices, devices(UNHEALTHY).to_vec());
        drop(sender);
        assert_eq!(list.next().await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn each_container_gets_its_response_or_the_call_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (_sender, receiver) = watch::channel(devices(HEALTHY));
    with_plugin(dir.path(), receiver, async || {
        let client = PluginClient::connect(dir.path(), "null.sock")
            .await
            .unwrap();
        let container = |ids: &[&str]| ContainerAllocateRequest {
            device_ids: ids.iter().map(|&id| id.to_owned()).collect(),
        };
        let two = AllocateRequest {
            container_requests: vec![container(&["a", "b"]), container(&["c"])],
        };
        let response = client.allocate(&two).await.unwrap();
        let ids: Vec<_> = response
            .container_responses
            .iter()
            .map(|one| one.envs["IDS"].as_str())
            .collect();
        assert_eq!(ids, ["a,b", "c"]);
        let none = AllocateRequest {
            container_requests: vec![container(&[])],
        };
        let refused = client.allocate(&none).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
    })
    .await;
}

#[tokio::test]
async fn socket_name_must_not_leave_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    for bad in ["", "..", "../x", "a/b"] {
        assert!(bind(dir.path(), bad).is_err(), "{bad:?}");
        assert!(crate::connect(dir.path(), bad).await.is_err(), "{bad:?}");
    }
}
