//! How a controller registers itself: its stores, its watches and its queue.

use std::pin::Pin;
use std::sync::Arc;

use cluster_view::Configuration;
use kube::Resource;
use kube::runtime::watcher;
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::labels;
use reconcile::{
    Reconciler, Recorder, Store, View, panic_events, run_controller, watch, watch_if_defined,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Settings;
use crate::caches::Caches;
use crate::gate::Gate;
use crate::vmi::PodSource;

/// What controllers are made from, and what they have registered so far.
pub(crate) struct Wiring<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) recorder: Recorder,
    pub(crate) cluster: Configuration,
    pub(crate) caches: Caches,
    /// The queue of the VMI controller, which the node controller fills, too.
    pub(crate) vmi_gate: Gate,
    /// Renders pods; the VMI controller registers it.
    pub(crate) pod_source: Option<PodSource>,
    tasks: &'a TaskTracker,
    stop: &'a CancellationToken,
    registered: Registered,
}

/// All stores and controllers.
#[derive(Default)]
pub(crate) struct Registered {
    stores: Vec<Box<dyn Cache>>,
    /// Each starts a controller.
    starts: Vec<Start>,
}

type Start = Box<dyn Fn(&Workers) + Send + Sync>;

/// A store of any kind.
trait Cache: Send + Sync {
    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn len(&self) -> usize;
}

/// Where controllers run.
struct Workers {
    tasks: TaskTracker,
    concurrency: usize,
    stop: CancellationToken,
}

impl<'a> Wiring<'a> {
    /// Watches run until stopped.
    pub(crate) fn new(
        settings: &'a Settings,
        recorder: Recorder,
        cluster: Configuration,
        tasks: &'a TaskTracker,
        stop: &'a CancellationToken,
    ) -> Self {
        Self {
            settings,
            recorder,
            cluster,
            caches: Caches::default(),
            vmi_gate: Gate::default(),
            pod_source: None,
            tasks,
            stop,
            registered: Registered::default(),
        }
    }

    /// Keeps a store current from now on, and calls `on_change` with each object that was added,
    /// modified or deleted.
    pub(crate) fn watch<K: View>(
        &mut self,
        config: watcher::Config,
        store: &Store<K>,
        on_change: impl Fn(&K) + Send + 'static,
    ) {
        let (client, stop) = (self.settings.client.clone(), self.stop.clone());
        let watch = watch(client, config, store.clone(), on_change, stop);
        self.register(store, watch);
    }

    /// The same for a kind that some clusters do not define.
    pub(crate) fn watch_if_defined<K: View>(
        &mut self,
        config: watcher::Config,
        store: &Store<K>,
        on_change: impl Fn(&K) + Send + Sync + 'static,
    ) {
        let (client, stop) = (self.settings.client.clone(), self.stop.clone());
        let watch = watch_if_defined(client, config, store.clone(), on_change, stop);
        self.register(store, watch);
    }

