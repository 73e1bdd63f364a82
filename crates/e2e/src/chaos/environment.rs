//! What of a home may die, and how it is told from what takes its place.

use std::{fmt, fs, time::Duration};

use crate::{
    Cluster, Environment, Host, Inventory, VmManifest,
    processes::{command_line, processes, processes_of_pod},
};

/// A kind of process that may die without any guest noticing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// On one host the API server, the controllers, the node and its handler are tasks of one
    /// process, which is killed as a whole.
    Ferrovirt,
    /// In a guest's pod, or beside it.
    InPod(&'static str),
    /// One of ours on whichever node.
    Replica(&'static str),
    /// Of ours or of Kubernetes, on this node.
    OnNode(&'static str, String),
    /// Of Kubernetes, beside the nodes.
    ControlPlane(&'static str),
}

/// What a victim says again once it is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Of the handler of a node.
    Heartbeat,
    /// Of its kubelet.
    Lease,
}

impl Target {
    pub(super) fn is_of_guest(&self) -> bool {
        matches!(self, Self::InPod(_))
    }

    /// Whether nothing is answered without it.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self, Self::ControlPlane("kube-apiserver" | "etcd"))
    }

    /// What it says on which node; the only one where none is named.
    pub(super) fn word(&self) -> Option<(Liveness, Option<&str>)> {
        match self {
            Self::Ferrovirt => Some((Liveness::Heartbeat, None)),
            Self::OnNode(HANDLER, node) => Some((Liveness::Heartbeat, Some(node))),
            Self::OnNode(KUBELET, node) => Some((Liveness::Lease, Some(node))),
            _ => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ferrovirt => f.pad("ferrovirt"),
            Self::InPod(name) | Self::Replica(name) | Self::ControlPlane(name) => f.pad(name),
            Self::OnNode(name, node) => f.pad(&format!("{name} on {node}")),
        }
    }
}

/// A home that is made to suffer.
pub trait ChaosEnvironment: Environment {
    /// How soon the status must be right once who was killed is back.
    const STATUS_DEADLINE: Duration;
    /// For how long all must be right before it counts: what was killed may do harm once it is back.
    const STABLE_FOR: Duration;

    /// What may be killed.
    fn targets(&self) -> Vec<Target>;

    /// The processes of that kind; in this pod, where each pod has some.
    fn processes_of(&self, target: &Target, pod: &str) -> Vec<i32>;

    /// What a service manager does where the victim is its service.
    fn restart(&self, target: &Target) -> impl Future<Output = ()>;

    /// Where the guest of this number is to run.
    fn place(&self, vm: VmManifest, number: usize) -> VmManifest;

    /// All that there is of ours.
    fn inventory(&self) -> Inventory;
}

const HANDLER: &str = "virt-handler";
const KUBELET: &str = "kubelet";
const SUPERVISOR: &str = "pod-supervisor";
const POD_TARGETS: [Target; 2] = [Target::InPod("virt-launcher"), Target::InPod("libvirtd")];

fn in_pod(name: &str, pod: &str) -> Vec<i32> {
    let all = processes_of_pod(pod).into_iter();
    all.filter(|(_, own)| own == name)
        .map(|(process, _)| process)
        .collect()
}

impl ChaosEnvironment for Host {
    const STATUS_DEADLINE: Duration = Duration::from_secs(10);
    const STABLE_FOR: Duration = Duration::ZERO;

    fn targets(&self) -> Vec<Target> {
        let [launcher, libvirtd] = POD_TARGETS;
        vec![
            Target::Ferrovirt,
            Target::InPod(SUPERVISOR),
            launcher,
            libvirtd,
        ]
    }

    fn processes_of(&self, target: &Target, pod: &str) -> Vec<i32> {
        match target {
            Target::Ferrovirt => vec![self.process()],
            Target::InPod(SUPERVISOR) => {
                let tail = format!("/pods/{pod}\0");
                let is_its = |process: &i32| {
                    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                    let command = String::from_utf8_lossy(&command);
                    command.contains("pod-supervisor\0run\0") && command.ends_with(&tail)
                };
                processes().into_iter().find(is_its).into_iter().collect()
            }
            Target::InPod(name) => in_pod(name, pod),
            Target::Replica(_) | Target::OnNode(..) | Target::ControlPlane(_) => Vec::new(),
        }
    }

    async fn restart(&self, target: &Target) {
        if *target == Target::Ferrovirt {
            self.start(&[]).await.success();
        }
    }

    fn place(&self, vm: VmManifest, _number: usize) -> VmManifest {
        vm
    }

    fn inventory(&self) -> Inventory {
        Inventory::of(&self.state_dir())
    }
}

impl ChaosEnvironment for Cluster {
    const STATUS_DEADLINE: Duration = Duration::from_secs(15);
    const STABLE_FOR: Duration = Duration::from_secs(5);

    fn targets(&self) -> Vec<Target> {
        let mut all = vec![
            Target::Replica("virt-api"),
            Target::Replica("virt-controller"),
        ];
        all.extend(POD_TARGETS);
        for node in self.nodes() {
            // Not what holds a pod's processes: a runtime's shim that dies takes the pod with it on any
            // Kubernetes.
            let of_node = [HANDLER, KUBELET, "containerd", "kube-proxy"];
            all.extend(of_node.map(|name| Target::OnNode(name, node.clone())));
        }
        all.extend([
            Target::ControlPlane("kube-apiserver"),
            Target::ControlPlane("etcd"),
            Target::ControlPlane("kube-controller-manager"),
            Target::ControlPlane("kube-scheduler"),
        ]);
        all
    }

    fn processes_of(&self, target: &Target, pod: &str) -> Vec<i32> {
        match target {
            Target::Ferrovirt => Vec::new(),
            Target::InPod(name) => in_pod(name, pod),
            Target::Replica(name) => self.component(command(name)),
            Target::OnNode(HANDLER, node) => {
                let mut all = self.component(command(HANDLER));
                all.retain(|process| self.is_on(*process, node));
                all
            }
            Target::OnNode(name, node) => {
                let environment = self.node_directory(node);
                let environment = format!("{}/", environment.display());
                started_as(|line| {
                    let program = line[0].rsplit('/').next();
                    program == Some(name)
                        && line[1..].iter().any(|word| word.contains(&environment))
                })
            }
            Target::ControlPlane(name) => {
                let path = self.kubernetes(name);
                started_as(|line| path.to_str() == Some(&line[0]))
            }
        }
    }

    async fn restart(&self, _victim: &Target) {
        // Kubelets and the cluster's own keepers do.
    }

    fn place(&self, vm: VmManifest, number: usize) -> VmManifest {
        let nodes = self.nodes();
        let node = &nodes[number % nodes.len()];
        vm.spec(
            "nodeSelector",
            serde_json::json!({"kubernetes.io/hostname": node}),
        )
    }

    fn inventory(&self) -> Inventory {
        self.count()
    }
}

/// What makes the one program of ours this component.
fn command(name: &'static str) -> &'static str {
    name.trim_start_matches("virt-")
}

/// Processes whose command line, which is not empty, is so.
fn started_as(is_so: impl Fn(&[String]) -> bool) -> Vec<i32> {
    let mut all = processes();
    all.retain(|process| {
        let line = command_line(*process);
        !line.is_empty() && is_so(&line)
    });
    all
}
