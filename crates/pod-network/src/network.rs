//! The pod network: set-up, attachment and detachment of pods, teardown.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::{Arc, Once},
};

use host_net::{Link, Net, NetError, NetworkNamespace, Veth, VethPair, in_namespace};
use net_plan::{Bridge, Cidr, MacAddress, Sysctl, nft::Family};
use parking_lot::Mutex;

use crate::{
    CniDns, CniInterface, CniIp, CniResult, CniRoute, PodNetworkError, Settings, forward, ipv6,
    lease::{Lease, Leases, check_uid},
    links,
    masquerade::masquerade,
    policies::{self, Restriction},
    secondary::{self, Addresses, Attached, Attachment, NetworkRoute},
    services::{self, Forward, ServiceRange},
    settings::{IPV6_ROUTER, Range},
};

const CNI_VERSION: &str = "1.0.0";

/// One pod network; cheap to clone.
#[derive(Debug, Clone)]
pub struct PodNetwork {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    range: Range,
    host: NetworkNamespace,
    /// Only locked on threads that are allowed to block.
    leases: Mutex<Leases>,
    addresses: Addresses,
    /// Held while a pod joins a secondary network, so that no two of them get the same hardware address.
    joining: Mutex<()>,
    /// Warns once that the kernel has no filters for links.
    unfiltered: Once,
}

impl PodNetwork {
    /// Reads the leases and locks the state folder; does not configure anything yet.
    pub async fn open(settings: Settings) -> Result<Self, PodNetworkError> {
        Self::open_in(NetworkNamespace::current()?, settings).await
    }

