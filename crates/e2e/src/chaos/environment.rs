//! The processes of an environment that a chaos run may kill.

use std::{fmt, fs, time::Duration};

use crate::{
    Cluster, Environment, Host, Inventory, VmManifest,
    processes::{command_line, processes, processes_of_pod},
};

/// A kind of process whose death no guest may notice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The `ferrovirt` process of a single host: API server, controllers, node and handler.
    Ferrovirt,
    /// A process in the pod of a guest, or its supervisor.
    InPod(&'static str),
    /// A replica of one of our components, on any node.
    Replica(&'static str),
    /// A process on the named node, of ours or of Kubernetes.
    OnNode(&'static str, String),
    /// A Kubernetes control-plane process.
    ControlPlane(&'static str),
}

/// The periodic report that shows a process working again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The heartbeat of virt-handler.
    Heartbeat,
    /// The lease of the kubelet.
    Lease,
}

impl Target {
    pub(super) fn is_of_guest(&self) -> bool {
        matches!(self, Self::InPod(_))
    }

    /// Whether the API is unavailable without it.
    pub(super) fn serves_api(&self) -> bool {
        matches!(self, Self::ControlPlane("kube-apiserver" | "etcd"))
    }

    /// Its liveness report, and the node if there is more than one.
    pub(super) fn liveness(&self) -> Option<(Liveness, Option<&str>)> {
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

/// An environment for chaos runs.
pub trait ChaosEnvironment: Environment {
    /// How soon after the return of a killed process the status must be right.
    const STATUS_DEADLINE: Duration;
    /// How long the status must stay right: a returned process may still do harm.
    const STABLE_FOR: Duration;

    /// The kinds of processes to kill.
    fn targets(&self) -> Vec<Target>;

    /// The processes of a kind; for kinds in pods, those of the given pod.
    fn processes_of(&self, target: &Target, pod: &str) -> Vec<i32>;

    /// Restarts a killed process that has no supervisor.
    fn restart(&self, target: &Target) -> impl Future<Output = ()>;

    /// Assigns the guest of this number to a node.
    fn place(&self, vm: VmManifest, number: usize) -> VmManifest;

    /// The inventory for leak checks.
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
            // Not the runtime's shims: no pod on any Kubernetes survives their death.
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
                        && line[1..]
                            .iter()
                            .any(|argument| argument.contains(&environment))
                })
            }
            Target::ControlPlane(name) => {
                let path = self.kubernetes(name);
                started_as(|line| path.to_str() == Some(&line[0]))
            }
        }
    }

    async fn restart(&self, _victim: &Target) {
        // Kubelets and the test cluster's supervisors restart everything.
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

/// The subcommand of a component.
fn command(name: &'static str) -> &'static str {
    name.trim_start_matches("virt-")
}

/// Processes whose non-empty command line matches.
fn started_as(is_so: impl Fn(&[String]) -> bool) -> Vec<i32> {
    let mut all = processes();
    all.retain(|process| {
        let line = command_line(*process);
        !line.is_empty() && is_so(&line)
    });
    all
}
