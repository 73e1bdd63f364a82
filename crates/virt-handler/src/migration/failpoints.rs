//! Kills the virt-handlers at each of their failpoints in a migration, between two nodes and within one: the
//! guest runs exactly once, and the VMI says where. The test takes the parts of virt-controller and of the
//! two launchers.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::failpoints::Trap;
use cluster_view::Configuration;
use embedded_api::Identity;
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher,
};
use kubevirt_api::VirtualMachineInstance;
use launcher_channel::{
    DomainState, GuestState, MigrationProgress, MigrationReport, MigrationStage as Stage, Request,
    StopReason,
};
use reconcile::{Clock, Key, Reconciler as _, Store, Triggers, recorder, watch};
use serde_json::{Value, json};
use serving::{Authority, HttpsClient, Validity};
use test_cluster::{NAMESPACE, TestApi};
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

use crate::{
    capabilities::Capabilities,
    guest::{ClientHandle, Guests, GuestsParts},
    launcher::{CallError, Link, Peer, Session},
    pods_dir::{PodUid, PodsDir},
};

const PREFIX: &str = "virt-handler/migration/";
const ID: &str = "m-uid";
/// In virtual time.
const STEP: Duration = Duration::from_millis(50);
const ROUNDS: usize = 400;

fn key() -> Key {
    Key::new(NAMESPACE, "a")
}

/// What happens to the guest besides the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// The launchers hand the guest over and resume it.
    Moves,
    /// The request to resume the guest is lost between them.
    AwaitsTakeOver,
    /// The old virt-handler is away from the hand-over on.
    OldNodeIsSilent,
    /// The copy takes so long that it is switched to post-copy.
    Switches,
    IsCancelled,
}

