//! Watches and wiring.

use std::sync::Arc;

use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::{VirtualMachine, VirtualMachineInstance, labels};
use reconcile::{Clock, Key, Store, Triggers, recorder, run_controller, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::view::{Host, LauncherPod, Vm};
use crate::{vm, vmi};

const COMPONENT: &str = "virt-controller";

/// What the controllers are run with.
#[derive(Clone)]
pub struct Settings {
    pub client: Client,
    /// How pods are made; its acceleration is replaced by what the policy finds.
    pub launcher: launcher_pod::Settings,
    pub acceleration: AccelerationPolicy,
    pub clock: Clock,
    /// Objects of one kind that are worked on at once.
    pub concurrency: usize,
}

/// How it is decided whether guests run by KVM or by software.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccelerationPolicy {
    Kvm,
    Emulation,
    /// KVM when any node offers the device, else software.
    ByNodes,
}

/// Runs both controllers until stopped.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    let client = &settings.client;
    let stores = Stores {
        vms: Store::new(),
        vmis: Store::new(),
        pods: Store::new(),
        hosts: Store::new(),
    };
    let (vm_triggers, vmi_triggers) = (Triggers::new(), Triggers::new());
    let (recorder, recording) = recorder(client.clone(), COMPONENT, settings.clock);
    tasks.spawn(recording.run(stop.clone()));
    stores.watch(&tasks, client, &vm_triggers, &vmi_triggers, &stop);

    let vm_controller = vm::Controller {
        client: client.clone(),
        vms: stores.vms.clone(),
        vmis: stores.vmis.clone(),
        recorder: recorder.clone(),
        clock: settings.clock,
    };
    let vmi_controller = vmi::Controller {
        client: client.clone(),
        vmis: stores.vmis.clone(),
        pods: stores.pods.clone(),
        hosts: stores.hosts.clone(),
        launcher: settings.launcher,
        acceleration: settings.acceleration,
        recorder,
        clock: settings.clock,
    };
    let controllers = tasks.clone();
    let both = async {
        stores.ready().await;
        let concurrency = settings.concurrency.max(1);
        let run = run_controller(
            Arc::new(vm_controller),
            vm_triggers,
            concurrency,
            stop.clone(),
        );
        controllers.spawn(run);
        let run = run_controller(
            Arc::new(vmi_controller),
            vmi_triggers,
            concurrency,
            stop.clone(),
        );
        controllers.spawn(run);
        stop.cancelled().await;
    };
    stop.run_until_cancelled(both).await;
    tasks.close();
    tasks.wait().await;
}

struct Stores {
    vms: Store<Vm>,
    vmis: Store<VirtualMachineInstance>,
    pods: Store<LauncherPod>,
    hosts: Store<Host>,
}

impl Stores {
    fn watch(
        &self,
        tasks: &TaskTracker,
        client: &Client,
        vm_triggers: &Triggers,
        vmi_triggers: &Triggers,
        stop: &CancellationToken,
    ) {
        let wake = vm_triggers.clone();
        let wake_vm = move |vm: &Vm| wake.add(Key::of(vm));
        let all = watcher::Config::default;
        tasks.spawn(watch(
            client.clone(),
            all(),
            self.vms.clone(),
            wake_vm,
            stop.clone(),
        ));

        let (vms, vmis) = (vm_triggers.clone(), vmi_triggers.clone());
        let wake_vmi = move |vmi: &VirtualMachineInstance| {
            // The VM of that name may want to adopt it.
            vms.add(Key::of(vmi));
            if let Some(owner) = Key::of_controller(vmi, VirtualMachine::KIND) {
                vms.add(owner);
            }
            vmis.add(Key::of(vmi));
        };
        tasks.spawn(watch(
            client.clone(),
            all(),
            self.vmis.clone(),
            wake_vmi,
            stop.clone(),
        ));

        let wake = vmi_triggers.clone();
        let wake_pod = move |pod: &LauncherPod| {
            if let Some(owner) = Key::of_controller(pod, VirtualMachineInstance::KIND) {
                wake.add(owner);
            }
        };
        let selector = format!("{}={}", labels::COMPONENT, labels::COMPONENT_VIRT_LAUNCHER);
        let launchers = all().labels(&selector);
        tasks.spawn(watch(
            client.clone(),
            launchers,
            self.pods.clone(),
            wake_pod,
            stop.clone(),
        ));

        // Looked at when a pod is made; nothing else depends on them.
        let wake_host = |_: &Host| {};
        tasks.spawn(watch(
            client.clone(),
            all(),
            self.hosts.clone(),
            wake_host,
            stop.clone(),
        ));
    }

    async fn ready(&self) {
        self.vms.ready().await;
        self.vmis.ready().await;
        self.pods.ready().await;
        self.hosts.ready().await;
        tracing::info!(
            vms = self.vms.list().len(),
            vmis = self.vmis.list().len(),
            pods = self.pods.list().len(),
            "controllers start"
        );
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("launcher", &self.launcher)
            .field("acceleration", &self.acceleration)
            .finish_non_exhaustive()
    }
}
