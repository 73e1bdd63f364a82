//! Settings of a node. Images and network are behind traits, so that tests need neither registries
//! nor addresses.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use image_store::{Credentials, Image, ImageError, ImageStore, InUse, PullPolicy, StoreError};
use pod_network::{
    Attachment, CniResult, Forward, MacAddress, PodNetwork, Restriction, ServiceRange,
};
use reasons::Reason;
use reconcile::Clock;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::Failure;

pub struct Settings {
    pub node_name: String,
    /// Holds `pods/`; private to root.
    pub root: PathBuf,
    /// The program `pod-supervisor`.
    pub supervisor: PathBuf,
    pub client: kube::Client,
    pub images: Arc<dyn Images>,
    pub network: Arc<dyn Network>,
    pub clock: Clock,
    /// The address of the Node and the host IP of its pods.
    pub address: IpAddr,
    pub endpoint: Endpoint,
    /// Labels in addition to those of every node.
    pub labels: BTreeMap<String, String>,
    /// Parent of all pods' cgroups, for example `/ferrovirt`; unique per node root.
    pub cgroup_parent: String,
    pub resolver: Resolver,
    /// CPUs that no container has for itself. Without them, all containers share all CPUs; with them,
    /// containers of guaranteed pods get CPUs of their own.
    pub reserved_cpus: Option<Vec<u32>>,
    /// The longest time until a volume has a change of a config map or secret; usually [`VOLUME_REFRESH`].
    pub volume_refresh: Duration,
}

/// How long a change of a config map or secret may take to arrive, as with a kubelet.
pub const VOLUME_REFRESH: Duration = Duration::from_mins(1);

/// The kubelet's own HTTPS endpoint.
pub struct Endpoint {
    pub listener: TcpListener,
    /// Must require client certificates; only [`crate::API_SERVER`] may use the endpoint.
    pub tls: serving::TlsSource,
}

/// The content of `/etc/resolv.conf` of pods with the node's DNS policy.
#[derive(Debug, Clone, Default)]
pub struct Resolver {
    pub nameservers: Vec<IpAddr>,
    pub searches: Vec<String>,
}

/// Provides images as directories.
pub trait Images: Send + Sync + 'static {
    fn ensure<'a>(
        &'a self,
        reference: &'a str,
        policy: PullPolicy,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<Image, ImageError>>;

    /// Removes unused images, the longest unused first, until it is enough. Returns their number.
    fn collect(
        &self,
        in_use: InUse,
        is_enough: Box<dyn FnMut() -> bool + Send>,
    ) -> BoxFuture<'_, Result<usize, StoreError>>;
}

impl Images for ImageStore {
    fn ensure<'a>(
        &'a self,
        reference: &'a str,
        policy: PullPolicy,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<Image, ImageError>> {
        Box::pin(Self::ensure(self, reference, policy, credentials))
    }

    fn collect(
        &self,
        in_use: InUse,
        is_enough: Box<dyn FnMut() -> bool + Send>,
    ) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            let removed = Self::collect(self, in_use, is_enough).await?;
            Ok(removed.len())
        })
    }
}

/// Adds an interface to a pod's network namespace and removes it. Both calls may be repeated.
pub trait Network: Send + Sync + 'static {
    fn add<'a>(
        &'a self,
        pod_uid: &'a str,
        namespace: &'a Path,
    ) -> BoxFuture<'a, Result<Addresses, Failure>>;

    /// Called before [`Network::add`] for a pod with an owner: it gets the address of the owner's last pod, if
    /// that is free. Networks that choose addresses otherwise ignore it.
    fn keep_address<'a>(
        &'a self,
        _pod_uid: &'a str,
        _owner: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    /// Called before [`Network::add`] for a pod whose guest chose a hardware address: the guest may send from it, and
    /// no guest of another owner. Networks that do not check such addresses ignore it.
    fn choose_mac<'a>(
        &'a self,
        _pod_uid: &'a str,
        _mac: MacAddress,
        _owner: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    /// Adds an interface on a secondary network, which [`Network::delete`] removes, too.
    fn attach<'a>(
        &'a self,
        namespace: &'a Path,
        attachment: Attachment,
    ) -> BoxFuture<'a, Result<SecondaryInterface, Failure>>;

    /// Takes away an interface that [`Network::attach`] has added.
    fn detach<'a>(
        &'a self,
        _pod_uid: &'a str,
        _namespace: &'a Path,
        _interface: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn delete<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, Result<(), Failure>>;

    /// Support for services; `None` if this network has none.
    fn services(&self) -> Option<ServiceOffer> {
        None
    }

    /// Replaces all forwarding rules of services. Only called if [`Network::services`] is some.
    fn forward(&self, _: Vec<Forward>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    /// Whether this network can restrict the connections of pods.
    fn has_policies(&self) -> bool {
        false
    }

    /// Whether the restrictions set last are in place.
    fn is_restricted(&self) -> BoxFuture<'_, Result<bool, Failure>> {
        Box::pin(async { Ok(true) })
    }

    /// Sets what keeps pods to their own addresses, where it is missing.
    fn guard(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    /// Replaces all restrictions of pods. Only called if [`Network::has_policies`].
    fn restrict(&self, _: Vec<Restriction>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

/// A network's support for services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceOffer {
    pub range: ServiceRange,
    /// An address of this host where pods reach the DNS server.
    pub dns: Ipv4Addr,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// The first one is the pod IP.
    pub ips: Vec<IpAddr>,
}

/// An interface of a pod on a secondary network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondaryInterface {
    pub mac: String,
    pub ips: Vec<IpAddr>,
}

