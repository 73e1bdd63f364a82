//! The test cluster: found where `cargo xtask cluster up` put it, with an installation in it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::process::Command;

use crate::{
    Environment, Inventory, eventually,
    inventory::{entries, lines},
    kill,
    processes::{command_line, processes},
    program,
    programs::cache,
    run,
};

/// Where components are installed.
pub const NAMESPACE: &str = "kubevirt";
/// Part of every control group of the cluster's nodes.
const MARK: &str = "fvcluster";
/// The program of every component, as it is called in their pods.
const PROGRAM: &str = "/ferrovirt";

/// A cluster that is up and has Ferrovirt in it.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
}

impl Cluster {
    /// The one of this machine.
    pub fn found() -> Self {
        let directory = cache().join("cluster");
        assert!(
            directory.join("kubeconfig/admin.json").exists(),
            "there is no cluster in {}: run `make e2e`, or `cargo xtask cluster up` and install",
            directory.display()
        );
        Self { directory }
    }

    /// The numbers of all processes of a component (`api`, `controller`, `handler`).
    pub fn component(&self, command: &str) -> Vec<i32> {
        let mut all = components();
        all.remove(command).unwrap_or_default()
    }

    /// Names of the nodes.
    pub fn nodes(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.join("nodes")).expect("list the nodes");
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Where a node keeps everything.
    pub(crate) fn node_directory(&self, node: &str) -> PathBuf {
        self.directory.join("nodes").join(node)
    }

    /// A program of Kubernetes.
    pub(crate) fn kubernetes(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }

    /// Whether a process belongs to a pod of this node.
    #[expect(clippy::unused_self, reason = "only a cluster has nodes")]
    pub(crate) fn is_on(&self, process: i32, node: &str) -> bool {
        groups(process).contains(&format!("/{MARK}-{node}/"))
    }

    /// Takes a node off the network, until what is returned is dropped.
    pub fn disconnect_node(&self, node: &str) -> Disconnected<'_> {
        let cut = Disconnected {
            cluster: self,
            node: node.to_owned(),
        };
        self.wire(node, "down");
        cut
    }

    /// The other end of a node's own: so the node keeps its addresses and routes.
    fn wire(&self, node: &str, state: &str) {
        let mut net = OsString::from("--net=");
        net.push(self.directory.join("net/control"));
        let wire = format!("{MARK}-{node}b");
        let done = std::process::Command::new("nsenter")
            .arg(net)
            .args(["ip", "link", "set", &wire, state])
            .status();
        let is_done = done.is_ok_and(|status| status.success());
        assert!(is_done, "set the wire of {node} {state}");
    }

    /// Ends everything on a node at once.
    pub fn kill_node(&self, node: &str) {
        let record = self.directory.join("run").join(format!("{node}.pid"));
        let record = fs::read_to_string(record).expect("read who runs the node");
        let process = record.split(' ').next().and_then(|pid| pid.parse().ok());
        kill(process.expect("the record begins with a process"));
    }

    /// Starts every node that does not run.
    pub async fn complete(&self) {
        let mut up = Command::new(program("xtask"));
        run(up.args(["cluster", "up"]), b"").await.success();
    }

    /// All that pods have on the nodes, whoever they are.
    pub(crate) fn count(&self) -> Inventory {
        let mut found = Vec::new();
        for process in processes() {
            if groups(process).contains(MARK) {
                let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                found.push(format!("process {}", name.trim()));
            }
        }
        for node in self.nodes() {
            for _ in entries(&self.node_directory(&node).join("lib/kubelet/pods")) {
                found.push(format!("files of a pod on {node}"));
            }
            for hierarchy in entries(Path::new("/sys/fs/cgroup")) {
                found.extend(pod_groups(&hierarchy.join(format!("{MARK}-{node}")), 3));
            }
            // Whatever is seen from there is what a kubelet sees.
            let Some(inside) = self.kubelet(&node) else {
                continue;
            };
            let inside = PathBuf::from(format!("/proc/{inside}"));
            let read = |name: &str| fs::read_to_string(inside.join(name)).unwrap_or_default();
            let mounts = lines(&read("mounts")).into_iter().filter_map(|line| {
                let place = line.split(' ').nth(1)?.to_owned();
                let is_pods = place.contains("/pods/") || place.contains("/io.containerd.");
                is_pods.then(|| format!("mount on {node}: {}", without_ids(&place)))
            });
            found.extend(mounts);
            let wires = lines(&read("net/dev")).into_iter();
            let wires = wires.filter(|line| line.trim().starts_with("veth"));
            found.extend(wires.map(|_| format!("wire to a pod on {node}")));
            let spaces = entries(&inside.join("root/run/netns")).into_iter();
            found.extend(spaces.map(|_| format!("network namespace on {node}")));
        }
        Inventory::start_counting(found)
    }

    fn kubelet(&self, node: &str) -> Option<i32> {
        let environment = format!("{}/", self.node_directory(node).display());
        processes().into_iter().find(|process| {
            let line = command_line(*process);
            let is_kubelet = line.first().is_some_and(|program| program == "kubelet");
            is_kubelet && line.iter().any(|word| word.contains(&environment))
        })
    }
}