    /// The same, with the bridge in another namespace than this process's own.
    pub async fn open_in(
        host: NetworkNamespace,
        settings: Settings,
    ) -> Result<Self, PodNetworkError> {
        let range = Range::parse(settings.pod_cidr)?.with_ipv6(settings.pod_cidr_ipv6)?;
        let folder = settings.state_dir.clone();
        let leases = on_thread(&host, move |_| Leases::open(&folder, range)).await?;
        let shared = Shared {
            addresses: Addresses::in_folder(&settings.state_dir),
            joining: Mutex::new(()),
            unfiltered: Once::new(),
            settings,
            range,
            host,
            leases: Mutex::new(leases),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The gateway's address, which is the host's own address in the network.
    pub fn gateway(&self) -> Ipv4Addr {
        self.shared.range.gateway
    }

    /// The addresses available to services.
    pub fn services(&self) -> ServiceRange {
        services::usable(services::range_of(&self.shared.range))
    }

    /// The addresses of all the host's interfaces besides loopback and link-local ones.
    pub async fn host_addresses(&self) -> Result<Vec<IpAddr>, PodNetworkError> {
        self.on_host(|_, net| {
            let mut addresses = Vec::new();
            for link in net.links()? {
                let own = net.addresses(&link)?;
                addresses.extend(own.into_iter().map(|one| one.address));
            }
            addresses.retain(|address| !address.is_loopback());
            Ok(addresses)
        })
        .await
    }

    /// Replaces all translations of service addresses and host ports by these.
    pub async fn forward(&self, forwards: Vec<Forward>) -> Result<(), PodNetworkError> {
        self.on_host(move |shared, net| {
            let site = services::Site {
                bridge: &shared.settings.bridge,
                pods: shared.range.network,
                services: services::range_of(&shared.range),
            };
            let table = services::table(&shared.service_table(), site, &forwards);
            net.replace_table(&table)?;
            // After the table, which keeps pods from the host's loopback addresses.
            net.ensure_sysctl(&Sysctl {
                name: format!("net/ipv4/conf/{}/route_localnet", shared.settings.bridge),
                value: "1".to_owned(),
            })?;
            Ok(())
        })
        .await
    }

    /// Replaces all restrictions of pods by these.
    pub async fn restrict(&self, restrictions: Vec<Restriction>) -> Result<(), PodNetworkError> {
        self.on_host(move |shared, net| {
            if restrictions.is_empty() {
                return shared.delete_policies(net);
            }
            let name = shared.policy_table();
            let site = policies::Site {
                bridge: &shared.settings.bridge,
                pods: shared.range.network,
            };
            net.replace_table(&policies::table(&name, site, &restrictions))?;
            let of_ipv6 = policies::table_of_ipv6(&name, site, shared.range.ipv6);
            net.replace_table(&of_ipv6)?;
            let bridge = net.existing_link(&shared.settings.bridge)?;
            Ok(net.filter_bridged(&bridge)?)
        })
        .await
    }

    /// Whether the rules of [`Self::restrict`] exist: other programs may remove them.
    pub async fn is_restricted(&self) -> Result<bool, PodNetworkError> {
        self.on_host(|shared, net| {
            let name = shared.policy_table();
            let chains = net.base_chains(Family::Ip)?;
            Ok(chains.iter().any(|chain| chain.table == name))
        })
        .await
    }

    /// Sets the filters of the pods' links that are missing: other programs may remove them.
    pub async fn guard(&self) -> Result<(), PodNetworkError> {
        self.on_host(|shared, net| shared.guard(net, Chains::Missing))
            .await
    }

    /// Sets up bridge, forwarding and address translation.
    pub async fn ensure(&self) -> Result<(), PodNetworkError> {
        self.on_host(Shared::ensure).await
    }

    /// Attaches the pod's namespace to the network by an interface of this name. Idempotent, with
    /// the same result.
    pub async fn add(
        &self,
        pod_uid: &str,
        netns: &Path,
        interface: &str,
    ) -> Result<CniResult, PodNetworkError> {
        check_uid(pod_uid)?;
        let uid = pod_uid.to_owned();
        let (lease, host) = self
            .on_host(move |shared, _| Ok((shared.leases.lock().ensure(&uid)?, Net::here()?)))
            .await?;
        let namespace = NetworkNamespace::open(netns)?;
        let shared = Arc::clone(&self.shared);
        let (inside, name) = (namespace.clone(), interface.to_owned());
        let leased = lease.clone();
        let pair = in_namespace(namespace, move |pod| {
            let end = PodEnd {
                lease: &leased,
                namespace: &inside,
                interface: &name,
            };
            shared.attach(host, pod, &end)
        })
        .await?;
        // Before anything of the pod runs.
        let filtered = lease.clone();
        self.on_host(move |shared, net| Ok(shared.filter_links(net, vec![filtered])?))
            .await?;
        Ok(self.shared.result(&lease, &pair, netns))
    }

    /// Leases the pod the address of its owner's last pod, if it is free. Call it before [`Self::add`].
    pub async fn keep_address(&self, pod_uid: &str, owner: &str) -> Result<(), PodNetworkError> {
        check_uid(pod_uid)?;
        let (uid, owner) = (pod_uid.to_owned(), owner.to_owned());
        self.on_host(move |shared, _| {
            let lease = shared.leases.lock().ensure_of(&uid, &owner);
            lease.map(drop)
        })
        .await
    }

    /// Lets the pod's guest send from this hardware address, which no guest of another owner can have then. Call it
    /// before [`Self::add`].
    pub async fn choose_mac(
        &self,
        pod_uid: &str,
        mac: MacAddress,
        owner: Option<&str>,
    ) -> Result<(), PodNetworkError> {
        check_uid(pod_uid)?;
        let (uid, owner) = (pod_uid.to_owned(), owner.map(str::to_owned));
        self.on_host(move |shared, _| {
            let mut leases = shared.leases.lock();
            leases.choose_mac(&uid, mac, owner.as_deref())
        })
        .await
    }

    /// Gives the pod's namespace an interface on a secondary network. May be repeated until the pod uses
    /// the interface. [`Self::delete`] removes it.
    pub async fn attach(
        &self,
        netns: &Path,
        attachment: Attachment,
    ) -> Result<CniResult, PodNetworkError> {
        check_uid(&attachment.pod_uid)?;
        let prepared = self.on_host(move |shared, net| {
            let Settings { bridge, table, .. } = &shared.settings;
            attachment.prepare(net, bridge, table)?;
            Ok((attachment, Net::here()?))
        });
        let (attachment, mut host) = prepared.await?;
        let namespace = NetworkNamespace::open(netns)?;
        let shared = Arc::clone(&self.shared);
        let inside = namespace.clone();
        let attached = on_thread(&namespace, move |pod| {
            let table = &shared.settings.table;
            pod.set_up("lo")?;
            let _joining = shared.joining.lock();
            attachment.create(&shared.addresses, table, (&mut host, pod), &inside)
        })
        .await?;
        Ok(secondary_result(&attached, netns))
    }

    /// Takes an interface on a secondary network from the pod, and frees its address. One that does not exist is not
    /// an error.
    pub async fn detach(
        &self,
        pod_uid: &str,
        netns: &Path,
        interface: &str,
    ) -> Result<(), PodNetworkError> {
        check_uid(pod_uid)?;
        let namespace = NetworkNamespace::open(netns)?;
        let inside = interface.to_owned();
        on_thread(&namespace, move |pod| {
            secondary::remove_macvlan(pod, &inside)
        })
        .await?;
        let (uid, interface) = (pod_uid.to_owned(), interface.to_owned());
        self.on_host(move |shared, net| {
            secondary::remove_port(net, &shared.settings.table, &uid, &interface)?;
            shared.addresses.release_of(&uid, &interface)
        })
        .await
    }

    /// Detaches the pod and frees its address. A pod that is not attached, or whose namespace no
    /// longer exists, is not an error.
    pub async fn delete(&self, pod_uid: &str) -> Result<(), PodNetworkError> {
        check_uid(pod_uid)?;
        let uid = pod_uid.to_owned();
        self.on_host(move |shared, net| shared.delete(net, &uid))
            .await
    }

    /// Detaches all other pods, and deletes veth pairs on the bridge that have no lease.
    pub async fn retain(&self, live: &HashSet<String>) -> Result<(), PodNetworkError> {
        let live = live.clone();
        self.on_host(move |shared, net| shared.retain(net, &live))
            .await
    }

    /// Removes the bridge, the veth pairs, the rules and the state.
    pub async fn teardown(&self) -> Result<(), PodNetworkError> {
        self.on_host(Shared::teardown).await
    }

    async fn on_host<T, F>(&self, work: F) -> Result<T, PodNetworkError>
    where
        T: Send + 'static,
        F: FnOnce(&Shared, &mut Net) -> Result<T, PodNetworkError> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        on_thread(&self.shared.host, move |net| work(&shared, net)).await
    }
}

/// Which chains of links are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chains {
    All,
    /// Those that do not exist.
    Missing,
}