/// The nodes of the old and the new pod.
type Way = [&'static str; 2];

const BETWEEN_NODES: Way = ["n1", "n2"];
const WITHIN_NODE: Way = ["n1", "n1"];

/// All ways with all courses; within a node there is one virt-handler, which cannot be away from one pod.
const ALL: [(Way, Course); 9] = [
    (BETWEEN_NODES, Course::Moves),
    (BETWEEN_NODES, Course::AwaitsTakeOver),
    (BETWEEN_NODES, Course::OldNodeIsSilent),
    (BETWEEN_NODES, Course::Switches),
    (BETWEEN_NODES, Course::IsCancelled),
    (WITHIN_NODE, Course::Moves),
    (WITHIN_NODE, Course::AwaitsTakeOver),
    (WITHIN_NODE, Course::Switches),
    (WITHIN_NODE, Course::IsCancelled),
];

/// A launcher, which survives virt-handler.
#[derive(Debug, Clone)]
struct Launcher(latest::Sender<Link>);

impl Launcher {
    fn new(domain: Option<DomainState>) -> Self {
        let (sender, _) = latest::channel(Link {
            peer: Some(Arc::new(Peer::this_process())),
            connection: 1,
            state: Some(GuestState {
                domain,
                ..GuestState::default()
            }),
            disconnected_since: None,
        });
        Self(sender)
    }

    fn state(&self) -> GuestState {
        self.0.borrow().state.clone().unwrap()
    }

    fn stage(&self) -> Option<Stage> {
        Some(self.state().migration?.stage)
    }

    fn is_running(&self) -> bool {
        self.state().domain == Some(DomainState::Running)
    }

    fn enter(&self, stage: Stage, domain: Option<DomainState>) {
        let report = MigrationReport {
            id: ID.to_owned(),
            can_switch: stage == Stage::Copying,
            needs_no_switch: false,
            paused: false,
            stage,
            progress: Some(MigrationProgress {
                total_bytes: Some(1),
                ..MigrationProgress::default()
            }),
        };
        self.0.send_modify(|link| {
            link.state = Some(GuestState {
                domain,
                migration: Some(Box::new(report)),
                ..GuestState::default()
            });
        });
    }

    /// Answers as a launcher does.
    fn respond(&self, request: &Request) -> Result<GuestState, CallError> {
        let domain = self.state().domain;
        match (request, self.stage()) {
            (Request::Receive { .. }, None) => self.enter(Stage::Waiting, None),
            (Request::Migrate(_), None) => self.enter(Stage::Copying, domain),
            (Request::CancelMigration { .. }, Some(Stage::Copying)) => {
                self.enter(Stage::Cancelled, domain);
            }
            (Request::StartPostCopy { .. }, Some(Stage::Copying)) => {
                self.enter(Stage::PostCopy, Some(DomainState::PausedOther));
            }
            (Request::TakeOver { .. }, Some(Stage::Received)) => {
                self.enter(Stage::Done, Some(DomainState::Running));
            }
            (Request::Sync(_), Some(Stage::Waiting | Stage::Receiving | Stage::Received)) => {
                return Err(CallError::Refused {
                    reason: "MigrationConflict".to_owned(),
                    message: "this pod waits for a guest".to_owned(),
                    transient: true,
                });
            }
            _ => {}
        }
        Ok(self.state())
    }

    fn session(&self) -> (Session, impl Future<Output = ()> + Send + use<>) {
        let launcher = self.clone();
        let respond = move |request: Request| launcher.respond(&request);
        Session::scripted(self.0.subscribe(), respond)
    }
}

/// A pod of the guest, which survives virt-handler.
struct Place {
    node: &'static str,
    name: String,
    launcher: Launcher,
    pod: PodUid,
}

/// The virt-handler of a node, which may be killed.
struct Process {
    node: &'static str,
    running: Option<(Arc<Guests>, CancellationToken)>,
}

struct Cluster {
    api: TestApi,
    client: Client,
    /// The old one and the new one.
    places: [Place; 2],
    processes: Vec<Process>,
    pods_dir: tempfile::TempDir,
    authority: Authority,
    trap: Trap,
    /// A virt-handler has died while it carried the bytes of the copy.
    is_cut_off: bool,
    /// The same, in post-copy.
    is_lost: bool,
    /// The VMI shows post-copy.
    is_shown: bool,
}

impl Cluster {
    async fn new(way: Way) -> Self {
        let api = TestApi::without_kinds(Identity::component("test")).await;
        let is_wanted = |name: &str| name.starts_with("virtualmachineinstances.");
        api.install_kinds(is_wanted).await;
        let client = api.client.clone();
        let source = Box::pin(create_guest(&client, way)).await;
        let target = create_pod(&client, "target", way[1]).await;
        publish_migration(&client, way, &source, &target).await;
        let pods_dir = tempfile::tempdir().unwrap();
        let place = |node, pod: &Pod, domain| {
            let name = pod.metadata.name.clone().unwrap();
            let pod = PodUid::parse(pod.metadata.uid.as_deref().unwrap()).unwrap();
            for volume in ["sockets", "private", "ephemeral-disks"] {
                let path = PodsDir::new(pods_dir.path()).empty_dir(&pod, volume);
                std::fs::create_dir_all(path).unwrap();
            }
            Place {
                node,
                name,
                launcher: Launcher::new(domain),
                pod,
            }
        };
        let places = [
            place(way[0], &source, Some(DomainState::Running)),
            place(way[1], &target, None),
        ];
        let processes = way.map(|node| Process {
            node,
            running: None,
        });
        let count = if way[0] == way[1] { 1 } else { 2 };
        let processes: Vec<_> = processes.into_iter().take(count).collect();
        let validity = Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let trap = Trap::new();
        trap.enter();
        let mut cluster = Self {
            authority: Authority::create("test-ca", validity).unwrap(),
            api,
            client,
            places,
            processes,
            pods_dir,
            trap,
            is_cut_off: false,
            is_lost: false,
            is_shown: false,
        };
        for at in 0..count {
            cluster.start(at).await;
        }
        cluster
    }

    /// Starts the virt-handler of a node.
    async fn start(&mut self, at: usize) {
        let node = self.processes[at].node;
        let stop = self.api.stop.child_token();
        let clock = Clock::system();
        let (recorder, task) = recorder(self.client.clone(), "virt-handler", clock);
        self.api.tasks.spawn(task.run(stop.clone()));
        let (vmis, arrivals, pods) = (Store::new(), Store::new(), Store::new());
        for (store, label) in [
            (&vmis, "kubevirt.io/nodeName"),
            (&arrivals, "kubevirt.io/migrationTargetNodeName"),
        ] {
            let labelled = watcher::Config::default().labels(&format!("{label}={node}"));
            self.api.tasks.spawn(watch::<VirtualMachineInstance>(
                self.client.clone(),
                labelled,
                store.clone(),
                |_| (),
                stop.clone(),
            ));
        }
        let here = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let watched = watch::<Pod>(
            self.client.clone(),
            here,
            pods.clone(),
            |_| (),
            stop.clone(),
        );
        self.api.tasks.spawn(watched);
        vmis.ready().await;
        arrivals.ready().await;
        pods.ready().await;
        let facts = tempfile::tempdir().unwrap();
        std::fs::write(facts.path().join("node.json"), r#"{"kvm": false}"#).unwrap();
        let tasks = self.api.tasks.clone();
        let guests = Guests::new(GuestsParts {
            client: ClientHandle(self.client.clone()),
            node: node.to_owned(),
            address: ([127, 0, 0, 1], 1).into(),
            peers: self.peers(),
            arrivals,
            vmis,
            pods,
            pods_dir: PodsDir::new(self.pods_dir.path()),
            capabilities: Capabilities::load(facts.path()).unwrap(),
            cluster: Configuration::new("kubevirt"),
            recorder,
            clock,
            triggers: Triggers::new(),
            tasks,
            stop: stop.clone(),
        });
        for place in self.places.iter().filter(|place| place.node == node) {
            let (session, task) = place.launcher.session();
            guests.open_session(&key(), &place.pod, session);
            self.api.tasks.spawn(task);
        }
        self.processes[at].running = Some((Arc::new(guests), stop));
    }

    /// A single host has none.
    fn peers(&self) -> Option<HttpsClient> {
        let trust = self.authority.trust();
        let connect = || HttpsClient::new(&trust, None, self.api.tasks.clone()).unwrap();
        (self.processes.len() > 1).then(connect)
    }

    /// Reconciles once on a node; a virt-handler that is killed meanwhile is followed by another one.
    async fn turn(&mut self, at: usize) {
        let Some((guests, _)) = self.processes[at].running.clone() else {
            return;
        };
        let key = key();
        let reconciled = AssertUnwindSafe(guests.reconcile(&key)).catch_unwind();
        // Conflicts and refusals are followed by another round.
        if let Err(_killed) = reconciled.await {
            let (_, stop) = self.processes[at].running.take().unwrap();
            stop.cancel();
            let stage = self.places[0].launcher.stage();
            self.is_cut_off |= stage == Some(Stage::Copying);
            self.is_lost |= stage == Some(Stage::PostCopy);
            self.start(at).await;
        }
    }

    async fn vmi(&self) -> Value {
        let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(self.client.clone());
        serde_json::to_value(vmis.get("a").await.unwrap()).unwrap()
    }

    /// Has the VMI follow its guest, as virt-controller does.
    async fn follow(&self, vmi: &Value) {
        let state = &vmi["status"]["migrationState"];
        let has_arrived =
            state["completed"] == true || state["targetNodeDomainReadyTimestamp"].is_string();
        let node = self.places[1].node;
        if has_arrived && state["failed"] != true && vmi["status"]["nodeName"] != node {
            let followed = json!({
                "metadata": {"labels": {"kubevirt.io/nodeName": node}},
                "status": {"nodeName": node},
            });
            patch(&self.client, &followed).await;
        }
    }

    /// What the launchers do by themselves once the copy runs.
    fn copy(&mut self, course: Course) {
        let [old, new] = [&self.places[0].launcher, &self.places[1].launcher];
        let given_up = Some(DomainState::Stopped(StopReason::Migrated));
        if old.stage() == Some(Stage::PostCopy) {
            let lost = Some(DomainState::PausedPostcopyFailed);
            if self.is_lost {
                let ended = || Stage::Failed("the memory cannot follow".to_owned());
                old.enter(ended(), lost);
                new.enter(ended(), lost);
            } else if !new.is_running() {
                new.enter(Stage::PostCopy, Some(DomainState::Running));
            } else if self.is_shown {
                old.enter(Stage::Done, given_up);
                new.enter(Stage::Done, Some(DomainState::Running));
            }
            return;
        }
        if old.stage() != Some(Stage::Copying) {
            return;
        }
        if self.is_cut_off {
            let ended = || Stage::Failed("the connection to the other pod has ended".to_owned());
            old.enter(ended(), Some(DomainState::Running));
            new.enter(ended(), None);
            return;
        }
        match course {
            Course::IsCancelled | Course::Switches => {}
            Course::Moves | Course::OldNodeIsSilent => {
                old.enter(Stage::Done, given_up);
                new.enter(Stage::Done, Some(DomainState::Running));
            }
            Course::AwaitsTakeOver => {
                old.enter(Stage::Done, given_up);
                new.enter(Stage::Received, Some(DomainState::PausedOther));
            }
        }
        if course == Course::OldNodeIsSilent {
            let process = self.processes[0].running.take();
            process.unwrap().1.cancel();
        }
    }

    /// Runs the migration to its end, and checks it after every step.
    async fn run(&mut self, course: Course, name: &str) -> Value {
        for _ in 0..ROUNDS {
            for at in 0..self.processes.len() {
                self.turn(at).await;
            }
            let running = self.places.iter().filter(|one| one.launcher.is_running());
            assert!(
                running.count() <= 1,
                "{name} {course:?}: the guest runs twice"
            );
            let vmi = self.vmi().await;
            if self.is_true(&vmi) {
                return vmi;
            }
            let is_copying = self.places[0].launcher.stage() == Some(Stage::Copying);
            if course == Course::IsCancelled && is_copying && !self.is_cut_off {
                let abort = json!({"abortRequested": true, "abortStatus": "Aborting"});
                patch(&self.client, &json!({"status": {"migrationState": abort}})).await;
            }
            self.is_shown = vmi["status"]["migrationState"]["mode"] == "PostCopy";
            self.follow(&vmi).await;
            self.copy(course);
            tokio::time::sleep(STEP).await;
        }
        let [old, new] = self.places.each_ref().map(|one| one.launcher.state());
        panic!(
            "{name} {course:?}: {:#}\n{old:?}\n{new:?}",
            self.vmi().await
        )
    }

    /// Whether the migration is over, and the VMI says where the guest runs.
    fn is_true(&self, vmi: &Value) -> bool {
        let state = &vmi["status"]["migrationState"];
        if self.is_lost {
            let has_failed = vmi["status"]["phase"] == "Failed";
            // Events and users learn from the mode that the guest did not stay in its old pod.
            assert!(
                !has_failed || state["completed"] != true || state["mode"] == "PostCopy",
                "lost without post-copy: {state:#}"
            );
            return has_failed;
        }
        let place = self.places.iter().find(|one| one.launcher.is_running());
        let Some(place) = place.filter(|_| state["completed"] == true) else {
            return false;
        };
        let has_failed = state["failed"] == true;
        let is_dated = state["targetNodeDomainReadyTimestamp"].is_string();
        assert!(
            has_failed || is_dated,
            "without the time of arrival: {state:#}"
        );
        let parsed = serde_json::from_value(vmi.clone()).unwrap();
        vmi["status"]["phase"] == "Running"
            && vmi["status"]["nodeName"] == place.node
            && launcher_pod::current_pod_name(&parsed) == place.name
            && has_failed == (place.name != "target")
    }

    async fn end(self) {
        drop(self.processes);
        drop(self.places);
        self.api.end().await;
    }
}

async fn create_guest(client: &Client, [node, target]: Way) -> Pod {
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "a", "labels": {
            "kubevirt.io/nodeName": node, "kubevirt.io/migrationTargetNodeName": target}},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {},
            "firmware": {"uuid": "69a61d3f-50cc-4611-b6e2-e53205a02bad"}}},
        "status": {"phase": "Running", "nodeName": node},
    });
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let vmi = serde_json::from_value(vmi).unwrap();
    let vmi = vmis.create(&PostParams::default(), &vmi).await.unwrap();
    create_pod(client, &launcher_pod::pod_name(&vmi), node).await
}

