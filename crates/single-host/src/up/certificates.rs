//! The certificates of the running process: issued again before they end, when the clock was set, and when the
//! addresses of the host have changed.
//!
//! **Invariant**: a replaced certificate counts for new connections; open ones stay.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use embedded_api::{EmbeddedApi, KubeletClient};
use error_chain::error_chain;
use jiff::Timestamp;
use parking_lot::Mutex;
use pod_network::PodNetwork;
use serving::{ClientCertificates, HttpsClient, Identity, TlsSource};
use tokio_util::sync::CancellationToken;

use crate::identities::{self, Identities, Names};

/// Interval of the checks, which are cheap: a clock that was set breaks TLS until the next one.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// Replaces old certificates by new ones.
type Replace = Box<dyn Fn(&Identities) -> Result<()> + Send + Sync>;

/// The current certificates and everything that uses them.
pub(super) struct Certificates {
    dir: PathBuf,
    names: Names,
    current: Identities,
    users: Mutex<Vec<Replace>>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    pub(super) fn load_or_create(dir: PathBuf, names: Names) -> Result<Self> {
        let current = identities::load_or_create(&dir, &names, Timestamp::now())?;
        Ok(Self {
            dir,
            names,
            current,
            users: Mutex::default(),
        })
    }

    /// Those that were issued at the start.
    pub(super) fn first(&self) -> &Identities {
        &self.current
    }

    /// Calls `replace` with all later certificates.
    pub(super) fn on_renewal(
        &self,
        replace: impl Fn(&Identities) -> Result<()> + Send + Sync + 'static,
    ) {
        self.users.lock().push(Box::new(replace));
    }

    /// TLS settings of a server with this certificate and these clients.
    pub(super) fn server(
        &self,
        identity: fn(&Identities) -> &Identity,
        clients: fn(&Identities) -> ClientCertificates,
    ) -> Result<TlsSource> {
        let first = self.first();
        let (swap, source) = TlsSource::swappable(identity(first), &clients(first))?;
        self.on_renewal(move |next| Ok(swap.replace(identity(next), &clients(next))?));
        Ok(source)
    }

    /// Keeps the certificates of a client current.
    pub(super) fn keep_client(&self, client: HttpsClient, identity: fn(&Identities) -> &Identity) {
        self.on_renewal(move |next| Ok(client.replace(&next.servers, Some(identity(next)))?));
    }

    /// Keeps the certificates of the API server's own requests current.
    pub(super) fn keep_api(&self, api: EmbeddedApi) {
        self.on_renewal(move |next| {
            api.replace_certificates(of_api(next));
            Ok(())
        });
    }

    /// Checks the certificates until `stop`.
    pub(super) async fn keep(mut self, network: PodNetwork, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.check(&network).await {
                let chain: &(dyn std::error::Error + 'static) = error.as_ref();
                tracing::error!(error = error_chain(chain), "certificates are not renewed");
            }
        }
    }

    async fn check(&mut self, network: &PodNetwork) -> Result<()> {
        let addresses = network
            .host_addresses()
            .await
            .context("list the addresses of this host")?;
        self.renew_if_due(addresses, Timestamp::now())
    }

    fn renew_if_due(&mut self, host: Vec<IpAddr>, now: Timestamp) -> Result<()> {
        let names = Names {
            host: if self.names.listen.is_unspecified() {
                host
            } else {
                Vec::new()
            },
            ..self.names.clone()
        };
        if names == self.names && !self.current.are_due(now) {
            return Ok(());
        }
        let next = identities::load_or_create(&self.dir, &names, now)?;
        // A user that fails, such as a file that cannot be written, does not keep the others from theirs.
        let replaced: Vec<_> = self
            .users
            .lock()
            .iter()
            .map(|replace| replace(&next))
            .collect();
        replaced.into_iter().collect::<Result<()>>()?;
        tracing::info!("certificates were issued again");
        (self.current, self.names) = (next, names);
        Ok(())
    }
}

/// What the API server presents to others, and what pods trust.
pub(super) fn of_api(identities: &Identities) -> embedded_api::Certificates {
    embedded_api::Certificates {
        front_proxy: Some(identities.front_proxy.clone()),
        kubelet: Some(KubeletClient {
            trust: identities.servers.clone(),
            identity: identities.kubelet_client.clone(),
        }),
        root_ca: Some(identities.users.pem().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::SignedDuration;

    use super::*;

    fn names(listen: &str) -> Names {
        let address = |text: &str| text.parse().expect("an address");
        Names {
            listen: address(listen),
            host: vec![],
            further: vec![],
            node: "here".to_owned(),
            node_address: address("10.244.0.1"),
            service: address("10.96.0.1"),
        }
    }

    /// Certificates, and the certificates of the API server that were put in place since.
    fn certificates(
        dir: &tempfile::TempDir,
        listen: &str,
    ) -> (Certificates, Arc<Mutex<Vec<String>>>) {
        let made = Certificates::load_or_create(dir.path().to_owned(), names(listen));
        let made = made.expect("certificates");
        let replaced = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&replaced);
        made.on_renewal(move |next| {
            seen.lock()
                .push(next.api_server.certificate_pem().to_owned());
            Ok(())
        });
        (made, replaced)
    }

    #[test]
    fn certificates_are_replaced_when_the_clock_was_set() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut certificates, replaced) = certificates(&dir, "127.0.0.1");
        let now = Timestamp::now();
        certificates.renew_if_due(vec![], now).expect("checked");
        assert!(replaced.lock().is_empty(), "nothing is due");
        let years = |years: i64| now + SignedDuration::from_hours(24 * 365 * years);
        for (time, expected) in [
            (years(20), 1),
            (years(20), 1),
            (years(-20), 2),
            (now, 3),
            (now, 3),
        ] {
            certificates.renew_if_due(vec![], time).expect("checked");
            assert_eq!(replaced.lock().len(), expected, "{time}");
        }
    }

    #[test]
    fn certificate_follows_the_addresses_of_a_host_that_listens_at_all() {
        let address: IpAddr = [192, 0, 2, 7].into();
        for (listen, expected) in [("0.0.0.0", 1), ("127.0.0.1", 0)] {
            let dir = tempfile::tempdir().expect("a directory");
            let (mut certificates, replaced) = certificates(&dir, listen);
            for _ in 0..2 {
                let renewed = certificates.renew_if_due(vec![address], Timestamp::now());
                renewed.expect("checked");
                assert_eq!(replaced.lock().len(), expected, "{listen}");
            }
        }
    }
}