/// A pod's end of the network to be created.
#[derive(Debug, Clone, Copy)]
struct PodEnd<'a> {
    lease: &'a Lease,
    namespace: &'a NetworkNamespace,
    /// The name of the interface in the pod.
    interface: &'a str,
}

async fn on_thread<T, F>(host: &NetworkNamespace, work: F) -> Result<T, PodNetworkError>
where
    T: Send + 'static,
    F: FnOnce(&mut Net) -> Result<T, PodNetworkError> + Send + 'static,
{
    in_namespace(host.clone(), move |net| Ok(work(net))).await?
}

fn secondary_result(attached: &Attached, netns: &Path) -> CniResult {
    let inside = CniInterface {
        name: attached.inside.name.clone(),
        mac: attached.mac.to_string(),
        sandbox: Some(netns.display().to_string()),
    };
    let ip = |address: &Cidr| CniIp {
        interface: Some(0),
        address: address.to_string(),
        gateway: None,
    };
    let route = |route: &NetworkRoute| CniRoute {
        dst: route.destination.to_string(),
        gw: route.via.map(|via| via.to_string()),
    };
    CniResult {
        cni_version: CNI_VERSION.to_owned(),
        interfaces: vec![inside],
        ips: attached.addresses.iter().map(ip).collect(),
        routes: attached.routes.iter().map(route).collect(),
        dns: CniDns::default(),
    }
}

