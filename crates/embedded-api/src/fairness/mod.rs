//! Fairness between users: the requests, watches and events of one do not use up the server for others.
//!
//! - `level` distinguishes system components from users;
//! - `queue` has the seats of each user, with a bounded queue;
//! - `current` finds the seat of a request while it is served;
//! - `rate` limits how fast a user creates events;
//! - `panics` turns a panic into the failure of its request.
//!
//! Invariants: limits are per user, so a user who reaches one delays only themself; the account that
//! authenticated counts, not one that it impersonates; components of the system have no limits.

pub(crate) mod current;
mod level;
pub(crate) mod panics;
mod queue;
mod rate;

use std::time::Duration;

use apimachinery::Status;
use axum::response::Response;
use http::Request;
use serving::upgrade;

pub(crate) use self::{level::Level, queue::Seat};
use self::{
    queue::{Limits, Queues},
    rate::Rates,
};
use crate::{
    access::{Attributes, ResourceTarget, Target},
    auth::Identity,
    error::ApiError,
};

/// Requests at once, and waiting.
const REQUESTS: Limits = Limits {
    seats: 8,
    waiting: 64,
    patience: Duration::from_secs(30),
};
/// Watches and followed logs at once.
const WATCHES: Limits = Limits {
    seats: 256,
    waiting: 0,
    patience: Duration::ZERO,
};
/// Exec, consoles and port forwards at once. Once upgraded, their connections no longer count among those of the
/// client's address.
const STREAMS: Limits = Limits {
    seats: 128,
    waiting: 0,
    patience: Duration::ZERO,
};
/// Requests at once that wait for the answer of a webhook, and that wait to ask one.
const WEBHOOKS: Limits = Limits {
    seats: 64,
    waiting: 64,
    patience: Duration::from_secs(30),
};
/// Watches of a user with much unsent data. The others wait as long as their clients do.
const LARGE: Limits = Limits {
    seats: 8,
    waiting: 256,
    patience: Duration::from_hours(1),
};
/// For clients that were refused.
const RETRY_SECONDS: u32 = 1;
/// Answered to everybody at once: monitoring must see an overloaded server.
const HEALTH: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// The state of all limits.
#[derive(Debug)]
pub(crate) struct Fairness {
    requests: Queues,
    watches: Queues,
    streams: Queues,
    webhooks: Queues,
    large: Queues,
    events: Rates,
}

impl Default for Fairness {
    fn default() -> Self {
        Self {
            requests: Queues::new(REQUESTS),
            watches: Queues::new(WATCHES),
            streams: Queues::new(STREAMS),
            webhooks: Queues::new(WEBHOOKS),
            large: Queues::new(LARGE),
            events: Rates::default(),
        }
    }
}

impl Fairness {
    /// Waits for the seat of a request; the system needs none. 429 if its user has too many.
    pub(crate) async fn admit(&self, demand: Demand) -> Result<Option<Seat>, ApiError> {
        let Demand { level, what } = demand;
        let Level::User(user) = level else {
            return Ok(None);
        };
        let (held, refusal) = match what {
            What::Health => return Ok(None),
            What::Event if !self.events.take(&user) => {
                return Err(too_many(
                    "this user writes events too fast, please try again later",
                ));
            }
            What::Watch => (
                self.watches.seat(&user).await,
                "this user has too many open watches: close some, then try again",
            ),
            What::Stream => (
                self.streams.seat(&user).await,
                "this user has too many open streams (exec, consoles, port forwards): close some, then try again",
            ),
            What::Event | What::Request => (
                self.requests.seat(&user).await,
                "too many requests of this user, please try again later",
            ),
        };
        held.map(Some).ok_or_else(|| too_many(refusal))
    }

    /// Calls a webhook without the seat of the request that it is asked about, since the webhook may send requests
    /// of the same user. The request then takes a seat at once, beyond the limit if all are taken: it may hold
    /// what others with a seat wait for.
    pub(crate) async fn without_seat<T>(
        &self,
        call: impl Future<Output = T>,
    ) -> Result<T, ApiError> {
        let Some(seat) = current::take() else {
            return Ok(call.await);
        };
        if !seat.is_of(&self.requests) {
            current::put(seat);
            return Ok(call.await);
        }
        let user = seat.user().to_owned();
        drop(seat);
        let place = self.webhooks.seat(&user).await;
        let place = place.ok_or_else(|| {
            too_many("too many requests of this user wait for webhooks, please try again later")
        })?;
        let answer = call.await;
        drop(place);
        current::put(self.requests.seat_at_once(&user));
        Ok(answer)
    }

