//! Keeps pods from announcing themselves as IPv6 routers to the host and to each other.
//!
//! The network has no IPv6 and no router that announces itself. But a kernel by default believes every
//! router advertisement, and with it whoever is on the bridge (CVE-2020-10749).

use std::path::Path;

use host_net::{Net, NetError};
use net_plan::Sysctl;

/// The kernel's name for the settings of interfaces yet to come.
pub(crate) const NEW_INTERFACES: &str = "default";

/// Leaves an interface of the host without IPv6; the bridge still passes on the pods' frames.
pub(crate) fn disable_ipv6(net: &mut Net, interface: &str) -> Result<(), NetError> {
    ignore_advertisements(net, interface)?;
    set(net, interface, ("disable_ipv6", "1"))
}

/// An interface of a pod, which may use IPv6 with addresses of its own.
pub(crate) fn ignore_advertisements(net: &mut Net, interface: &str) -> Result<(), NetError> {
    set(net, interface, ("accept_ra", "0"))
}

fn set(net: &mut Net, interface: &str, (name, value): (&str, &str)) -> Result<(), NetError> {
    // A kernel without IPv6 has no such settings.
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return Ok(());
    }
    net.ensure_sysctl(&Sysctl {
        name: format!("net/ipv6/conf/{interface}/{name}"),
        value: value.to_owned(),
    })
}
