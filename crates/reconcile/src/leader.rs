//! Leader election by a lease, where several processes can run.
//!
//! **Invariants**: the work has ended before another candidate may take the lease; a holder that
//! stops in an orderly way releases the lease, so that the next leader does not wait. Clocks are
//! not compared: a lease is free when it has not changed for its duration by our own clock.

use std::fmt;
use std::time::Duration;

use error_chain::error_chain;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::apply::{WriteError, create, merge};
use crate::{Clock, Key};

/// How long a lease is valid without renewal.
const DURATION: Duration = Duration::from_secs(15);
/// How long a holder works on without renewal: it must have ended before others begin.
const DEADLINE: Duration = Duration::from_secs(8);
const RENEW: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(2);

/// The lease, and the identity of this candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    pub namespace: String,
    pub name: String,
    /// Unique to this candidate. A candidate that restarts under the same identity gets the lease
    /// at once, which is right only where no two can run.
    pub identity: String,
}

/// How a process knows that it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// Something else keeps a second process from running, as the lock of a single host: there is no lease.
    Sole,
    Elected(Election),
}

/// Runs `work` whenever we lead, until stopped. The token of `work` is cancelled when the lease is lost or on
/// `stop`; the work then has `DURATION` less `DEADLINE` to end.
pub async fn lead<F: Future<Output = ()>>(
    client: Client,
    leadership: Leadership,
    clock: Clock,
    stop: CancellationToken,
    mut work: impl FnMut(CancellationToken) -> F,
) {
    let election = match leadership {
        Leadership::Elected(election) => election,
        Leadership::Sole => return work(stop.child_token()).await,
    };
    let candidate = Candidate {
        api: Api::namespaced(client, &election.namespace),
        key: Key::new(&election.namespace, &election.name),
        election,
        clock,
    };
    let mut watched = Watched::default();
    while !stop.is_cancelled() {
        let tried = stop.run_until_cancelled(candidate.try_once(&mut watched));
        match tried.await {
            None => return,
            Some(Ok(Some(held))) => {
                tracing::info!(identity = candidate.election.identity, "became the leader");
                let token = stop.child_token();
                candidate.hold(held, &token, work(token.clone())).await;
                watched = Watched::default();
            }
            Some(Ok(None)) => wait(&stop).await,
            Some(Err(error)) => {
                // Faster candidates and restarting servers are normal.
                tracing::debug!(error = error_chain(&error), "failed to take the lease");
                wait(&stop).await;
            }
        }
    }
}

async fn wait(stop: &CancellationToken) {
    let _stopped = stop.run_until_cancelled(sleep(RETRY)).await.is_none();
}

struct Candidate {
    api: Api<Lease>,
    key: Key,
    election: Election,
    clock: Clock,
}

/// The lease as last written by us.
struct Held {
    version: Option<String>,
    at: Instant,
}

/// The version that another holder last wrote, and when we first observed it.
#[derive(Debug, Default)]
struct Watched(Option<(Option<String>, Instant)>);