/// The interface of a pod on the pod network, as everywhere in Kubernetes.
const INTERFACE: &str = "eth0";
const NETWORK_FAILED: Reason = Reason::FailedCreatePodSandBox;

fn addresses(result: &CniResult) -> Vec<IpAddr> {
    let address = |text: &str| text.split('/').next().and_then(|ip| ip.parse().ok());
    let ips = result.ips.iter();
    ips.filter_map(|ip| address(&ip.address)).collect()
}

impl Network for PodNetwork {
    fn add<'a>(
        &'a self,
        pod_uid: &'a str,
        namespace: &'a Path,
    ) -> BoxFuture<'a, Result<Addresses, Failure>> {
        Box::pin(async move {
            let joined = Self::add(self, pod_uid, namespace, INTERFACE)
                .await
                .map_err(|error| {
                    Failure::of(NETWORK_FAILED, "join the pod to the network", &error)
                })?;
            Ok(Addresses {
                ips: addresses(&joined),
            })
        })
    }

    fn attach<'a>(
        &'a self,
        namespace: &'a Path,
        attachment: Attachment,
    ) -> BoxFuture<'a, Result<SecondaryInterface, Failure>> {
        Box::pin(async move {
            let attached = Self::attach(self, namespace, attachment).await;
            let attached = attached.map_err(|error| {
                Failure::of(Reason::NetworkNotJoined, "join a secondary network", &error)
            })?;
            let mac = attached.interfaces.first().map(|one| one.mac.clone());
            Ok(SecondaryInterface {
                mac: mac.unwrap_or_default(),
                ips: addresses(&attached),
            })
        })
    }

    fn detach<'a>(
        &'a self,
        pod_uid: &'a str,
        namespace: &'a Path,
        interface: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let detached = Self::detach(self, pod_uid, namespace, interface).await;
            detached.map_err(|error| {
                Failure::of(
                    Reason::NetworkNotJoined,
                    "leave a secondary network",
                    &error,
                )
            })
        })
    }

    fn keep_address<'a>(
        &'a self,
        pod_uid: &'a str,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let kept = Self::keep_address(self, pod_uid, owner).await;
            kept.map_err(|error| Failure::of(NETWORK_FAILED, "lease the pod an address", &error))
        })
    }

    fn choose_mac<'a>(
        &'a self,
        pod_uid: &'a str,
        mac: MacAddress,
        owner: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let chosen = Self::choose_mac(self, pod_uid, mac, owner).await;
            let tried = "give the guest its hardware address";
            chosen.map_err(|error| Failure::of(Reason::NetworkNotJoined, tried, &error))
        })
    }

    fn delete<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            Self::delete(self, pod_uid).await.map_err(|error| {
                Failure::of(
                    Reason::FailedKillPod,
                    "remove the pod from the network",
                    &error,
                )
            })
        })
    }

    fn services(&self) -> Option<ServiceOffer> {
        Some(ServiceOffer {
            range: Self::services(self),
            dns: self.gateway(),
        })
    }

    fn forward(&self, forwards: Vec<Forward>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            Self::forward(self, forwards)
                .await
                .map_err(|error| Failure::of(Reason::FailedServices, "change packet rules", &error))
        })
    }

    fn has_policies(&self) -> bool {
        true
    }

    fn is_restricted(&self) -> BoxFuture<'_, Result<bool, Failure>> {
        Box::pin(async move {
            let found = Self::is_restricted(self).await;
            let tried = "look at the restrictions of pods";
            found.map_err(|error| Failure::of(Reason::FailedNetworkPolicies, tried, &error))
        })
    }

    fn guard(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let guarded = Self::guard(self).await;
            let tried = "keep pods to their own addresses";
            guarded.map_err(|error| Failure::of(Reason::FailedNetworkPolicies, tried, &error))
        })
    }

    fn restrict(&self, restrictions: Vec<Restriction>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let restricted = Self::restrict(self, restrictions).await;
            let tried = "restrict the connections of pods";
            restricted.map_err(|error| Failure::of(Reason::FailedNetworkPolicies, tried, &error))
        })
    }
}

impl Endpoint {
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("node_name", &self.node_name)
            .field("root", &self.root)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}