impl Shared {
    fn ensure(&self, net: &mut Net) -> Result<(), PodNetworkError> {
        let range = &self.range;
        for network in [range.network].into_iter().chain(range.ipv6) {
            self.refuse_taken_range(net, network)?;
        }
        let bridge = Bridge {
            name: self.settings.bridge.clone(),
            mac: range.bridge_mac(),
            mtu: self.settings.mtu,
            addresses: vec![Cidr::v4(range.gateway, range.prefix_length())],
        };
        let link = net.ensure_own_bridge(&bridge, &self.alias())?;
        // Guests could announce themselves as the host's router.
        net.ensure_sysctl_if_present(&Sysctl {
            name: format!("net/ipv6/conf/{}/accept_ra", bridge.name),
            value: "0".to_owned(),
        })?;
        let (name, value) = ("net/ipv4/ip_forward".to_owned(), "1".to_owned());
        net.ensure_sysctl(&Sysctl { name, value })?;
        net.replace_table(&masquerade(&self.settings.table, range.network))?;
        ipv6::ensure(net, &link, range, &self.settings.table)?;
        self.ensure_service_route(net)?;
        // The rules of an earlier version may be others.
        self.guard(net, Chains::All)?;
        forward::warn_of_firewalls(net, &self.settings.bridge, &self.settings.table)?;
        tracing::debug!(bridge = self.settings.bridge, range = %range.network, "pod network is set up");
        Ok(())
    }

    fn service_table(&self) -> String {
        format!("{}_services", self.settings.table)
    }

    fn policy_table(&self) -> String {
        format!("{}_policies", self.settings.table)
    }

    fn link_table(&self) -> String {
        format!("{}_links", self.settings.table)
    }

    fn guard(&self, net: &mut Net, which: Chains) -> Result<(), PodNetworkError> {
        let mut leases = self.leases.lock().all();
        if which == Chains::Missing {
            let name = self.link_table();
            let chains = net.base_chains(Family::Netdev)?;
            let is_guarded = |veth: &str| {
                let mut chains = chains.iter();
                chains.any(|chain| chain.table == name && chain.name == veth)
            };
            leases.retain(|lease| !is_guarded(&lease.veth));
        }
        Ok(self.filter_links(net, leases)?)
    }

    /// Sets the chains of those links that exist.
    fn filter_links(&self, net: &mut Net, leases: Vec<Lease>) -> Result<(), NetError> {
        let mut leases = leases;
        loop {
            let links = net.links()?;
            leases.retain(|lease| links.iter().any(|link| link.name == lease.veth));
            if leases.is_empty() {
                return Ok(());
            }
            let table = links::table(&self.link_table(), self.range, &leases);
            match net.ensure_chains(&table) {
                // A kernel without such chains, and one that does not find a link, give the same answer.
                Err(error @ NetError::NotSupported { .. }) => {
                    let links = net.links()?;
                    let is_there = |lease: &Lease| links.iter().any(|link| link.name == lease.veth);
                    if leases.iter().all(is_there) {
                        self.unfiltered.call_once(|| {
                            tracing::warn!(%error, "pods can take the addresses of other pods");
                        });
                        return Ok(());
                    }
                }
                done => return done,
            }
        }
    }

    fn delete_policies(&self, net: &mut Net) -> Result<(), PodNetworkError> {
        for family in [Family::Ip, Family::Ip6] {
            net.delete_table(family, &self.policy_table())?;
        }
        Ok(())
    }