async fn create_pod(client: &Client, name: &str, node: &str) -> Pod {
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let vmi = vmis.get("a").await.unwrap();
    let pod = json!({
        "metadata": {"name": name, "ownerReferences": [{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "name": "a", "uid": vmi.metadata.uid, "controller": true,
        }]},
        "spec": {"nodeName": node, "containers": [{"name": "compute", "image": "i"}]},
    });
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap()
}

/// Publishes the migration as virt-controller does.
async fn publish_migration(client: &Client, way: Way, source: &Pod, target: &Pod) {
    let active = json!({
        (source.metadata.uid.as_deref().unwrap()): way[0],
        (target.metadata.uid.as_deref().unwrap()): way[1],
    });
    let state = json!({
        "migrationUid": ID, "sourceNode": way[0], "targetNode": way[1],
        "sourcePod": source.metadata.name, "targetPod": "target",
        "migrationConfiguration": {
            "allowPostCopy": true, "allowWorkloadDisruption": true, "completionTimeoutPerGiB": 1},
    });
    let status = json!({"status": {"activePods": active, "migrationState": state}});
    patch(client, &status).await;
}

async fn patch(client: &Client, change: &Value) {
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let change = Patch::Merge(change);
    let patched = vmis.patch("a", &PatchParams::default(), &change).await;
    patched.unwrap();
}

