//! One of many does the work: election by a lease.
//!
//! **Invariants**: the work is stopped, and has ended, before anybody else may take the lease; a
//! holder that goes in order gives it back, so that the next does not wait. Clocks are not
//! compared: a lease is free when nothing in it changed for its duration by our own clock.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::apply::{WriteError, create, merge};
use crate::chain::error_chain;
use crate::{Clock, Key};

/// How long a lease is good that is not renewed.
const DURATION: Duration = Duration::from_secs(15);
/// How long a holder goes on that cannot renew: it must have ended before others begin.
const DEADLINE: Duration = Duration::from_secs(8);
const RENEW: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(2);

/// Which lease, and who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    pub namespace: String,
    pub name: String,
    /// Of this candidate alone. One that comes back under the same name has the lease at once,
    /// which is right only where no two can run.
    pub identity: String,
}

/// Runs `work` while we hold the lease, again and again until stopped. The token it gets is
/// cancelled when the lease is lost or the stop is asked for; it has `DURATION` less `DEADLINE`
/// to end then.
pub async fn lead<F: Future<Output = ()>>(
    client: Client,
    election: Election,
    clock: Clock,
    stop: CancellationToken,
    mut work: impl FnMut(CancellationToken) -> F,
) {
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
                tracing::info!(identity = candidate.election.identity, "leads");
                let token = stop.child_token();
                candidate.hold(held, &token, work(token.clone())).await;
                watched = Watched::default();
            }
            Some(Ok(None)) => wait(&stop).await,
            Some(Err(error)) => {
                // Faster candidates and servers that restart are daily business.
                tracing::debug!(error = error_chain(&error), "cannot take the lease");
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

/// What another holder last wrote, and since when we know it.
#[derive(Debug, Default)]
struct Watched(Option<(Option<String>, Instant)>);

#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error("look at the lease")]
    Look(#[source] Box<kube::Error>),
    #[error("write the lease")]
    Write(#[source] WriteError),
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// There is none.
    Create,
    /// It is ours already, or free.
    Take,
    Wait,
}

fn judge(lease: Option<&Lease>, identity: &str, watched: &mut Watched, now: Instant) -> Verdict {
    let Some(lease) = lease else {
        return Verdict::Create;
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder.is_empty() || holder == identity {
        return Verdict::Take;
    }
    let version = lease.resource_version();
    match &watched.0 {
        Some((seen, since)) if *seen == version => {
            let seconds = spec.lease_duration_seconds.unwrap_or(0);
            let duration = u64::try_from(seconds).map_or(DURATION, Duration::from_secs);
            if now.duration_since(*since) >= duration {
                Verdict::Take
            } else {
                Verdict::Wait
            }
        }
        _ => {
            watched.0 = Some((version, now));
            Verdict::Wait
        }
    }
}

impl Candidate {
    async fn try_once(&self, watched: &mut Watched) -> Result<Option<Held>, LeaseError> {
        let at = Instant::now();
        let lease = self.api.get_opt(&self.election.name).await;
        let lease = lease.map_err(|error| LeaseError::Look(Box::new(error)))?;
        let identity = &self.election.identity;
        // Known since the answer, which may have been long in coming, and not since the question.
        let written = match judge(lease.as_ref(), identity, watched, Instant::now()) {
            Verdict::Wait => return Ok(None),
            Verdict::Create => {
                let spec = self.spec(self.clock.now(), 0);
                let body = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self.election.name, "namespace": self.election.namespace},
                    "spec": spec,
                });
                create(&self.api, identity, &self.key, &body).await
            }
            Verdict::Take => {
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

    /// Works until the lease is lost or the stop is asked for.
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
        tracing::info!(identity = self.election.identity, "no longer leads");
        self.release(&held).await;
    }

    /// Renews once it is time. `false` when the lease is lost.
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
                // The answer to an earlier try may have been lost, or somebody else has it.
                Ok(Err(WriteError::Conflict { .. })) => match self.still_ours(left).await {
                    Some(version) => held.version = Some(version),
                    None => return false,
                },
                Ok(Err(WriteError::NotFound { .. })) | Err(_) => return false,
                Ok(Err(error)) => {
                    tracing::debug!(error = error_chain(&error), "cannot renew the lease");
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
            // It was lost, or runs out by itself.
            tracing::debug!(error = error_chain(&error), "lease is not given back");
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
    async fn a_lease_is_taken_when_free_or_silent_for_its_duration() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watched = Watched::default();
        let mut judge = |lease: Option<Lease>, now| judge(lease.as_ref(), "a", &mut watched, now);
        assert_eq!(judge(None, at(0)), Verdict::Create);
        assert_eq!(judge(Some(lease(Some("a"), "1")), at(0)), Verdict::Take);
        assert_eq!(judge(Some(lease(Some(""), "1")), at(0)), Verdict::Take);
        assert_eq!(judge(Some(lease(None, "1")), at(0)), Verdict::Take);
        assert_eq!(judge(Some(lease(Some("b"), "2")), at(0)), Verdict::Wait);
        assert_eq!(judge(Some(lease(Some("b"), "2")), at(14)), Verdict::Wait);
        // Renewed meanwhile.
        assert_eq!(judge(Some(lease(Some("b"), "3")), at(15)), Verdict::Wait);
        assert_eq!(judge(Some(lease(Some("b"), "3")), at(29)), Verdict::Wait);
        assert_eq!(judge(Some(lease(Some("b"), "3")), at(30)), Verdict::Take);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_not_taken_because_the_answer_about_it_was_slow() {
        let asked = Arc::new(AtomicU32::new(0));
        let service = tower::service_fn({
            let asked = Arc::clone(&asked);
            move |request: http::Request<kube::client::Body>| {
                let asked = Arc::clone(&asked);
                async move {
                    assert_eq!(request.method(), http::Method::GET, "it was taken");
                    let version = match asked.fetch_add(1, Ordering::Relaxed) {
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
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }
}
