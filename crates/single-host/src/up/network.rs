//! The network of the pods, and their way to the API server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use anyhow::{Context, Result};
use embedded_api::ServiceSettings;
use pod_network::{Cidr, PodNetwork, ServiceRange, Settings};
use tokio::net::TcpListener;

use crate::{cli, state_dir::StateDir};

pub(crate) fn settings(pod_cidr: &str, state: &StateDir) -> Result<Settings> {
    let (pod_cidr, pod_cidr_ipv6) = ranges(pod_cidr).with_context(|| {
        format!(
            "--pod-cidr {pod_cidr:?}: give a range such as 10.244.0.0/24, or with IPv6 \
             10.244.0.0/24,fd00:10:244::/64"
        )
    })?;
    Ok(Settings {
        bridge: state.bridge(),
        pod_cidr,
        pod_cidr_ipv6,
        table: state.table(),
        ..Settings::usual(state.network())
    })
}

/// The IPv4 range, and after a comma that of IPv6.
fn ranges(text: &str) -> Result<(Cidr, Option<Cidr>)> {
    let (ipv4, ipv6) = match text.split_once(',') {
        Some((ipv4, ipv6)) => (ipv4, Some(ipv6)),
        None => (text, None),
    };
    let range = |text: &str| text.trim().parse::<Cidr>();
    Ok((range(ipv4)?, ipv6.map(range).transpose()?))
}

pub(super) async fn open(flags: &cli::Up, state: &StateDir) -> Result<PodNetwork> {
    let network = PodNetwork::open(settings(&flags.pod_cidr, state)?)
        .await
        .context("open the pod network")?;
    network.ensure().await.context("create the pod network")?;
    Ok(network)
}

/// Listens on the host's address in the pod network, unless the API server listens there anyway: pods
/// cannot reach its usual address, which is a loopback address.
pub(super) async fn listen_for_pods(
    pods: &PodNetwork,
    listen: SocketAddr,
) -> Result<Option<TcpListener>> {
    if includes(listen.ip(), pods.gateway()) {
        return Ok(None);
    }
    let usual = SocketAddrV4::new(pods.gateway(), listen.port());
    let listener = match TcpListener::bind(usual).await {
        // Pods use the port of the service, so any other one will do.
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddrV4::new(pods.gateway(), 0)).await
        }
        bound => bound,
    };
    let listener = listener.with_context(|| format!("listen for pods on {usual}"))?;
    Ok(Some(listener))
}

fn includes(listen: IpAddr, gateway: Ipv4Addr) -> bool {
    listen.is_unspecified() || listen == IpAddr::V4(gateway)
}

/// The range of services, and where pods reach the API server.
pub(super) fn service_settings(
    pods: &PodNetwork,
    listen: SocketAddr,
    for_pods: Option<&TcpListener>,
) -> Result<ServiceSettings> {
    let port = match for_pods {
        Some(listener) => listener
            .local_addr()
            .context("read the port for pods")?
            .port(),
        None => listen.port(),
    };
    let server = SocketAddrV4::new(pods.gateway(), port);
    Ok(service_range(pods.services(), server))
}

fn service_range(range: ServiceRange, server: SocketAddrV4) -> ServiceSettings {
    // The range lacks the addresses of network and broadcast.
    let bits = range.count.saturating_add(2).ilog2();
    ServiceSettings {
        network: Ipv4Addr::from_bits(range.first.to_bits().saturating_sub(1)),
        prefix_length: u8::try_from(32_u32.saturating_sub(bits)).unwrap_or(u8::MAX),
        server: Some(server),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_of_ipv6_comes_after_a_comma() {
        let cidr = |text: &str| text.parse::<Cidr>().expect("a range");
        let four = cidr("10.244.0.0/24");
        for text in [
            "10.244.0.0/24",
            "10.244.0.0/24,fd00::/64",
            "10.244.0.0/24, fd00::/64",
        ] {
            let six = text.contains(',').then(|| cidr("fd00::/64"));
            assert_eq!(ranges(text).expect("ranges"), (four, six));
        }
        for bad in [
            "",
            "10.244.0.0",
            ",fd00::/64",
            "10.244.0.0/24,",
            "10.244.0.0/24,fd00::/64,fd01::/64",
        ] {
            assert!(ranges(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn first_service_address_belongs_to_the_api_server() {
        let server = SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, 1), 6443);
        let range = ServiceRange {
            first: Ipv4Addr::new(10, 96, 0, 1),
            count: 254,
        };
        let found = service_range(range, server);
        assert_eq!(
            (found.network, found.prefix_length),
            (Ipv4Addr::new(10, 96, 0, 0), 24)
        );
        assert_eq!(found.first(), range.first);
        assert_eq!(found.server, Some(server));
    }

    #[test]
    fn a_loopback_server_listens_for_pods_separately() {
        let gateway = Ipv4Addr::new(10, 244, 0, 1);
        for (listen, expected) in [
            ("127.0.0.1", false),
            ("192.0.2.7", false),
            ("10.244.0.1", true),
            ("0.0.0.0", true),
            ("::", true),
        ] {
            let listen = listen.parse().expect("an address");
            assert_eq!(includes(listen, gateway), expected, "{listen}");
        }
    }
}