#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error("read the lease")]
    Read(#[source] Box<kube::Error>),
    #[error("write the lease")]
    Write(#[source] WriteError),
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// There is no lease.
    Create,
    /// The lease is ours already, or free.
    Take,
    Wait,
}

fn decide(lease: Option<&Lease>, identity: &str, watched: &mut Watched, now: Instant) -> Decision {
    let Some(lease) = lease else {
        return Decision::Create;
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder.is_empty() || holder == identity {
        return Decision::Take;
    }
    let version = lease.resource_version();
    match &watched.0 {
        Some((observed, since)) if *observed == version => {
            let seconds = spec.lease_duration_seconds.unwrap_or(0);
            let duration = u64::try_from(seconds).map_or(DURATION, Duration::from_secs);
            if now.duration_since(*since) >= duration {
                Decision::Take
            } else {
                Decision::Wait
            }
        }
        _ => {
            watched.0 = Some((version, now));
            Decision::Wait
        }
    }
}

impl Candidate {
    async fn try_once(&self, watched: &mut Watched) -> Result<Option<Held>, LeaseError> {
        let at = Instant::now();
        let lease = self.api.get_opt(&self.election.name).await;
        let lease = lease.map_err(|error| LeaseError::Read(Box::new(error)))?;
        let identity = &self.election.identity;
        // Observed at the time of the response, which may be much later than the request.
        let written = match decide(lease.as_ref(), identity, watched, Instant::now()) {
            Decision::Wait => return Ok(None),
            Decision::Create => {
                let spec = self.spec(self.clock.now(), 0);
                let body = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self.election.name, "namespace": self.election.namespace},
                    "spec": spec,
                });
                create(&self.api, identity, &self.key, &body).await
            }
            Decision::Take => {
                let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
                let changes = spec.and_then(|spec| spec.lease_transitions).unwrap_or(0);
                let body = json!({
                    "metadata": {"resourceVersion": lease.as_ref().and_then(Lease::resource_version)},
                    "spec": self.spec(self.clock.now(), changes.saturating_add(1)),
                });
                merge(&self.api, identity, &self.key, &body).await
            }
        };
        let written = written.map_err(LeaseError::Write)?;
        let version = written.resource_version();
        Ok(Some(Held { version, at }))
    }

    fn spec(&self, now: Timestamp, changes: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.election.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(changes),
            ..LeaseSpec::default()
        }
    }

    /// Works until the lease is lost or the token is cancelled.
    async fn hold(
        &self,
        mut held: Held,
        token: &CancellationToken,
        working: impl Future<Output = ()>,
    ) {
        let renewing = async {
            while let Some(true) = token.run_until_cancelled(self.renew(&mut held)).await {}
            token.cancel();
        };
        tokio::join!(working, renewing);
        tracing::info!(identity = self.election.identity, "stopped leading");
        self.release(&held).await;
    }

    /// Renews the lease when its time has come. `false` when the lease is lost.
    async fn renew(&self, held: &mut Held) -> bool {
        sleep(RENEW.saturating_sub(held.at.elapsed())).await;
        loop {
            let at = Instant::now();
            let left = DEADLINE.saturating_sub(held.at.elapsed());
            let body = json!({
                "metadata": {"resourceVersion": held.version},
                "spec": {"renewTime": MicroTime(self.clock.now())},
            });
            let renewed = merge(&self.api, &self.election.identity, &self.key, &body);
            match timeout(left, renewed).await {
                Ok(Ok(lease)) => {
                    held.version = lease.resource_version();
                    held.at = at;
                    return true;
                }
                // The response to an earlier try may have been lost, or another candidate has the lease.
                Ok(Err(WriteError::Conflict { .. })) => match self.still_ours(left).await {
                    Some(version) => held.version = Some(version),
                    None => return false,
                },
                Ok(Err(WriteError::NotFound { .. })) | Err(_) => return false,
                Ok(Err(error)) => {
                    tracing::debug!(error = error_chain(&error), "failed to renew the lease");
                    sleep(RETRY).await;
                }
            }
            if held.at.elapsed() >= DEADLINE {
                return false;
            }
        }
    }

    async fn still_ours(&self, left: Duration) -> Option<String> {
        let lease = timeout(left, self.api.get_opt(&self.election.name)).await;
        let lease = lease.ok()?.ok()??;
        let holder = lease.spec.as_ref()?.holder_identity.as_ref()?;
        (*holder == self.election.identity)
            .then(|| lease.resource_version())
            .flatten()
    }

    async fn release(&self, held: &Held) {
        let free = Value::Null;
        let body = json!({
            "metadata": {"resourceVersion": held.version},
            "spec": {"holderIdentity": free},
        });
        let released = merge(&self.api, &self.election.identity, &self.key, &body);
        if let Ok(Err(error)) = timeout(RETRY, released).await {
            // Another candidate has the lease, or it expires by itself.
            tracing::debug!(error = error_chain(&error), "failed to release the lease");
        }
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("election", &self.election)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn lease(holder: Option<&str>, version: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_owned());
        lease.spec = Some(LeaseSpec {
            holder_identity: holder.map(ToOwned::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        });
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn lease_is_taken_when_free_or_unchanged_for_its_duration() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watched = Watched::default();
        let mut choose = |lease: Option<Lease>, now| decide(lease.as_ref(), "a", &mut watched, now);
        assert_eq!(choose(None, at(0)), Decision::Create);
        assert_eq!(choose(Some(lease(Some("a"), "1")), at(0)), Decision::Take);
        assert_eq!(choose(Some(lease(Some(""), "1")), at(0)), Decision::Take);
        assert_eq!(choose(Some(lease(None, "1")), at(0)), Decision::Take);
        assert_eq!(choose(Some(lease(Some("b"), "2")), at(0)), Decision::Wait);
        assert_eq!(choose(Some(lease(Some("b"), "2")), at(14)), Decision::Wait);
        // Renewed.
        assert_eq!(choose(Some(lease(Some("b"), "3")), at(15)), Decision::Wait);
        assert_eq!(choose(Some(lease(Some("b"), "3")), at(29)), Decision::Wait);
        assert_eq!(choose(Some(lease(Some("b"), "3")), at(30)), Decision::Take);
    }

    #[tokio::test(start_paused = true)]
    async fn sole_process_leads_without_a_lease_until_it_is_stopped() {
        let requests = Arc::new(AtomicU32::new(0));
        let service = tower::service_fn({
            let requests = Arc::clone(&requests);
            move |_: http::Request<kube::client::Body>| {
                requests.fetch_add(1, Ordering::Relaxed);
                async { Ok::<_, Infallible>(http::Response::new(kube::client::Body::empty())) }
            }
        });
        let client = Client::new(service, "default");
        let (stop, started) = (CancellationToken::new(), AtomicU32::new(0));
        let work = |token: CancellationToken| {
            started.fetch_add(1, Ordering::Relaxed);
            async move { token.cancelled().await }
        };
        let leading = lead(
            client,
            Leadership::Sole,
            Clock::system(),
            stop.clone(),
            work,
        );
        let stopping = async {
            sleep(DURATION * 10).await;
            stop.cancel();
        };
        tokio::join!(leading, stopping);
        assert_eq!(started.load(Ordering::Relaxed), 1);
        assert_eq!(requests.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_response_does_not_make_a_lease_expire() {
        let requests = Arc::new(AtomicU32::new(0));
        let service = tower::service_fn({
            let requests = Arc::clone(&requests);
            move |request: http::Request<kube::client::Body>| {
                let requests = Arc::clone(&requests);
                async move {
                    assert_eq!(request.method(), http::Method::GET, "the lease was taken");
                    let version = match requests.fetch_add(1, Ordering::Relaxed) {
                        0 => "1",
                        1 => {
                            sleep(DURATION * 4).await;
                            "2"
                        }
                        _ => "2",
                    };
                    let lease = serde_json::to_vec(&lease(Some("b"), version)).unwrap();
                    Ok::<_, Infallible>(http::Response::new(kube::client::Body::from(lease)))
                }
            }
        });
        let candidate = Candidate {
            api: Api::namespaced(Client::new(service, "default"), "default"),
            key: Key::new("default", "work"),
            election: Election {
                namespace: "default".to_owned(),
                name: "work".to_owned(),
                identity: "a".to_owned(),
            },
            clock: Clock::system(),
        };
        let mut watched = Watched::default();
        for _ in 0..3 {
            let tried = candidate.try_once(&mut watched).await.unwrap();
            assert!(tried.is_none());
        }
        assert_eq!(requests.load(Ordering::Relaxed), 3);
    }
}