    /// Calls `on_change` after each change of the configuration.
    pub(crate) fn on_configuration(&mut self, on_change: impl Fn() + Send + 'static) {
        let (mut changes, stop) = (self.cluster.changes(), self.stop.clone());
        self.tasks.spawn(async move {
            while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
                on_change();
            }
        });
    }

    fn register<K: View>(
        &mut self,
        store: &Store<K>,
        watch: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.spawn(watch);
        self.registered.stores.push(Box::new(store.clone()));
    }

    /// Has a controller run while this process leads. `store` has the objects that it reconciles;
    /// `make` is called each time this process becomes the leader.
    pub(crate) fn controller<R: Reconciler, K>(
        &mut self,
        gate: &Gate,
        store: &Store<K>,
        make: impl Fn() -> R + Send + Sync + 'static,
    ) where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let (gate, store, recorder) = (gate.clone(), store.clone(), self.recorder.clone());
        let start =
            move |workers: &Workers| workers.start(make(), &gate, (store.clone(), &recorder));
        self.registered.starts.push(Box::new(start));
    }

    /// Starts the watches of the shared stores: every controller has registered its handlers.
    pub(crate) fn finish(mut self) -> Registered {
        let caches = std::mem::take(&mut self.caches);
        let (vms, on_vm) = caches.vms.into_parts();
        self.watch(watcher::Config::default(), &vms, on_vm);
        let (guests, on_guest) = caches.guests.into_parts();
        self.watch(watcher::Config::default(), &guests, on_guest);
        let (hosts, on_host) = caches.hosts.into_parts();
        self.watch(watcher::Config::default(), &hosts, on_host);
        let (pods, on_pod) = caches.pods.into_parts();
        let selector = format!("{}={}", labels::COMPONENT, labels::COMPONENT_VIRT_LAUNCHER);
        let launchers = watcher::Config::default().labels(&selector);
        self.watch(launchers, &pods, on_pod);
        let (claims, on_claim) = caches.claims.into_parts();
        self.watch(watcher::Config::default(), &claims, on_claim);
        // Only clusters with CDI define data volumes.
        let (data_volumes, on_data_volume) = caches.data_volumes.into_parts();
        self.watch_if_defined(watcher::Config::default(), &data_volumes, on_data_volume);
        let (data_sources, on_data_source) = caches.data_sources.into_parts();
        self.watch_if_defined(watcher::Config::default(), &data_sources, on_data_source);
        let (importer, on_importer) = caches.importer.into_parts();
        // The other kinds have the label, too, and do not decide.
        let decisive = format!("metadata.name={}.{}", DataVolume::PLURAL, DataVolume::GROUP);
        let own = watcher::Config::default()
            .labels(labels::OWN_IMPORTER)
            .fields(&decisive);
        self.watch(own, &importer, on_importer);
        let (classes, on_class) = caches.storage_classes.into_parts();
        self.watch(watcher::Config::default(), &classes, on_class);
        let (profiles, on_profile) = caches.storage_profiles.into_parts();
        self.watch_if_defined(watcher::Config::default(), &profiles, on_profile);
        // Only clusters with the CSI snapshot controller define volume snapshots.
        let (classes, on_class) = caches.snapshot_classes.into_parts();
        self.watch_if_defined(watcher::Config::default(), &classes, on_class);
        let (copies, on_copy) = caches.volume_snapshots.into_parts();
        self.watch_if_defined(watcher::Config::default(), &copies, on_copy);
        let (snapshots, on_snapshot) = caches.snapshots.into_parts();
        self.watch_if_defined(watcher::Config::default(), &snapshots, on_snapshot);
        let (restores, on_restore) = caches.restores.into_parts();
        self.watch_if_defined(watcher::Config::default(), &restores, on_restore);
        self.registered
    }
}

impl Registered {
    /// Waits for the first list of every kind.
    pub(crate) async fn ready(&self) {
        for store in &self.stores {
            store.ready().await;
        }
        let objects: usize = self.stores.iter().map(|store| store.len()).sum();
        tracing::info!(kinds = self.stores.len(), objects, "caches are ready");
    }

    /// Reconciles until stopped.
    pub(crate) async fn run(&self, concurrency: usize, stop: CancellationToken) {
        let workers = Workers {
            tasks: TaskTracker::new(),
            concurrency: concurrency.max(1),
            stop,
        };
        for start in &self.starts {
            start(&workers);
        }
        workers.tasks.close();
        workers.tasks.wait().await;
    }
}

impl Workers {
    /// Reconciles the objects of the store, which get an event when that panics.
    fn start<R: Reconciler, K>(
        &self,
        reconciler: R,
        gate: &Gate,
        (store, recorder): (Store<K>, &Recorder),
    ) where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let (gate, stop, concurrency) = (gate.clone(), self.stop.clone(), self.concurrency);
        gate.open(&store);
        let on_panic = panic_events(recorder.clone(), store);
        self.tasks.spawn(async move {
            let reconciler = Arc::new(reconciler);
            run_controller(reconciler, gate.triggers(), concurrency, on_panic, stop).await;
            gate.close();
        });
    }
}

impl<K: Resource + Send + Sync> Cache for Store<K> {
    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Store::ready(self))
    }

    fn len(&self) -> usize {
        Store::len(self)
    }
}
