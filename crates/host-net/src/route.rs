//! Routes of the main table.

use std::net::IpAddr;

use net_plan::Cidr;

use crate::{
    Link, Net, NetError,
    address::{INET, INET6, family, from_octets, octets},
    netlink::{ACK, CREATE, DUMP, Message, REPLACE, attributes, u32_at},
};

const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_TABLE: u16 = 15;

const TABLE_MAIN: u8 = 254;
const PROTOCOL_BOOT: u8 = 3;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const TYPE_UNICAST: u8 = 1;

/// A unicast route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// With a prefix length of zero: the default route.
    pub destination: Cidr,
    /// The gateway; `None` for an on-link route.
    pub via: Option<IpAddr>,
    /// Index of the link; `None` for multipath routes.
    pub link: Option<u32>,
}

/// `struct rtmsg`.
fn head(destination: &Cidr, scope: u8) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0] = family(destination.address);
    bytes[1] = destination.prefix_length;
    bytes[4] = TABLE_MAIN;
    bytes[5] = PROTOCOL_BOOT;
    bytes[6] = scope;
    bytes[7] = TYPE_UNICAST;
    bytes
}

impl Net {
    /// Unicast routes of both families.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetError> {
        let mut routes = Vec::new();
        for family in [INET, INET6] {
            let mut head = [0; 12];
            head[0] = family;
            let message = Message::new(GET_ROUTE, DUMP).with(&head);
            let replies = self
                .route
                .request(&message)
                .map_err(|error| error.during("list routes"))?;
            let found = replies.iter().filter(|reply| reply.kind == NEW_ROUTE);
            routes.extend(found.filter_map(|reply| parse(&reply.payload)));
        }
        Ok(routes)
    }

    /// Routes the destination over the link, replacing another route to it.
    pub fn ensure_route(
        &mut self,
        link: &Link,
        destination: Cidr,
        via: Option<IpAddr>,
    ) -> Result<(), NetError> {
        let scope = if via.is_some() {
            SCOPE_UNIVERSE
        } else {
            SCOPE_LINK
        };
        let mut message =
            Message::new(NEW_ROUTE, ACK | CREATE | REPLACE).with(&head(&destination, scope));
        if destination.prefix_length > 0 {
            message.attribute(RTA_DST, &octets(destination.network().address));
        }
        message.number(RTA_OIF, link.index);
        if let Some(via) = via {
            message.attribute(RTA_GATEWAY, &octets(via));
        }
        let done = self.route.request(&message);
        done.map(drop)
            .map_err(|error| error.during(format!("route {destination} to {}", link.name)))
    }
}

fn parse(payload: &[u8]) -> Option<Route> {
    let family = *payload.first()?;
    let prefix_length = *payload.get(1)?;
    let mut table = u32::from(*payload.get(4)?);
    if *payload.get(7)? != TYPE_UNICAST {
        return None;
    }
    let zero: &[u8] = if family == INET { &[0; 4] } else { &[0; 16] };
    let mut address = from_octets(zero)?;
    let (mut via, mut link) = (None, None);
    for (kind, value) in attributes(payload.get(12..)?) {
        match kind {
            RTA_DST => address = from_octets(value)?,
            RTA_GATEWAY => via = from_octets(value),
            RTA_OIF => link = Some(u32_at(value, 0)),
            RTA_TABLE => table = u32_at(value, 0),
            _ => {}
        }
    }
    let destination = Cidr {
        address,
        prefix_length,
    };
    (table == u32::from(TABLE_MAIN)).then_some(Route {
        destination,
        via,
        link,
    })
}
