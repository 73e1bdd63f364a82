//! Where the cluster keeps its things: one directory, and the addresses everything agrees on.
//!
//! **Invariant**: everything the cluster creates outside of this directory (names of interfaces, network
//! namespaces, cgroups) carries [`MARK`], so that it can be found after a crash.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    cache,
    lock::{Lock, lock},
};

/// Part of every name that is not below the cluster's directory.
pub(super) const MARK: &str = "fvcluster";

/// The control plane, on the bridge that joins the nodes.
pub(super) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The host itself on that bridge.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);
pub(super) const API_PORT: u16 = 6443;
pub(super) const ETCD_PORT: u16 = 2379;
pub(super) const ETCD_PEER_PORT: u16 = 2380;
pub(super) const REGISTRY_PORT: u16 = 5000;
/// The first address of services is the API server's.
pub(super) const SERVICES: &str = "10.96.0.0/16";
pub(super) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(super) const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
pub(super) const PODS: &str = "10.244.0.0/16";
/// More would not fit into one machine, and numbers of one digit keep the addresses simple.
pub(super) const MOST_NODES: u8 = 9;

/// The cluster's directory, locked for this process.
#[derive(Debug)]
pub(super) struct Place {
    root: PathBuf,
    _lock: Option<Lock>,
}

/// One node: its number makes its name and its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeNumber(u8);

impl Place {
    /// For what changes the cluster: one task at a time.
    pub(super) fn lock() -> Result<Self> {
        let root = cache::directory()?.join("cluster");
        fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
        // Beside the directory, which `down` removes.
        let path = root.with_extension("lock");
        let lock = lock(&path)?;
        fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
        let place = Self {
            root,
            _lock: Some(lock),
        };
        for part in ["pki", "kubeconfig", "log", "net", "run", "bin", "nodes"] {
            let part = place.at(part);
            fs::create_dir_all(&part).with_context(|| format!("make {}", part.display()))?;
        }
        Ok(place)
    }

    /// For read-only tasks.
    pub(super) fn existing() -> Result<Self> {
        let root = cache::directory()?.join("cluster");
        let place = Self { root, _lock: None };
        if !place.kubeconfig("admin").exists() {
            bail!("there is no cluster; make one with: cargo xtask cluster up");
        }
        Ok(place)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn certificate(&self, name: &str) -> PathBuf {
        self.at("pki").join(format!("{name}.crt"))
    }

    pub(super) fn key(&self, name: &str) -> PathBuf {
        self.at("pki").join(format!("{name}.key"))
    }

    pub(super) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.at("kubeconfig").join(format!("{user}.json"))
    }

    /// The network namespace of the control plane or a node.
    pub(super) fn network(&self, name: &str) -> PathBuf {
        self.at("net").join(name)
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.at("log").join(format!("{name}.log"))
    }

    pub(super) fn bin(&self, program: &str) -> PathBuf {
        self.at("bin").join(program)
    }

    /// Whether pods can join other networks than the pod network. A cluster that was made before Multus was part of it has
    /// no user for it, and without one no pod would start.
    pub(super) fn has_multus(&self) -> bool {
        self.bin("multus").exists() && self.kubeconfig("multus").exists()
    }

    pub(super) fn node(&self, node: NodeNumber) -> PathBuf {
        self.at("nodes").join(node.name())
    }

    /// The nodes that were made, in order.
    pub(super) fn nodes(&self) -> Vec<NodeNumber> {
        NodeNumber::first(MOST_NODES)
            .filter(|node| self.node(*node).exists())
            .collect()
    }
}

impl NodeNumber {
    pub(super) fn first(count: u8) -> impl Iterator<Item = Self> {
        (1..=count.min(MOST_NODES)).map(Self)
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::first(MOST_NODES).find(|node| node.name() == name)
    }

    pub(super) fn name(self) -> String {
        format!("n{}", self.0)
    }

    pub(super) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, 10 + self.0)
    }

    /// What its pods get addresses from.
    pub(super) fn pods(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    /// Below the root of every cgroup controller.
    pub(super) fn cgroup(self) -> String {
        format!("{MARK}-{}", self.name())
    }
}

/// Where the API server is reached from.
pub(super) fn api_addresses() -> Vec<IpAddr> {
    [CONTROL_PLANE, API_SERVICE, Ipv4Addr::LOCALHOST]
        .map(IpAddr::V4)
        .to_vec()
}
