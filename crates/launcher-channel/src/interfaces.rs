//! Interfaces that a running guest gets and loses.

use serde::{Deserialize, Serialize};

use crate::{DhcpServer, Ipv6Server};

/// Changes of the interfaces of a running guest. Interfaces that it does not name stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfacePlan {
    /// Those that the guest gets, unless it has them.
    #[serde(default)]
    pub attach: Vec<HotInterface>,
    /// Names of those that it loses.
    #[serde(default)]
    pub remove: Vec<String>,
    /// All DHCP servers of the guest from now on.
    #[serde(default)]
    pub dhcp: Vec<DhcpServer>,
    #[serde(default)]
    pub ipv6: Vec<Ipv6Server>,
}

/// An interface whose end in the pod exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HotInterface {
    /// Its name in the VMI.
    pub name: String,
    /// The device in the domain.
    pub xml: String,
}
