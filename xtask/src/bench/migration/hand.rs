//! Moves of a guest between two QEMUs by hand, in the clear or with QEMU's own TLS.

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use serving::{Authority, Leaf, Validity};
use tempfile::TempDir;
use tokio::time::sleep;

use super::super::{
    by_hand::{ByHand, Machine, Monitor},
    figures::milliseconds,
    silence::{Seen, observe},
};

const LIFETIME: SignedDuration = SignedDuration::from_hours(24);
const SERVER: &str = "localhost";
/// Of QEMU's progress.
const INTERVAL: Duration = Duration::from_millis(20);
/// Bytes per second; what libvirt sets as well: QEMU by itself takes 128 MiB.
const UNLIMITED: u64 = 1 << 50;
const TIMEOUT: Duration = Duration::from_mins(10);

pub(super) struct Hand {
    now: ByHand,
    certificates: TempDir,
}

impl Hand {
    pub(super) fn start(machine: &Machine) -> Result<Self> {
        let certificates = certificates()?;
        Ok(Self {
            now: ByHand::start(machine, &tls(&certificates))?,
            certificates,
        })
    }

    pub(super) fn console(&self) -> PathBuf {
        self.now.console()
    }

    /// Milliseconds from the command until QEMU says that the guest has moved.
    pub(super) async fn moves(&mut self, machine: &Machine, with_tls: bool) -> Result<(f64, Seen)> {
        let mut more = tls(&self.certificates).to_vec();
        more.extend(["-incoming", "defer"].map(str::to_owned));
        let next = ByHand::start(machine, &more)?;
        let mut target = next.monitor().await?;
        let mut source = self.now.monitor().await?;
        for (monitor, credentials) in [(&mut source, "client"), (&mut target, "server")] {
            let mut parameters =
                json!({"max-bandwidth": UNLIMITED, "tls-creds": "", "tls-hostname": ""});
            if with_tls {
                parameters["tls-creds"] = credentials.into();
                parameters["tls-hostname"] = SERVER.into();
            }
            monitor.run("migrate-set-parameters", parameters).await?;
        }
        let port = free_port()?;
        let uri = json!({"uri": format!("tcp:127.0.0.1:{port}")});
        target.run("migrate-incoming", uri.clone()).await?;
        let both = [&self.now, &next].map(|one| (one.pid(), one.log()));
        let find = || Ok(both.to_vec());
        let moved = async {
            let began = Instant::now();
            source.run("migrate", uri).await?;
            completed(&mut source, began).await?;
            let total = milliseconds(began.elapsed());
            // It writes again.
            running(&mut target, began).await?;
            sleep(INTERVAL * 5).await;
            Ok(total)
        };
        let (seen, total) = observe(find, moved).await?;
        self.now = next;
        Ok((total, seen))
    }
}

async fn completed(monitor: &mut Monitor, began: Instant) -> Result<()> {
    loop {
        let state = monitor.run("query-migrate", json!({})).await?;
        match state["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => bail!("QEMU's migration: {state}"),
            _ if began.elapsed() > TIMEOUT => bail!("QEMU's migration does not end: {state}"),
            _ => sleep(INTERVAL).await,
        }
    }
}

async fn running(monitor: &mut Monitor, began: Instant) -> Result<()> {
    loop {
        let state = monitor.run("query-status", json!({})).await?;
        if state["running"] == true {
            return Ok(());
        }
        if began.elapsed() > TIMEOUT {
            bail!("the guest does not go on: {state}");
        }
        sleep(INTERVAL).await;
    }
}

/// A port that nothing uses at this moment.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a port")?;
    Ok(listener.local_addr()?.port())
}

/// Arguments for both ends: each guest arrives once, and leaves once.
fn tls(certificates: &TempDir) -> [String; 4] {
    let object = |end: &str| {
        format!(
            "tls-creds-x509,id={end},dir={},endpoint={end},verify-peer=on",
            certificates.path().display()
        )
    };
    [
        "-object".to_owned(),
        object("server"),
        "-object".to_owned(),
        object("client"),
    ]
}

/// Under the names that QEMU expects.
fn certificates() -> Result<TempDir> {
    let directory = tempfile::Builder::new()
        .prefix("ferrovirt-tls-")
        .tempdir()
        .context("make a directory for certificates")?;
    let validity = Validity::starting(Timestamp::now(), LIFETIME);
    let authority = Authority::create("bench", validity)?;
    let put = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    };
    put("ca-cert.pem", authority.identity().certificate_pem())?;
    let server = authority.issue(&Leaf::server(SERVER, validity))?;
    let client = authority.issue(&Leaf::user("bench", &[], validity))?;
    for (end, identity) in [("server", server), ("client", client)] {
        put(&format!("{end}-cert.pem"), identity.certificate_pem())?;
        put(&format!("{end}-key.pem"), identity.key_pem())?;
    }
    Ok(directory)
}
