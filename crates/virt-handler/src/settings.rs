//! Settings of virt-handler, and the wiring of its parts.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc};

use cluster_config::ClusterConfig;
use cluster_view::Configuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt, runtime::watcher};
use kubevirt_api::{VirtualMachineInstance, labels};
use reconcile::{Clock, Key, Store, Triggers, panic_events, recorder, run_controller, watch};
use serving::{HttpsClient, Server, TlsSource};
use tokio::{net::TcpListener, sync::watch::Receiver as WatchReceiver};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    capabilities::Capabilities,
    guest::{ClientHandle, Guests, GuestsParts, Reach},
    migration,
    node::{NodeReport, ReportParts},
    pods_dir::PodsDir,
    streams::{StreamsState, router},
    vsock::{GuestCredentials, serve_guests},
};

/// Concurrent reconciles. Starting a guest is mostly waiting for its launcher.
const CONCURRENCY: usize = 16;

pub struct Settings {
    pub client: Client,
    pub node: String,
    /// The kubelet's directory of pods, such as `/var/lib/kubelet/pods`.
    pub pods_dir: PathBuf,
    pub capabilities: Capabilities,
    /// Listens for `virt-api`.
    pub listener: TcpListener,
    /// The address to publish; the listener's may be a wildcard.
    pub address: SocketAddr,
    /// Our certificate (DNS name `virt-handler.<node>`) and the CA of `virt-api`'s certificate.
    pub tls: TlsSource,
    /// Connects to the virt-handlers of other nodes with that certificate; `None` where there is one
    /// node only.
    pub peers: Option<HttpsClient>,
    /// What virt-handler shows to servers in guests; `None` until it has it.
    pub guests: WatchReceiver<Option<GuestCredentials>>,
    /// The administrator's configuration; [`run`] keeps it current.
    pub cluster: Configuration,
    pub clock: Clock,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// Why virt-handler ended before it was stopped.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    #[error("the controller of guests ended unexpectedly")]
    ControllerEnded,
}

/// Runs until stopped.
pub async fn run(settings: Settings, stop: CancellationToken) -> Result<(), HandlerError> {
    let Settings {
        client,
        node,
        pods_dir,
        capabilities,
        listener,
        address,
        tls,
        peers,
        guests: credentials,
        cluster,
        clock,
    } = settings;
    let tasks = TaskTracker::new();
    cluster.follow(&client, &tasks, &stop);
    let triggers = Triggers::new();
    let (vmis, arrivals, pods) = (Store::new(), Store::new(), Store::new());
    let (events, recorder_task) = recorder(client.clone(), "virt-handler", clock);
    let report = NodeReport::new(ReportParts {
        client: ClientHandle(client.clone()),
        node: node.clone(),
        address,
        facts: capabilities.facts().clone(),
        kubelet_dir: pods_dir.parent().unwrap_or(&pods_dir).to_owned(),
        cluster: cluster.clone(),
        reach: if peers.is_some() {
            Reach::OtherNodes
        } else {
            Reach::OwnNode
        },
        recorder: events.clone(),
        clock,
    });
    let guests = Arc::new(Guests::new(GuestsParts {
        client: ClientHandle(client.clone()),
        node: node.clone(),
        address,
        peers,
        vmis: vmis.clone(),
        arrivals: arrivals.clone(),
        pods: pods.clone(),
        pods_dir: PodsDir::new(pods_dir),
        capabilities,
        cluster: cluster.clone(),
        recorder: events.clone(),
        clock,
        triggers: triggers.clone(),
        tasks: tasks.clone(),
        stop: stop.clone(),
    }));
    let streams = router(StreamsState::new(Arc::clone(&guests), credentials.clone()))
        .merge(migration::router(Arc::clone(&guests)));

    tasks.spawn(recorder_task.run(stop.clone()));
    tasks.spawn(report.run(stop.clone()));
    tasks.spawn(serve_guests(cluster.changes(), credentials, stop.clone()));
    tasks.spawn(Server::new(listener, tls, streams).run(stop.clone()));
    tasks.spawn(watch::<VirtualMachineInstance>(
        client.clone(),
        labelled(labels::NODE_NAME, &node),
        vmis.clone(),
        trigger_vmi(triggers.clone()),
        stop.clone(),
    ));
    // Guests that migrate to this node; they belong to another one until they are here.
    tasks.spawn(watch::<VirtualMachineInstance>(
        client.clone(),
        labelled(labels::MIGRATION_TARGET_NODE_NAME, &node),
        arrivals.clone(),
        trigger_vmi(triggers.clone()),
        stop.clone(),
    ));
    tasks.spawn(trigger_all(
        cluster.changes(),
        vmis.clone(),
        triggers.clone(),
        stop.clone(),
    ));
    tasks.spawn(watch::<Pod>(
        client,
        labelled(labels::COMPONENT, labels::COMPONENT_VIRT_LAUNCHER)
            .fields(&format!("spec.nodeName={node}")),
        pods.clone(),
        trigger_pod(triggers.clone()),
        stop.clone(),
    ));
    let reconciling = async {
        vmis.ready().await;
        arrivals.ready().await;
        pods.ready().await;
        // What the defaults do not permit would be published of guests that run.
        cluster.ready().await;
        let on_panic = panic_events(events, vmis);
        run_controller(guests, triggers, CONCURRENCY, on_panic, stop.clone()).await;
    };
    tokio::select! {
        () = reconciling => {}
        () = stop.cancelled() => {}
    }
    let unexpected = !stop.is_cancelled();
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    if unexpected {
        Err(HandlerError::ControllerEnded)
    } else {
        Ok(())
    }
}

/// Objects with this label.
fn labelled(key: &str, value: &str) -> watcher::Config {
    watcher::Config::default().labels(&format!("{key}={value}"))
}

fn trigger_vmi(triggers: Triggers) -> impl Fn(&VirtualMachineInstance) + Send + 'static {
    move |vmi| {
        let key = Key::new(vmi.namespace().unwrap_or_default(), vmi.name_any());
        triggers.add(key, "virtualmachineinstance");
    }
}

/// Reconciles all VMIs when the cluster's configuration changes: it affects `LiveMigratable`.
async fn trigger_all(
    mut changes: tokio::sync::watch::Receiver<Arc<ClusterConfig>>,
    vmis: Store<VirtualMachineInstance>,
    triggers: Triggers,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        for vmi in vmis.list() {
            triggers.add(Key::of(vmi.as_ref()), "configuration");
        }
    }
}

fn trigger_pod(triggers: Triggers) -> impl Fn(&Pod) + Send + 'static {
    move |pod| {
        if let Some(key) = Key::of_controller(pod, "VirtualMachineInstance") {
            triggers.add(key, "pod");
        }
    }
}
