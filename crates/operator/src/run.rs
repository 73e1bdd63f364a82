//! Settings and wiring: fills the stores, waits to lead, and runs the controllers while leading.

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::Node,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Client, runtime::watcher::Config};
use reconcile::{
    Clock, Key, Leadership, Recorder, Store, Triggers, lead, panic_events, recorder,
    run_controller, watch, watch_if_defined, watch_namespace,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    MANAGER,
    components::{self, Components, Environment},
    importer, installation, instancetypes,
    release::Release,
    view::{ClusterInstancetype, ClusterPreference, Installation},
};

pub struct Settings {
    pub client: Client,
    pub clock: Clock,
    /// Of the installation, and of the lease.
    pub namespace: String,
    pub leadership: Leadership,
    pub environment: Environment,
    /// The image of the virtual machines' pods.
    pub launcher_image: String,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("leadership", &self.leadership)
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

/// Runs until stopped.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    let (client, clock) = (settings.client.clone(), settings.clock);
    let leadership = settings.leadership.clone();
    let (recorder, recording) = recorder(client.clone(), MANAGER, clock);
    tasks.spawn(recording.run(stop.clone()));
    let operator = Arc::new(Operator::new(settings, recorder));
    operator.watch(&tasks, &stop);
    let work = move |token: CancellationToken| {
        let operator = Arc::clone(&operator);
        async move {
            let ready = token.run_until_cancelled(operator.ready());
            if ready.await.is_some() {
                operator.lead(token).await;
            }
        }
    };
    lead(client, leadership, clock, stop.clone(), work).await;
    tasks.close();
    tasks.wait().await;
}

struct Operator {
    settings: Settings,
    recorder: Recorder,
    installations: Store<Installation>,
    types: Store<ClusterInstancetype>,
    preferences: Store<ClusterPreference>,
    components: Components,
    /// Of the `KubeVirt` objects.
    triggers: Triggers,
    /// Of the common instance types, which are reconciled as a whole.
    common: Triggers,
    /// Of the definitions of data volumes, which a single host installs at its start.
    importer: Option<Triggers>,
}

impl Operator {
    fn new(settings: Settings, recorder: Recorder) -> Self {
        Self {
            components: Components::new(&settings.environment),
            importer: (settings.environment == Environment::Cluster).then(Triggers::new),
            settings,
            recorder,
            installations: Store::new(),
            types: Store::new(),
            preferences: Store::new(),
            triggers: Triggers::new(),
            common: Triggers::new(),
        }
    }

    fn namespace(&self) -> &str {
        &self.settings.namespace
    }

    /// The key whose reconcile creates the object if there is none.
    fn default_key(&self) -> Key {
        Key::new(self.namespace(), installation::NAME)
    }

    /// Starts all watches.
    fn watch(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let client = &self.settings.client;
        let (triggers, common) = (self.triggers.clone(), self.common.clone());
        let default = self.default_key();
        tasks.spawn(watch_if_defined(
            client.clone(),
            Config::default(),
            self.installations.clone(),
            move |object: &Installation| {
                triggers.add(Key::of(object), "kubevirt");
                triggers.add(default.clone(), "kubevirt");
                common.add(instancetypes::key(), "kubevirt");
            },
            stop.clone(),
        ));
        let common = self.common.clone();
        tasks.spawn(watch_if_defined(
            client.clone(),
            Config::default(),
            self.types.clone(),
            move |_| common.add(instancetypes::key(), "virtualmachineclusterinstancetype"),
            stop.clone(),
        ));
        let common = self.common.clone();
        tasks.spawn(watch_if_defined(
            client.clone(),
            Config::default(),
            self.preferences.clone(),
            move |_| common.add(instancetypes::key(), "virtualmachineclusterpreference"),
            stop.clone(),
        ));
        if let Some(triggers) = &self.importer {
            importer::observe((client, self.namespace()), triggers, tasks, stop);
        }
        self.watch_components(tasks, stop);
    }

    fn watch_components(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let client = &self.settings.client;
        let trigger = |name: &'static str| {
            let (triggers, key) = (self.triggers.clone(), self.default_key());
            move || triggers.add(key.clone(), name)
        };
        match &self.components {
            Components::Workloads {
                deployments,
                daemon_sets,
            } => {
                let ours = Config::default().labels(components::SELECTOR);
                let changed = trigger("deployment");
                tasks.spawn({
                    let (client, namespace) = (client.clone(), self.namespace().to_owned());
                    let (ours, store, stop) = (ours.clone(), deployments.clone(), stop.clone());
                    async move {
                        let changed = |_: &Deployment| changed();
                        watch_namespace((client, &namespace), ours, store, changed, stop).await;
                    }
                });
                let changed = trigger("daemonset");
                tasks.spawn({
                    let (client, namespace) = (client.clone(), self.namespace().to_owned());
                    let (store, stop) = (daemon_sets.clone(), stop.clone());
                    async move {
                        let changed = |_: &DaemonSet| changed();
                        watch_namespace((client, &namespace), ours, store, changed, stop).await;
                    }
                });
            }
            Components::Host {
                node,
                nodes,
                services,
            } => {
                let only = |name: &str| Config::default().fields(&format!("metadata.name={name}"));
                let changed = trigger("node");
                tasks.spawn(watch(
                    client.clone(),
                    only(node),
                    nodes.clone(),
                    move |_: &Node| changed(),
                    stop.clone(),
                ));
                let changed = trigger("apiservice");
                tasks.spawn(watch(
                    client.clone(),
                    only(components::API_SERVICE),
                    services.clone(),
                    move |_: &APIService| changed(),
                    stop.clone(),
                ));
            }
        }
    }

    /// Waits for the first list of every kind.
    async fn ready(&self) {
        self.installations.ready().await;
        self.types.ready().await;
        self.preferences.ready().await;
        self.components.ready().await;
    }

    /// Reconciles until stopped.
    async fn lead(&self, stop: CancellationToken) {
        let installations = installation::Controller {
            client: self.settings.client.clone(),
            clock: self.settings.clock,
            default: self.default_key(),
            objects: self.installations.clone(),
            components: self.components.clone(),
            release: Release::new(self.namespace(), &self.settings.launcher_image),
            recorder: self.recorder.clone(),
        };
        let common = instancetypes::Controller {
            client: self.settings.client.clone(),
            namespace: self.namespace().to_owned(),
            installations: self.installations.clone(),
            types: self.types.clone(),
            preferences: self.preferences.clone(),
        };
        // The last leader may have stopped at any point.
        for key in self.installations.keys() {
            self.triggers.add(key, "leader");
        }
        self.triggers.add(self.default_key(), "leader");
        self.common.add(instancetypes::key(), "leader");
        let tasks = TaskTracker::new();
        let on_panic = panic_events(self.recorder.clone(), self.installations.clone());
        tasks.spawn(run_controller(
            Arc::new(installations),
            self.triggers.clone(),
            1,
            on_panic,
            stop.clone(),
        ));
        // Reconciled as a whole, so no object could have the event.
        tasks.spawn(run_controller(
            Arc::new(common),
            self.common.clone(),
            1,
            |_, _| (),
            stop.clone(),
        ));
        if let Some(triggers) = &self.importer {
            let definitions = importer::Controller {
                client: self.settings.client.clone(),
                namespace: self.namespace().to_owned(),
            };
            triggers.add(importer::key(), "leader");
            tasks.spawn(run_controller(
                Arc::new(definitions),
                triggers.clone(),
                1,
                |_, _| (),
                stop,
            ));
        }
        tasks.close();
        tasks.wait().await;
    }
}
