//! An API server in memory with a guest's objects, and [`Guests`] that watch them, for tests.

use cluster_view::Configuration;
use embedded_api::Identity;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, Client, api::PostParams, runtime::watcher};
use kubevirt_api::VirtualMachineInstance;
use reconcile::{Clock, Key, Store, Triggers, recorder, watch};
use serde_json::{Value, json};
use test_cluster::TestApi;

use super::{ClientHandle, Guests, GuestsParts, Part};
use crate::{
    capabilities::Capabilities,
    launcher::Session,
    pods_dir::{PodUid, PodsDir},
};

pub(crate) struct Fixture {
    pub(crate) client: Client,
    api: TestApi,
}

impl Guests {
    /// Uses this session with the launcher of a pod.
    pub(crate) fn open_session(&self, key: &Key, pod: &PodUid, session: Session) {
        let runs = (pod, Part::Runs);
        self.sessions.get_or_open(key, runs, || session);
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let api = TestApi::without_kinds(Identity::component("test")).await;
        Self {
            client: api.client.clone(),
            api,
        }
    }

    /// Creates the VMI `default/a` in phase `Scheduled` on the node, and its pod.
    pub(crate) async fn create_guest(&self) -> VirtualMachineInstance {
        self.create_guest_with(json!({"phase": "Scheduled", "nodeName": "n1"}))
            .await
    }

    /// The same, with this status of the VMI.
    pub(crate) async fn create_guest_with(&self, status: Value) -> VirtualMachineInstance {
        let is_wanted = |name: &str| name.starts_with("virtualmachineinstances.");
        self.api.install_kinds(is_wanted).await;
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}},
            "status": status,
        });
        let vmi = serde_json::from_value(vmi).unwrap();
        let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(self.client.clone());
        let vmi = vmis.create(&PostParams::default(), &vmi).await.unwrap();
        let pod = json!({
            "metadata": {"name": launcher_pod::pod_name(&vmi), "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "name": "a", "uid": vmi.metadata.uid, "controller": true,
            }]},
            "spec": {"containers": [{"name": "compute", "image": "i"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let pods = Api::default_namespaced(self.client.clone());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        vmi
    }

    /// The reconciler, with synchronised stores.
    pub(crate) async fn guests(&self) -> Guests {
        self.guests_with_client(self.client.clone()).await
    }

    /// The same, which reads single objects and writes by another client.
    pub(crate) async fn guests_with_client(&self, client: Client) -> Guests {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("node.json"), r#"{"kvm": false}"#).unwrap();
        let clock = Clock::system();
        let (recorder, task) = recorder(self.client.clone(), "virt-handler", clock);
        self.api.tasks.spawn(task.run(self.api.stop.clone()));
        let (vmis, pods) = (Store::new(), Store::new());
        let all = watcher::Config::default;
        self.api.tasks.spawn(watch(
            self.client.clone(),
            all(),
            vmis.clone(),
            |_| (),
            self.api.stop.clone(),
        ));
        self.api.tasks.spawn(watch(
            self.client.clone(),
            all(),
            pods.clone(),
            |_| (),
            self.api.stop.clone(),
        ));
        vmis.ready().await;
        pods.ready().await;
        Guests::new(GuestsParts {
            client: ClientHandle(client),
            node: "n1".to_owned(),
            address: ([127, 0, 0, 1], 8186).into(),
            peers: None,
            arrivals: Store::new(),
            vmis,
            pods,
            pods_dir: PodsDir::new("/nonexistent"),
            capabilities: Capabilities::load(dir.path()).unwrap(),
            cluster: Configuration::new("kubevirt"),
            recorder,
            clock,
            triggers: Triggers::new(),
            tasks: self.api.tasks.clone(),
            stop: self.api.stop.clone(),
        })
    }

    /// The first event, or the next one if there is none yet.
    pub(crate) async fn next_event(&self) -> Event {
        self.event(|_| true).await
    }

    /// The first event that is wanted.
    pub(crate) async fn event(&self, is_wanted: impl Fn(&Event) -> bool) -> Event {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let mut changes = std::pin::pin!(watcher(events, watcher::Config::default()));
        loop {
            match changes.next().await.unwrap().unwrap() {
                watcher::Event::Apply(event) | watcher::Event::InitApply(event)
                    if is_wanted(&event) =>
                {
                    return event;
                }
                _ => {}
            }
        }
    }

    pub(crate) async fn stop(self) {
        self.api.end().await;
    }
}
