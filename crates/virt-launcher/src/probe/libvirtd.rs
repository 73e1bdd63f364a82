//! A temporary libvirtd that is queried once.

use std::error::Error;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use error_chain::error_chain;
use libvirt::{Connection, DomainCapabilitiesQuery};
use tokio_util::task::TaskTracker;

use super::attempts;
use super::capabilities::{self, DomainCapabilities, HostCapabilities, HostModel};
use crate::hypervisor::Link;
use crate::monitor;
use crate::settings::Paths;

/// A cold probe of QEMU takes half a second on an idle machine.
const LIMITS: [Duration; 2] = [Duration::from_secs(20), Duration::from_mins(1)];
const END_LIMIT: Duration = Duration::from_secs(2);

/// Its responses, and the cache that it wrote.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) host: HostCapabilities,
    pub(super) domain: DomainCapabilities,
    /// Features that guests can have, by name; empty where libvirt does not know.
    pub(super) cpu_features: Vec<String>,
    pub(super) libvirt_version: u64,
    pub(super) qemu_version: u64,
    pub(super) cache: Cache,
}

/// libvirtd's cache of QEMU's capabilities.
#[derive(Debug)]
pub(super) struct Cache {
    /// A hash of QEMU's path.
    pub(super) file_name: String,
    pub(super) content: String,
}

/// Queries a libvirtd; another one, if the first does not respond in time.
pub(super) async fn query(work: &Path, virt_type: &str) -> Result<Findings, Box<dyn Error>> {
    let mut number = 0;
    let attempt = async || {
        number += 1;
        query_once(&work.join(number.to_string()), virt_type).await
    };
    attempts::repeat("the query of libvirtd", LIMITS, attempt).await?
}

/// Starts a libvirtd with all its files under `work`, queries it, and ends it.
async fn query_once(work: &Path, virt_type: &str) -> Result<Findings, Box<dyn Error>> {
    let paths = Paths::under(work);
    monitor::write_config(&paths.libvirt_config())?;
    let socket = paths.libvirt_socket();
    std::fs::create_dir_all(socket.parent().ok_or("the socket has no directory")?)?;
    std::fs::create_dir_all(paths.capability_cache())?;
    let listener = UnixListener::bind(&socket)?;
    let command = monitor::libvirtd_command(&monitor::own_program()?, &paths, listener.into());
    let mut libvirtd = tokio::process::Command::from(command)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let findings = connect_and_query(&paths, virt_type).await;
    libvirtd.start_kill()?;
    if tokio::time::timeout(END_LIMIT, libvirtd.wait())
        .await
        .is_err()
    {
        tracing::warn!("libvirtd did not exit");
    }
    findings
}

async fn connect_and_query(paths: &Paths, virt_type: &str) -> Result<Findings, Box<dyn Error>> {
    let tasks = TaskTracker::new();
    // The attempt as a whole has a limit; no call shall end it earlier.
    let [_, limit] = LIMITS;
    let Link { connection, .. } = Link::open_within(limit, &paths.libvirt_socket(), &tasks).await?;
    let connection = connection.with_limit(limit);
    let query = DomainCapabilitiesQuery {
        arch: Some("x86_64"),
        machine: Some("q35"),
        virt_type: Some(virt_type),
        emulator: None,
    };
    let domain = DomainCapabilities::parse(&connection.domain_capabilities(query).await?)?;
    let findings = Findings {
        cpu_features: cpu_features(&connection, query, domain.host_model.as_ref()).await,
        domain,
        host: HostCapabilities::parse(&connection.capabilities().await?)?,
        libvirt_version: connection.lib_version().await?,
        qemu_version: connection.hypervisor_version().await?,
        cache: read_cache(&paths.capability_cache())?,
    };
    connection.close().await?;
    Ok(findings)
}

async fn cpu_features(
    connection: &Connection,
    query: DomainCapabilitiesQuery<'_>,
    model: Option<&HostModel>,
) -> Vec<String> {
    let Some(model) = model else {
        return Vec::new();
    };
    let expanded = match connection.expanded_cpu(query, &model.xml).await {
        Ok(expanded) => expanded,
        Err(error) => {
            let error = error_chain(&error);
            tracing::warn!(error, "failed to query the CPU's features");
            return Vec::new();
        }
    };
    capabilities::cpu_features(&expanded).unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to parse the CPU's features");
        Vec::new()
    })
}

/// libvirtd probed every QEMU of this image, one per architecture; the guest's is the one with the
/// machine type.
fn read_cache(dir: &Path) -> Result<Cache, Box<dyn Error>> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let content = std::fs::read_to_string(&path)?;
        if content.contains("<arch>x86_64</arch>") && content.contains("pc-q35-") {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            return Ok(Cache {
                file_name: name.to_owned(),
                content,
            });
        }
    }
    Err("libvirtd has written no cache of capabilities".into())
}