    /// Routes the service range to the bridge: without a route the host sends no packet that could
    /// be translated.
    fn ensure_service_route(&self, net: &mut Net) -> Result<(), PodNetworkError> {
        let services = services::range_of(&self.range);
        let Some(bridge) = net.link(&self.settings.bridge)? else {
            return Ok(());
        };
        let taken = net.routes()?.into_iter().any(|route| {
            route.destination.prefix_length > 0
                && route.destination.overlaps(&services)
                && route.link != Some(bridge.index)
        });
        if taken {
            tracing::warn!(
                range = %services,
                "the service range overlaps another route of this host: pods reach services, the \
                 host itself does not"
            );
            return Ok(());
        }
        Ok(net.ensure_route(&bridge, services, None)?)
    }

    /// The alias that marks the bridge as this network's.
    fn alias(&self) -> String {
        format!("ferrovirt pods {}", self.range.network)
    }

    fn refuse_taken_range(&self, net: &mut Net, range: Cidr) -> Result<(), PodNetworkError> {
        let own = net.link(&self.settings.bridge)?.map(|link| link.index);
        let taken = net.routes()?.into_iter().find(|route| {
            route.destination.prefix_length > 0
                && route.destination.overlaps(&range)
                && (route.link.is_none() || route.link != own)
        });
        let Some(route) = taken else { return Ok(()) };
        let links = net.links()?;
        let link = links
            .into_iter()
            .find(|link| Some(link.index) == route.link);
        let link = link.map_or("several links".to_owned(), |link| link.name);
        Err(PodNetworkError::RangeTaken {
            range,
            taken: route.destination,
            link,
        })
    }

    fn attach(&self, mut host: Net, pod: &mut Net, end: &PodEnd<'_>) -> Result<VethPair, NetError> {
        let PodEnd {
            lease,
            namespace,
            interface,
        } = *end;
        let mac = lease
            .mac
            .parse::<MacAddress>()
            .map_err(|bad| NetError::BadName {
                name: bad.0,
                what: "MAC address of a pod",
            })?;
        let veth = Veth {
            name: &lease.veth,
            bridge: &self.settings.bridge,
            mac: None,
            mtu: self.settings.mtu,
            peer: interface,
            peer_mac: mac,
            peer_mtu: self.settings.mtu,
            // A pod reaches itself by an address that the host translates.
            hairpin: true,
            alias: None,
        };
        pod.set_up("lo")?;
        let pair = host.ensure_veth(pod, namespace, &veth)?;
        let range = &self.range;
        pod.ensure_address(&pair.peer, Cidr::v4(lease.address, range.prefix_length()))?;
        let default = Cidr::v4(Ipv4Addr::UNSPECIFIED, 0);
        pod.ensure_route(&pair.peer, default, Some(range.gateway.into()))?;
        if let Some(address) = range.ipv6_of(lease.address) {
            ipv6::attach(pod, &pair.peer, address)?;
        }
        Ok(pair)
    }

    fn result(&self, lease: &Lease, pair: &VethPair, netns: &Path) -> CniResult {
        let on_host = |name: &str, mac: Option<MacAddress>| CniInterface {
            name: name.to_owned(),
            mac: mac.map(|mac| mac.to_string()).unwrap_or_default(),
            sandbox: None,
        };
        let inside = CniInterface {
            name: pair.peer.name.clone(),
            mac: lease.mac.clone(),
            sandbox: Some(netns.display().to_string()),
        };
        let range = &self.range;
        let ip = |address: Cidr, gateway: IpAddr| CniIp {
            interface: Some(2),
            address: address.to_string(),
            gateway: Some(gateway.to_string()),
        };
        let route = |destination: Cidr, via: IpAddr| CniRoute {
            dst: destination.to_string(),
            gw: Some(via.to_string()),
        };
        let all = Cidr::v4(Ipv4Addr::UNSPECIFIED, 0);
        let gateway = range.gateway.into();
        let mut ips = vec![ip(Cidr::v4(lease.address, range.prefix_length()), gateway)];
        let mut routes = vec![route(all, gateway)];
        if let Some(address) = range.ipv6_of(lease.address) {
            ips.push(ip(address, IPV6_ROUTER.into()));
            routes.push(route(ipv6::default_route(), IPV6_ROUTER.into()));
        }
        CniResult {
            cni_version: CNI_VERSION.to_owned(),
            interfaces: vec![
                on_host(&self.settings.bridge, Some(self.range.bridge_mac())),
                on_host(&pair.here.name, pair.here.mac),
                inside,
            ],
            ips,
            routes,
            dns: CniDns::default(),
        }
    }

