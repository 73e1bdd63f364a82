//! Connects interfaces that a running guest gets, has the launcher attach and detach them, and removes the links of those
//! that the guest has lost.

use std::sync::Arc;

use error_chain::error_chain;
use launcher_channel::{GuestState, InterfacePlan, Request};
use reconcile::Key;
use tokio::time::Instant;

use super::{
    act::Guests,
    interfaces::Attached,
    nics::{self, Change, Failure, Nics},
    observe::Pair,
    sessions::Entry,
};
use crate::{launcher::Peer, prepare};

impl Guests {
    /// One pass over the interfaces. A failure does not hold up the report of the guest's state.
    pub(super) async fn plug_interfaces(&self, key: &Key, pair: &Pair, entry: &Entry) {
        let link = entry.session.link();
        let (Some(peer), Some(state)) = (link.peer.clone(), link.state.clone()) else {
            return;
        };
        let vmi = self.latest(key, pair);
        let attached = Attached::of(&pair.pod);
        let change = nics::change(&vmi, &state, &attached);
        let mut next = Nics {
            since: entry.nics.since.clone(),
            requested: entry.nics.requested.clone(),
            ..Nics::default()
        };
        for name in &change.disconnect {
            match prepare::disconnect(&vmi, name, &peer).await {
                Ok(()) => {
                    next.disconnected.insert(name.clone());
                }
                Err(error) => {
                    let failure = nics::refused(&error_chain(&error));
                    next.failures.insert(name.clone(), failure);
                    next.retry_in = Some(nics::RETRY);
                }
            }
        }
        let wanted = Change {
            attach: change.attach.clone(),
            remove: change.remove.clone(),
            ..Change::default()
        };
        let now = Instant::now();
        let state = if wanted == Change::default() {
            state
        } else if next.is_requested(&wanted, link.connection, now) {
            next.retry_in = Some(nics::RETRY);
            note_refusals(&state, &wanted, &mut next);
            state
        } else {
            next.requested = Some((wanted.clone(), now, link.connection));
            let requested = self.request_interfaces(key, pair, entry, (&change, &peer));
            match Box::pin(requested).await {
                Ok(state) => {
                    note_refusals(&state, &wanted, &mut next);
                    state
                }
                Err(failure) => {
                    let names = wanted.attach.union(&wanted.remove);
                    let failed = names.map(|name| (name.clone(), failure.clone()));
                    next.failures.extend(failed);
                    next.retry_in = Some(nics::RETRY);
                    state
                }
            }
        };
        let left = nics::change(&vmi, &state, &attached);
        if left != Change::default() {
            next.retry_in.get_or_insert(nics::RETRY);
        }
        next.follow(&left, now);
        self.sessions
            .update(key, &pair.pod_uid, |entry| entry.nics = next);
    }

    async fn request_interfaces(
        &self,
        key: &Key,
        pair: &Pair,
        entry: &Entry,
        (change, peer): (&Change, &Arc<Peer>),
    ) -> Result<GuestState, Failure> {
        let Some(facts) = &entry.facts else {
            return Err(nics::refused("the guest was not prepared yet"));
        };
        let vmi = self.latest(key, pair);
        let lists = (&change.attach, &change.wait);
        let connected = prepare::connect(&vmi, &pair.pod, peer, facts, lists).await;
        let connected = connected.map_err(|error| nics::refused(&error_chain(&error)))?;
        let plan = InterfacePlan {
            attach: connected.hot,
            remove: change.remove.iter().cloned().collect(),
            dhcp: connected.dhcp,
            ipv6: connected.ipv6,
        };
        self.sessions.update(key, &pair.pod_uid, |entry| {
            entry.facts = Some(connected.facts);
            if let Some(prepared) = &mut entry.prepared {
                prepared.interfaces = connected.status;
                prepared.bound_interfaces = connected.bound_interfaces;
            }
        });
        let request = Request::Interfaces(Box::new(plan));
        let answer = entry.session.call(request).await;
        answer.map_err(|error| nics::refused(&error_chain(&error)))
    }
}

/// The launcher's reasons, as far as they concern this request.
fn note_refusals(state: &GuestState, wanted: &Change, next: &mut Nics) {
    for name in wanted.attach.union(&wanted.remove) {
        if let Some(message) = state.interface_failures.get(name) {
            next.failures.insert(name.clone(), nics::refused(message));
        }
    }
}