/// A node that nobody reaches.
#[derive(Debug)]
pub struct Disconnected<'a> {
    cluster: &'a Cluster,
    node: String,
}

impl Drop for Disconnected<'_> {
    fn drop(&mut self) {
        self.cluster.wire(&self.node, "up");
    }
}

/// The control groups that a process is in, as the kernel shows them.
fn groups(process: i32) -> String {
    fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default()
}

/// Those of pods, some levels down.
fn pod_groups(within: &Path, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    for entry in entries(within) {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("pod") && entry.is_dir() {
            found.push(format!("group {}/pod", within.display()));
        } else if depth > 1 && entry.is_dir() {
            found.extend(pod_groups(&entry, depth - 1));
        }
    }
    found
}

/// A path without what is made up anew each time: UIDs and digests.
fn without_ids(path: &str) -> String {
    let is_id =
        |part: &str| part.len() > 30 && part.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let parts = path.split('/');
    let parts: Vec<&str> = parts
        .map(|part| if is_id(part) { "*" } else { part })
        .collect();
    parts.join("/")
}

impl Environment for Cluster {
    async fn shared() -> Arc<Self> {
        Arc::new(Self::found())
    }

    async fn disposable() -> Arc<Self> {
        Self::shared().await
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig/admin.json")
    }

    fn kubectl_cache(&self) -> PathBuf {
        self.directory.join("kubectl")
    }

    fn pod_directories(&self) -> Vec<PathBuf> {
        let nodes = self.directory.join("nodes");
        let of = |node: &String| nodes.join(node).join("lib/kubelet/pods");
        self.nodes().iter().map(of).collect()
    }

    async fn kill_components(&self) {
        let before = components();
        for pid in before.values().flatten() {
            kill(*pid);
        }
        eventually("all components running again", || {
            let now = components();
            let is_back = |(command, old): (&String, &Vec<i32>)| {
                let new = now.get(command).map_or(&[][..], Vec::as_slice);
                new.len() == old.len() && old.iter().all(|pid| !new.contains(pid))
            };
            if before.iter().all(is_back) {
                Ok(())
            } else {
                Err((before.clone(), now))
            }
        })
        .await;
        let wait = [
            "wait",
            "--namespace",
            NAMESPACE,
            "--for=condition=Ready",
            "pods",
            "--all",
            "--timeout=90s",
        ];
        self.kubectl(&wait, b"").await.success();
    }
}

/// Processes of our components on all nodes, by the command that makes them one.
fn components() -> BTreeMap<String, Vec<i32>> {
    let mut found: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for pid in processes() {
        let is_ours = groups(pid).contains(MARK);
        let line = command_line(pid);
        if let (true, [program, command, ..]) = (is_ours, &line[..])
            && program == PROGRAM
        {
            found.entry(command.clone()).or_default().push(pid);
        }
    }
    found
}
