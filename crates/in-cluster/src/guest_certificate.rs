//! The certificate that virt-handler shows to servers in guests: requested while the feature gate for a vsock is on,
//! and renewed.
//!
//! **Invariant**: virt-handler works without it; only connections with TLS to guests wait for it.

use std::{pin::pin, time::Duration};

use anyhow::{Result, ensure};
use error_chain::error_chain;
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serving::believes_client;
use tokio::sync::watch;
use virt_handler::{GuestCredentials, VSOCK_CLIENT, VSOCK_GATE};

use crate::{
    authority,
    certificate::{request, trust},
    changes::changes,
    pause::pause,
    run::Process,
    signer::USAGES_IN_GUESTS,
};

/// Interval of the checks of the bundle and of the certificate's validity.
const CHECK_INTERVAL: Duration = Duration::from_mins(10);
/// Interval after a failed check. Each attempt leaves a request behind.
const RETRY_INTERVAL: Duration = Duration::from_mins(2);
/// The replicas of virt-api start to use a new authority at nearly the same time.
const DEBOUNCE: Duration = Duration::from_secs(2);
/// A certificate that is valid for less than this time is replaced.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 3);

/// The current certificate, kept as long as the process runs.
pub(crate) fn keep(process: &Process, node: &str) -> watch::Receiver<Option<GuestCredentials>> {
    let (sender, receiver) = watch::channel(None);
    let (process, node) = (process.clone(), node.to_owned());
    process.tasks.clone().spawn(async move {
        tokio::select! {
            () = follow(&process, &node, &sender) => {}
            () = process.stop.cancelled() => {}
        }
    });
    receiver
}

async fn follow(process: &Process, node: &str, sender: &watch::Sender<Option<GuestCredentials>>) {
    let maps: Api<ConfigMap> = Api::namespaced(process.client.clone(), &process.namespace);
    let mut bundles = pin!(changes(maps, authority::NAME));
    let mut cluster = process.cluster.changes();
    loop {
        let is_on = cluster.wait_for(|config| config.has_gate(VSOCK_GATE)).await;
        if is_on.map(drop).is_err() {
            return;
        }
        let began = Timestamp::now();
        let held = sender.borrow().clone();
        let (wait, until) = match Box::pin(renew(process, node, held.as_ref())).await {
            Ok(None) => (CHECK_INTERVAL, due(held.as_ref())),
            Ok(next) => {
                let until = due(next.as_ref());
                sender.send_replace(next);
                (CHECK_INTERVAL, until)
            }
            Err(error) => {
                let chain: &(dyn std::error::Error + 'static) = error.as_ref();
                tracing::warn!(
                    error = error_chain(chain),
                    "failed to obtain the certificate for servers in guests, retrying"
                );
                // Also when the certificate is due: no attempt comes earlier.
                (RETRY_INTERVAL, None)
            }
        };
        let times = began..until.unwrap_or(Timestamp::MAX);
        tokio::select! {
            () = pause(wait, &times, Timestamp::now) => {}
            _change = bundles.next() => tokio::time::sleep(DEBOUNCE).await,
        }
    }
}

/// When a certificate has to be replaced; `None` without one that can be read.
fn due(held: Option<&GuestCredentials>) -> Option<Timestamp> {
    let until = held?.identity.valid_until().ok()?;
    until.checked_sub(RENEW_BEFORE).ok()
}

/// New credentials if the current ones must be replaced.
async fn renew(
    process: &Process,
    node: &str,
    held: Option<&GuestCredentials>,
) -> Result<Option<GuestCredentials>> {
    let authorities = trust(&process.client, &process.namespace).await?;
    let now = Timestamp::now();
    if let Some(held) = held
        && due(Some(held)).is_some_and(|due| now < due)
        && believes_client(&authorities, &held.identity, VSOCK_CLIENT, now)?
    {
        let changed = (authorities != held.authorities).then(|| GuestCredentials {
            identity: held.identity.clone(),
            authorities,
        });
        return Ok(changed);
    }
    let (name, identity) = request(process, node, VSOCK_CLIENT, &USAGES_IN_GUESTS).await?;
    ensure!(
        believes_client(&authorities, &identity, VSOCK_CLIENT, Timestamp::now())?,
        "the certificate of request {name} is not for servers in guests: virt-api may be of an older version"
    );
    Ok(Some(GuestCredentials {
        identity,
        authorities,
    }))
}

#[cfg(test)]
mod tests {
    use serving::{Authority, Leaf, Validity};

    use super::*;

    #[test]
    fn certificate_is_due_three_days_before_its_end() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let validity = Validity::starting(now, SignedDuration::from_hours(24 * 7));
        let authority = Authority::create("a", validity).unwrap();
        let held = GuestCredentials {
            identity: authority
                .issue(&Leaf::user(VSOCK_CLIENT, &[], validity))
                .unwrap(),
            authorities: authority.trust(),
        };
        let expected = now.checked_add(SignedDuration::from_hours(24 * 4)).unwrap();
        assert_eq!(due(Some(&held)), Some(expected));
        assert_eq!(due(None), None);
    }
}
