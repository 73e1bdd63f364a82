//! Computes the reply to a message of a `DHCPv6` client. Pure.

use std::net::Ipv6Addr;

use super::{
    options::{
        ADDRESS, ADDRESS_ASSOCIATION, Association, CLIENT, DOMAINS, Message, NAME_SERVERS, Options,
        PREFERENCE, PREFIX_ASSOCIATION, RAPID_COMMIT, SERVER, STATUS,
    },
    settings::Settings,
};
use crate::domain_list::domain_list;

const SOLICIT: u8 = 1;
const ADVERTISE: u8 = 2;
const REQUEST: u8 = 3;
const CONFIRM: u8 = 4;
const RENEW: u8 = 5;
const REBIND: u8 = 6;
const REPLY: u8 = 7;
const RELEASE: u8 = 8;
const DECLINE: u8 = 9;
const INFORMATION_REQUEST: u8 = 11;

const SUCCESS: u16 = 0;
const NO_ADDRESS: u16 = 2;
const NOT_ON_LINK: u16 = 4;
const NO_PREFIX: u16 = 6;

/// The highest: the client waits for no other server.
const FIRST_CHOICE: u8 = 255;
/// 999 days: a guest keeps its address as long as it runs.
const LEASE_SECONDS: u32 = 999 * 24 * 60 * 60;
/// A packet of the smallest MTU has room for it.
const MAX_MESSAGE: usize = 1280 - 40 - 8;
/// Name servers that a guest gets; resolvers use three.
const MAX_NAME_SERVERS: usize = 16;
const MAX_DOMAINS: usize = 512;

/// The reply, if the message gets one.
pub(super) fn reply_to(message: &[u8], settings: &Settings) -> Option<Vec<u8>> {
    let request = Message::parse(message)?;
    let server = identifier(settings);
    let to_any = request.server.is_none();
    let to_this = request.server == Some(&server[..]);
    let has_client = request.client.is_some();
    match request.kind {
        SOLICIT if to_any && has_client => Some(solicited(&request, settings)),
        REQUEST | RENEW if to_this && has_client => Some(leased(&request, settings)),
        REBIND if to_any && has_client => Some(leased(&request, settings)),
        CONFIRM if to_any && has_client => confirmed(&request, settings),
        // The guest may do without its address. It stays its own.
        RELEASE | DECLINE if to_this && has_client => {
            let mut reply = Reply::to(&request, settings, REPLY);
            reply.options.push(STATUS, &status(SUCCESS));
            Some(reply.finish())
        }
        INFORMATION_REQUEST if (to_any || to_this) && request.associations.is_empty() => {
            let mut reply = Reply::to(&request, settings, REPLY);
            reply.push_settings(settings);
            Some(reply.finish())
        }
        _ => None,
    }
}

/// The server's identifier, made from its hardware address.
fn identifier(settings: &Settings) -> Vec<u8> {
    [&[0, 3, 0, 1][..], &settings.mac].concat()
}

fn status(code: u16) -> [u8; 2] {
    code.to_be_bytes()
}

/// An offer, or at once the lease if the client knows what to do with it.
fn solicited(request: &Message<'_>, settings: &Settings) -> Vec<u8> {
    let kind = if request.is_rapid { REPLY } else { ADVERTISE };
    let mut reply = Reply::to(request, settings, kind);
    if request.is_rapid {
        reply.options.push(RAPID_COMMIT, &[]);
    } else {
        reply.options.push(PREFERENCE, &[FIRST_CHOICE]);
    }
    reply.push_lease(request, settings);
    reply.push_settings(settings);
    reply.finish()
}

fn leased(request: &Message<'_>, settings: &Settings) -> Vec<u8> {
    let mut reply = Reply::to(request, settings, REPLY);
    reply.push_lease(request, settings);
    reply.push_settings(settings);
    reply.finish()
}

/// Whether the guest may go on with the addresses that it has.
fn confirmed(request: &Message<'_>, settings: &Settings) -> Option<Vec<u8>> {
    let mut addresses = request.associations.iter().flat_map(|one| &one.addresses);
    let is_ours = |address: &Ipv6Addr| *address == settings.address;
    let first = is_ours(addresses.next()?);
    let code = if first && addresses.all(is_ours) {
        SUCCESS
    } else {
        NOT_ON_LINK
    };
    let mut reply = Reply::to(request, settings, REPLY);
    reply.options.push(STATUS, &status(code));
    Some(reply.finish())
}

/// A message to the client.
struct Reply {
    head: [u8; 4],
    options: Options,
}

impl Reply {
    fn to(request: &Message<'_>, settings: &Settings, kind: u8) -> Self {
        let [a, b, c] = request.transaction;
        let mut options = Options::new(MAX_MESSAGE - 4);
        if let Some(client) = request.client {
            options.push(CLIENT, client);
        }
        options.push(SERVER, &identifier(settings));
        Self {
            head: [kind, a, b, c],
            options,
        }
    }

    fn push_settings(&mut self, settings: &Settings) {
        let servers = settings.dns.iter().take(MAX_NAME_SERVERS);
        let servers: Vec<u8> = servers.flat_map(Ipv6Addr::octets).collect();
        let domains = domain_list(&settings.search, MAX_DOMAINS);
        for (code, value) in [(NAME_SERVERS, servers), (DOMAINS, domains)] {
            if !value.is_empty() {
                self.options.push(code, &value);
            }
        }
    }

    /// The first association gets the address.
    fn push_lease(&mut self, request: &Message<'_>, settings: &Settings) {
        let mut is_free = true;
        for association in &request.associations {
            let mut options = Options::new(MAX_MESSAGE);
            match association.code {
                ADDRESS_ASSOCIATION if is_free => {
                    is_free = false;
                    push_addresses(&mut options, association, settings.address);
                }
                PREFIX_ASSOCIATION => options.push(STATUS, &status(NO_PREFIX)),
                _ => options.push(STATUS, &status(NO_ADDRESS)),
            }
            self.push_association(association, options);
        }
    }

    fn push_association(&mut self, association: &Association, options: Options) {
        let mut value = association.id.to_vec();
        if [ADDRESS_ASSOCIATION, PREFIX_ASSOCIATION].contains(&association.code) {
            // The client chooses when it renews the lease.
            value.extend([0; 8]);
        }
        value.extend(options.finish());
        self.options.push(association.code, &value);
    }

    fn finish(self) -> Vec<u8> {
        [&self.head[..], &self.options.finish()].concat()
    }
}

/// The guest's address, and the end of all others that it has.
fn push_addresses(options: &mut Options, association: &Association, own: Ipv6Addr) {
    let others = association.addresses.iter().filter(|one| **one != own);
    let ended = others.map(|other| (*other, 0));
    for (address, seconds) in [(own, LEASE_SECONDS)].into_iter().chain(ended) {
        let mut value = address.octets().to_vec();
        value.extend([seconds; 2].map(u32::to_be_bytes).as_flattened());
        options.push(ADDRESS, &value);
    }
}

#[cfg(test)]
mod tests;