#[tokio::test(start_paused = true)]
async fn migration_ends_as_its_launchers_end_it() {
    for (way, course) in ALL {
        let mut cluster = Box::pin(Cluster::new(way)).await;
        let vmi = cluster.run(course, "no failpoint").await;
        let has_moved = model::has_moved(&serde_json::from_value(vmi.clone()).unwrap());
        assert_eq!(
            has_moved,
            course != Course::IsCancelled,
            "{way:?} {course:?}"
        );
        let abort = &vmi["status"]["migrationState"]["abortStatus"];
        assert_eq!(abort == "Succeeded", course == Course::IsCancelled);
        let mode = &vmi["status"]["migrationState"]["mode"];
        assert_eq!(mode == "PostCopy", course == Course::Switches, "{mode}");
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn guest_runs_once_though_virt_handler_is_killed_at_any_failpoint() {
    let names = ::failpoints::NAMES.lines();
    for name in names.filter(|name| name.starts_with(PREFIX)) {
        let is_reached = Arc::new(AtomicBool::new(false));
        for (way, course) in ALL {
            let mut cluster = Box::pin(Cluster::new(way)).await;
            let reached = Arc::clone(&is_reached);
            cluster.trap.set(name, move || {
                reached.store(true, Ordering::Relaxed);
                panic!("killed");
            });
            cluster.run(course, name).await;
            cluster.end().await;
        }
        assert!(
            is_reached.load(Ordering::Relaxed),
            "failpoint {name} was not reached"
        );
    }
}
