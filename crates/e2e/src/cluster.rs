//! The running test cluster of `cargo xtask cluster up`, with Ferrovirt installed.

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

/// The namespace of the components.
pub const NAMESPACE: &str = "kubevirt";
/// Part of the name of every control group of the cluster's nodes.
const MARK: &str = "fvcluster";
/// The path of the program in the components' pods.
const PROGRAM: &str = "/ferrovirt";

/// A running cluster with Ferrovirt installed.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
}

impl Cluster {
    /// The cluster on this host.
    pub fn found() -> Self {
        let directory = cache().join("cluster");
        assert!(
            directory.join("kubeconfig/admin.json").exists(),
            "there is no cluster in {}: run `make e2e`, or `cargo xtask cluster up` and install",
            directory.display()
        );
        Self { directory }
    }

    /// The PIDs of a component (`api`, `controller`, `handler`).
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

    /// Lets pods of all nodes name this seccomp profile.
    pub fn install_seccomp_profile(&self, name: &str, profile: &serde_json::Value) {
        for node in self.nodes() {
            let directory = self.node_directory(&node).join("lib/kubelet/seccomp");
            fs::create_dir_all(&directory).expect("make the directory of profiles");
            let written = fs::write(directory.join(name), profile.to_string());
            written.expect("write the profile");
        }
    }

    /// The directory of a node.
    pub(crate) fn node_directory(&self, node: &str) -> PathBuf {
        self.directory.join("nodes").join(node)
    }

    /// The directory of a persistent volume of the class `local`, on its node.
    pub fn volume_files(&self, volume: &str) -> Option<PathBuf> {
        let nodes = self.nodes().into_iter();
        let mut places = nodes.map(|node| self.node_directory(&node).join("lib/volumes"));
        places.find_map(|place| Some(place.join(volume)).filter(|path| path.is_dir()))
    }

    /// The path of a Kubernetes program.
    pub(crate) fn kubernetes(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }

    /// Whether a process belongs to a pod of this node.
    pub fn is_on(&self, process: i32, node: &str) -> bool {
        groups(process).contains(&format!("/{MARK}-{node}/"))
    }

    /// Disconnects a node from the network until the returned guard is dropped.
    pub fn disconnect_node(&self, node: &str) -> Disconnected<'_> {
        let cut = Disconnected {
            cluster: self,
            node: node.to_owned(),
        };
        self.set_link(node, "down");
        cut
    }

    /// Sets the control-plane end of the node's link, so that the node keeps its addresses and routes.
    fn set_link(&self, node: &str, state: &str) {
        let mut net = OsString::from("--net=");
        net.push(self.directory.join("net/control"));
        let link = format!("{MARK}-{node}b");
        let done = std::process::Command::new("nsenter")
            .arg(net)
            .args(["ip", "link", "set", &link, state])
            .status();
        let is_done = done.is_ok_and(|status| status.success());
        assert!(is_done, "set the link of {node} {state}");
    }

    /// Kills all processes of a node at once.
    pub fn kill_node(&self, node: &str) {
        self.kill_part(node);
    }

    /// Kills the API server; [`complete`](Self::complete) starts it again.
    pub fn kill_api_server(&self) {
        self.kill_part("kube-apiserver");
    }

    fn kill_part(&self, name: &str) {
        let record = self.directory.join("run").join(format!("{name}.pid"));
        let record = fs::read_to_string(record).expect("read the PID file");
        let process = record.split(' ').next().and_then(|pid| pid.parse().ok());
        kill(process.expect("the PID file begins with a PID"));
    }

    /// Starts every node and part of the control plane that is not running.
    pub async fn complete(&self) {
        let mut up = Command::new(program("xtask"));
        run(up.args(["cluster", "up"]), b"").await.success();
    }

    /// Everything that pods have on the nodes.
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
            // Look from the kubelet's namespaces.
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
            let links = lines(&read("net/dev")).into_iter();
            let links = links.filter(|line| line.trim().starts_with("veth"));
            found.extend(links.map(|_| format!("link to a pod on {node}")));
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
            is_kubelet && line.iter().any(|argument| argument.contains(&environment))
        })
    }
}

/// A disconnected node; dropping it reconnects the node.
#[derive(Debug)]
pub struct Disconnected<'a> {
    cluster: &'a Cluster,
    node: String,
}

impl Drop for Disconnected<'_> {
    fn drop(&mut self) {
        self.cluster.set_link(&self.node, "up");
    }
}

/// The control groups of a process, as in `/proc`.
fn groups(process: i32) -> String {
    fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default()
}

/// Control groups of pods, down to a depth.
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

/// A path with UIDs and digests replaced by `*`.
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

/// The PIDs of our components on all nodes, by subcommand.
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
