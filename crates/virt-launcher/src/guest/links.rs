//! Links of the guest's interfaces, which go up and down while it runs.
//!
//! **Invariant**: libvirt's live XML is the record. A change is that XML with another link, so that nothing
//! else of the interface changes.

use std::collections::BTreeMap;

use launcher_channel::InterfaceLink;

use super::domain_xml::{LiveDomain, LiveInterface};
use super::refusal::Refusal;
use super::task::Guest;

/// The prefix of the alias of a device that the user named.
const ALIAS: &str = "ua-";

/// The links by the interfaces' names in the VMI.
pub(super) fn by_name(live: &[LiveInterface]) -> BTreeMap<String, InterfaceLink> {
    let named = live.iter().filter_map(|interface| {
        let name = interface.alias.strip_prefix(ALIAS)?;
        Some((name.to_owned(), interface.link))
    });
    named.collect()
}

/// The XML of the interfaces to change, by name.
fn changes(
    live: &[LiveInterface],
    wanted: &BTreeMap<String, InterfaceLink>,
) -> Vec<(String, String)> {
    let differing = live.iter().filter_map(|interface| {
        let name = interface.alias.strip_prefix(ALIAS)?;
        let link = *wanted.get(name).filter(|link| **link != interface.link)?;
        Some((name.to_owned(), interface.with_link(link)))
    });
    differing.collect()
}

impl Guest {
    /// Sets the links that differ. An interface that the domain does not have is left out.
    pub(super) async fn set_links(
        &mut self,
        wanted: &BTreeMap<String, InterfaceLink>,
    ) -> Result<(), Refusal> {
        self.ensure_known().await?;
        let (Some(connection), Some(domain)) = (self.connection(), self.domain()) else {
            return Err(libvirt::Error::Closed.into());
        };
        if !self.is_alive() {
            return Err(Refusal::NotRunning);
        }
        let read = async || -> Result<Vec<LiveInterface>, Refusal> {
            let xml = connection.xml(&domain).await?;
            let live = LiveDomain::parse(&xml).map_err(std::io::Error::other)?;
            Ok(live.interfaces)
        };
        for (interface, xml) in changes(&read().await?, wanted) {
            connection.update_device(&domain, &xml).await?;
            tracing::info!(interface, "link of the running guest changed");
        }
        self.links = by_name(&read().await?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "<domain><devices>\
        <interface type='ethernet'><mac address='02:00:00:00:00:0a'/>\
        <target dev='tap0' managed='no'/><model type='virtio'/>\
        <link state='down'/><alias name='ua-default'/></interface>\
        <interface type='vhostuser'><source type='unix' path='/p' mode='client'/>\
        <alias name='ua-lan'/></interface>\
        <interface type='ethernet'><alias name='net2'/></interface>\
        </devices></domain>";

    fn live() -> Vec<LiveInterface> {
        LiveDomain::parse(DOMAIN).unwrap().interfaces
    }

    #[test]
    fn links_are_those_of_named_interfaces() {
        let links: Vec<_> = by_name(&live()).into_iter().collect();
        assert_eq!(
            links,
            [
                ("default".to_owned(), InterfaceLink::Down),
                ("lan".to_owned(), InterfaceLink::Up),
            ]
        );
    }

    #[test]
    fn only_the_link_changes() {
        use InterfaceLink::{Down, Up};
        let wanted = |default, lan| {
            BTreeMap::from([
                ("default".to_owned(), default),
                ("lan".to_owned(), lan),
                ("gone".to_owned(), Down),
            ])
        };
        assert_eq!(changes(&live(), &wanted(Down, Up)), []);
        let default = "<interface type=\"ethernet\"><mac address='02:00:00:00:00:0a'/>\
            <target dev='tap0' managed='no'/><model type='virtio'/>\
            <alias name='ua-default'/><link state=\"up\"/></interface>";
        let lan = "<interface type=\"vhostuser\"><source type='unix' path='/p' mode='client'/>\
            <alias name='ua-lan'/><link state=\"down\"/></interface>";
        let owned = |name: &str, xml: &str| (name.to_owned(), xml.to_owned());
        assert_eq!(
            changes(&live(), &wanted(Up, Down)),
            [owned("default", default), owned("lan", lan)]
        );
    }
}
