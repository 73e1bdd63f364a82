//! What of a home may die, and how it is told from what takes its place.

use std::{fmt, fs, time::Duration};

use crate::{
    Census, Cluster, Home, Host, Machine,
    processes::{command_line, processes, processes_of_pod},
};

/// A kind of process that may die without any guest noticing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// On one host the API server, the controllers, the node and its handler are tasks of one
    /// process, which is killed as a whole.
    Ferrovirt,
    /// In a guest's pod, or beside it.
    OfGuest(&'static str),
    /// One of ours on whichever node.
    Replica(&'static str),
    /// Of ours or of Kubernetes, on this node.
    OnNode(&'static str, String),
    /// Of Kubernetes, beside the nodes.
    Central(&'static str),
}

/// What a victim says again once it is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Of the handler of a node.
    Heartbeat,
    /// Of its kubelet.
    Lease,
}

impl Victim {
    pub(super) fn is_of_guest(&self) -> bool {
        matches!(self, Self::OfGuest(_))
    }

    /// Whether nothing is answered without it.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self, Self::Central("kube-apiserver" | "etcd"))
    }

    /// What it says on which node; the only one where none is named.
    pub(super) fn word(&self) -> Option<(Word, Option<&str>)> {
        match self {
            Self::Ferrovirt => Some((Word::Heartbeat, None)),
            Self::OnNode(HANDLER, node) => Some((Word::Heartbeat, Some(node))),
            Self::OnNode(KUBELET, node) => Some((Word::Lease, Some(node))),
            _ => None,
        }
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ferrovirt => f.pad("ferrovirt"),
            Self::OfGuest(name) | Self::Replica(name) | Self::Central(name) => f.pad(name),
            Self::OnNode(name, node) => f.pad(&format!("{name} on {node}")),
        }
    }
}

/// A home that is made to suffer.
pub trait Ground: Home {
    /// How soon the status must be right once who was killed is back.
    const RIGHT_WITHIN: Duration;
    /// For how long all must be right before it counts: what was killed may do harm once it is back.
    const STEADY: Duration;

    /// What may be killed.
    fn victims(&self) -> Vec<Victim>;

    /// The processes of that kind; in this pod, where each pod has some.
    fn living(&self, victim: &Victim, pod: &str) -> Vec<i32>;

    /// What a service manager does where the victim is its service.
    fn started_again(&self, victim: &Victim) -> impl Future<Output = ()>;

    /// Where the guest of this number is to run.
    fn place(&self, machine: Machine, number: usize) -> Machine;

    /// All that there is of ours.
    fn census(&self) -> Census;
}

const HANDLER: &str = "virt-handler";
const KUBELET: &str = "kubelet";
const SUPERVISOR: &str = "pod-supervisor";
const IN_PODS: [Victim; 2] = [
    Victim::OfGuest("virt-launcher"),
    Victim::OfGuest("libvirtd"),
];

fn in_pod(name: &str, pod: &str) -> Vec<i32> {
    let all = processes_of_pod(pod).into_iter();
    all.filter(|(_, own)| own == name)
        .map(|(process, _)| process)
        .collect()
}

impl Ground for Host {
    const RIGHT_WITHIN: Duration = Duration::from_secs(10);
    const STEADY: Duration = Duration::ZERO;

    fn victims(&self) -> Vec<Victim> {
        let [launcher, libvirtd] = IN_PODS;
        vec![
            Victim::Ferrovirt,
            Victim::OfGuest(SUPERVISOR),
            launcher,
            libvirtd,
        ]
    }

    fn living(&self, victim: &Victim, pod: &str) -> Vec<i32> {
        match victim {
            Victim::Ferrovirt => vec![self.process()],
            Victim::OfGuest(SUPERVISOR) => {
                let tail = format!("/pods/{pod}\0");
                let is_its = |process: &i32| {
                    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                    let command = String::from_utf8_lossy(&command);
                    command.contains("pod-supervisor\0run\0") && command.ends_with(&tail)
                };
                processes().into_iter().find(is_its).into_iter().collect()
            }
            Victim::OfGuest(name) => in_pod(name, pod),
            Victim::Replica(_) | Victim::OnNode(..) | Victim::Central(_) => Vec::new(),
        }
    }

    async fn started_again(&self, victim: &Victim) {
        if *victim == Victim::Ferrovirt {
            self.start(&[]).await.good();
        }
    }

    fn place(&self, machine: Machine, _number: usize) -> Machine {
        machine
    }

    fn census(&self) -> Census {
        Census::of(&self.state_dir())
    }
}

impl Ground for Cluster {
    const RIGHT_WITHIN: Duration = Duration::from_secs(15);
    const STEADY: Duration = Duration::from_secs(5);

    fn victims(&self) -> Vec<Victim> {
        let mut all = vec![
            Victim::Replica("virt-api"),
            Victim::Replica("virt-controller"),
        ];
        all.extend(IN_PODS);
        for node in self.nodes() {
            // Not what holds a pod's processes: a runtime's shim that dies takes the pod with it on any
            // Kubernetes.
            let of_node = [HANDLER, KUBELET, "containerd", "kube-proxy"];
            all.extend(of_node.map(|name| Victim::OnNode(name, node.clone())));
        }
        all.extend([
            Victim::Central("kube-apiserver"),
            Victim::Central("etcd"),
            Victim::Central("kube-controller-manager"),
            Victim::Central("kube-scheduler"),
        ]);
        all
    }

    fn living(&self, victim: &Victim, pod: &str) -> Vec<i32> {
        match victim {
            Victim::Ferrovirt => Vec::new(),
            Victim::OfGuest(name) => in_pod(name, pod),
            Victim::Replica(name) => self.component(command(name)),
            Victim::OnNode(HANDLER, node) => {
                let mut all = self.component(command(HANDLER));
                all.retain(|process| self.is_on(*process, node));
                all
            }
            Victim::OnNode(name, node) => {
                let home = self.node_directory(node);
                let home = format!("{}/", home.display());
                started_as(|line| {
                    let program = line[0].rsplit('/').next();
                    program == Some(name) && line[1..].iter().any(|word| word.contains(&home))
                })
            }
            Victim::Central(name) => {
                let path = self.kubernetes(name);
                started_as(|line| path.to_str() == Some(&line[0]))
            }
        }
    }

    async fn started_again(&self, _victim: &Victim) {
        // Kubelets and the cluster's own keepers do.
    }

    fn place(&self, machine: Machine, number: usize) -> Machine {
        let nodes = self.nodes();
        let node = &nodes[number % nodes.len()];
        machine.spec(
            "nodeSelector",
            serde_json::json!({"kubernetes.io/hostname": node}),
        )
    }

    fn census(&self) -> Census {
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
