//! IPv6 of a namespace shared with other programs.

use std::{fs, io};

use net_plan::Sysctl;

use crate::{LinkKind, Net, NetError};

fn setting(name: &str) -> String {
    format!("net/ipv6/conf/{name}")
}

impl Net {
    /// Enables IPv6 on the link; `false` if the kernel has none.
    pub fn enable_ipv6(&mut self, link: &str) -> Result<bool, NetError> {
        let enabled = self.ensure_sysctl(&Sysctl {
            name: setting(&format!("{link}/disable_ipv6")),
            value: "0".to_owned(),
        });
        match enabled {
            Ok(()) => Ok(true),
            Err(NetError::Sysctl { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Forwards packets of IPv6 between all links. A host that forwards ignores router advertisements and forgets
    /// its routers, unless a link says otherwise: those that follow them now go on to do so. No others, since
    /// containers may be behind them.
    pub fn forward_ipv6(&mut self) -> Result<(), NetError> {
        for link in self.links()? {
            let [name, forwards] =
                ["accept_ra", "forwarding"].map(|one| setting(&format!("{}/{one}", link.name)));
            let leads_to_guests = matches!(link.kind, LinkKind::Veth | LinkKind::Tun);
            let follows =
                read(&name).as_deref() == Some("1") && read(&forwards).as_deref() == Some("0");
            if follows && !leads_to_guests {
                self.ensure_sysctl_if_present(&Sysctl {
                    name,
                    value: "2".to_owned(),
                })?;
            }
        }
        self.ensure_sysctl(&Sysctl {
            name: setting("all/forwarding"),
            value: "1".to_owned(),
        })
    }
}

/// The value of a setting; `None` if it cannot be read, as that of a link that has just gone.
fn read(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    Some(text.trim().to_owned())
}