    /// Deletes the pair first: while it exists, its address must not be leased again.
    fn delete(&self, net: &mut Net, uid: &str) -> Result<(), PodNetworkError> {
        let lease = self.leases.lock().get(uid).cloned();
        if let Some(lease) = lease {
            net.delete_link(&lease.veth)?;
            // Newer kernels keep the chain, older ones delete it with the link.
            net.delete_chain(Family::Netdev, &self.link_table(), &lease.veth)?;
        }
        self.delete_interfaces(net, |pod| pod == uid)?;
        self.addresses.release(|pod| pod != uid)?;
        self.leases.lock().release(uid)
    }

    /// Deletes the ends of secondary interfaces in the host's namespace, of those pods. Those in a pod's
    /// namespace end with it.
    fn delete_interfaces(
        &self,
        net: &mut Net,
        is_unwanted: impl Fn(&str) -> bool,
    ) -> Result<(), PodNetworkError> {
        for link in net.links()? {
            if secondary::is_of_pod(&link, &self.settings.table, &is_unwanted) {
                net.delete_link(&link.name)?;
            }
        }
        Ok(())
    }

    /// Deletes the bridges that this network made, unless somebody else uses them by now.
    fn delete_bridges(&self, net: &mut Net) -> Result<(), PodNetworkError> {
        let links = net.links()?;
        let is_ours = |link: &&Link| secondary::is_bridge(link, &self.settings.table);
        for bridge in links.iter().filter(is_ours) {
            if links.iter().all(|link| link.master != Some(bridge.index)) {
                net.delete_link(&bridge.name)?;
            }
        }
        Ok(())
    }

    fn retain(&self, net: &mut Net, live: &HashSet<String>) -> Result<(), PodNetworkError> {
        let pods = self.leases.lock().pods();
        for uid in pods.iter().filter(|uid| !live.contains(*uid)) {
            self.delete(net, uid)?;
        }
        let is_live = |uid: &str| live.contains(uid);
        self.delete_interfaces(net, |uid| !is_live(uid))?;
        self.addresses.release(is_live)?;
        let known = self.leases.lock().veths();
        self.delete_ports(net, |port| !known.contains(&port.name))
    }

    fn delete_ports(
        &self,
        net: &mut Net,
        unwanted: impl Fn(&Link) -> bool,
    ) -> Result<(), PodNetworkError> {
        let Some(bridge) = self.own_bridge(net)? else {
            return Ok(());
        };
        for port in net.ports(&bridge)? {
            if port.kind == host_net::LinkKind::Veth && unwanted(&port) {
                net.delete_link(&port.name)?;
            }
        }
        Ok(())
    }

    fn own_bridge(&self, net: &mut Net) -> Result<Option<Link>, PodNetworkError> {
        let link = net.link(&self.settings.bridge)?;
        Ok(link.filter(|link| link.alias == self.alias()))
    }

    fn teardown(&self, net: &mut Net) -> Result<(), PodNetworkError> {
        self.delete_ports(net, |_| true)?;
        if self.own_bridge(net)?.is_some() {
            net.delete_link(&self.settings.bridge)?;
        }
        for family in [Family::Ip, Family::Ip6] {
            net.delete_table(family, &self.settings.table)?;
        }
        net.delete_table(Family::Ip, &self.service_table())?;
        net.delete_table(Family::Netdev, &self.link_table())?;
        self.delete_policies(net)?;
        self.delete_interfaces(net, |_| true)?;
        self.delete_bridges(net)?;
        self.addresses.erase()?;
        self.leases.lock().erase()
    }
}