    /// Waits until a watch may hold much unsent data. None for the system, which has no limit.
    pub(crate) async fn large(&self, level: &Level) -> Option<Seat> {
        match level {
            Level::System => None,
            Level::User(user) => self.large.seat(user).await,
        }
    }
}

/// What a request needs, and of whom.
#[derive(Debug)]
pub(crate) struct Demand {
    level: Level,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Health,
    Request,
    /// A watch or a log: lasts as long as its client wants.
    Watch,
    /// An upgraded connection to a pod or a guest: lasts as long as both sides want.
    Stream,
    /// Writes an event.
    Event,
}

impl Demand {
    pub(crate) fn of<B>(identity: &Identity, request: &Request<B>) -> Self {
        Self {
            level: Level::of(identity),
            what: What::of(request),
        }
    }
}

impl What {
    fn of<B>(request: &Request<B>) -> Self {
        if HEALTH.contains(&request.uri().path()) {
            return Self::Health;
        }
        let wanted = Attributes::of(request);
        let Target::Resource(target) = &wanted.target else {
            return Self::Request;
        };
        let reads = matches!(wanted.verb.as_str(), "get" | "list" | "watch");
        let has_events = matches!(target.group.as_str(), "" | "events.k8s.io");
        if wanted.verb == "watch" || (target.resource == "pods" && target.subresource == "log") {
            Self::Watch
        } else if upgrade::is_upgrade(request.headers()) && may_stream(target) {
            Self::Stream
        } else if has_events && target.resource == "events" && !reads {
            Self::Event
        } else {
            Self::Request
        }
    }
}

/// Whether an upgrade of this subresource opens a stream. Aggregated servers have others than ours.
fn may_stream(target: &ResourceTarget) -> bool {
    match target.subresource.as_str() {
        "" | "status" | "scale" => false,
        "exec" | "attach" | "portforward" => true,
        _ => !target.group.is_empty(),
    }
}

/// Holds the seat until the response was sent or its client is gone.
pub(crate) fn seated(response: Response, seat: Option<Seat>) -> Response {
    match seat {
        Some(seat) => response.map(|body| serving::hold(body, seat)),
        None => response,
    }
}

fn too_many(why: &str) -> ApiError {
    Status::too_many_requests(why, RETRY_SECONDS).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrades_of_subresources_are_streams() {
        for (uri, expected) in [
            ("/api/v1/namespaces/a/pods/p/exec", What::Stream),
            ("/api/v1/namespaces/a/pods/p/log", What::Watch),
            ("/api/v1/namespaces/a/pods", What::Request),
            ("/api/v1/namespaces/a/pods/p/eviction", What::Request),
            (
                "/apis/apps/v1/namespaces/a/deployments/d/status",
                What::Request,
            ),
            ("/api/v1/pods?watch=1", What::Watch),
            (
                "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/vnc",
                What::Stream,
            ),
            (
                "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/portforward/22/tcp",
                What::Stream,
            ),
        ] {
            let request = Request::get(uri)
                .header("connection", "Upgrade")
                .header("upgrade", "websocket");
            assert_eq!(What::of(&request.body(()).expect(uri)), expected, "{uri}");
        }
    }

    #[test]
    fn requests_are_told_from_watches_and_events() {
        for (method, uri, expected) in [
            ("GET", "/livez", What::Health),
            ("GET", "/api/v1/pods", What::Request),
            ("GET", "/api/v1/pods?watch=1", What::Watch),
            ("GET", "/api/v1/watch/namespaces/a/events", What::Watch),
            (
                "GET",
                "/api/v1/namespaces/a/pods/p/log?follow=true",
                What::Watch,
            ),
            ("GET", "/metrics", What::Request),
            ("POST", "/api/v1/namespaces/a/events", What::Event),
            (
                "PATCH",
                "/apis/events.k8s.io/v1/namespaces/a/events/e",
                What::Event,
            ),
            ("GET", "/api/v1/namespaces/a/events", What::Request),
            (
                "POST",
                "/apis/example.com/v1/namespaces/a/events",
                What::Request,
            ),
        ] {
            let request = Request::builder().method(method).uri(uri).body(());
            assert_eq!(What::of(&request.expect(uri)), expected, "{method} {uri}");
        }
    }
}
